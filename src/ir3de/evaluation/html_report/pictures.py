"""The pictures of a report: reliability, learning curve, coverage, and quality against cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ir3de.evaluation.accuracy import ReliabilityBin
from ir3de.evaluation.frontier import Frontier
from ir3de.evaluation.html_report.figures import count, percent, short_percent
from ir3de.evaluation.html_report.plot import Axis, Plot, draw_legend
from ir3de.evaluation.intervals import Estimate
from ir3de.evaluation.proof import CurvePoint
from ir3de.routing.drawing.markup import Markup, make

FEW_PROMPTS = 10  # of a bin, whose accuracy says little
MAX_CURVE_TICKS = 6
FRONTIER_ROWS = 8  # at most, of the table beside the frontier
LABELLED_EXPERTS = 6  # whose names stand beside their points
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def draw_reliability(bins: Sequence[ReliabilityBin]) -> Markup:
    """Accuracy over confidence: on the diagonal, confidence is what it says."""
    axes = Axis("confidence", 0, 1, short_percent, SHARES), Axis("accuracy", 0, 1, short_percent, SHARES)
    plot = Plot("Reliability: the accuracy of decisions by their confidence", *axes)
    for one in bins:
        if one.accuracy is not None and one.confidence is not None:
            told = f"{count(one.count, 'prompt')}: {percent(one.confidence)} confidence, {percent(one.accuracy)} right"
            plot.column(one.low, one.high, one.accuracy, "few" if one.count < FEW_PROMPTS else "", told)
    plot.line([(0, 0), (1, 1)], "guide")
    for one in bins:
        if one.accuracy is not None and one.confidence is not None:
            told = f"mean confidence {percent(one.confidence)}, {percent(one.accuracy)} right"
            plot.mark(one.confidence, one.accuracy, "here", told)
    entries = [("column", "accuracy"), ("here", "at the mean confidence"), ("guide", "confidence kept exactly")]
    if any(0 < one.count < FEW_PROMPTS for one in bins):
        entries.append(("few", f"fewer than {FEW_PROMPTS} prompts"))
    return make("figure", plot.draw(), draw_legend(*entries))


def draw_curve(points: Sequence[CurvePoint], doubling: Estimate | None) -> Markup:
    """Accuracy over the number of training prompts, with its intervals, and what twice as many should bring."""
    spots = [(point.prompts, point.accuracy) for point in points]
    last, found = spots[-1]
    ahead = [(2 * last, _add(found, doubling))] if doubling is not None else []
    sizes, shown = [size for size, _ in spots + ahead], [one for _, one in spots + ahead]
    x = Axis("training prompts", sizes[0], sizes[-1], lambda value: f"{value:,.0f}", sizes, log=True)
    y = _shares(*_frame(min(one.low for one in shown), max(one.high for one in shown)))
    plot = Plot(f"Learning curve: from {_say_point(*spots[0])} to {_say_point(*spots[-1])}", x, y)
    for part, kind in ((spots, ""), ([spots[-1], *ahead], "ahead")):
        plot.band([(size, one.low) for size, one in part], [(size, one.high) for size, one in part], kind)
        plot.line([(size, one.value) for size, one in part], kind)
    for size, one in ahead:
        plot.mark(size, one.value, "single", f"expected: {_say_point(size, one)}, {_say_range(one)}")
    for size, one in spots:
        plot.mark(size, one.value, "", f"{_say_point(size, one)}, {_say_range(one)}")
    entries = [("", "accuracy"), ("band", "95 % interval")]
    entries += [("guide", "expected of twice the prompts")] if ahead else []
    return make("figure", plot.draw(), draw_legend(*entries))


def _add(one: Estimate, gain: Estimate) -> Estimate:
    """An accuracy after a gain, never above one."""
    value, low, high = (min(1.0, one.value + more) for more in (gain.value, gain.low, gain.high))
    return Estimate(value, low, high)


def _say_range(found: Estimate) -> str:
    return f"between {percent(found.low)} and {percent(found.high)}"


def _say_point(prompts: int, found: Estimate) -> str:
    return f"{percent(found.value)} with {count(prompts, 'prompt')}"


class Covered(NamedTuple):
    """What a threshold gives: the share of prompts answered, and the share of those that is right."""

    coverage: float
    accuracy: float
    threshold: float


def find_coverage(bins: Sequence[ReliabilityBin]) -> list[Covered]:
    """What each threshold between two bins gives, the strictest first."""
    answered, right = 0.0, 0.0
    spots = []
    for one in sorted(bins, key=lambda one: -one.low):
        if one.count:
            answered += one.share
            right += one.share * (one.accuracy or 0.0)
            spots.append(Covered(min(1.0, answered), min(1.0, right / answered), one.low))
    return spots


def draw_coverage(spots: Sequence[Covered], here: tuple[float, float] | None) -> Markup:
    """Accuracy over the share of prompts that are answered; `here` is where the router stands now."""
    values = [right for _, right, _ in spots] + ([here[1]] if here else [])
    left, _ = _frame(min(spots[0][0], here[0] if here else 1.0), 1.0)
    low, high = _frame(min(values), max(values))
    axis = Axis("prompts answered", left, 1.0, short_percent)
    last = f"{percent(spots[0][1])} right where {percent(spots[0][0])} are answered"
    plot = Plot(f"Accuracy over coverage: {last}", axis, _shares(low, high))
    plot.line([spot[:2] for spot in spots], "")
    for coverage, right, threshold in spots:
        told = f"threshold {percent(threshold)}: {percent(coverage)} answered, {percent(right)} of them right"
        plot.mark(coverage, right, "", told)
    entries = [("", "accuracy of what is answered, by threshold")]
    if here:
        plot.mark(*here, "here", f"as the router is: {percent(here[0])} answered, {percent(here[1])} right", 5)
        entries.append(("here", "the router as it is"))
    return make("figure", plot.draw(), draw_legend(*entries))


def draw_frontier(found: Frontier) -> Markup:
    """Quality over cost: the router at every weight, single experts, random mixes and an oracle."""
    spots = [*found.points, *found.singles.values(), *found.oracle]
    right = max(spot.cost for spot in spots) or 1.0
    low, high = _frame(min(spot.quality for spot in found.points), max(spot.quality for spot in spots))
    low = 0.0 if low < 0.5 else low
    plot = Plot(
        f"Quality against {found.unit} per prompt",
        Axis(f"{found.unit} per prompt", 0, right, lambda value: f"{value:.3g}"),
        Axis("quality", low, high, short_percent),
    )
    mixes = [(spot.cost, spot.quality) for spot in found.mix if spot.quality >= low]
    if mixes:
        plot.line([*mixes, (right, mixes[-1][1])], "guide")
    plot.line([(spot.cost, spot.quality) for spot in found.oracle if spot.quality >= low], "oracle")
    plot.line([(spot.cost, spot.quality) for spot in found.points], "")
    singles = [(name, spot) for name, spot in found.singles.items() if spot.quality >= low]
    for name, spot in singles:
        plot.mark(spot.cost, spot.quality, "single", f"always {name}: {percent(spot.quality)} at {spot.cost:.4g}")
    if len(singles) <= LABELLED_EXPERTS:
        for place, (name, spot) in enumerate(sorted(singles, key=lambda single: single[1].cost)):
            end, below = spot.cost > 0.7 * right, place % 2 == 0  # neighbours would write over each other
            plot.label(spot.cost, spot.quality, name, anchor="end" if end else "middle", dy=18 if below else -9)
    for point in found.points:
        told = f"weight {point.weight:g}: {percent(point.quality)} at {point.cost:.4g} {found.unit} per prompt"
        own = point.weight == found.weight
        plot.mark(point.cost, point.quality, "here" if own else "", told, 5.0 if own else 3.6)
    entries = [("", "this router, at each weight of cost"), ("guide", "random mix"), ("oracle", "an oracle")]
    entries += [("single", "always one expert")] if singles else []
    entries += [("here", "the router's own weight")] if found.weight is not None else []
    figure = make("figure", plot.draw(), draw_legend(*entries))
    return make("div", figure, _tabulate_frontier(found), class_="beside")


def _tabulate_frontier(found: Frontier) -> Markup:
    """Some points of the frontier in figures, the router's own among them."""
    step = -(-len(found.points) // FRONTIER_ROWS)
    shown = [point for place, point in enumerate(found.points) if place % step == 0 or point.weight == found.weight]
    names = ("weight", "quality", f"{found.unit} per prompt", "best random mix")
    head = make("tr", [make("th", name, scope="col") for name in names])
    rows = []
    for point in shown:
        weight = f"{point.weight:g}{' (its own)' * (point.weight == found.weight)}"
        cells = percent(point.quality), f"{point.cost:.4g}", percent(point.mix_quality)
        rows.append(make("tr", make("th", weight, scope="row"), [make("td", cell) for cell in cells]))
    caption = make("caption", "Quality and cost at some weights", class_="hidden")
    table = make("table", caption, make("thead", head), make("tbody", rows), class_="table")
    return make("div", table, class_="scroll", tabindex="0", role="region", aria_label="Quality and cost")


def _shares(low: float, high: float) -> Axis:
    return Axis("accuracy", low, high, short_percent)


def _frame(low: float, high: float) -> tuple[float, float]:
    """Round ends around a range of shares, with some room."""
    room = max(0.02, 0.12 * (high - low))
    step = 0.1 if high - low > 0.25 else 0.05 if high - low > 0.1 else 0.02
    return max(0.0, (low - room) // step * step), min(1.0, -(-(high + room) // step) * step)
