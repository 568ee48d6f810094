"""The tables of what routers cost as they grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ir3de_lab.experiments.cells import ABSENT, Cell, Row, Table, counted, three_digits
from ir3de_lab.experiments.choices import LOAD
from ir3de_lab.experiments.complexity import AXES, COMPLEXITY, points
from ir3de_lab.experiments.results import Results
from ir3de_lab.experiments.side_tables import MOST_LOAD, ON_BUSY
from ir3de_lab.experiments.standings import DEFAULT

FIGURES = {"fit_seconds": "fit", "route_us": "prompt", "size_bytes": "bytes kept"}
UNITS = {"fit_seconds": "fit, s", "route_us": "µs per prompt", "size_bytes": "bytes kept"}


def complexity_tables(results: Results) -> list[Table]:
    """A table for each axis."""
    return [_table(results, axis) for axis in AXES if any(points(results.complexity, axis))]


def was_taken_busy(document: Mapping[str, Any]) -> bool:
    """Whether the machine had more to do than it has cores."""
    load = document["about"].get(LOAD)
    return isinstance(load, (int, float)) and load > MOST_LOAD


def growth_of(places: Sequence[float], values: Sequence[float]) -> float | None:
    """The power with which a figure grows from the first to the last place: 1 where it doubles as they double.

    >>> growth_of([1, 2, 4], [3.0, 6.0, 12.0]), growth_of([1], [3.0])
    (1.0, None)
    """
    if len(places) < 2 or places[-1] <= places[0] or min(values) <= 0:
        return None
    return float(np.log(values[-1] / values[0]) / np.log(places[-1] / places[0]))


def _table(results: Results, axis: str) -> Table:
    found = list(points(results.complexity, axis))
    mark = ON_BUSY if was_taken_busy(results.complexity) else ""
    wanted = [name for name in FIGURES if axis != "tokens" or name == "route_us"]
    body = []
    for router in found[-1][1]:
        for at, rows in found:
            row, home = rows[router], rows.get(DEFAULT)
            cells = []
            for name in wanted:
                cells.append(_shown(name, row[name], mark))
                cells.append(Cell(ABSENT) if home is None else _ratio(row[name], home[name]))
            body.append(Row(f"{at:,g} {axis}", tuple(cells), router))
        growths = [growth_of([at for at, _ in found], [rows[router][name] for _, rows in found]) for name in wanted]
        powers = [cell for value in growths for cell in (Cell(ABSENT) if value is None else _power(value), Cell(""))]
        body.append(Row("grows with the power", tuple(powers), router))
    columns = [head for name in wanted for head in (UNITS[name], f"{FIGURES[name]}: times {DEFAULT}'s")]
    caption = [
        "All routers take turns in one run; medians of its rounds. The ratios are within the run.",
        "Grows with the power: of the figure, from the first to the last line; 1 is linear growth, 0 is none.",
    ]
    if mark:
        caption.append(f"{ON_BUSY} Measured while other programs kept the machine busy: too long, the ratios less so.")
    title = f"{results.title}: what routers cost over the number of {AXES[axis]}"
    return Table(f"complexity-{axis}", title, "router", tuple(columns), tuple(body), tuple(caption), (COMPLEXITY,))


def _shown(name: str, value: float, mark: str) -> Cell:
    return counted(value, "B") if name == "size_bytes" else Cell(three_digits(value) + mark, value)


def _ratio(value: float, home: float) -> Cell:
    ratio = value / home if home else 0.0
    shown = f"{ratio:.2g}" if ratio < 0.1 else f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"
    return Cell(shown, ratio)


def _power(value: float) -> Cell:
    return Cell(f"{value:.2f}".replace("-", "−"), value)
