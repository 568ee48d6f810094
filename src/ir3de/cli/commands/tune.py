"""tune: choose scorer and selector again, on the prompts that the router kept."""

from __future__ import annotations

import shlex
from pathlib import Path
from time import perf_counter
from typing import NoReturn

import click

from ir3de.cli import hints
from ir3de.cli.options import output_options, router_argument
from ir3de.cli.output import FAINT, Output, hint, line
from ir3de.cli.progress import solving
from ir3de.cli.saving import changing, how_sure
from ir3de.cli.trials import in_few_words, trials_table, why_chosen


@click.command()
@router_argument
@click.argument("sources", nargs=-1, metavar="")  # it takes none: they are answered with the right command
@click.option("--label", hidden=True)
@click.option("--text", hidden=True)
@output_options
def tune(router_path: Path, sources: tuple[str, ...], label: str | None, text: str | None, out: Output) -> None:
    """Choose scorer and selector by cross-validation.

    Tuning tries ridge strengths, priors, blends and voting on the prompts that the router kept. Each prompt is
    subtracted from the counts before it is routed, so tuning reads no texts and needs no other prompts. The default
    blend stays unless another clearly beats it: by two standard errors, and by half a point. A candidate that relies on
    counts of words or pairs must win by a point. The router keeps the choice and the table of all trials.

    \b
    Example:
      ir3de tune router
    """
    if sources or label or text:
        _refuse_texts(router_path, sources)
    begun = perf_counter()
    with changing(router_path) as router:
        before = {"scorer": repr(router.scorer), "selector": repr(router.selector)}
        with solving(out):
            router.tune()
        router.save(router_path.expanduser())
    seconds = perf_counter() - begun
    after = {"scorer": repr(router.scorer), "selector": repr(router.selector)}
    changed = {"before": before, **after, "changed": before != after}
    trials = {"trials": list(router.trials), "seconds": round(seconds, 3)}
    out.json({"router": str(router_path), **changed, **trials})
    out.note(trials_table(router.trials), "")
    was, now = (f"{in_few_words(s['scorer'])}; {in_few_words(s['selector'])}" for s in (before, after))
    out.result(line((now, "bold"), (f"  before: {was}" if before != after else "  as before", FAINT)))
    if why := why_chosen(router.trials):
        out.note(line((why, "")))
    out.note(line((f"{len(router.trials)} trials in {seconds:.1f} s", FAINT)), *how_sure(router))
    out.note(hint(f"ir3de calibrate {router_path} NAME=PATH…", "next, with held-out prompts:"))


def _refuse_texts(router_path: Path, sources: tuple[str, ...]) -> NoReturn:
    why = "tuning reads no texts, because it uses the prompts that the router kept:"
    anew = f"\n  ir3de fit {shlex.join(hints.given_arguments())} --tune --force"
    raise click.UsageError(
        f"{why}{hints.write_command([str(router_path)])}"
        + (f"\nTo fit the router anew from these texts, and tune it:{anew}" if sources else "")
    )
