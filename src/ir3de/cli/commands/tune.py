"""tune: choose scorer and selector again, on the prompts that the router kept."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import click

from ir3de.cli.options import output_options, router_argument
from ir3de.cli.output import FAINT, Output, hint, line
from ir3de.cli.progress import solving
from ir3de.cli.saving import changing, how_sure
from ir3de.cli.trials import in_few_words, trials_table, why_chosen


@click.command()
@router_argument
@output_options
def tune(router_path: Path, out: Output) -> None:
    """Choose scorer and selector by cross-validation.

    Tuning tries ridge strengths, priors, blends and voting on the prompts that the router kept. Each prompt is
    subtracted from the counts before it is routed, so tuning reads no texts and needs no other prompts. The default
    blend stays unless another clearly beats it: by two standard errors, and by half a point. A candidate that relies on
    counts of words or pairs must win by a point. The router keeps the choice and the table of all trials.

    \b
    Example:
      ir3de tune router
    """
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
