"""bench gain: whether routing beats every single model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import FAINT, Output, heading, line, output_options, table
from ir3de_lab.cli.shared import keep, save_option, seeds_option
from ir3de_lab.cli.tables import results_option

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ir3de_lab.experiments.gain import Gain, Row


@click.command()
@seeds_option
@results_option
@save_option
@output_options
def gain(name: str, root: Path, save: Path | None, out: Output) -> None:
    """Whether routing beats the best single model, by answers that were drawn, with every seed of the experts.

    The mean score over the domains of ir3de, of each expert, of the base model and of the other routers, and how far
    ir3de is above each. A resample draws seeds, items and draws. The plan, and what counts as held, are in
    docs/experiment-plan.md. No texts and no models are needed: the raw files are in results/ of a checkout of IR3DE.

    \b
    Example:
      ir3de bench gain --setting reasoning-1b --save results/gain.json
    """
    from ir3de_lab.benchmarks.measurement import circumstances
    from ir3de_lab.experiments.gain import describe, measure, read_seeds
    from ir3de_lab.experiments.resampling import RESAMPLES

    seeds = read_seeds(root, name)
    with out.spinner(f"drawing {RESAMPLES:,} resamples"):
        parts = measure(seeds)
    document = {"circumstances": circumstances(), **describe(seeds, parts)}
    keep(save, document)
    out.json(document)
    for part, found in parts.items():
        title = seeds[0].title if part == "all" else f"{seeds[0].title}, {part}"
        out.result(heading(f"{title}: mean score of drawn answers, in percent"), _table(found), *_told(found))


def _table(found: Gain) -> Table:
    from ir3de_lab.experiments.results import shown_name

    seeds = [f"seed {number}" for number in range(len(found.rows[0].by_seed))]
    columns = (*map(shown_name, found.domains), "mean", *(seeds if len(seeds) > 1 else ()), "ir3de above it")
    shown = table("model or router", *columns, right=columns)
    for row in found.rows:
        by_seed = row.by_seed if len(seeds) > 1 else ()
        cells = [f"{value:.1f}" for value in (*row.scores.values(), row.mean, *by_seed)]
        shown.add_row(row.name, *cells, _show_gain(row, found.signs))
    return shown


def _show_gain(row: Row, signs: Mapping[str, int]) -> str:
    from ir3de_lab.experiments.cells import SIGNS, gap

    return "" if row.gain is None else gap(row.gain).text + SIGNS[signs.get(row.name, 0)]


def _told(found: Gain) -> list[Text]:
    sentences = (
        f"Routing beats the best single expert ({found.best_expert}, in hindsight) and the base model: "
        f"{found.verdict}.",
        f"No rival is surely above ir3de: {found.rivals_verdict}.",
        "▲ or ▼: ir3de is surely above or below, by Holm's rule within the best single expert and the base model, and "
        "within the rivals.",
    )
    return [line((sentence, FAINT)) for sentence in sentences]
