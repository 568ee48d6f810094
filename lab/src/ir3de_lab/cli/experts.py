"""bench experts: what a router costs as its experts grow in number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import Output, output_options, table
from ir3de_lab.cli.shared import data_option, figures_table, keep, number, save_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.experts import Scale

COUNTS = (2, 20, 200, 2_000)  # bench.experts' own, which --help need not import
MOST_TEXTS = 2_000  # real prompts the domains are made of


@click.command()
@data_option
@click.option(
    "--count", "counts", type=click.IntRange(min=1), multiple=True, default=COUNTS, show_default=True, metavar="N",
    help="Measure with N experts; may be repeated.",
)  # fmt: skip
@save_option
@output_options
def experts(data: Path | None, counts: Sequence[int], save: Path | None, out: Output) -> None:
    """Time, memory and accuracy with few and very many experts.

    Domains are made from the demo's prompts and, with --data, the suites' training prompts, each with word pairs of
    its own. 2,000 experts take some minutes, 11 GB of memory and 3 GB of disk.

    \b
    Example:
      ir3de bench experts --count 2 --count 200
    """
    from ir3de_lab.benchmarks.experts import growth, measure
    from ir3de_lab.benchmarks.measurement import circumstances

    texts = read_texts(data)
    rows: list[Scale] = []
    for count in sorted(set(counts)):
        with out.spinner(f"measuring {count:,} experts"):
            rows.append(measure(count, texts))
    figures = growth(rows)
    document = {
        "circumstances": circumstances(),
        "rows": [row.to_dict() for row in rows],
        "figures": [figure.to_dict() for figure in figures],
    }
    keep(save, document)
    out.json(document)
    out.result(_scale_table(rows), figures_table(figures))


def read_texts(data: Path | None) -> list[str]:
    """The real prompts that domains are made of."""
    from ir3de.corpora import examples as demo
    from ir3de_lab.benchmarks.accuracy import suites
    from ir3de_lab.benchmarks.robustness import sampled

    texts = [text for prompts in demo.prompts().values() for text in prompts]
    if data is not None:
        texts += [text for suite in suites(data) for domain in suite.folders for text in suite.texts(domain, "train")]
    return sampled(texts, MOST_TEXTS)


def _scale_table(rows: Sequence[Scale]) -> Table:
    """One line a measure, one column a number of experts: there are more of the former."""
    heads = [f"{row.experts:,} experts" for row in rows]
    shown = table("", *heads, right=heads)
    units = {"s": "s", "mb": "MB", "us": "µs"}
    for name in rows[0].to_dict():
        if name != "experts":
            what, _, unit = name.rpartition("_")
            label = f"{what.replace('_', ' ')}, {units[unit]}" if unit in units else name
            shown.add_row(label, *(number(row.to_dict()[name]) for row in rows))
    return shown
