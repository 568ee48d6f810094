"""bench confidence: what confidence claims, what thresholds promise, and what is found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.arguments import output_options
from ir3de.cli.figures import data_option, keep, named_suites, save_option, suite_option
from ir3de.cli.output import Output, heading, percent, table

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de.bench.confidence import Sureness


@click.command()
@data_option
@suite_option
@save_option
@output_options
def confidence(data: Path | None, chosen: Sequence[str], save: Path | None, out: Output) -> None:
    """Calibration errors, and whether thresholds keep their promise.

    One part of the test prompts picks the thresholds, the other is counted.

    \b
    Example:
      ir3de bench confidence --data suites/ --save results/confidence.json
    """
    from ir3de.bench.confidence import measure
    from ir3de.bench.measurement import circumstances

    rows: list[Sureness] = []
    for suite in named_suites(data, chosen):
        with out.spinner(f"measuring {suite.name}"):
            rows += measure(suite)
    document = {"circumstances": circumstances(), "rows": [row.to_dict() for row in rows]}
    keep(save, document)
    out.json(document)
    out.result(heading("Expected calibration error, points"), _errors(rows))
    out.result(heading("Thresholds"), _thresholds(rows))


def _errors(rows: Sequence[Sureness]) -> Table:
    right = ("tokens", "prompts", "not calibrated", "at fitting", "on held-out prompts")
    shown = table("suite", *right, right=right)
    for row in rows:
        errors = ("–" if value is None else f"{value:.1f}" for value in (row.plain, row.kept, row.recalibrated))
        shown.add_row(row.suite, f"{row.cap:,}", f"{row.prompts:,}", *errors)
    return shown


def _thresholds(rows: Sequence[Sureness]) -> Table:
    right = ("tokens", "wrong at most", "threshold", "answered", "wrong of all")
    shown = table("suite", *right, right=right)
    for row in rows:
        shown.add_row(row.suite, f"{row.cap:,}", "–", "none", percent(1.0), percent(row.wrong))
        for kept in row.thresholds:
            shares = (percent(share) for share in (kept.error, kept.threshold, kept.answered, kept.wrong))
            shown.add_row("", "", *shares)
    return shown
