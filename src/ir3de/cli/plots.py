"""Plots of an evaluation: the frontier of quality and cost on a terminal, and diagrams drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.options import check_suffix
from ir3de.cli.output import FAINT, Result, colour_of, heading, line, percent, table
from ir3de.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table
    from rich.text import Text

Document = Mapping[str, Any]

WIDTH, HEIGHT = 60, 14  # of the picture, in characters
MAX_SHARE_COLUMNS = 5  # experts that have columns of their own
MAX_SINGLES = 5  # experts that have rows of their own
OTHER_COLUMNS_WIDTH = 56  # weight, quality, cost, mix, the other experts, policy
ROUTER, SINGLE, MIX, ORACLE = "●", "○", "·", "◇"


def view_frontier(found: Document, width: int, target: Path | None) -> Iterator[Any]:
    """The table, the picture, and the file of the drawn one."""
    means = f"quality and {found['unit']} per prompt, mean over the domains of {found['prompts']:,} prompts\n"
    yield from (heading("Frontier"), line((means, FAINT)))
    yield Result(_points_table(found, width))
    yield from ("", *_draw_picture(found), _references_table(found))
    if target is not None:
        yield line(("drawn in ", ""), (str(target), "bold"))


def _points_table(found: Document, width: int) -> Table:
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


def _format_share(share: float, colour: str) -> Text:
    return line((f"{100 * share:.0f} %", colour) if share else ("·", FAINT))


def _count_others(others: Sequence[object]) -> str:
    return "1 other" if len(others) == 1 else f"{len(others)} others"


def _references_table(found: Document) -> Table:
    """The references of the frontier; of the single experts the best few."""
    by_quality = sorted(found["singles"].items(), key=lambda one: (-one[1]["quality"], one[1]["cost"]))
    kept, others = by_quality[:MAX_SINGLES], by_quality[MAX_SINGLES:]
    spots = [(SINGLE, f"always {name}", spot) for name, spot in kept]
    rows = [(mark, name, percent(spot["quality"]), f"{spot['cost']:.4g}") for mark, name, spot in spots]
    if others:
        low, high = (f"{find(spot['cost'] for _, spot in others):.4g}" for find in (min, max))
        between = low if low == high else f"{low} – {high}"
        rows.append((SINGLE, f"and {_count_others(others)}", f"≤ {percent(others[0][1]['quality'])}", between))
    for mark, name, spot in (("", "a random expert", found["uniform"]), (ORACLE, "an oracle", found["oracle"][0])):
        rows.append((mark, name, percent(spot["quality"]), f"{spot['cost']:.4g}"))
    return table("", "compared with", "quality", found["unit"], right=("quality", found["unit"]), rows=rows)


def _draw_picture(found: Document) -> Iterator[Text]:
    """Quality upwards, cost to the right, one character per point."""
    singles = list(found["singles"].values())
    everything = [*found["points"], *singles, *found["oracle"]]
    right = max(spot["cost"] for spot in everything) or 1.0
    top = max(1.0, *(spot["quality"] for spot in everything))
    cells: dict[tuple[int, int], tuple[str, str]] = {}

    def put(spots: Sequence[Document], mark: str, style: str) -> None:
        for spot in spots:
            column, row = round(spot["cost"] / right * (WIDTH - 1)), round(spot["quality"] / top * (HEIGHT - 1))
            cells[min(max(column, 0), WIDTH - 1), min(max(row, 0), HEIGHT - 1)] = (mark, style)

    put(_list_mixes(found, right), MIX, FAINT)
    put(singles, SINGLE, "")
    put(found["oracle"], ORACLE, "yellow")
    put(found["points"], ROUTER, "bold cyan")
    for row in reversed(range(HEIGHT)):
        label = percent(top) if row == HEIGHT - 1 else percent(0.0) if row == 0 else ""
        drawn = [cells.get((column, row), (" ", "")) for column in range(WIDTH)]
        yield line((f"{label:>8} │", FAINT), *drawn)
    yield line((f"{'':8} └{'─' * WIDTH}", FAINT))
    yield line((f"{'0':>10}{found['unit'] + ' per prompt':^{WIDTH - 10}}{right:>9.4g}", FAINT))
    legend = f"{ROUTER} this router   {SINGLE} always one expert   {MIX} random mix   {ORACLE} an oracle"
    yield line((f"{'':10}{legend}\n", FAINT))


def _list_mixes(found: Document, right: float) -> list[Document]:
    """The line of the random mixes, one point per column."""
    from ir3de.evaluation.frontier import CostQuality, interpolate_mix

    mix = [CostQuality(**spot) for spot in found["mix"]]
    costs = [right * column / (WIDTH - 1) for column in range(WIDTH)]
    return [{"cost": cost, "quality": interpolate_mix(mix, cost)} for cost in costs if cost >= mix[0].cost]


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
    from ir3de import files

    files.make_folder(target.parent)
    with files.open_atomic(target) as file:
        kind = target.suffix[1:].lower()
        undated = {"Date": None} if kind == "svg" else None
        figure.savefig(file, format=kind, dpi=DOTS_PER_INCH, metadata=undated)
