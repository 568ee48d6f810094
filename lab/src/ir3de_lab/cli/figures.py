"""bench figures: what the raw files of the experiments say, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ir3de.cli.plugins import FAINT, Output, line, output_options
from ir3de_lab.cli.tables import read_results, results_option, setting_option


@click.command()
@results_option
@setting_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default="docs/images/experiments",
    show_default=True,
    metavar="DIR",
    help="Folder for the pictures, each as PNG and SVG.",
)
@output_options
def figures(root: Path, chosen: Sequence[str], output: Path, out: Output) -> None:
    """The experiments' figures, from the raw files alone: accuracy over k, cost, confusion and more.

    Needs the extra plots of ir3de.

    \b
    Example:
      ir3de bench figures --output docs/images/experiments
    """
    from ir3de_lab.experiments.figures import draw_all, require_matplotlib

    require_matplotlib()
    found, notes = read_results(root, chosen)
    with out.spinner("drawing"):
        written = draw_all(found, output)
    out.json({"figures": [str(path) for path in written], "notes": notes})
    for path in written:
        out.result(line((str(path), "")))
    out.note(line((f"{len(written)} pictures", FAINT)))
    for note in notes:
        out.warn(note)
