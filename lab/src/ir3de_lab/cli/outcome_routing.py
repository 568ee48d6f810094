"""bench outcome-routing: the quality that routing on outcomes reaches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import Output, output_options, table
from ir3de_lab.cli.shared import accuracy_cells, data_option, keep, save_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.outcome_routing import Row

SUITE = "routerdc7"


@click.command("outcome-routing")
@data_option
@click.option("--leave-out", multiple=True, metavar="TASK", help="Do as if this task did not exist; may be repeated.")
@click.option("--score-field", default="acc", show_default=True, metavar="NAME", help="Field that holds the scores.")
@save_option
@output_options
def outcome_routing(
    data: Path | None, leave_out: Sequence[str], score_field: str, save: Path | None, out: Output
) -> None:
    """Mean score of the chosen models, in percent: on test prompts of known tasks, and of tasks never seen.

    DIR, or its folder routerdc7, holds {task}_{train,test,ood_test}.jsonl with rows of text, task and scores per model.
    Everything is fitted on the training rows alone.

    \b
    Example:
      ir3de bench outcome-routing --data suites/ --leave-out arc_easy --save results/outcome_routing.json
    """
    from ir3de_lab.benchmarks.measurement import circumstances
    from ir3de_lab.benchmarks.outcome_routing import measure

    if data is None:
        raise click.UsageError("name a folder of outcomes with --data, or in IR3DE_DATA")
    folder = data / SUITE if (data / SUITE).is_dir() else data
    with out.spinner(f"measuring {folder.name}"):
        rows = measure(folder, leave_out=leave_out, field=score_field)
    document = {
        "circumstances": circumstances(),
        "suite": folder.name,
        "left_out": list(leave_out),
        "rows": [row.to_dict() for row in rows],
    }
    keep(save, document)
    out.json(document)
    out.result(_table(rows))


def _table(rows: Sequence[Row]) -> Table:
    columns = ("known tasks", "unseen tasks")  # those of each task are in the raw figures
    shown = table("router", *columns, right=columns)
    cells = accuracy_cells([(row.known, row.unseen) for row in rows])
    for row, values in zip(rows, cells, strict=True):
        shown.add_row(row.router, *values)
    return shown
