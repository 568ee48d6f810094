"""eval --frontier: what quality costs, as a table and as a small picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.options import Function
from ir3de.cli.output import FAINT, Output, colour_of, heading, percent, styled, table
from ir3de.cli.plots import parse_plot_path

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ir3de.evaluation.frontier import CostQuality, Frontier, FrontierPoint

WIDTH, HEIGHT = 60, 14  # of the picture, in characters
MOST_SHARES = 8  # experts that have columns of their own
WIDTH_WITHOUT_SHARES = 44  # weight, quality, cost, mix, policy
ROUTER, SINGLE, MIX, ORACLE = "●", "○", "·", "◇"


def frontier_options(function: Function) -> Function:
    """--frontier and --frontier-plot."""
    shown = click.option(
        "--frontier", is_flag=True, help="Also show what quality costs, at every weight: holds all decisions in memory."
    )
    drawn = click.option(
        "--frontier-plot",
        metavar="FILE",
        callback=parse_plot_path,
        help="Draw that as .png, .svg or .pdf; needs the extra `plots`.",
    )
    return shown(drawn(function))


def show_frontier(out: Output, found: Frontier, target: Path | None) -> None:
    """The table, the picture, and where the drawn one is."""
    if out.as_json:
        return
    out.note(heading("Frontier"), styled((_headline(found), FAINT)))
    out.result(frontier_table(found, out.console.width))
    out.note("", *picture(found), _lines(found))
    if target is not None:
        out.note(styled(("drawn in ", ""), (str(target), "bold")))


def _headline(found: Frontier) -> str:
    return f"quality and {found.unit} a prompt, mean over the domains of {found.prompts:,} prompts\n"


def frontier_table(found: Frontier, width: int) -> Table:
    """One row a weight: quality, cost, the best blind mix as dear, and who gets the prompts."""
    experts = _columns(found, width - WIDTH_WITHOUT_SHARES)
    names = ["weight", "quality", found.unit, "mix", *experts]
    shown = table(*names, "", right=names)
    for point in found.points:
        own = point.weight == found.weight
        shown.add_row(
            styled((f"{point.weight:g}", "bold" if own else "")),
            percent(point.quality),
            f"{point.cost:.4g}",
            styled((percent(point.mix_quality), FAINT)),
            *(_share(point, name, colour_of(found.experts.index(name))) for name in experts),
            styled(("← policy" if own else "", FAINT)),
        )
    return shown


def _columns(found: Frontier, room: int) -> list[str]:
    """The experts whose shares are shown: those with most prompts at any weight, as many as there is room for."""
    by_share = sorted(found.experts, key=lambda name: -max(point.shares[name] for point in found.points))
    chosen: set[str] = set()
    for name in by_share[:MOST_SHARES]:
        room -= max(len(name), len("100 %")) + 3
        if room < 0:
            break
        chosen.add(name)
    return [name for name in found.experts if name in chosen]


def _share(point: FrontierPoint, name: str, colour: str) -> Text:
    share = point.shares[name]
    return styled((f"{100 * share:.0f} %", colour) if share else ("·", FAINT))


def _lines(found: Frontier) -> Table:
    """What the frontier is compared with."""
    shown = table("", "compared with", "quality", found.unit, right=("quality", found.unit))
    rows: list[tuple[str, str, CostQuality]] = [
        (SINGLE, f"always {name}", spot) for name, spot in found.singles.items()
    ]
    rows += [("", "any expert at random", found.uniform), (ORACLE, "an oracle", found.oracle[0])]
    for mark, name, spot in rows[-MOST_SHARES - 2 :]:
        shown.add_row(mark, name, percent(spot.quality), f"{spot.cost:.4g}")
    return shown


def picture(found: Frontier) -> Iterator[Text]:
    """Quality upwards, cost to the right, a character a spot."""
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
        line = [cells.get((column, row), (" ", "")) for column in range(WIDTH)]
        yield styled((f"{label:>8} │", FAINT), *line)
    yield styled((f"{'':8} └{'─' * WIDTH}", FAINT))
    yield styled((f"{'0':>10}{found.unit + ' a prompt':^{WIDTH - 10}}{right:>9.4g}", FAINT))
    legend = f"{ROUTER} this router   {SINGLE} always one expert   {MIX} random mix   {ORACLE} an oracle"
    yield styled((f"{'':10}{legend}\n", FAINT))


def _blind(found: Frontier, right: float) -> list[CostQuality]:
    """The line of the random mixes, a spot a column."""
    from ir3de.evaluation.frontier import CostQuality, interpolate_mix

    first = found.mix[0].cost
    costs = [right * column / (WIDTH - 1) for column in range(WIDTH)]
    return [CostQuality(cost, interpolate_mix(found.mix, cost)) for cost in costs if cost >= first]
