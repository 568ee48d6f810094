"""Differences between ways of choosing, without one part of a task's prompts after another, the same for all ways.

    figure without a part     all other prompts of its task count in its place, so that the task keeps its weight
    variances of the tasks    add up, as in `experiments.resampling`: nothing is drawn, so no sign depends on a seed

A part is a cluster of prompts with the same text, as a rule of one. Where a task has more than 500, they are dealt out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de_lab.benchmarks.held_out_tasks.sets import Floats, Part, Places
from ir3de_lab.experiments.resampling import Difference, estimate
from ir3de_lab.experiments.spending import PARTS, PRICES, integrate_hull

POINTS = 100.0  # percentage points of a score
Texts = npt.NDArray[np.str_]
Measure = Callable[[Floats], Floats]  # (some, n) weights of the prompts -> (some, ways) figures, from 0 to 1


def compare(test: Part, ours: int, measure: Measure) -> tuple[Floats, list[Difference]]:
    """The figure of every way in percent, and how far it lies above ours, in points."""
    whole = POINTS * measure(test.weigh()[None])[0]
    left = [POINTS * measure(weights) for weights in leave_out(test)]
    gaps = whole - whole[ours]
    found = []
    for way, gap in enumerate(gaps.tolist()):
        # a task's own share of the figure is that of one task among all: estimate() takes their mean
        without = [gap + len(left) * (task[:, way] - task[:, ours] - gap) for task in left]
        found.append(estimate([gap] * len(left), without))
    return whole, found


def leave_out(test: Part) -> Iterator[Floats]:
    """(parts, n)  the weights of all prompts without one part of a task after another, one task at a time."""
    parts = deal(test.texts)
    for task in test.names:
        own = test.tasks == task
        names, place, count = np.unique(parts[own], return_inverse=True, return_counts=True)
        weights = np.tile(test.weigh(), (len(names), 1))
        kept = place != np.arange(len(names))[:, None]
        alone = len(names) == 1  # nothing is left: no figure either
        weights[:, own] = np.nan if alone else kept / ((own.sum() - count)[:, None] * len(test.names))
        yield weights


def deal(texts: Sequence[str]) -> Places:
    """(n,)  the part of each prompt: those with the same text are in one.

    >>> deal(["Why?", "How?", "why? "]).tolist()
    [0, 1, 0]
    """
    numbers: dict[str, int] = {}
    same = [" ".join(text.split()).casefold() for text in texts]
    return np.array([numbers.setdefault(text, len(numbers)) % PARTS for text in same], np.intp)


def measure_means(columns: Floats) -> Measure:
    """The mean over tasks of each column (n, ways)."""
    return lambda weights: weights @ columns


def order_calls(gaps: Floats) -> Floats:
    """(n,)  the share of all shares of strong calls at which each prompt's call is strong; equals share theirs."""
    _, place, count = np.unique(-gaps, return_inverse=True, return_counts=True)
    return np.asarray((1.0 - (np.cumsum(count) - count / 2) / len(gaps))[place])


def measure_orders(suites: Texts, gained: Floats, later: Sequence[Floats]) -> Measure:
    """APGR of several orders as they are given, the mean over the suites.

    `gained` is what the strong model scores above the weak one.
    """
    names = np.unique(suites)
    columns = np.stack([gained, *[gained * one for one in later]], axis=1)

    def measure(weights: Floats) -> Floats:
        sums = np.stack([weights[:, suites == name] @ columns[suites == name] for name in names])
        return np.asarray((sums[:, :, 1:] / sums[:, :, :1]).mean(axis=0))

    return measure


@dataclass(frozen=True, eq=False)
class Curve:
    """What a way buys, once for all prices at which it buys the same: (points, n) costs and scores."""

    costs: Floats
    scores: Floats


def buy(scores: Floats, costs: Floats, expected: Floats, usual: Floats) -> Curve:
    """Send each prompt at every price to the model with the best of expected score less price times usual cost."""
    chosen = np.array([(expected - price * usual).argmax(axis=1) for price in PRICES])
    _, first = np.unique(chosen, axis=0, return_index=True)
    chosen, at = chosen[np.sort(first)], np.arange(len(scores))
    return Curve(np.array([costs[at, one] for one in chosen]), np.array([scores[at, one] for one in chosen]))


def buy_single(scores: Floats, costs: Floats) -> Curve:
    """What the single models cost and score: all that the zero router mixes."""
    return Curve(costs.T, scores.T)


def measure_curves(curves: Sequence[Curve], span: tuple[float, float]) -> Measure:
    """AIQ of several curves over a range of mean costs."""

    def measure(weights: Floats) -> Floats:
        made = []
        for curve in curves:
            means = weights @ curve.costs.T, weights @ curve.scores.T
            made.append([integrate_hull(cost, score, span) for cost, score in zip(*means, strict=True)])
        return np.array(made).T

    return measure
