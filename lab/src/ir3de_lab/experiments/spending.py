"""Quality against money: what routers buy as more is spent, as RouteLLM and RouterBench measure it.

    share of strong calls   PGR(c) = (score at c − weak's) / (strong's − weak's)
                            APGR = ∫ PGR(c) dc        CPT(x) = the smallest c with PGR(c) ≥ x
    cost of the answers     AIQ = area under the non-decreasing convex hull of (mean cost, mean score) over all
                            prices, from the cheapest to the dearest single model, divided by that range of costs
                            (where no costs are known, the models' sizes take their place)

The zero router is RouterBench's: it knows nothing of the prompt, and mixes single models as their hull allows.
Intervals are of the difference to `ir3de, from outcomes` on the same items, of which some are left out each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ir3de.evaluation import measure_order
from ir3de_lab.experiments.expectations import Expectations
from ir3de_lab.experiments.matrix import Floats, Matrix, Places
from ir3de_lab.experiments.resampling import Difference, estimate

REFERENCE = "ir3de, from outcomes"
APART = "each domain by itself"  # how the name of a router ends that was fitted so
PARTS = 500  # of the clusters, at most, that are left out in turn where a whole curve is drawn anew each time
PRICES = (0.0, *np.geomspace(1e-3, 1e6, 91).tolist())  # of a dollar or 10⁹ parameters, in points of the score


@dataclass(frozen=True)
class StrongCalls:
    """One router on one domain: APGR and the shares of strong calls that recover 50 and 80 % of the gap, in percent."""

    apgr: float
    cpt_50: float
    cpt_80: float


def measure_calls(matrix: Matrix, found: Expectations, pair: tuple[str, str], domain: int) -> StrongCalls | None:
    """What the order of a domain's items is worth; None where the strong model is not better there."""
    strong, weak = (matrix.experts.index(name) for name in pair)
    own = matrix.domain == domain
    gaps = found.scores[own][:, strong] - found.scores[own][:, weak]
    order = measure_order(gaps, matrix.values[own][:, [strong, weak]])
    return None if order is None else StrongCalls(order[0], 100 * order[2], 100 * order[3])


def compare_calls(
    matrix: Matrix, found: Expectations, other: Expectations, pair: tuple[str, str], domain: int
) -> Difference:
    """APGR minus that of another router, both orders as they are."""
    strong, weak = (matrix.experts.index(name) for name in pair)
    own = matrix.domain == domain
    gained = matrix.values[own][:, strong] - matrix.values[own][:, weak]
    later = [_place(one.scores[own][:, strong] - one.scores[own][:, weak]) for one in (found, other)]
    part = np.unique(matrix.cluster[own], return_inverse=True)[1]
    won, whole = (np.bincount(part, weights=one) for one in (gained * (later[0] - later[1]), gained))
    return estimate([won.sum() / whole.sum()], [(won.sum() - won) / (whole.sum() - whole)])


def trace_calls(matrix: Matrix, found: Expectations, pair: tuple[str, str], domain: int) -> tuple[Floats, Floats]:
    """The curve of a domain: shares of strong calls, and the gap that is recovered, both from 0 to 1."""
    strong, weak = (matrix.experts.index(name) for name in pair)
    own = matrix.domain == domain
    gained = matrix.values[own][:, strong] - matrix.values[own][:, weak]
    gaps = found.scores[own][:, strong] - found.scores[own][:, weak]
    order = np.argsort(-gaps, kind="stable")
    return np.linspace(0, 1, len(gained) + 1), np.append(0.0, np.cumsum(gained[order])) / gained.sum()


def _place(gaps: Floats) -> Floats:
    """1 − the place of each item among all, ties in the middle of theirs: from there on its call counts."""
    _, place, count = np.unique(-gaps, return_inverse=True, return_counts=True)
    return np.asarray((1.0 - (np.cumsum(count) - count / 2) / len(gaps))[place])


@dataclass(frozen=True, eq=False)
class Purchases:
    """What a router buys, once for all prices at which it buys the same: (points, n) costs and scores of the items.

    `part` says of each item with which others it is left out.
    """

    costs: Floats
    scores: Floats
    part: Places


def buy(matrix: Matrix, expected: Floats, usual: Floats, items: Places) -> Purchases:
    """Send the items at every price to the model with the best of expected score less price times usual cost."""
    assert matrix.costs is not None
    chosen = np.array([(expected[items] - price * usual).argmax(axis=1) for price in PRICES])
    _, first = np.unique(chosen, axis=0, return_index=True)  # many prices buy the same
    chosen = chosen[np.sort(first)]
    at = np.arange(len(items))
    return Purchases(
        np.array([matrix.costs[items][at, one] for one in chosen]),
        np.array([matrix.values[items][at, one] for one in chosen]),
        _deal(matrix, items),
    )


def buy_single(matrix: Matrix, items: Places) -> Purchases:
    """What every single model costs and scores: all that the zero router has."""
    assert matrix.costs is not None
    return Purchases(matrix.costs[items].T, matrix.values[items][:, : len(matrix.experts)].T, _deal(matrix, items))


def _deal(matrix: Matrix, items: Places) -> Places:
    """(n,)  clusters dealt out to the parts in turn, so that each part has about as much of each domain."""
    return np.asarray(np.unique(matrix.cluster[items], return_inverse=True)[1] % PARTS)


def measure_aiq(bought: Purchases, span: tuple[float, float]) -> float:
    """AIQ in percent, over a range of mean costs."""
    return 100 * integrate_hull(bought.costs.mean(axis=1), bought.scores.mean(axis=1), span)


def compare_aiq(found: Purchases, other: Purchases, span: tuple[float, float]) -> Difference:
    """AIQ minus that of another router on the same items, in points."""
    value = measure_aiq(found, span) - measure_aiq(other, span)
    return estimate([value], [100 * (_leave_out(found, span) - _leave_out(other, span))])


@lru_cache(maxsize=8)  # many routers are compared with the same one, on each part of the items
def _leave_out(bought: Purchases, span: tuple[float, float]) -> Floats:
    """(parts,)  AIQ without one part of the items after another."""
    counts = np.bincount(bought.part)
    left = len(bought.part) - counts
    curves = []
    for values in (bought.costs, bought.scores):  # (points, n)
        sums = np.array([np.bincount(bought.part, weights=row, minlength=len(counts)) for row in values])
        curves.append((sums.sum(axis=1, keepdims=True) - sums) / left)
    return np.array(
        [integrate_hull(costs, scores, span) for costs, scores in zip(curves[0].T, curves[1].T, strict=True)]
    )


def find_hull(costs: Floats, scores: Floats) -> list[tuple[float, float]]:
    """The non-decreasing convex hull, from its cheapest to its best point.

    >>> find_hull(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.2, 0.3, 0.8, 0.7]))
    [(1.0, 0.2), (3.0, 0.8)]
    """
    order = np.lexsort((-scores, costs))
    costs, scores = costs[order], scores[order]
    best = np.concatenate(([True], scores[1:] > np.maximum.accumulate(scores)[:-1]))  # better than all that cost less
    hull: list[tuple[float, float]] = []
    for cost, score in zip(costs[best].tolist(), scores[best].tolist(), strict=True):
        while len(hull) > 1 and _bends_up(hull[-2], hull[-1], (cost, score)):
            hull.pop()
        hull.append((cost, score))
    return hull


def integrate_hull(costs: Floats, scores: Floats, span: tuple[float, float]) -> float:
    """The mean height of the hull over a range of costs; beyond its best point it is level, before its first it is 0.

    >>> integrate_hull(np.array([1.0, 3.0]), np.array([0.2, 0.8]), (1.0, 5.0))
    0.65
    """
    hull = find_hull(costs, scores)
    x, y = np.array(hull).T
    grid = np.unique(np.clip(np.concatenate([span, x]), *span))
    heights = np.interp(grid, x, y)
    heights[grid < x[0]] = 0.0
    return float(np.trapezoid(heights, grid) / (span[1] - span[0]))


def _bends_up(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    """Whether the middle point lies on or below the line from the first to the last."""
    along = (last[0] - first[0]) * (middle[1] - first[1])
    return along <= (middle[0] - first[0]) * (last[1] - first[1])
