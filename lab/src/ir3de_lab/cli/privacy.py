"""bench privacy: what giving less away costs, and what is given away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import Output, heading, line, output_options, percent, table
from ir3de_lab.cli.shared import accuracy_cells, data_option, measure_suites, save_option, suite_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.privacy import Rarity, Recovery, Revealed


@click.command()
@data_option
@suite_option
@save_option
@output_options
def privacy(data: Path | None, chosen: Sequence[str], save: Path | None, out: Output) -> None:
    """Accuracy against --clip and --min-count, how many tokens are rare, and counts solved from a Gram matrix.

    Every router is fitted on the training prompts as each setting leaves them, and routes whole test prompts.

    \b
    Example:
      ir3de bench privacy --data suites/ --save results/privacy.json
    """
    from ir3de_lab.benchmarks.privacy import measure

    rows: list[Revealed] = measure_suites(out, data, chosen, save, measure)
    for row in rows:
        for split, told in (("test", ""), ("ood", ", other sources")):
            if any(accuracy[split] is not None for accuracy in row.settings[0].accuracies.values()):
                out.result(heading(f"{row.suite}{told}: routing accuracy, %"), _accuracies(row, split))
        out.result(heading(f"{row.suite}: rare tokens"), _rare(row.domains))
        if row.recovery is not None:
            out.result(line((_recovered(row.recovery), "")))


def _accuracies(row: Revealed, split: str) -> Table:
    routers = list(row.settings[0].accuracies)
    named = [router.partition(",")[0].partition(" (")[0] for router in routers]
    right = ("min-count", "tokens", "occurrences", *named)
    shown = table("clip", *right, right=right)
    cells = accuracy_cells([[left.accuracies[router][split] for router in routers] for left in row.settings])
    for left, values in zip(row.settings, cells, strict=True):
        clip = "none" if left.clip is None else str(left.clip)
        shown.add_row(clip, str(left.min_count), percent(left.different), percent(left.occurrences), *values)
    return shown


def _rare(domains: Sequence[Rarity]) -> Table:
    leasts = list(domains[0].below)
    right = ("prompts", "tokens", "different", *(f"below {least}" for least in leasts))
    shown = table("domain", *right, right=right)
    for domain in domains:
        numbers = (domain.prompts, domain.tokens, domain.different, *domain.below.values())
        shown.add_row(domain.domain, *(f"{number:,}" for number in numbers))
    return shown


def _recovered(found: Recovery) -> str:
    return (
        f"from the Gram matrix of {found.domain}: {found.unknowns - found.wrong:,} of {found.unknowns:,} counts exact, "
        f"in {found.seconds:,} s"
    )
