"""bench robustness: accuracy on prompts that are mistyped, cut, mixed or wrapped in boilerplate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import Output, effects_table, heading, output_options
from ir3de_lab.cli.shared import data_option, measure_suites, save_option, suite_option

if TYPE_CHECKING:
    from ir3de_lab.benchmarks.robustness import Held


@click.command()
@data_option
@suite_option
@save_option
@output_options
def robustness(data: Path | None, chosen: Sequence[str], save: Path | None, out: Output) -> None:
    """Routing accuracy on perturbed test prompts, and how many routes flip.

    The default router, the closed form and the authors' form are fitted on the training prompts; the default also with
    boilerplate around some of them. At most 2,000 test prompts of each domain are mistyped, put in other case,
    shortened, cut, mixed with another domain's, and wrapped in boilerplate. Of a folder `intents/`, the sets banking77
    and trec_qc are suites, too: each label is a domain.

    \b
    Example:
      ir3de bench robustness --data suites/ --save results/robustness.json
    """
    from ir3de_lab.benchmarks.robustness import find_suites, measure

    rows: list[Held] = measure_suites(out, data, chosen, save, measure, find_suites)
    for row in rows:
        out.result(heading(f"{row.suite}: {row.router}"), effects_table(row.report.to_dict()))
