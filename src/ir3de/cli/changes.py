"""A router before and after a change, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ir3de.cli.output import FAINT, NONE_FITS, Output, line, one_line, percent, table
from ir3de.cli.trials import in_few_words

if TYPE_CHECKING:
    from ir3de.evaluation.change import ChangeReport, RouterFigures

MAX_PROMPT_CHARACTERS = 60

scorer_choice_option = click.option(
    "--scorer",
    "scorer_choice",
    type=click.Choice(["keep", "choose"]),
    default="keep",
    show_default=True,
    help="Keep the scorer, or choose it again as `fit` or `tune` did.",
)


def show_change(out: Output, found: ChangeReport) -> None:
    """Print scorer, accuracy and confidence before and after, and the prompts that go elsewhere."""
    before, after = found.before, found.after
    was, now = _describe(before), _describe(after)
    now["scorer"] = "as before" if now["scorer"] == was["scorer"] else now["scorer"]
    rows = [(name, was[name], now[name]) for name in was]
    if (difference := found.difference) is not None:
        value, low, high = (f"{100 * share:+.1f}" for share in (difference.value, difference.low, difference.high))
        rows.append((f"on the {found.compared:,} prompts compared", "", f"{value} points  {low} to {high}"))
    out.note(table(" ", "before", "after", rows=rows), "")
    if not found.compared:
        out.note(line(("no kept prompts to compare: what goes elsewhere is not known", FAINT)), "")
        return
    share = f"{found.moved:,} of {found.compared:,} kept prompts go elsewhere"
    out.note(line((share, ""), (", each routed by a fit that did not see it", FAINT)))
    if found.moved:
        examples = [
            (one_line(one.prompt, MAX_PROMPT_CHARACTERS), one.expert, one.before or NONE_FITS, one.after or NONE_FITS)
            for one in found.examples
        ]
        out.note(table("prompt", "its expert", "before", "after", rows=examples))
    out.note("")


def _describe(figures: RouterFigures) -> dict[str, str]:
    """The rows of the table."""
    accuracy, share = percent(None), figures.accuracy
    if share is not None:
        accuracy = f"{percent(share.value)}  {100 * share.low:.1f} to {100 * share.high:.1f}"
    return {
        "scorer": f"{in_few_words(figures.scorer)}; {in_few_words(figures.selector)}",
        "held-out accuracy": accuracy,
        "mean confidence": percent(figures.mean_confidence),
    }
