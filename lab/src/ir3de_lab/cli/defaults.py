"""bench defaults: what a fit reaches without any argument."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import Output, output_options, table
from ir3de_lab.cli.shared import keep, save_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.defaults import Row


@click.command()
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True,
              help="Folder of suites, and of intents in `intents/`.")  # fmt: skip
@click.option("--only", multiple=True, metavar="NAME", help="Measure only this suite or set; may be repeated.")
@click.option("--draws", type=click.IntRange(min=0), default=10, show_default=True, help="Draws of few prompts.")
@save_option
@output_options
def defaults(data: Path, only: Sequence[str], draws: int, save: Path | None, out: Output) -> None:
    """Accuracy of the default fit beside the closed form, with all prompts and with few.

    \b
    Example:
      ir3de bench defaults --data suites/ --save results/defaults.json
    """
    from ir3de_lab.benchmarks.defaults import measure, read_material
    from ir3de_lab.benchmarks.measurement import circumstances

    rows: list[Row] = []
    for material in read_material(data):
        if not only or material.name in only:
            with out.spinner(f"fitting {material.name}"):
                rows += measure(material, draws=draws)
    document = {"circumstances": circumstances(), "rows": [row.to_dict() for row in rows]}
    keep(save, document)
    out.json(document)
    out.result(_table(rows))


def _table(rows: Sequence[Row]) -> Table:
    right = ("prompts", "test, %", "first 32", "other sources", "fit, s")
    shown = table("data", "router", *right, "chosen", right=right)
    for row in rows:
        figures = [row.accuracy.get(split) for split in ("test", "first 32", "ood")]
        cells = ["" if figure is None else f"{figure:.2f}" for figure in figures]
        prompts = "all" if row.prompts is None else str(row.prompts)
        shown.add_row(row.data, row.router, prompts, *cells, f"{row.fit_s:.1f}", row.chosen)
    return shown
