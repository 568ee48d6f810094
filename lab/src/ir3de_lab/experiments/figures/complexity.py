"""What routers cost as they grow: seconds of a fit, bytes kept, and microseconds a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ir3de_lab.experiments.complexity import AXES, points
from ir3de_lab.experiments.figures.canvas import CYCLE, GREEN, MARKERS, legend_below, panels
from ir3de_lab.experiments.figures.curves import plain_ticks
from ir3de_lab.experiments.results import Results
from ir3de_lab.experiments.standings import DEFAULT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = (  # what is drawn over which axis
    ("texts", "fit_seconds", "seconds of a fit"),
    ("domains", "fit_seconds", "seconds of a fit"),
    ("domains", "size_bytes", "bytes kept"),
    ("tokens", "route_us", "µs a prompt"),
)


def growth(results: Results) -> Figure | None:
    """A panel for each figure, a line for each router; both axes are logarithmic."""
    shown = [panel for panel in PANELS if any(points(results.complexity, panel[0]))]
    if not shown:
        return None
    figure, [axes] = panels([what for _, _, what in shown])
    for (axis, name, _), panel in zip(shown, axes, strict=True):
        found = list(points(results.complexity, axis))
        for place, router in enumerate(found[0][1]):
            looks: dict[str, Any] = {"color": CYCLE[place % len(CYCLE)], "marker": MARKERS[place % len(MARKERS)]}
            looks = {"color": GREEN, "marker": "o", "linewidth": 2.4, "zorder": 3} if router == DEFAULT else looks
            panel.plot([at for at, _ in found], [rows[router][name] for _, rows in found], label=router, **looks)
        panel.set(xscale="log", yscale="log", xlabel=AXES[axis])
        plain_ticks(panel, [at for at, _ in found], most=4)
    legend_below(figure, axes, columns=3)
    return figure
