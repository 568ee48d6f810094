"""bench unknowns: does a router know what it does not know?."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import Output, heading, output_options, table
from ir3de_lab.cli.shared import keep, save_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.unknowns import Language


@click.command()
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True,
              help="Folder of suites, of intents in `intents/`, and of languages in `sib200/`.")  # fmt: skip
@click.option("--only", multiple=True, metavar="NAME", help="Measure only this suite or set; may be repeated.")
@save_option
@output_options
def unknowns(data: Path, only: Sequence[str], save: Path | None, out: Output) -> None:
    """Leave each expert out in turn, and ask its prompts all the same.

    Each domain of reasoning and clm is left out, and thirty intents of banking77. A router that was fitted on English
    prompts is also asked prompts in other languages. Everything has its default settings.

    \b
    Example:
      ir3de bench unknowns --data suites/ --save results/unknowns.json
    """
    from ir3de import Embedding
    from ir3de_lab.benchmarks import languages
    from ir3de_lab.benchmarks.defaults import read_material
    from ir3de_lab.benchmarks.measurement import circumstances
    from ir3de_lab.benchmarks.unknowns import LEFT_OUT, LeftOut, measure, measure_languages, summarise

    rows: list[LeftOut] = []
    for material in read_material(data):
        if material.name in (only or LEFT_OUT):
            for row in measure(material, LEFT_OUT.get(material.name)):
                rows.append(row)
                out.remark(f"{row.data} without {row.left_out}: area {row.area:.3f}, told at 5 % {row.told_at_5:.1f} %")
    spoken: list[Language] = []
    if (data / "sib200").is_dir() and not only:
        train, tests = languages.read_languages(data / "sib200")
        router = languages.fit(train, Embedding.default())
        spoken = measure_languages(router, {name: test.texts for name, test in tests.items()})
    means = summarise(rows) if rows else {}
    document = {
        "circumstances": circumstances(),
        "rows": [row.to_dict() for row in rows],
        "means": means,
        "languages": [row.to_dict() for row in spoken],
    }
    keep(save, document)
    out.json(document)
    if rows:
        out.result(heading("Left out"), _means_table(means))
    if spoken:
        out.result(heading("Languages"), _language_table(spoken))


def _means_table(means: Mapping[str, Mapping[str, float]]) -> Table:
    right = ("area", "over 90 % sure", "told", "false alarms", "told at 5 %", "calibration error", "accuracy")
    shown = table("data", *right, right=right)
    for name, row in means.items():
        pairs = {"over 90 % sure": "sure", "calibration error": "calibration_error", "accuracy": "accuracy"}
        before = {title: f"{row[key]:.1f} ({row[f'{key}_before']:.1f})" for title, key in pairs.items()}
        shown.add_row(
            name,
            f"{row['area']:.3f} ({row['area_before']:.3f})",
            before["over 90 % sure"],
            f"{row['told']:.1f}",
            f"{row['false_alarms']:.1f}",
            f"{row['told_at_5']:.1f}",
            before["calibration error"],
            before["accuracy"],
        )
    return shown


def _language_table(rows: Sequence[Language]) -> Table:
    shown = table("language", "prompts", "over 90 % sure", "told", right=("prompts", "over 90 % sure", "told"))
    for row in rows:
        shown.add_row(row.language, f"{row.prompts:,}", f"{row.sure:.1f}", f"{row.told:.1f}")
    return shown
