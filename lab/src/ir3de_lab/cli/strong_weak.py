"""bench strong-weak: how well routers from outcomes order prompts by their need for a strong model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import Output, output_options, table
from ir3de_lab.cli.shared import data_option, keep, save_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.strong_weak import Row

SUITE = "routellm"


@click.command("strong-weak")
@data_option
@save_option
@output_options
def strong_weak(data: Path | None, save: Path | None, out: Output) -> None:
    """APGR and CPT on test prompts, as RouteLLM defines them, and the share of strong calls that is kept to.

    DIR, or its folder routellm, holds {set}_{train,test}.jsonl with rows of text, task and the scores of two models.
    Everything is fitted on the training rows alone.

    \b
    Example:
      ir3de bench strong-weak --data suites/ --save results/strong_weak.json
    """
    from ir3de_lab.benchmarks.measurement import circumstances
    from ir3de_lab.benchmarks.strong_weak import measure

    if data is None:
        raise click.UsageError("name a folder of outcomes with --data, or in IR3DE_DATA")
    folder = data / SUITE if (data / SUITE).is_dir() else data
    with out.spinner(f"measuring {folder.name}"):
        rows = measure(folder)
    document = {"circumstances": circumstances(), "suite": folder.name, "rows": [row.to_dict() for row in rows]}
    keep(save, document)
    out.json(document)
    out.result(_table(rows))


def _table(rows: Sequence[Row]) -> Table:
    columns = ("training prompts", "test prompts", "APGR", "±", "CPT(50 %)", "CPT(80 %)", "strong calls")
    shown = table("set", *columns, right=columns)
    for row in rows:
        order = ["–" if value is None else f"{value:.3f}" for value in (row.apgr, row.error, row.cpt_50, row.cpt_80)]
        calls = f"{row.reached_share:.3f} of {row.wanted_share:g}"
        shown.add_row(row.name, f"{row.training_prompts:,}", f"{row.prompts:,}", *order, calls)
    return shown
