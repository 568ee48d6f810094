"""bench held-out-tasks: routing on other people's outcomes, with whole tasks held out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import Output, output_options, table
from ir3de_lab.cli.shared import data_option, keep, save_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.held_out_tasks.measuring import Row


@click.command("held-out-tasks")
@data_option
@click.option("--set", "name", required=True, metavar="NAME", help="RouterBench, RouterDC-7, RouteLLM or ZeroEval.")
@click.option("--vectors", type=click.Path(path_type=Path), metavar="DIR", help="Keep the encoder's vectors there.")
@click.option("--train-rows", type=click.IntRange(min=1), metavar="N", help="At most so many of a group of tasks.")
@click.option("--test-rows", type=click.IntRange(min=1), metavar="N", help="At most so many of a group of tasks.")
@save_option
@output_options
def held_out_tasks(
    data: Path | None,
    name: str,
    vectors: Path | None,
    train_rows: int | None,
    test_rows: int | None,
    save: Path | None,
    out: Output,
) -> None:
    """Whether routing by outcomes helps, on tasks that are known and on tasks that no router has seen.

    DIR holds the outcomes of RouterBench, RouterDC-7, RouteLLM and ZeroEval. Our router keeps its defaults. Rivals on
    MiniLM-L6 are tuned on training rows; install it with `ir3de encoder install minilm-l6`. The plan, and what counts
    as held, are in docs/experiment-plan.md.

    \b
    Example:
      ir3de bench held-out-tasks --data suites/ --set ZeroEval --save results/held_out_zeroeval.json
    """
    from ir3de_lab.benchmarks.held_out_tasks.measuring import describe, measure
    from ir3de_lab.benchmarks.held_out_tasks.sets import read_sets
    from ir3de_lab.benchmarks.held_out_tasks.vectors import ENCODER, open_encoder
    from ir3de_lab.benchmarks.measurement import circumstances

    if data is None:
        raise click.UsageError("name a folder of outcomes with --data, or in IR3DE_DATA")
    known = read_sets(data)
    if name not in known:
        raise click.UsageError(f"no set is called '{name}': choose from {', '.join(known)}")
    encode, digest = open_encoder(vectors, out.remark)
    given = known[name]().thin(train_rows, test_rows)
    rows = measure(given, encode, out.remark)
    document = {
        "circumstances": circumstances(),
        "encoder": {"name": ENCODER, "digest": digest},
        "most_rows": {"train": train_rows, "test": test_rows},
        **describe(given, rows),
    }
    keep(save, document)
    out.json(document)
    out.result(_table(rows))


def _table(rows: Sequence[Row]) -> Table:
    columns = ("score, %", "to ours", "worth, %", "to ours")
    shown = table("way", "tasks", *columns, right=columns)
    for row in rows:
        score = "–" if row.score is None else f"{row.score:.2f}"
        worth = "–" if row.worth is None else f"{row.worth:.2f}"
        gaps = [
            "–" if gap is None else f"{gap.value:+.2f} [{gap.interval[0]:+.2f}, {gap.interval[1]:+.2f}]"
            for gap in (row.difference, row.worth_difference)
        ]
        shown.add_row(row.way, row.regime, score, gaps[0], worth, gaps[1])
    return shown
