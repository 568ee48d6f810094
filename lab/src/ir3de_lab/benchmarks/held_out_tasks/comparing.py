"""Differences between ways of choosing, on prompts that are drawn again within their tasks, the same for all ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de_lab.benchmarks.held_out_tasks.sets import Floats
from ir3de_lab.experiments.spending import PRICES, integrate_hull

RESAMPLES = 10_000
AT_ONCE = 250  # resamples
SIGNIFICANT = 0.05
Tasks = npt.NDArray[np.str_]


@dataclass(frozen=True)
class Difference:
    """How far one value lies above another, its 95 % interval, and the two-sided p-value that it is not zero."""

    value: float
    low: float
    high: float
    p: float

    def scaled(self, factor: float) -> Difference:
        return Difference(factor * self.value, factor * self.low, factor * self.high, self.p)


def make_difference(value: float, drawn: Floats) -> Difference:
    """From the value on all prompts, and that of every resample."""
    drawn = np.where(np.abs(drawn) < 1e-12, 0.0, drawn)  # what is zero but for the rounding of sums
    least = min(float((drawn <= 0).mean()), float((drawn >= 0).mean()))
    low, high = np.quantile(drawn, (0.025, 0.975)).tolist()
    return Difference(value, low, high, min(1.0, max(2 * least, 2 / (len(drawn) + 1))))


def correct(values: Mapping[str, float]) -> dict[str, float]:
    """Holm's correction of the p-values of a family.

    >>> correct({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    order = sorted(values, key=lambda name: values[name])
    corrected, highest = {}, 0.0
    for place, name in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - place) * values[name]))
        corrected[name] = round(highest, 6)
    return {name: corrected[name] for name in values}


def draw_weights(tasks: Tasks, resamples: int = RESAMPLES, seed: int = 0) -> Iterator[Floats]:
    """(some, n) weights of the prompts in some resamples at a time: each task keeps its number of prompts."""
    rng = np.random.default_rng(seed)
    names, place = np.unique(tasks, return_inverse=True)
    places = [np.flatnonzero(place == index) for index in range(len(names))]
    for begin in range(0, resamples, AT_ONCE):
        some = min(AT_ONCE, resamples - begin)
        weights = np.zeros((some, len(tasks)))
        for own in places:
            drawn = rng.integers(len(own), size=(some, len(own)))
            flat = (drawn + len(own) * np.arange(some)[:, None]).ravel()
            counts = np.bincount(flat, minlength=some * len(own)).reshape(some, len(own))
            weights[:, own] = counts / (len(own) * len(names))
        yield weights


def compare_means(tasks: Tasks, columns: Floats) -> list[Difference]:
    """The mean over tasks of each column (n, columns), with its interval."""
    drawn = np.concatenate([weights @ columns for weights in draw_weights(tasks)])
    return [make_difference(value, drawn[:, i]) for i, value in enumerate((_weigh(tasks) @ columns).tolist())]


def order_calls(gaps: Floats) -> Floats:
    """(n,)  the share of all shares of strong calls at which each prompt's call is strong; equals share theirs."""
    _, place, count = np.unique(-gaps, return_inverse=True, return_counts=True)
    return np.asarray((1.0 - (np.cumsum(count) - count / 2) / len(gaps))[place])


def compare_orders(suites: Tasks, tasks: Tasks, gained: Floats, later: Sequence[Floats]) -> tuple[Floats, Floats]:
    """APGR of several orders, the mean over the suites: (orders,), and (resamples, orders) with the orders as given.

    `gained` is what the strong model scores above the weak one.
    """
    names = np.unique(suites)
    columns = np.stack([gained, *[gained * one for one in later]], axis=1)

    def measure(weights: Floats) -> Floats:
        sums = np.stack([weights[:, suites == name] @ columns[suites == name] for name in names])
        return np.asarray((sums[:, :, 1:] / sums[:, :, :1]).mean(axis=0))

    whole = measure(_weigh(tasks)[None])[0]
    return whole, np.concatenate([measure(weights) for weights in draw_weights(tasks)])


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


def compare_curves(tasks: Tasks, curves: Sequence[Curve], span: tuple[float, float]) -> tuple[Floats, Floats]:
    """AIQ of several curves over a range of mean costs: (curves,), and (resamples, curves)."""

    def measure(weights: Floats) -> Floats:
        made = []
        for curve in curves:
            means = weights @ curve.costs.T, weights @ curve.scores.T
            made.append([integrate_hull(cost, score, span) for cost, score in zip(*means, strict=True)])
        return np.array(made).T

    return measure(_weigh(tasks)[None])[0], np.concatenate([measure(weights) for weights in draw_weights(tasks)])


def _weigh(tasks: Tasks) -> Floats:
    _, place, count = np.unique(tasks, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (len(count) * count[place]))
