"""bench confidence: what confidence claims, what thresholds promise, and what is found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import Output, heading, output_options, percent, table
from ir3de_lab.cli.shared import data_option, measure_suites, save_option, suite_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.confidence import Sureness


@click.command()
@data_option
@suite_option
@save_option
@output_options
def confidence(data: Path | None, chosen: Sequence[str], save: Path | None, out: Output) -> None:
    """Calibration errors, and whether thresholds keep their promise.

    The test prompts are parted at random a hundred times: some calibrate, some pick the threshold, the rest is counted.

    \b
    Example:
      ir3de bench confidence --data suites/ --save results/confidence.json
    """
    from ir3de_lab.benchmarks.confidence import measure

    rows: list[Sureness] = measure_suites(out, data, chosen, save, measure)
    out.result(heading("Expected calibration error, points"), _errors(rows))
    out.result(heading("Wrong answers promised and found"), _promises(rows))


def _errors(rows: Sequence[Sureness]) -> Table:
    right = ("tokens", "prompts", "not calibrated", "calibrated")
    shown = table("suite", *right, right=right)
    for row in rows:
        shown.add_row(row.suite, f"{row.cap:,}", f"{row.prompts:,}", f"{row.plain:.1f}", f"{row.calibrated:.1f}")
    return shown


def _promises(rows: Sequence[Sureness]) -> Table:
    right = ("tokens", "promised", "wrong", "19 in 20 below", "answered", "wrong without")
    shown = table("suite", *right, right=right)
    for row in rows:
        for one in row.promises:
            shares = (one.error, one.wrong, one.wrong_at_worst, one.answered, one.without)
            shown.add_row(row.suite, f"{row.cap:,}", *(percent(share) for share in shares))
    return shown
