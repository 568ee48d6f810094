"""A comparison of two routers on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ir3de.cli import lib
from ir3de.cli.formats import FAINT, bar, colour_of, line, one_line, percent
from ir3de.cli.output import Block, Output, Result, heading, short_table, table

BAR_WIDTH = 20
PROMPT_WIDTH = 70
DIRECTIONS = {"better": "green", "worse": "red", "not shown": ""}


def view_comparison(found: Any, out: Output) -> Iterator[Block]:
    """A `Comparison`: the verdict, the figures, who gets what, the prompts that decide, and what is not known."""
    live, candidate = found.names
    about = f"{found.requests:,} requests, {found.conversations:,} conversations"
    days = found.first_day if found.first_day == found.last_day else f"{found.first_day} to {found.last_day}"
    yield line((f"{live} → {candidate}", "bold"), (f"  {about}, {days}" if found.days else f"  {about}", FAINT))
    for sentence in found.verdict:
        yield Result(line((sentence, "")))
    yield ""
    columns = ("", live, candidate, "difference", "95 % interval", "from")
    yield Result(table(*columns, right=columns[1:5], rows=list(_list_figures(found))))
    yield from _view_experts(found, out)
    if found.decisive:
        yield heading("The prompts that decide", "the largest weight in the differences first")
        yield _draw_decisive(found, out)
    yield heading("Not known")
    for sentence in found.unknown:
        yield line(("· ", FAINT), (sentence, ""))


def _list_figures(found: Any) -> Iterator[Sequence[Block]]:
    agreement = found.agreement
    interval = f"{100 * agreement.low:.1f} to {percent(agreement.high)}"
    moved = f"{found.moved:,} move"
    yield "agreement", "", "", line((percent(agreement.value), "bold")), interval, line((moved, FAINT))
    if found.accuracy is not None:
        figure = found.accuracy
        yield "accuracy", *_write_shares(figure), line((f"{figure.labelled:,} labels", FAINT))
    if found.score is not None:
        figure = found.score
        share = figure.difference.unknown_share
        rest = f", {percent(share)} not known" if share else ""
        yield "expected score", *_write_shares(figure), line((f"{figure.scored:,} scores{rest}", FAINT))
    if (cost := found.cost) is not None:
        money, each = lib.verdict.write_money, 1000 / max(cost.requests, 1)
        sides = (money(each * one) for one in (cost.live, cost.candidate))
        known = line((f"{cost.requests:,} requests, by {cost.cluster}", FAINT))
        yield "cost of 1,000", *sides, *_write_saving(cost.saving, -1.0), known
        if cost.month is not None:
            volume = f"{found.requests / found.days * 30.44:,.0f} requests a month"
            yield "saving a month", "", "", *_write_saving(cost.month, 1.0), line((volume, FAINT))
    yield from _list_decisions(found)


def _list_decisions(found: Any) -> Iterator[Sequence[Block]]:
    """Figures of the decisions alone, which need no feedback. They have no interval: nothing is estimated."""
    yield "as served", *map(percent, found.as_served), "", "", line(("the expert that answered then", FAINT))
    live, candidate, both = (f"{number:,}" for number in found.abstained)
    yield "abstained", live, candidate, "", "", line((f"{both} on both sides", FAINT))
    for name, change, write in (("confidence", found.confidence, percent), ("expectation", found.expectation, _round)):
        if change is not None:
            counts = f"clearly higher for {change.higher:,} requests, lower for {change.lower:,}"
            yield name, write(change.live), write(change.candidate), "", "", line((counts, FAINT))


def _round(value: float) -> str:
    return f"{value:.3f}"


def _write_shares(figure: Any) -> Iterator[Block]:
    yield percent(figure.live.value)
    yield percent(figure.candidate.value)
    points, difference = lib.intervals.write_points, figure.difference
    style = DIRECTIONS[lib.verdict.find_direction(difference)]
    yield line((f"{points(difference.value)} points", f"bold {style}".strip()))
    yield f"{points(difference.low)} to {points(difference.high)}"


def _write_saving(saving: Any, sign: float) -> Iterator[Block]:
    """A saving, or with the sign −1 the difference of the costs."""
    money = lib.verdict.write_money
    style = DIRECTIONS[lib.verdict.find_direction(saving)]
    yield line((money(sign * saving.value), f"bold {style}".strip()))
    low, high = sorted((sign * saving.low, sign * saving.high))
    yield f"{money(low)} to {money(high)}"


def _view_experts(found: Any, out: Output) -> Iterator[Block]:
    most = max(max(one.live, one.candidate) for one in found.shares)
    rows = []
    for one in sorted(found.shares, key=lambda one: -max(one.live, one.candidate)):
        style = colour_of(found.experts.index(one.expert))
        drawn = bar(one.candidate / most, BAR_WIDTH, style)
        rows.append((one.expert, f"{one.live:,}", f"{one.both:,}", f"{one.candidate:,}", drawn))
    live, candidate = found.names
    columns = ("expert", live, "both", candidate, "")
    yield heading("Experts", "requests that each side sends to them")
    yield short_table(*columns, right=columns[1:4], rows=rows)
    if not found.moves:
        return
    money = lib.verdict.write_money
    numbers = ("requests", "now right", "now wrong", "saving")
    moves = [
        (f"{one.live} → {one.candidate}", f"{one.requests:,}", f"{one.gained:,}", f"{one.lost:,}",
         "–" if one.saving is None else money(one.saving))
        for one in found.moves
    ]  # fmt: skip
    yield heading("Moves")
    yield short_table("from → to", *numbers, right=numbers, rows=moves, what="the most frequent first; ")


def _draw_decisive(found: Any, out: Output) -> Block:
    points, money = lib.intervals.write_points, lib.verdict.write_money
    width = max(20, min(PROMPT_WIDTH, out.table_width - 50))
    numbers = ["times"]
    numbers += ["accuracy"] if found.accuracy else []
    numbers += ["score"] if found.score else []
    numbers += ["cost"] if found.cost else []
    rows = []
    for one in found.decisive:
        cells: dict[str, Block] = {
            "times": f"{one.requests:,}",
            "accuracy": points(one.accuracy) if one.accuracy else "·",
            "score": f"{100 * one.score:+.2f}" if one.score else "·",
            "cost": "–" if one.cost is None else money(one.cost),
        }
        shown = one_line(one.prompt, width) if one.prompt else "(not kept as text)"
        rows.append((shown, f"{one.live} → {one.candidate}", *(cells[name] for name in numbers)))
    return table("prompt", "from → to", *numbers, right=numbers, rows=rows)
