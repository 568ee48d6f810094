"""bench novelty: are out-of-domain prompts recognised?."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import FAINT, Output, heading, line, output_options, percent, table
from ir3de_lab.cli.shared import data_option, measure_suites, named_suites, save_option, suite_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.accuracy import Suite
    from ir3de_lab.benchmarks.novelty import Strangers


@click.command()
@data_option
@suite_option
@save_option
@output_options
def novelty(data: Path | None, chosen: Sequence[str], save: Path | None, out: Output) -> None:
    """How many out-of-domain prompts are recognised.

    The default router of each suite is asked the test prompts of the other suites' domains, those of the same name left
    out, and gibberish; beside them its own test prompts, which should not be called out of domain.

    \b
    Example:
      ir3de bench novelty --data suites/ --save results/novelty.json
    """
    from ir3de_lab.benchmarks.novelty import measure

    everything = named_suites(data, ())

    def among_others(suite: Suite) -> list[Strangers]:
        return measure(suite, [other for other in everything if other.name != suite.name])

    rows = measure_suites(out, data, chosen, save, among_others)
    for name, cap in dict.fromkeys((row.suite, row.cap) for row in rows):
        part = [row for row in rows if (row.suite, row.cap) == (name, cap)]
        about = f"  its own prompts are called out of domain in {percent(part[0].own_out_of_domain)} of cases"
        out.result(heading(f"{name}, first {cap:,} tokens"), line((about, FAINT)), _table(part))


def _table(rows: Sequence[Strangers]) -> Table:
    right = ("prompts", "out of domain", "recognised at 1 %", "at 5 %", "area, familiarity", "confidence")
    shown = table("strangers", *right, right=right)
    for row in rows:
        shares = [percent(share) for share in (row.out_of_domain, row.recognised_at_1, row.recognised_at_5)]
        areas = (f"{row.familiarity_area:.3f}", f"{row.confidence_area:.3f}")
        shown.add_row(row.strangers, f"{row.prompts:,}", *shares, *areas)
    return shown
