"""bench scale: many machines, many owners."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import Output, output_options
from ir3de.errors import MissingExtraError
from ir3de_lab.cli.shared import data_option, figures_table, keep, save_option

if TYPE_CHECKING:
    from ir3de_lab.benchmarks.measurement import Figure

PARTS = ("counting", "memory", "owners")


@click.command()
@data_option
@click.option("--gigabytes", type=click.FloatRange(min=0.001), metavar="N", help="Of text.  [default: 2; quick: 0.05]")
@click.option("--contributions", type=click.IntRange(min=2), metavar="N", help="[default: 1000; quick: 40]")
@click.option("--rounds", type=click.IntRange(min=1), metavar="N", help="Of each measurement.  [default: 3; quick: 1]")
@click.option("--quick", is_flag=True, help="Little of everything: a minute, to see that it runs.")
@click.option("--only", type=click.Choice(PARTS), multiple=True, help="Measure only this part; may be repeated.")
@save_option
@output_options
def scale(
    data: Path | None,
    gigabytes: float | None,
    contributions: int | None,
    rounds: int | None,
    quick: bool,
    only: Sequence[str],
    save: Path | None,
    out: Output,
) -> None:
    """Counting on processes and on Ray, memory, and a thousand owners' files merged and taken out again.

    The corpus is made of the suites' training prompts (--data) or of the demo's, repeated in other orders, in a
    temporary folder, and removed: the usual size takes minutes and 4 GB of disk. Ray is left out where it is not
    installed.

    \b
    Example:
      ir3de bench scale --quick
      ir3de bench scale --data suites/ --save results/scale.json
    """
    from ir3de_lab.benchmarks.measurement import circumstances, package_version
    from ir3de_lab.benchmarks.scale import QUICK, Size, has_ray, parts

    usual = QUICK if quick else Size()
    size = replace(
        usual,
        gigabytes=gigabytes or usual.gigabytes,
        contributions=contributions or usual.contributions,
        rounds=rounds or usual.rounds,
    )
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    figures: list[Figure] = []
    for part, measure in parts(size, _texts(data)):
        if not only or part in only:
            with out.spinner(f"measuring {part}"):
                figures += measure()
    around = {**circumstances(), "ray": package_version("ray"), "load_before": load}
    document = {"circumstances": around, "size": asdict(size), "figures": [figure.to_dict() for figure in figures]}
    keep(save, document)
    out.json(document)
    out.result(figures_table(figures))
    if not has_ray() and (not only or "counting" in only):
        out.note(f"Ray was left out. {MissingExtraError('ray', 'ray', 'Counting on a cluster')}")


def _texts(data: Path | None) -> list[str]:
    from ir3de.corpora import examples as demo
    from ir3de_lab.benchmarks.accuracy import suites

    if data is None:
        return [text for prompts in demo.prompts().values() for text in prompts]
    return [text for suite in suites(data) for domain in suite.folders for text in suite.texts(domain, "train")]
