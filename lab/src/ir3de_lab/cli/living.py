"""bench living: what a router learns from traffic, and whether its warnings can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ir3de.cli.plugins import Output, heading, output_options
from ir3de_lab.benchmarks.living import FIGURES, load_measure
from ir3de_lab.catalogue import benchmarks
from ir3de_lab.cli.shared import figures_table, keep


@click.command()
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True,
              envvar="IR3DE_DATA", help="Folder of suites, of intents in `intents/`, and of outcomes.")  # fmt: skip
@click.option("--only", type=click.Choice(tuple(FIGURES)), multiple=True, metavar="NAME",
              help=f"Measure only this figure: {', '.join(FIGURES)}; may be repeated.")  # fmt: skip
@click.option("--quick", is_flag=True, help="Measure little, to see that it works.")
@click.option("--save", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Keep the raw figures in this folder, as living_NAME.json.")  # fmt: skip
@output_options
def living(data: Path, only: Sequence[str], quick: bool, save: Path | None, out: Output) -> None:
    """Simulate traffic, and measure learning, comparing, candidates and drift against their bars.

    The shared sets are streams of traffic. Labels and scores are revealed only as each figure says. Nothing is chosen
    on test prompts.

    \b
    Example:
      ir3de bench living --data suites/ --only canary --save results
    """
    from ir3de_lab.benchmarks.measurement import circumstances

    documents = {}
    for name in only or FIGURES:
        with out.spinner(f"measuring {name}"):
            figures = load_measure(name)(data, quick=quick, note=out.remark)
        document = {"circumstances": circumstances(), "quick": quick, "figures": [one.to_dict() for one in figures]}
        if save is not None:
            own = f"living {name}"
            keep(save / f"living_{name}.json", document, own if own in benchmarks() else "living")
        documents[name] = document
        out.result(heading(name, FIGURES[name]), figures_table(figures))
    out.json(documents)
