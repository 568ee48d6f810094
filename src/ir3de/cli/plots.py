"""Plots of an evaluation: the frontier of quality and cost on a terminal, and diagrams drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de import files
from ir3de.cli.formats import FAINT, colour_of, line, percent
from ir3de.cli.options import check_suffix
from ir3de.cli.output import Block, Result, heading, table
from ir3de.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
Document = Mapping[str, Any]

MAX_SHARE_COLUMNS = 5  # experts that have columns of their own
MAX_SINGLES = 5  # experts that have rows of their own
OTHER_COLUMNS_WIDTH = 56  # weight, quality, cost, mix, the other experts, policy


def view_frontier(found: Document, width: int, target: Path | None) -> Iterator[Block]:
    """The table, its references, and the file of the plot."""
    means = f"quality and {found['unit']} per prompt, mean over the domains of {found['prompts']:,} prompts\n"
    yield from (heading("Frontier"), line((means, FAINT)))
    yield Result(_points_table(found, width))
    yield from ("", _references_table(found))
    if target is not None:
        yield line(("drawn in ", ""), (str(target), "bold"))


def _points_table(found: Document, width: int) -> Block:
    """One row per weight: quality, cost, the best random mix at that cost, and the experts' shares of the prompts."""
    experts = _choose_columns(found, width - OTHER_COLUMNS_WIDTH)
    others = [name for name in found["experts"] if name not in experts]
    names = ["weight", "quality", found["unit"], "mix", *experts, *([_count_others(others)] if others else [])]
    shown = table(*names, "", right=names)
    for point in found["points"]:
        own, shares = point["weight"] == found["weight"], point["shares"]
        shown.add_row(
            line((f"{point['weight']:g}", "bold" if own else "")),
            percent(point["quality"]),
            f"{point['cost']:.4g}",
            line((percent(point["mix_quality"]), FAINT)),
            *(_format_share(shares[name], colour_of(found["experts"].index(name))) for name in experts),
            *([_format_share(sum(shares[name] for name in others), "")] if others else []),
            line(("← policy" if own else "", FAINT)),
        )
    return shown


def _choose_columns(found: Document, room: int) -> list[str]:
    """The experts whose shares are shown: those whose shares change most, as many as there is room for."""

    def rank(name: str) -> tuple[float, float]:
        shares = [point["shares"][name] for point in found["points"]]
        return min(shares) - max(shares), -max(shares)

    chosen: set[str] = set()
    for name in sorted(found["experts"], key=rank)[:MAX_SHARE_COLUMNS]:
        room -= max(len(name), len("100 %")) + 3
        if room < 0:
            break
        chosen.add(name)
    return [name for name in found["experts"] if name in chosen]


def _format_share(share: float, colour: str) -> Block:
    return line((f"{100 * share:.0f} %", colour) if share else ("·", FAINT))


def _count_others(others: Sequence[object]) -> str:
    return "1 other" if len(others) == 1 else f"{len(others)} others"


def _references_table(found: Document) -> Block:
    """The references of the frontier; of the single experts the best few."""
    by_quality = sorted(found["singles"].items(), key=lambda one: (-one[1]["quality"], one[1]["cost"]))
    kept, others = by_quality[:MAX_SINGLES], by_quality[MAX_SINGLES:]
    rows = [(f"always {name}", percent(spot["quality"]), f"{spot['cost']:.4g}") for name, spot in kept]
    if others:
        low, high = (f"{find(spot['cost'] for _, spot in others):.4g}" for find in (min, max))
        between = low if low == high else f"{low} – {high}"
        rows.append((f"and {_count_others(others)}", f"≤ {percent(others[0][1]['quality'])}", between))
    for name, spot in (("a random expert", found["uniform"]), ("an oracle", found["oracle"][0])):
        rows.append((name, percent(spot["quality"]), f"{spot['cost']:.4g}"))
    return table("compared with", "quality", found["unit"], right=("quality", found["unit"]), rows=rows)


# matplotlib ---------------------------------------------------------------------------------------------------------

FORMATS = (".png", ".svg", ".pdf")
DOTS_PER_INCH = 150
MAX_EXPERT_NAMES = 20


def parse_plot_path(context: click.Context, parameter: click.Parameter, value: str | None) -> Path | None:
    """A file to draw to; a click callback."""
    return None if value is None else check_suffix(value, FORMATS, "rename it")


def require_matplotlib() -> None:
    """Raise an error about a missing matplotlib before anything is measured."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "drawing a plot") from error


def draw_frontier(found: Document, target: Path) -> None:
    """Quality over cost: the router, single experts, random mixes and an oracle."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    singles = list(found["singles"].values())
    right = max(spot["cost"] for spot in (*found["points"], *singles, *found["oracle"]))
    mix = [*found["mix"], {"cost": right, "quality": found["mix"][-1]["quality"]}]
    axes.plot(*_columns(mix), color="grey", linestyle=":", label="random mix, blind to the prompt")
    axes.plot(*_columns(found["oracle"]), color="tab:orange", linestyle="--", marker="D", markersize=4, label="oracle")
    axes.plot(*_columns(found["points"]), color="tab:blue", marker="o", markersize=4, label="this router")
    axes.plot(*_columns(singles), color="black", linestyle="", marker="o", fillstyle="none", label="always one expert")
    style: dict[str, Any] = {"xytext": (4, 5), "textcoords": "offset points", "fontsize": 7, "rotation": 30}
    for name, spot in list(found["singles"].items())[:MAX_EXPERT_NAMES]:
        axes.annotate(name, (spot["cost"], spot["quality"]), **style)
    axes.set(xlabel=f"{found['unit']} per prompt", ylabel="quality", ylim=(0, None))
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, framealpha=0.9)
    _save(figure, target)


def draw_reliability(report: Document, target: Path) -> None:
    """Confidence and accuracy, and below them how many prompts have which confidence."""
    from matplotlib.figure import Figure

    bins = [part for part in report["reliability"] if part["count"]]
    middles = [(part["low"] + part["high"]) / 2 for part in bins]
    width = 0.9 * (bins[0]["high"] - bins[0]["low"])
    figure = Figure(figsize=(5, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    above.bar(middles, [part["accuracy"] for part in bins], width, color="tab:blue", alpha=0.8, label="accuracy")
    above.plot([0, 1], [0, 1], color="grey", lw=1, ls=":")
    above.plot(middles, [part["confidence"] for part in bins], "k_", ms=22, mew=2, label="confidence")
    above.set(ylabel="accuracy", ylim=(0, 1), xlim=(0, 1))
    above.set_title(f"expected calibration error {100 * report['calibration_error']:.1f} points", fontsize="medium")
    above.legend(loc="upper left")
    below.bar(middles, [part["count"] for part in bins], width, color="grey")
    below.set(xlabel="confidence", ylabel="prompts")
    _save(figure, target)


def _columns(spots: Sequence[Document]) -> tuple[list[float], list[float]]:
    return [spot["cost"] for spot in spots], [spot["quality"] for spot in spots]


def _save(figure: Figure, target: Path) -> None:
    """Write the file in the format of its suffix, whole or not at all."""
    files.make_folder(target.parent)
    with files.open_atomic(target) as file:
        kind = target.suffix[1:].lower()
        undated = {"Date": None} if kind == "svg" else None
        figure.savefig(file, format=kind, dpi=DOTS_PER_INCH, metadata=undated)
