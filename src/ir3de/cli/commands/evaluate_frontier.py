"""eval --frontier: what quality costs, as a table and as a small picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.options import Function
from ir3de.cli.output import FAINT, Output, colour_of, heading, line, percent, table
from ir3de.cli.plots import parse_plot_path

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ir3de.evaluation.frontier import CostQuality, Frontier

WIDTH, HEIGHT = 60, 14  # of the picture, in characters
MAX_SHARE_COLUMNS = 5  # experts that have columns of their own
MAX_SINGLES = 5  # experts that have rows of their own
OTHER_COLUMNS_WIDTH = 56  # weight, quality, cost, mix, the other experts, policy
ROUTER, SINGLE, MIX, ORACLE = "●", "○", "·", "◇"


def frontier_options(function: Function) -> Function:
    """--frontier and --frontier-plot."""
    text = "Also show quality and cost at every weight; holds all decisions in memory."
    drawn = "Draw the frontier as .png, .svg or .pdf; needs the extra `plots`."
    plot = click.option("--frontier-plot", metavar="FILE", callback=parse_plot_path, help=drawn)
    return click.option("--frontier", is_flag=True, help=text)(plot(function))


def show_frontier(out: Output, found: Frontier, target: Path | None) -> None:
    """The table, the picture, and where the drawn one is."""
    if out.as_json:
        return
    means = f"quality and {found.unit} per prompt, mean over the domains of {found.prompts:,} prompts\n"
    out.note(heading("Frontier"), line((means, FAINT)))
    out.result(frontier_table(found, out.console.width))
    out.note("", *picture(found), _lines(found))
    if target is not None:
        out.note(line(("drawn in ", ""), (str(target), "bold")))


def frontier_table(found: Frontier, width: int) -> Table:
    """One row per weight: quality, cost, the best random mix at that cost, and the experts' shares of the prompts."""
    experts = _columns(found, width - OTHER_COLUMNS_WIDTH)
    others = [name for name in found.experts if name not in experts]
    rest = [_count_others(others)] if others else []
    names = ["weight", "quality", found.unit, "mix", *experts, *rest]
    shown = table(*names, "", right=names)
    for point in found.points:
        own = point.weight == found.weight
        shown.add_row(
            line((f"{point.weight:g}", "bold" if own else "")),
            percent(point.quality),
            f"{point.cost:.4g}",
            line((percent(point.mix_quality), FAINT)),
            *(_share(point.shares[name], colour_of(found.experts.index(name))) for name in experts),
            *([_share(sum(point.shares[name] for name in others), "")] if others else []),
            line(("← policy" if own else "", FAINT)),
        )
    return shown


def _columns(found: Frontier, room: int) -> list[str]:
    """The experts whose shares are shown: those whose shares change most, as many as there is room for."""

    def rank(name: str) -> tuple[float, float]:
        shares = [point.shares[name] for point in found.points]
        return min(shares) - max(shares), -max(shares)

    chosen: set[str] = set()
    for name in sorted(found.experts, key=rank)[:MAX_SHARE_COLUMNS]:
        room -= max(len(name), len("100 %")) + 3
        if room < 0:
            break
        chosen.add(name)
    return [name for name in found.experts if name in chosen]


def _share(share: float, colour: str) -> Text:
    return line((f"{100 * share:.0f} %", colour) if share else ("·", FAINT))


def _count_others(others: Sequence[object]) -> str:
    return "1 other" if len(others) == 1 else f"{len(others)} others"


def _lines(found: Frontier) -> Table:
    """What the frontier is compared with; of the single experts the best few."""
    by_quality = sorted(found.singles.items(), key=lambda one: (-one[1].quality, one[1].cost))
    kept, others = by_quality[:MAX_SINGLES], by_quality[MAX_SINGLES:]
    spots = [(SINGLE, f"always {name}", spot) for name, spot in kept]
    rows = [(mark, name, percent(spot.quality), f"{spot.cost:.4g}") for mark, name, spot in spots]
    if others:
        costs = [spot.cost for _, spot in others]
        between = f"{min(costs):.4g}" if min(costs) == max(costs) else f"{min(costs):.4g} – {max(costs):.4g}"
        rows.append((SINGLE, f"and {_count_others(others)}", f"≤ {percent(others[0][1].quality)}", between))
    for mark, name, spot in (("", "a random expert", found.uniform), (ORACLE, "an oracle", found.oracle[0])):
        rows.append((mark, name, percent(spot.quality), f"{spot.cost:.4g}"))
    return table("", "compared with", "quality", found.unit, right=("quality", found.unit), rows=rows)


def picture(found: Frontier) -> Iterator[Text]:
    """Quality upwards, cost to the right, one character per point."""
    everything = [*found.points, *found.singles.values(), *found.oracle]
    right = max(spot.cost for spot in everything) or 1.0
    top = max(1.0, *(spot.quality for spot in everything))
    cells: dict[tuple[int, int], tuple[str, str]] = {}

    def put(spots: Sequence[CostQuality], mark: str, style: str) -> None:
        for spot in spots:
            column, row = round(spot.cost / right * (WIDTH - 1)), round(spot.quality / top * (HEIGHT - 1))
            cells[min(max(column, 0), WIDTH - 1), min(max(row, 0), HEIGHT - 1)] = (mark, style)

    put(_blind(found, right), MIX, FAINT)
    put(list(found.singles.values()), SINGLE, "")
    put(found.oracle, ORACLE, "yellow")
    put(found.points, ROUTER, "bold cyan")
    for row in reversed(range(HEIGHT)):
        label = percent(top) if row == HEIGHT - 1 else percent(0.0) if row == 0 else ""
        drawn = [cells.get((column, row), (" ", "")) for column in range(WIDTH)]
        yield line((f"{label:>8} │", FAINT), *drawn)
    yield line((f"{'':8} └{'─' * WIDTH}", FAINT))
    yield line((f"{'0':>10}{found.unit + ' per prompt':^{WIDTH - 10}}{right:>9.4g}", FAINT))
    legend = f"{ROUTER} this router   {SINGLE} always one expert   {MIX} random mix   {ORACLE} an oracle"
    yield line((f"{'':10}{legend}\n", FAINT))


def _blind(found: Frontier, right: float) -> list[CostQuality]:
    """The line of the random mixes, one point per column."""
    from ir3de.evaluation.frontier import CostQuality, interpolate_mix

    first = found.mix[0].cost
    costs = [right * column / (WIDTH - 1) for column in range(WIDTH)]
    return [CostQuality(cost, interpolate_mix(found.mix, cost)) for cost in costs if cost >= first]
