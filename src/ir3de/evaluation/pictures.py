"""The pictures of a report as coordinates, which its template draws: plots, and the confusion matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ir3de.evaluation.accuracy import ReliabilityBin
from ir3de.evaluation.frontier import Frontier
from ir3de.evaluation.intervals import Estimate
from ir3de.evaluation.proof import CurvePoint
from ir3de.routing.html import count, write_percent

WIDTH, HEIGHT = 460.0, 290.0
LEFT, RIGHT, TOP, BOTTOM = 60.0, 18.0, 12.0, 44.0  # margins, for the numbers and the names of the axes
WANTED_TICKS = 5
NICE_STEPS = (1, 2, 2.5, 5, 10)
NARROW = "\u202f"  # a narrow space that does not break
FEW_PROMPTS = 10  # of a bin, whose accuracy means little
LABELLED_EXPERTS = 6  # whose names stand next to their points
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
MAX_WHOLE = 20  # experts that the whole matrix is drawn for
MAX_BLOCK = 16  # experts of the most confused block

Point = tuple[float, float]
Counts = npt.NDArray[np.int64]


def percent(share: float | None) -> str:
    """A share with one digit after the point, as `write_percent` writes it, with a narrow space."""
    return write_percent(share).replace(" ", NARROW)


def short_percent(share: float) -> str:
    """A share for an axis: digits after the point only where there are any.

    >>> short_percent(0.25).replace("\\u202f", " "), short_percent(0.925).replace("\\u202f", " ")
    ('25 %', '92.5 %')
    """
    return f"{round(100 * share, 1):g}{NARROW}%"


@dataclass(frozen=True)
class Axis:
    """The range of values of an axis, its name, and how a value is written; `log` spreads powers evenly."""

    name: str
    low: float
    high: float
    write: Callable[[float], str] = short_percent
    ticks: Sequence[float] = ()
    log: bool = False

    def place(self, value: float) -> float:
        """The position of a value: 0 at the low end, 1 at the high end."""
        low, high, value = (math.log(max(one, 1e-12)) if self.log else one for one in (self.low, self.high, value))
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5


@dataclass
class Plot:
    """A plot to draw on. What comes later covers what came before."""

    title: str  # a description, for screen readers
    x: Axis
    y: Axis
    shapes: list[dict[str, Any]] = field(default_factory=list)
    legend: list[tuple[str, str]] = field(default_factory=list)  # pairs of a kind and its meaning

    def locate(self, x: float, y: float) -> Point:
        """The place of a point in the picture."""
        return (
            LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - self.y.place(y) * (HEIGHT - TOP - BOTTOM),
        )

    def add(self, kind: str, points: Iterable[Point], style: str = "", text: str = "", **more: Any) -> None:
        """Add a line, the band between two lines, a mark, a column or a label."""
        located = [self.locate(*point) for point in points]
        self.shapes.append({"kind": kind, "points": located, "style": style, "text": text, **more})

    @property
    def ticks(self) -> dict[str, list[tuple[str, float]]]:
        """What is written at each axis, and where."""
        x, y = ((axis, axis.ticks or find_ticks(axis.low, axis.high)) for axis in (self.x, self.y))
        return {
            "x": [(x[0].write(value), self.locate(value, self.y.low)[0]) for value in x[1]],
            "y": [(y[0].write(value), self.locate(self.x.low, value)[1]) for value in y[1]],
        }


def find_ticks(low: float, high: float, wanted: int = WANTED_TICKS) -> list[float]:
    """Round values between two others, about as many as wanted.

    >>> find_ticks(0, 1), find_ticks(0.62, 0.97)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.7, 0.8, 0.9])
    """
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / wanted))
    step = next((one * power for one in NICE_STEPS if one * power >= (high - low) / wanted * 0.999), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def draw_reliability(bins: Sequence[ReliabilityBin]) -> Plot:
    """Accuracy over confidence: on the diagonal, the two are equal."""
    axes = Axis("confidence", 0, 1, ticks=SHARES), Axis("accuracy", 0, 1, ticks=SHARES)
    plot = Plot("Reliability: the accuracy of decisions by their confidence", *axes)
    known = [(one, one.confidence, one.accuracy) for one in bins if None not in (one.confidence, one.accuracy)]
    for one, confidence, accuracy in known:
        text = f"{count(one.count, 'prompt')}: {percent(confidence)} confidence, {percent(accuracy)} right"
        style = "few" if one.count < FEW_PROMPTS else ""
        plot.add("column", [(one.low, accuracy or 0.0), (one.high, 0)], style, text)
    plot.add("line", [(0, 0), (1, 1)], "guide")
    for _, confidence, accuracy in known:
        text = f"mean confidence {percent(confidence)}, {percent(accuracy)} right"
        plot.add("mark", [(confidence or 0.0, accuracy or 0.0)], "here", text)
    plot.legend = [("column", "accuracy"), ("here", "at the mean confidence"), ("guide", "confidence kept exactly")]
    if any(0 < one.count < FEW_PROMPTS for one in bins):
        plot.legend.append(("few", f"fewer than {FEW_PROMPTS} prompts"))
    return plot


def draw_curve(points: Sequence[CurvePoint], doubling: Estimate | None) -> Plot:
    """Accuracy over the number of training prompts, with its intervals, and the expectation for twice as many."""
    spots = [(point.prompts, point.accuracy) for point in points]
    last, found = spots[-1]
    ahead = []
    if doubling is not None:  # no accuracy is above one
        gains = (doubling.value, doubling.low, doubling.high)
        ahead = [(2 * last, Estimate(*(min(1.0, found.value + gain) for gain in gains)))]
    sizes, shown = [size for size, _ in spots + ahead], [one for _, one in spots + ahead]
    x = Axis("training prompts", sizes[0], sizes[-1], lambda value: f"{value:,.0f}", sizes, log=True)
    y = Axis("accuracy", *_frame(min(one.low for one in shown), max(one.high for one in shown)))
    first, final = (f"{percent(one.value)} with {count(size, 'prompt')}" for size, one in (spots[0], spots[-1]))
    plot = Plot(f"Learning curve: from {first} to {final}", x, y)
    for part, style in ((spots, ""), ([spots[-1], *ahead], "ahead")):
        lower, upper = ([(size, one.low) for size, one in part], [(size, one.high) for size, one in part])
        plot.add("band", [*lower, *reversed(upper)], style)
        plot.add("line", [(size, one.value) for size, one in part], style)
    for style, kind, part in (("single", "expected: ", ahead), ("", "", spots)):
        for size, one in part:
            between = f"between {percent(one.low)} and {percent(one.high)}"
            text = f"{kind}{percent(one.value)} with {count(size, 'prompt')}, {between}"
            plot.add("mark", [(size, one.value)], style, text)
    plot.legend = [("", "accuracy"), ("band", "95 % interval")]
    plot.legend += [("guide", "expected of twice the prompts")] if ahead else []
    return plot


class Covered(NamedTuple):
    """The effect of a threshold: the share of prompts answered, and the share of those that is right."""

    coverage: float
    accuracy: float
    threshold: float


def find_coverage(bins: Sequence[ReliabilityBin]) -> list[Covered]:
    """The effect of each threshold between two bins, the strictest first."""
    answered, right = 0.0, 0.0
    spots = []
    for one in sorted(bins, key=lambda one: -one.low):
        if one.count:
            answered += one.share
            right += one.share * (one.accuracy or 0.0)
            spots.append(Covered(min(1.0, answered), min(1.0, right / answered), one.low))
    return spots


def draw_coverage(spots: Sequence[Covered], here: Point | None) -> Plot:
    """Accuracy over the share of prompts that are answered; `here` is the router with its present threshold."""
    values = [spot.accuracy for spot in spots] + ([here[1]] if here else [])
    left, _ = _frame(min(spots[0].coverage, here[0] if here else 1.0), 1.0)
    y = Axis("accuracy", *_frame(min(values), max(values)))
    last = f"{percent(spots[0].accuracy)} right where {percent(spots[0].coverage)} are answered"
    plot = Plot(f"Accuracy over coverage: {last}", Axis("prompts answered", left, 1.0), y)
    plot.add("line", [(spot.coverage, spot.accuracy) for spot in spots])
    for coverage, right, threshold in spots:
        text = f"threshold {percent(threshold)}: {percent(coverage)} answered, {percent(right)} of them right"
        plot.add("mark", [(coverage, right)], text=text)
    plot.legend = [("", "accuracy of what is answered, by threshold")]
    if here:
        text = f"as the router is: {percent(here[0])} answered, {percent(here[1])} right"
        plot.add("mark", [here], "here", text, radius=5)
        plot.legend.append(("here", "the router as it is"))
    return plot


def draw_frontier(found: Frontier) -> Plot:
    """Quality over cost: the router at every weight, single experts, random mixes and an oracle."""
    spots = [*found.points, *found.singles.values(), *found.oracle]
    right = max(spot.cost for spot in spots) or 1.0
    low, high = _frame(min(spot.quality for spot in found.points), max(spot.quality for spot in spots))
    low = 0.0 if low < 0.5 else low
    x = Axis(f"{found.unit} per prompt", 0, right, lambda value: f"{value:.3g}")
    plot = Plot(f"Quality against {found.unit} per prompt", x, Axis("quality", low, high))
    mixes = [(spot.cost, spot.quality) for spot in found.mix if spot.quality >= low]
    if mixes:
        plot.add("line", [*mixes, (right, mixes[-1][1])], "guide")
    plot.add("line", [(spot.cost, spot.quality) for spot in found.oracle if spot.quality >= low], "oracle")
    plot.add("line", [(spot.cost, spot.quality) for spot in found.points])
    singles = {name: spot for name, spot in found.singles.items() if spot.quality >= low}
    for name, spot in singles.items():
        text = f"always {name}: {percent(spot.quality)} at {spot.cost:.4g}"
        plot.add("mark", [(spot.cost, spot.quality)], "single", text)
    if len(singles) <= LABELLED_EXPERTS:
        for place, (name, spot) in enumerate(sorted(singles.items(), key=lambda single: single[1].cost)):
            anchor = "end" if spot.cost > 0.7 * right else "middle"  # neighbours would write over each other
            plot.add("label", [(spot.cost, spot.quality)], text=name, anchor=anchor, dy=-9 if place % 2 else 18)
    for point in found.points:
        text = f"weight {point.weight:g}: {percent(point.quality)} at {point.cost:.4g} {found.unit} per prompt"
        style, radius = ("here", 5.0) if point.weight == found.weight else ("", 3.6)
        plot.add("mark", [(point.cost, point.quality)], style, text, radius=radius)
    plot.legend = [("", "this router, at each weight of cost"), ("guide", "random mix"), ("oracle", "an oracle")]
    plot.legend += [("single", "always one expert")] if singles else []
    plot.legend += [("here", "the router's own weight")] if found.weight is not None else []
    return plot


def _frame(low: float, high: float) -> tuple[float, float]:
    """Round ends around a range of shares, with some room."""
    room = max(0.02, 0.12 * (high - low))
    step = 0.1 if high - low > 0.25 else 0.05 if high - low > 0.1 else 0.02
    return max(0.0, (low - room) // step * step), min(1.0, -(-(high + room) // step) * step)


def choose_block(confusion: Counts) -> list[int]:
    """The places of the experts to draw: all of them where they are few, else those that are confused most.

    They stand next to those that they are confused with.
    """
    if len(confusion) <= MAX_WHOLE:
        return list(range(len(confusion)))
    both = confusion + confusion.T
    np.fill_diagonal(both, 0)
    chosen: list[int] = []
    for flat in np.argsort(-both, axis=None, kind="stable"):
        pair = [int(place) for place in np.unravel_index(flat, both.shape)]
        new = [place for place in pair if place not in chosen]
        if both[pair[0], pair[1]] == 0 or len(chosen) + len(new) > MAX_BLOCK:
            break
        chosen += new
    ordered: list[int] = []
    while chosen:  # begin with the most confused expert; next comes the one most confused with the last ones
        near = ordered[-2:] or chosen
        ordered.append(max(chosen, key=lambda place: (int(both[place, near].sum()), -place)))
        chosen.remove(ordered[-1])
    return ordered
