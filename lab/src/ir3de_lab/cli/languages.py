"""bench languages: fitted on English prompts, routing those of other languages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import Output, heading, output_options, table
from ir3de_lab.cli.shared import figures_table, keep, save_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.languages import Transfer


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    metavar="DIR",
    help="Folder of {language}-{split}.jsonl with text and label, such as sib200.",
)
@click.option("--embedding", "source", default="multilingual", show_default=True, help="Compared with the default one.")
@save_option
@output_options
def languages(data: Path, source: str, save: Path | None, out: Output) -> None:
    """Fit on English prompts, route prompts in other languages.

    The default embedding stands beside the multilingual one. Also measured: the time of a route, and of the first one.

    \b
    Example:
      ir3de embedding install multilingual
      ir3de bench languages --data sib200/ --save results/languages.json
    """
    from ir3de import Embedding
    from ir3de_lab.benchmarks.languages import BARS, FITTED, fit, measure_costs, measure_transfer, read_languages
    from ir3de_lab.benchmarks.measurement import Figure, circumstances

    train, tests = read_languages(data)
    embeddings = {"default": Embedding.default(), source: Embedding.load(source)}
    with out.spinner("measuring"):
        routers = {name: fit(train, embedding) for name, embedding in embeddings.items()}
        rows = [measure_transfer(name, router, tests) for name, router in routers.items()]
        figures = [
            Figure(f"English, {source}", rows[1].fitted, "%", BARS["english"]),
            Figure(f"mean of the other languages, {source}", rows[1].others, "%", BARS["others"]),
            *measure_costs(routers, tests[FITTED].texts),
        ]
    document = {
        "circumstances": circumstances(),
        "rows": [row.to_dict() for row in rows],
        "figures": [figure.to_dict() for figure in figures],
    }
    keep(save, document)
    out.json(document)
    out.result(heading("Accuracy, %"), _accuracy_table(rows), figures_table(figures))


def _accuracy_table(rows: Sequence[Transfer]) -> Table:
    shown = table("language", *(row.embedding for row in rows), right=tuple(row.embedding for row in rows))
    for language in rows[0].by_language:
        shown.add_row(language, *(f"{row.by_language[language]:.1f}" for row in rows))
    shown.add_row("mean of the others", *(f"{row.others:.1f}" for row in rows))
    return shown
