"""bench held-out-tasks: routing on other people's outcomes, with whole tasks held out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import Output, heading, output_options, table
from ir3de_lab.cli.shared import data_option, keep, save_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.held_out_tasks.measuring import Row
    from ir3de_lab.benchmarks.held_out_tasks.verdicts import Sign


@click.command("held-out-tasks")
@data_option
@click.option("--only", multiple=True, metavar="SET", help="Measure only this set; may be repeated.")
@click.option("--vectors", type=click.Path(path_type=Path), metavar="DIR", help="Keep the encoder's vectors there.")
@save_option
@output_options
def held_out_tasks(
    data: Path | None, only: Sequence[str], vectors: Path | None, save: Path | None, out: Output
) -> None:
    """Whether routing by outcomes helps, on tasks that are known and on tasks that no router has seen.

    DIR holds the outcomes of RouterBench, RouterDC-7, RouteLLM and ZeroEval. Our router keeps its defaults. Rivals on
    MiniLM-L6 are tuned on training rows; install it with `ir3de encoder install minilm-l6`. The plan, and what counts as
    held, are in docs/experiment-plan.md.

    \b
    Example:
      ir3de bench held-out-tasks --data suites/ --vectors vectors/ --save results/held_out_tasks.json
    """
    from ir3de_lab.benchmarks.held_out_tasks.measuring import describe, measure
    from ir3de_lab.benchmarks.held_out_tasks.sets import read_sets
    from ir3de_lab.benchmarks.held_out_tasks.vectors import ENCODER, open_encoder
    from ir3de_lab.benchmarks.held_out_tasks.verdicts import find_signs, judge
    from ir3de_lab.benchmarks.measurement import circumstances

    if data is None:
        raise click.UsageError("name a folder of outcomes with --data, or in IR3DE_DATA")
    known = read_sets(data)
    if strange := next((name for name in only if name not in known), None):
        raise click.UsageError(f"no set is called '{strange}': choose from {', '.join(known)}")
    encode, digest = open_encoder(vectors, out.remark)
    described, measured = [], {}
    for name in only or known:
        given = known[name]()
        measured[name] = measure(given, encode, out.remark)
        described.append(describe(given, measured[name]))
    signs = find_signs(measured)
    verdicts = judge(signs, len(measured))
    document = {
        "circumstances": circumstances(),
        "encoder": {"name": ENCODER, "digest": digest},
        "sets": described,
        "signs": [sign.to_dict() for sign in signs],
        "claims": [verdict.to_dict() for verdict in verdicts],
    }
    keep(save, document)
    out.json(document)
    for name, rows in measured.items():
        out.result(heading(name))
        out.result(_table(rows, [sign for sign in signs if sign.set == name]))


def _table(rows: Sequence[Row], signs: Sequence[Sign]) -> Table:
    columns = ("score, %", "to ours", "worth, %", "to ours")
    shown = table("way", "tasks", *columns, right=columns)
    marks = {(sign.way, sign.regime, sign.family in "EF"): sign.sign for sign in signs}
    for row in rows:
        score = "–" if row.score is None else f"{row.score:.2f}"
        worth = "–" if row.worth is None else f"{row.worth:.2f}"
        gaps = [
            "–" if gap is None else f"{gap.value:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}] {mark}"
            for gap, mark in (
                (row.difference, marks.get((row.way, row.regime, False), "")),
                (row.worth_difference, marks.get((row.way, row.regime, True), "")),
            )
        ]
        shown.add_row(row.way, row.regime, score, gaps[0], worth, gaps[1])
    return shown
