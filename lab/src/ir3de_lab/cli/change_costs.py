"""bench change-costs: what changes and tuning cost beside a fit, and what a fit costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ir3de.cli.plugins import Output, output_options
from ir3de_lab.cli.experts import read_texts
from ir3de_lab.cli.shared import data_option, figures_table, keep, save_option

SIZES = ((20, 750), (77, 130), (150, 120))  # benchmarks.change_costs' own, which --help need not import


@click.command("change-costs")
@data_option
@click.option(
    "--size", "sizes", type=(click.IntRange(min=3), click.IntRange(min=1)), multiple=True, default=SIZES,
    show_default=True, metavar="EXPERTS PROMPTS", help="So many experts, with so many prompts each; may be repeated.",
)  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Times each is measured.")
@save_option
@output_options
def change_costs(
    data: Path | None, sizes: Sequence[tuple[int, int]], rounds: int, save: Path | None, out: Output
) -> None:
    """Adding, removing and tuning, as shares and multiples of a fit; a fit beside TF-IDF with logistic regression; and
    the command `ir3de fit` with its proof.

    Domains are made as in `ir3de bench experts`.

    \b
    Example:
      ir3de bench change-costs --size 20 750
    """
    from ir3de_lab.benchmarks.change_costs import measure
    from ir3de_lab.benchmarks.measurement import circumstances

    texts, figures = read_texts(data), []
    for experts, prompts in sizes:
        with out.spinner(f"measuring {experts:,} experts"):
            figures += measure(experts, prompts, texts, rounds=rounds)
    document = {"circumstances": circumstances(), "figures": [figure.to_dict() for figure in figures]}
    keep(save, document)
    out.json(document)
    out.result(figures_table(figures))
