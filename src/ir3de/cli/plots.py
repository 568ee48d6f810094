"""Plots drawn with matplotlib, without a display or global state: reliability and frontier."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ir3de.evaluation.accuracy import Report
    from ir3de.evaluation.frontier import CostQuality, Frontier

FORMATS = (".png", ".svg", ".pdf")
DOTS_PER_INCH = 150
MAX_EXPERT_NAMES = 20


def parse_plot_path(context: click.Context, parameter: click.Parameter, value: str | None) -> Path | None:
    """A file to draw to; a click callback."""
    if value is None:
        return None
    if Path(value).suffix.lower() not in FORMATS:
        raise click.BadParameter(f"{value!r} does not end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}: rename it")
    return Path(value).expanduser()


def require_matplotlib() -> None:
    """Report a missing matplotlib before anything is measured."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "drawing a plot") from error


def draw_frontier(frontier: Frontier, target: Path) -> None:
    """Quality over cost: the router, single experts, random mixes and an oracle."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    right = max(spot.cost for spot in (*frontier.points, *frontier.singles.values(), *frontier.oracle))
    mix = [*((spot.cost, spot.quality) for spot in frontier.mix), (right, frontier.mix[-1].quality)]
    axes.plot(*zip(*mix, strict=True), color="grey", linestyle=":", label="random mix, blind to the prompt")
    axes.plot(*_columns(frontier.oracle), color="tab:orange", linestyle="--", marker="D", markersize=4, label="oracle")
    axes.plot(*_columns(frontier.points), color="tab:blue", marker="o", markersize=4, label="this router")
    singles = list(frontier.singles.values())
    axes.plot(*_columns(singles), color="black", linestyle="", marker="o", fillstyle="none", label="always one expert")
    beside: dict[str, Any] = {"xytext": (4, 5), "textcoords": "offset points", "fontsize": 7, "rotation": 30}
    for name, spot in list(frontier.singles.items())[:MAX_EXPERT_NAMES]:
        axes.annotate(name, (spot.cost, spot.quality), **beside)
    axes.set(xlabel=f"{frontier.unit} per prompt", ylabel="quality", ylim=(0, None))
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, framealpha=0.9)
    _save(figure, target)


def draw_reliability(report: Report, target: Path) -> None:
    """Confidence beside accuracy, and below it how many prompts have which confidence."""
    from matplotlib.figure import Figure

    bins = [part for part in report.reliability if part.count]
    middles = [(part.low + part.high) / 2 for part in bins]
    width = 0.9 * (bins[0].high - bins[0].low)
    figure = Figure(figsize=(5, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    above.bar(middles, [part.accuracy for part in bins], width, color="tab:blue", alpha=0.8, label="accuracy")
    above.plot([0, 1], [0, 1], color="grey", lw=1, ls=":")
    above.plot(middles, [part.confidence for part in bins], "k_", ms=22, mew=2, label="confidence")
    above.set(ylabel="accuracy", ylim=(0, 1), xlim=(0, 1))
    above.set_title(f"expected calibration error {100 * report.calibration_error:.1f} points", fontsize="medium")
    above.legend(loc="upper left")
    below.bar(middles, [part.count for part in bins], width, color="grey")
    below.set(xlabel="confidence", ylabel="prompts")
    _save(figure, target)


def _columns(spots: list[CostQuality] | tuple[CostQuality, ...]) -> tuple[list[float], list[float]]:
    return [spot.cost for spot in spots], [spot.quality for spot in spots]


def _save(figure: Figure, target: Path) -> None:
    """Write the file in the format its suffix names, whole or not at all."""
    from ir3de import files

    files.make_folder(target.parent)
    with files.open_atomic(target) as file:
        kind = target.suffix[1:].lower()
        undated = {"Date": None} if kind == "svg" else None
        figure.savefig(file, format=kind, dpi=DOTS_PER_INCH, metadata=undated)
