"""What the benchmarks' commands have in common: their options, every suite measured, cells, raw figures kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from ir3de.cli.plugins import FAINT, Output, line, table
from ir3de_lab.catalogue.recording import record

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ir3de_lab.benchmarks.accuracy import Suite
    from ir3de_lab.benchmarks.measurement import Figure


class Plain(Protocol):
    """What can be written down."""

    def to_dict(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=Plain)

data_option = click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    envvar="IR3DE_DATA",
    metavar="DIR",
    help="Folder of {suite}/{domain}/{train,test,ood}.jsonl, plain or packed.  [env: IR3DE_DATA]",
)
suite_option = click.option(
    "--suite", "chosen", multiple=True, metavar="NAME", help="Measure only this suite; may be repeated."
)
seeds_option = click.option(
    "--setting", "name", required=True, metavar="NAME", help="Such as reasoning-1b; its other seeds join."
)
save_option = click.option(
    "--save", type=click.Path(path_type=Path), metavar="FILE", help="Keep the raw figures as JSON."
)


def accuracy_cells(rows: Sequence[Sequence[float | None]]) -> list[list[Text]]:
    """Percentages to print, each column's best one marked, and a dash where there is none."""
    best = [max((value for value in column if value is not None), default=None) for column in zip(*rows, strict=True)]
    return [
        [
            line(("–", FAINT) if value is None else (f"{value:.1f}", "bold green" if value == top else ""))
            for value, top in zip(row, best, strict=True)
        ]
        for row in rows
    ]


def keep(path: Path | None, document: Mapping[str, Any], benchmark: str | None = None) -> None:
    """Write the raw figures where they were asked for, with what they depend on, unless they say that themselves."""
    if path is not None:
        from ir3de_lab import files

        recorded = {name: value for name, value in record(benchmark).items() if name not in document}
        files.write_json(path, {**document, **recorded})


def figures_table(figures: Sequence[Figure]) -> Table:
    """Each figure beside its bar, and whether it reaches it."""
    shown = table("figure", "measured", "bar", "", right=("measured", "bar"))
    for figure in figures:
        reached = figure.reached
        mark = ("–", FAINT) if reached is None else ("reached", "green") if reached else ("missed", "red")
        sign = "≥" if figure.higher_is_better else "≤"
        bar = "" if figure.bar is None else f"{sign} {number(figure.bar)} {figure.unit}".strip()
        shown.add_row(figure.name, f"{number(figure.value)} {figure.unit}".strip(), bar, line(mark))
    return shown


def number(value: float) -> str:
    """Three digits or so."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")


def named_suites(
    data: Path | None, chosen: Sequence[str], find: Callable[[Path], Sequence[Suite]] | None = None
) -> list[Suite]:
    """The suites of a folder that were asked for, or all of them; `find` finds others than usual."""
    from ir3de_lab.benchmarks.accuracy import suites

    if data is None:
        raise click.UsageError("name a folder of suites with --data, or in IR3DE_DATA")
    return [suite for suite in (find or suites)(data) if not chosen or suite.name in chosen]


def measure_suites(
    out: Output,
    data: Path | None,
    chosen: Sequence[str],
    save: Path | None,
    measure: Callable[[Suite], Sequence[R]],
    find: Callable[[Path], Sequence[Suite]] | None = None,
) -> list[R]:
    """The rows of every suite that was asked for; they are kept with their circumstances, and printed with --json."""
    from ir3de_lab.benchmarks.measurement import circumstances

    rows: list[R] = []
    for suite in named_suites(data, chosen, find):
        with out.spinner(f"measuring {suite.name}"):
            rows += measure(suite)
    document = {"circumstances": circumstances(), "rows": [row.to_dict() for row in rows]}
    keep(save, document)
    out.json(document)
    return rows
