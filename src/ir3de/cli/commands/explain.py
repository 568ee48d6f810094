"""explain: a prompt with every token in the colour of its vote, and the tokens that decided."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.commands.route import why_abstained
from ir3de.cli.costs import utility_table, warn_without_costs, weight_option
from ir3de.cli.options import output_options, router_argument
from ir3de.cli.output import FAINT, Output, colour_of, heading, printable, styled, table, worth

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ir3de.router import Router
    from ir3de.routing.explanation import Explanation, TokenVote

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
WIDTH_WITHOUT_SCORES = 32  # a token, how often, its entropy
LONGEST_NAME = 18  # of an expert in a table


@click.command()
@router_argument
@click.argument("text", required=False, metavar="[TEXT|-]")
@click.option(
    "--tokens",
    "rows",
    type=click.IntRange(min=0),
    metavar="N",
    default=10,
    show_default=True,
    help="Rows of the table.",
)
@weight_option("What a unit of a cost is worth this time: price=0.1; instead of the router's own.")
@output_options
def explain(router_path: Path, text: str | None, rows: int, weights: Mapping[str, float], out: Output) -> None:
    """Show which tokens of a prompt decided, and for whom.

    Without TEXT, all of standard input is one prompt. Every token has the colour of the expert it votes for; one
    that did not count is dim. Without colours, letters below the tokens say the same.

    \b
    Example:
      ir3de explain router "Can my landlord evict me?"
    """
    from ir3de.router import Router

    router = Router.load(router_path)
    warn_without_costs(out, router, weights)
    explanation = router.explain(_text(text), weights=weights or None)
    out.json(explanation.to_dict())
    if not out.as_json:
        show_explanation(out, router, explanation, rows)


def _text(text: str | None) -> str:
    if text is not None and text != "-":
        return text
    if text is None and sys.stdin.isatty():
        raise click.UsageError("nothing to explain: write the prompt in quotes, or pipe it")
    from ir3de.corpora.streams import Source, decode_utf8

    return decode_utf8(sys.stdin.buffer.read(), Source(None, "-")).rstrip("\n")


def show_explanation(out: Output, router: Router, explanation: Explanation, rows: int) -> None:
    """The prompt, the legend, and a table of the tokens that decided most."""
    decision = explanation.decision
    coloured = out.console.color_system is not None and not out.console.no_color
    if coloured:
        out.result(_coloured_prompt(explanation))
    else:
        out.result(*_lettered_prompt(explanation, out.console))
    if unseen := decision.tokens - len(explanation.tokens):
        out.result(styled((f"… and {unseen:,} more tokens, beyond the first {len(explanation.tokens):,}", FAINT)))
    out.result(styled(("", "")), _legend(explanation, coloured))
    if decision.penalties is not None:
        out.note("", utility_table(decision, router))
    if decision.abstained:
        out.warn(why_abstained(decision))
    elif rows:
        title, deciding = _deciding(router, explanation)
        out.note(heading(title), _token_table(explanation, deciding[:rows], out.console.width))


def _coloured_prompt(explanation: Explanation) -> Text:
    colours = {name: colour_of(index) for index, name in enumerate(explanation.experts)}
    return styled(
        *(
            (printable(token.text), colours[token.vote] if token.counted else f"dim {FAINT}")
            for token in explanation.tokens
        )
    )


def _lettered_prompt(explanation: Explanation, console: Console) -> Iterator[Text]:
    """The prompt in lines, below each the letters of its tokens' votes."""
    letters = _letters(explanation.experts)
    # the letter stands where a style would, so that rich carries it along while it breaks the lines
    prompt = styled(
        *((printable(token.text), letters[token.vote] if token.counted else "") for token in explanation.tokens)
    )
    for line in prompt.wrap(console, console.width):
        yield from (styled((line.plain, "")), styled((_marks(line), FAINT)))


def _marks(line: Text) -> str:
    """The letters below a line, as wide as what is above them."""
    from rich.cells import cell_len

    marks = [" "] * len(line.plain)
    for span in line.spans:
        marks[span.start : span.end] = str(span.style) * (span.end - span.start)
    cells = zip(line.plain, marks, strict=True)
    return "".join(" " if character == " " else mark * cell_len(character) for character, mark in cells).rstrip()


def _letters(experts: Sequence[str]) -> dict[str, str]:
    return {name: LETTERS[index % len(LETTERS)] for index, name in enumerate(experts)}


def _legend(explanation: Explanation, coloured: bool) -> Text:
    """Every expert with its share, best first, in its colour or with its letter."""
    letters = _letters(explanation.experts)
    parts: list[tuple[str, str]] = []
    for place, (expert, share) in enumerate(explanation.decision.ranking):
        mark = "■" if coloured else letters[expert]
        parts += [
            (f"{mark} ", colour_of(explanation.experts.index(expert))),
            (expert, "bold" if place == 0 else ""),
            (f" {worth(explanation.decision, share)}   ", "" if place == 0 else FAINT),
        ]
    parts[-1] = (parts[-1][0].rstrip(), parts[-1][1])
    return styled(*parts)


def _deciding(router: Router, explanation: Explanation) -> tuple[str, list[TokenVote]]:
    """The counted tokens, each once, those that decided most first; and how that was measured."""
    from ir3de.selectors import Average

    distinct = list({token.id: token for token in explanation.tokens if token.counted}.values())
    if not isinstance(router.selector, Average):
        return "The surest tokens", sorted(distinct, key=lambda token: token.entropy)
    first, second = _winner_and_next(explanation)
    if second is None:
        return "The tokens", distinct
    names = explanation.experts
    return (
        f"The tokens that speak most for {names[first]} over {names[second]}",
        sorted(distinct, key=lambda token: token.scores[second] - token.scores[first]),
    )


def _winner_and_next(explanation: Explanation) -> tuple[int, int | None]:
    """The expert that was taken, and the likeliest other one, whatever it costs."""
    (winner, _), likeliest = explanation.decision.ranking[0], explanation.decision.quality
    others = [explanation.experts.index(expert) for expert, _ in likeliest if expert != winner]
    return explanation.experts.index(winner), others[0] if others else None


def _score_columns(explanation: Explanation, width: int) -> list[int]:
    """The experts whose scores are shown, best first: as many as there is room for, but always two."""
    columns: list[int] = []
    room = width - WIDTH_WITHOUT_SCORES - max(len(_short(name)) for name in explanation.experts)
    for expert, _ in explanation.decision.ranking:
        room -= max(len(_short(expert)), len("+0.00")) + 3
        if room < 0 and len(columns) >= 2:
            break
        columns.append(explanation.experts.index(expert))
    return columns


def _token_table(explanation: Explanation, deciding: Sequence[TokenVote], width: int) -> Table:
    times = Counter(token.id for token in explanation.tokens if token.counted)
    columns = _score_columns(explanation, width)
    names = [_short(explanation.experts[column]) for column in columns]
    shown = table("token", "", "vote", "entropy", *names, right=("", "entropy", *names))
    for token in deciding:
        place = explanation.experts.index(token.vote)
        scores = [
            styled((f"{token.scores[column]:+.2f}", colour_of(column) if column == place else FAINT))
            for column in columns
        ]
        repeated = f"×{times[token.id]}" if times[token.id] > 1 else ""
        vote = styled((_short(token.vote), colour_of(place)))
        shown.add_row(_visible(token), styled((repeated, FAINT)), vote, f"{token.entropy:.2f}", *scores)
    return shown


def _short(name: str) -> str:
    """The end of a long name, such as a model's, so that a table of several still fits."""
    return name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :]


def _visible(token: TokenVote) -> str:
    """The token with its spaces shown; part of a character has nothing of its own to show."""
    return printable(token.text).replace(" ", "␣").replace("\n", "⏎") or f"#{token.id}"
