"""Quality against cost: what a router's choices are worth, over the microseconds that a choice takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ir3de_lab.experiments.figures.canvas import (
    BLUE,
    DOTS_PER_INCH,
    GREEN,
    VERMILION,
    WIDTH,
    legend_below,
    without_tokens,
)
from ir3de_lab.experiments.results import Results
from ir3de_lab.experiments.side_tables import accelerator, was_busy
from ir3de_lab.experiments.standings import OURS, PAPER, RIVALS, Standing, on_other_embedding, standings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {OURS: GREEN, PAPER: BLUE, RIVALS: VERMILION}
ON_CORES, ON_ACCELERATOR, ON_SHARED = "", ", on an accelerator", ", on a shared accelerator"
WHERE: dict[str, dict[str, Any]] = {
    ON_CORES: {},
    ON_ACCELERATOR: {"facecolor": "white"},
    ON_SHARED: {"facecolor": "white", "edgecolor": "0.6"},  # several times too long
}
SHOWN = 8.0  # points below the best router that the axis reaches
FONT, SPACE = 7.5, 2.0  # points: of letters, and beside a name


def scatter(results: Results) -> Figure | None:
    """Every router of the table in the clean protocol whose time is known, on the usual embedding.

    Of a curve it is the one that was chosen on training texts, where one was, and else the best.
    """
    rows = [r for r in standings(results) if r.ranked and not on_other_embedding(r)]
    rows = _without_doubles([r for r in rows if r.choices is not None and r.choices.route_us is not None])
    if not rows:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # measured at the dots it is drawn with: letters are a little wider or narrower at others
    figure = Figure(figsize=(WIDTH, 0.6 * WIDTH), layout="constrained", dpi=DOTS_PER_INCH)
    axes = figure.add_subplot()
    axes.set(xscale="log", xlabel="µs a prompt", ylabel="average performance, % of the own experts")
    axes.set_title(f"{results.title}: quality against cost")
    floor = max(row.performance.average for row in rows) - SHOWN
    for group, colour in COLOURS.items():
        for where, looks in WHERE.items():
            part = [r for r in rows if r.group == group and _find_place(r) == where]
            if part:
                _draw(axes, part, floor, label=group + where, **{"facecolor": colour, "edgecolor": colour, **looks})
    axes.margins(x=0.12, y=0.12)
    legend_below(figure, [axes], columns=4)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()  # the layout is settled, so that labels can be placed in pixels
    figure.set_layout_engine("none")
    _label(canvas, axes, rows, floor)
    return figure


def _without_doubles(rows: Sequence[Standing]) -> list[Standing]:
    chosen = {_shorten(row.name) for row in rows if ", chosen " in row.name}
    return [row for row in rows if ", best " not in row.name or _shorten(row.name) not in chosen]


def _find_place(row: Standing) -> str:
    """Where its time was taken, as a key of WHERE."""
    if row.choices is None or not accelerator(row.choices):
        return ON_CORES
    return ON_SHARED if was_busy(row.choices) else ON_ACCELERATOR


def _shorten(name: str) -> str:
    """The name without the value that was found to be best, and without the number of tokens that are read."""
    return without_tokens(re.sub(r", (best|chosen) [^,(]+?(?= \(|$)", "", name))


def _short(row: Standing, floor: float) -> str:
    """The short name, with its figure where that is too low to be shown."""
    name = _shorten(row.name)
    return name if row.performance.average >= floor else f"{name}: {row.performance.average:.0f}"


def _spot(row: Standing, floor: float) -> tuple[float, float]:
    assert row.choices is not None and row.choices.route_us is not None
    return row.choices.route_us, max(floor, row.performance.average)


def _draw(axes: Any, rows: Sequence[Standing], floor: float, label: str, **looks: Any) -> None:
    """Spots, and arrows down where a router is too far below the others to be shown in its place."""
    for low, marker in ((False, "o"), (True, "v")):
        part = [_spot(row, floor) for row in rows if (row.performance.average < floor) == low]
        if part:
            x, y = np.array(part).T
            axes.scatter(x, y, s=34, marker=marker, linewidth=1.4, zorder=3, label=label, **looks)
            label = "_"  # once in the legend


@dataclass(frozen=True)
class _Box:
    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: _Box) -> float:
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return width * height if width > 0 and height > 0 else 0.0


def _label(canvas: Any, axes: Any, rows: Sequence[Standing], floor: float) -> None:
    """Every spot's name where it covers neither another nor a spot, as near as can be."""
    renderer, dot = canvas.get_renderer(), axes.figure.dpi / 72
    spots: list[tuple[float, float]] = [tuple(axes.transData.transform(_spot(row, floor)).tolist()) for row in rows]
    taken = [_Box(x - 4 * dot, y - 4 * dot, x + 4 * dot, y + 4 * dot) for x, y in spots]
    inside = axes.get_window_extent(renderer)
    order = sorted(range(len(rows)), key=lambda place: (-spots[place][1], spots[place][0]))
    for place in order:
        name = _short(rows[place], floor)
        probe = axes.text(0, 0, name, fontsize=FONT)
        extent = probe.get_window_extent(renderer)
        probe.remove()
        (x, y), size = spots[place], (extent.width + 2 * SPACE * dot, extent.height)
        box = min(_candidates(x, y, size, dot), key=lambda box: _price(box, (x, y), taken, inside, dot))
        taken.append(box)
        centre = (box.left + box.right) / 2, (box.bottom + box.top) / 2
        _write(axes, name, (x, y), centre, size, dot)


def _candidates(x: float, y: float, size: tuple[float, float], dot: float) -> list[_Box]:
    """Places around a spot, ring by ring."""
    width, height = size
    found = []
    for ring in range(14):
        for angle in np.linspace(0, 2 * np.pi, 24, endpoint=False):
            reach = (6 + 9 * ring) * dot
            cx = x + np.cos(angle) * (reach + width / 2)
            cy = y + np.sin(angle) * (reach + height / 2)
            found.append(_Box(cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2))
    return found


def _price(box: _Box, spot: tuple[float, float], taken: Sequence[_Box], inside: Any, dot: float) -> float:
    """Overlaps are dear, being outside is dearer, distance is cheap."""
    covered = sum(box.overlap(other) for other in taken)
    outside = max(0.0, inside.x0 - box.left, box.right - inside.x1, inside.y0 - box.bottom, box.top - inside.y1)
    dx = max(box.left - spot[0], spot[0] - box.right, 0.0)
    dy = max(box.bottom - spot[1], spot[1] - box.top, 0.0)
    return float(100 * covered + 1000 * outside + np.hypot(dx, dy) / dot)


def _write(
    axes: Any,
    name: str,
    spot: tuple[float, float],
    centre: tuple[float, float],
    size: tuple[float, float],
    dot: float,
) -> None:
    """The name, and a thin line to its spot where it is not beside it."""
    away = max(abs(spot[0] - centre[0]) - size[0] / 2, abs(spot[1] - centre[1]) - size[1] / 2) / dot
    line = {"arrowstyle": "-", "color": "0.45", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 3} if away > 6 else None
    place = axes.transData.inverted().transform(spot)
    offset = (centre[0] - spot[0]) / dot, (centre[1] - spot[1]) / dot
    axes.annotate(
        name, place, offset, textcoords="offset points", fontsize=FONT, ha="center", va="center", arrowprops=line
    )
