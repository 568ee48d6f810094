"""The frontier drawn with matplotlib: the only place that knows it, and without a display or global state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ir3de.errors import MissingExtraError
from ir3de.storage import files

if TYPE_CHECKING:
    from ir3de.evaluation.frontier import Frontier, Spot

DOTS_PER_INCH = 150
MOST_NAMES = 20  # single experts that are named


def require_matplotlib() -> None:
    """Say so now rather than when all is measured."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "drawing a frontier") from error


def draw(found: Frontier, target: Path) -> None:
    """Write the picture, in the format its suffix names, whole or not at all."""
    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    right = max(spot.cost for spot in (*found.points, *found.singles.values(), *found.oracle))
    mix = [*((spot.cost, spot.quality) for spot in found.mix), (right, found.mix[-1].quality)]
    axes.plot(*zip(*mix, strict=True), color="grey", linestyle=":", label="random mix, blind to the prompt")
    axes.plot(*_columns(found.oracle), color="tab:orange", linestyle="--", marker="D", markersize=4, label="an oracle")
    axes.plot(*_columns(found.points), color="tab:blue", marker="o", markersize=4, label="this router")
    singles = list(found.singles.values())
    axes.plot(*_columns(singles), color="black", linestyle="", marker="o", fillstyle="none", label="always one expert")
    beside: dict[str, Any] = {"xytext": (4, 5), "textcoords": "offset points", "fontsize": 7, "rotation": 30}
    for name, spot in list(found.singles.items())[:MOST_NAMES]:
        axes.annotate(name, (spot.cost, spot.quality), **beside)
    axes.set(xlabel=f"{found.unit} a prompt", ylabel="quality", ylim=(0, None))
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, framealpha=0.9)
    files.make_folder(target.parent)
    with files.appearing(target) as file:
        kind = target.suffix[1:].lower()
        undated = {"Date": None} if kind == "svg" else None
        figure.savefig(file, format=kind, dpi=DOTS_PER_INCH, metadata=undated)


def _columns(spots: list[Spot] | tuple[Spot, ...]) -> tuple[list[float], list[float]]:
    return [spot.cost for spot in spots], [spot.quality for spot in spots]
