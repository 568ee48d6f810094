"""95 % intervals of figures from logged traffic: paired, by cluster, and wide where an expert was never tried.

The method of every interval here is the jackknife over clusters (conversations or days): the figure is computed again
without each cluster. It is close to exact for few and unequal clusters (MacKinnon, Nielsen and Webb, "Fast and reliable
jackknife and bootstrap methods for cluster-robust inference", 2023). Student's t has as many degrees of freedom as the
spread of these figures gives (Satterthwaite, 1946), so a difference that rests on three requests has a wide interval.
Skewness is corrected (Hall, "On the removal of skewness by transformation", 1992). A few made-up observations at both
ends of the range (Agresti and Coull, 1998; Agresti and Min, 2005) give a width to an interval even where all
observations are equal.

The score of experts that did not answer is estimated by self-normalised doubly robust weights (Robins, Rotnitzky and
Zhao, 1994; Swaminathan and Joachims, "The self-normalized estimator for counterfactual learning", 2015).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de.evaluation.intervals import Estimate

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Expected = tuple[Floats, Floats, Floats]  # the expected score of the expert that answered, and of each side's
Statistic = Callable[[Floats], Floats]  # of sums (k,) or (k, clusters): a number, or one per cluster

# Student's t: 97.5 % lie below, by degrees of freedom
_FREEDOM = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 60, 120, math.inf)
_T = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2281, 2.1788, 2.1314, 2.0860, 2.0423, 2.0003,
      1.9799, 1.9600)  # fmt: skip
LEAST_SKEWNESS = 1e-6
NORMAL_KURTOSIS = 3.0  # (Σ x²)² / Σ x⁴ of n normal values is n / 3
FOLDS = 5  # the expectation of a score comes from a model that did not see the conversation
PRIOR_ANSWERS = 5.0  # answers of average score that each expert has before any is seen
PRIOR_SPREAD = 1.0  # Σ (value − mean)² that a slope must overcome
MADE_UP_ANSWERS = 0.5  # of the best and of the worst score, on each side of a difference
DIGITS = 12  # of figures: what is left is noise of the machine


def find_t(freedom: float) -> float:
    """The quantile of Student's t that bounds 95 %, for any degrees of freedom from 1 on.

    >>> find_t(10), find_t(1e9), round(find_t(2.5), 2)
    (2.2281, 1.96, 3.63)
    """
    shares = [1.0 / one for one in reversed(_FREEDOM)]
    return round(float(np.interp(1.0 / max(freedom, 1.0), shares, _T[::-1])), 4)


def find_interval(
    columns: Sequence[npt.ArrayLike],
    clusters: Indices,
    statistic: Statistic,
    made_up: npt.ArrayLike | None = None,
    span: tuple[float, float] = (-math.inf, math.inf),
) -> Estimate | None:
    """The statistic of the sums of the columns, and its interval; None for a single cluster.

    `made_up` (columns, observations) are added, each as a cluster of its own, for the interval but not for the value.

    >>> ones, right = np.ones(6), np.array([1.0, 1.0, 0.0, 1.0, 1.0, 0.0])
    >>> find_interval([right, ones], np.array([0, 0, 1, 2, 3, 4]), lambda sums: sums[0] / sums[1])
    Estimate(value=0.666666666667, low=0.015014552606, high=1.35100837195)
    """
    rows = [np.asarray(column, np.float64) for column in columns]
    sums = np.stack([np.bincount(clusters, weights=row) for row in rows])
    sums = sums[:, np.bincount(clusters) > 0]
    value = float(statistic(sums.sum(axis=1)))
    parts = sums if made_up is None else np.hstack([sums, np.asarray(made_up, np.float64)])
    number = parts.shape[1]
    if number < 2:
        return None
    total = parts.sum(axis=1)
    centre = float(statistic(total))
    apart = centre - statistic(total[:, None] - parts)
    squares = apart * apart
    spread, fourth = float(squares.sum()), float((squares * squares).sum())
    if not fourth > 0:  # every cluster gives the same figure
        return Estimate(*(round(min(max(value, span[0]), span[1]), DIGITS) + 0.0,) * 3)
    freedom = min(number - 1.0, NORMAL_KURTOSIS * spread * spread / fourth)
    error, t = math.sqrt((number - 1) / number * spread), find_t(freedom)
    skewness = float((squares * apart).sum()) / spread**1.5
    low, high = (centre - error * _remove_skewness(one, skewness) for one in (t, -t))
    low, high = min(value, low), max(value, high)
    return Estimate(*(round(min(max(one, span[0]), span[1]), DIGITS) + 0.0 for one in (value, low, high)))


def _remove_skewness(quantile: float, skewness: float) -> float:
    """Hall's transformation (1992): the quantile of a mean whose distribution leans to one side.

    >>> _remove_skewness(2.0, 0.0), round(_remove_skewness(2.0, 0.3), 2), round(_remove_skewness(-2.0, 0.3), 2)
    (2.0, 1.66, -2.73)
    """
    if abs(skewness) < LEAST_SKEWNESS:
        return quantile
    return float(3.0 / skewness * (np.cbrt(1.0 + skewness * (quantile - skewness / 6.0)) - 1.0))


def find_share(right: Flags, clusters: Indices) -> Estimate | None:
    """How many of the observations are right. Two right and two wrong ones are made up (Agresti and Coull)."""
    columns = [right.astype(np.float64), np.ones(len(right))]
    return find_interval(columns, clusters, _divide, [[1.0, 1.0, 0.0, 0.0], [1.0] * 4], (0.0, 1.0))


def find_paired_difference(before: Flags, after: Flags, clusters: Indices) -> Estimate | None:
    """How many more are right after than before, on the same prompts."""
    columns = [after.astype(np.float64) - before, np.ones(len(after))]
    return find_interval(columns, clusters, _divide, [[0.5, -0.5], [0.5, 0.5]], (-1.0, 1.0))


def find_mean(values: Floats, clusters: Indices, possible: float) -> Estimate | None:
    """The mean of the values. Two more are made up, as far from zero as one more value could `possibly` be."""
    made_up = [[possible, -possible], [1.0, 1.0]]
    return find_interval([values, np.ones(len(values))], clusters, _divide, made_up)


def _divide(sums: Floats) -> Floats:
    return np.asarray(sums[0] / sums[1])


# scores of experts that may not have answered -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ScoredRequests:
    """Requests whose answers were scored, from 0 to 1. Experts are numbers; (n,) arrays.

    A side's expert is reachable if it answered, or if chance could have chosen it.
    """

    score: Floats
    served: Indices
    propensity: Floats  # of the expert that answered
    chosen: tuple[Indices, Indices]  # by each side: the live router, the candidate
    reachable: tuple[Flags, Flags]  # whether each side's expert answered or could have been chosen
    values: tuple[Floats, Floats, Floats]  # what a router expects of: served, and the two sides' experts
    clusters: Indices

    def __len__(self) -> int:
        return len(self.score)


@dataclass(frozen=True)
class ScoreEstimate:
    """A mean score, or a difference of two. `low` and `high` hold whatever the unknown answers would have scored."""

    value: float
    low: float
    high: float
    unknown_share: float  # of the scored requests, whose score under that choice is in no log
    answers: int  # the scored answers of the chosen experts, where the two sides differ

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.value, self.low, self.high)


def expect_scores(scored: ScoredRequests, experts: int) -> Expected:
    """The expected score of the expert that answered, and of each side's, by a model that did not see the conversation.

    The model is a mean for each expert, drawn towards the mean of all, plus one slope on what the router expects.
    """
    folds, found = scored.clusters % FOLDS, [np.empty(len(scored)) for _ in range(3)]
    names = (scored.served, *scored.chosen)
    for fold in range(FOLDS):
        seen, held = folds != fold, folds == fold
        means, centres, slope = _fit_scores(scored.served[seen], scored.values[0][seen], scored.score[seen], experts)
        for place, (name, value) in enumerate(zip(names, scored.values, strict=True)):
            expected = means[name[held]] + slope * (value[held] - centres[name[held]])
            found[place][held] = np.clip(expected, 0.0, 1.0)
    return found[0], found[1], found[2]


def _fit_scores(served: Indices, values: Floats, scores: Floats, experts: int) -> tuple[Floats, Floats, float]:
    if not len(scores):
        return np.full(experts, 0.5), np.zeros(experts), 0.0
    counts = np.bincount(served, minlength=experts) + PRIOR_ANSWERS
    means = (np.bincount(served, scores, experts) + PRIOR_ANSWERS * scores.mean()) / counts
    centres = (np.bincount(served, values, experts) + PRIOR_ANSWERS * values.mean()) / counts
    apart = values - centres[served]
    return means, centres, float(apart @ (scores - means[served]) / (apart @ apart + PRIOR_SPREAD))


Sides = Sequence[tuple[int, float]]  # a side, and its sign in the difference
ONE_SIDE: dict[int, Sides] = {0: ((0, 1.0),), 1: ((1, 1.0),)}
DIFFERENCE: Sides = ((1, 1.0), (0, -1.0))


def find_score(scored: ScoredRequests, side: int, expected: Expected) -> ScoreEstimate:
    """The mean score if that side's experts had answered."""
    return _Terms(scored, ONE_SIDE[side], np.ones(len(scored), bool), expected).estimate((0.0, 1.0))


def find_score_difference(scored: ScoredRequests, expected: Expected) -> tuple[ScoreEstimate, Floats]:
    """The mean score of the second side minus that of the first, and what each request adds to it.

    Only requests on which the two sides differ count.
    """
    terms = _Terms(scored, DIFFERENCE, scored.chosen[0] != scored.chosen[1], expected)
    return terms.estimate((-1.0, 1.0)), terms.split_up()


class _Terms:
    """Σ over sides of sign · (mean of q + Σ w (score − q) / Σ w), over the known requests, and bounds of the rest.

    q is the expected score, and w = 1 / propensity for the answers of the chosen expert.
    """

    def __init__(self, scored: ScoredRequests, sides: Sides, counted: Flags, expected: Expected) -> None:
        self.clusters = scored.clusters
        self.known = known = counted & np.logical_and.reduce([scored.reachable[side] for side, _ in sides])
        self.unknown = counted & ~known
        self.expected = np.zeros(len(scored))  # Σ sign · q
        self.weighed: list[Floats] = []  # w, and sign · w (score − q), of each side
        self.made_up: list[Floats] = []
        self.ends = np.zeros((3, len(scored)))  # of unknown requests: lowest, expected, highest
        self.answers = 0
        for place, (side, sign) in enumerate(sides):
            answered, expectation = scored.served == scored.chosen[side], expected[1 + side]
            hits = known & answered
            weights = np.where(hits, 1.0 / scored.propensity, 0.0)
            self.answers += int(hits.sum()) if sign > 0 else 0
            self.expected += np.where(known, sign * expectation, 0.0)
            self.weighed += [weights, sign * weights * (scored.score - expected[0])]
            weight = MADE_UP_ANSWERS * (float(weights[hits].mean()) if hits.any() else 1.0)
            middle = float(expectation[known].mean()) if known.any() else 0.5
            for score in (1.0, 0.0):
                row = np.zeros(4 + 2 * len(sides))
                row[3 + 2 * place : 5 + 2 * place] = weight, sign * weight * (score - middle)
                self.made_up.append(row)
            limits = np.stack([np.where(answered, scored.score, other) for other in (0.0, expectation, 1.0)])
            self.ends += sign * (limits if sign > 0 else limits[::-1])
        if len(sides) > 1:  # one more request on which the two differ as much as can be, either way
            ends = np.zeros((2, 4 + 2 * len(sides)))
            ends[:, 0], ends[:, -1] = 0.5, (0.5, -0.5)
            self.made_up += [*ends]

    def estimate(self, span: tuple[float, float]) -> ScoreEstimate:
        columns = [np.ones(len(self.known)), self.known, self.expected, *self.weighed]
        found = []
        for end in self.ends:
            given = [*columns, np.where(self.unknown, end, 0.0)]
            found.append(find_interval(given, self.clusters, _sum_score, np.transpose(self.made_up), span))
        low, value, high = (one or Estimate(0.0, *span) for one in found)
        return ScoreEstimate(value.value, low.low, high.high, float(self.unknown.mean()), self.answers)

    def split_up(self) -> Floats:
        """What each request adds to the value."""
        parts = self.expected + np.where(self.unknown, self.ends[1], 0.0)
        for weights, gains in zip(self.weighed[::2], self.weighed[1::2], strict=True):
            if total := float(weights.sum()):
                parts = parts + self.known.sum() / total * gains
        return np.asarray(parts / len(parts))


def _sum_score(sums: Floats) -> Floats:
    """From sums of: requests, known ones, q, (w, w (score − q)) of each side, what the others are taken for."""
    requests, known, expected, *weighed, rest = sums
    found = expected + rest
    for weight, gain in zip(weighed[::2], weighed[1::2], strict=True):
        found = found + known * np.divide(gain, weight, out=np.zeros_like(gain), where=weight > 0)
    return np.asarray(found / requests)
