"""tune: choose scorer and selector again, on the prompts that the router kept."""

from __future__ import annotations

import shlex
from copy import copy
from pathlib import Path
from time import perf_counter
from typing import NoReturn

import click

from ir3de.cli import hints
from ir3de.cli.changes import show_change
from ir3de.cli.options import output_options, router_argument
from ir3de.cli.output import FAINT, Output, hint, line
from ir3de.cli.progress import solving
from ir3de.cli.saving import changing, free_folders, how_sure, measure_change
from ir3de.cli.trials import in_few_words, trials_table, why_chosen


@click.command()
@router_argument
@click.argument("sources", nargs=-1, metavar="")  # it takes none: they are answered with the right command
@click.option("--label", hidden=True)
@click.option("--text", hidden=True)
@click.option("--output", type=click.Path(path_type=Path), help="Save the tuned router here; ROUTER stays as it is.")
@output_options
def tune(
    router_path: Path,
    sources: tuple[str, ...],
    label: str | None,
    text: str | None,
    output: Path | None,
    out: Output,
) -> None:
    """Choose scorer and selector by cross-validation.

    Tuning tries ridge strengths, priors, blends and voting on the prompts that the router kept. Each prompt is
    subtracted from the counts before it is routed, so tuning reads no texts and needs no other prompts. The default
    blend stays unless another clearly beats it: by two standard errors, and by half a point. A candidate that relies on
    counts of words or pairs must win by a point. The choice is then compared with ROUTER as it is. ROUTER is replaced
    only if the choice is clearly more accurate: the 95 % interval of the difference is above zero. --output saves the
    tuned router elsewhere in any case, with the table of all trials.

    \b
    Examples:
      ir3de tune router
      ir3de tune router --output tuned
    """
    if sources or label or text:
        _refuse_texts(router_path, sources)
    begun = perf_counter()
    folder = router_path.expanduser() if output is None else free_folders(output, None, force=False)[0]
    with changing(router_path) as router:
        at_hand = copy(router)
        with solving(out):
            router.tune()
        change = measure_change(out, at_hand, router)
        is_better = change.difference is not None and change.difference.low > 0
        if is_saved := output is not None or is_better:
            router.save(folder)
    seconds = perf_counter() - begun
    before, after = ({"scorer": one.scorer, "selector": one.selector} for one in (change.before, change.after))
    changed = {"before": before, **after, "changed": before != after, "saved": is_saved, "change": change.to_dict()}
    trials = {"trials": list(router.trials), "seconds": round(seconds, 3)}
    out.json({"router": str(folder if is_saved else router_path), **changed, **trials})
    out.note(trials_table(router.trials), "")
    was, now = (f"{in_few_words(s['scorer'])}; {in_few_words(s['selector'])}" for s in (before, after))
    if why := why_chosen(router.trials):
        out.note(line((why, "")))
    out.note(line((f"{len(router.trials)} trials in {seconds:.1f} s", FAINT)), "")
    show_change(out, change)
    if not is_saved:
        other = f"what tuning chose ({now}) is not clearly more accurate; --output FOLDER saves it"
        stays = "as before" if before == after else other
        out.result(line((f"{router_path} stays as it is: ", "bold"), (stays, "")))
        return
    out.result(line((now, "bold"), (f"  before: {was}  saved to {folder}", FAINT)))
    out.note(*how_sure(router), hint(f"ir3de calibrate {folder} NAME=PATH…", "next, with held-out prompts:"))


def _refuse_texts(router_path: Path, sources: tuple[str, ...]) -> NoReturn:
    why = "tuning reads no texts, because it uses the prompts that the router kept:"
    anew = f"\n  ir3de fit {shlex.join(hints.given_arguments())} --tune --force"
    raise click.UsageError(
        f"{why}{hints.write_command([str(router_path)])}"
        + (f"\nTo fit the router anew from these texts, and tune it:{anew}" if sources else "")
    )
