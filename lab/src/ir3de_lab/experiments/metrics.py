"""From an outcome matrix and one expert an item to the figures of the paper's tables, with their intervals.

    perplexity of a domain   exp(Σ nll / Σ tokens)                           normalised: own expert's / routed × 100
    score of a domain        mean over its groups of Σ points / Σ possible   normalised: routed / own expert's × 100

The average is that of the normalised figures over the domains. Intervals come from leaving out the clusters of each
domain one by one: chunks of one document, translations of one question. The own expert's outcomes are left out along
with the routed ones, and the difference of two routers is taken without the same cluster: its interval is paired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ir3de_lab.experiments.matrix import Floats, Matrix, Places
from ir3de_lab.experiments.resampling import Difference, LeaveOneOut, Resampling, cover, estimate

Flags = npt.NDArray[np.bool_]
RANDOM_DRAWS = 100


def routing_accuracy(matrix: Matrix, columns: Places) -> float:
    """Share of items sent to their domain's own expert, mean over the domains, in percent."""
    hits, domain = columns == matrix.own_expert, matrix.domain
    return 100 * float(np.mean([hits[domain == place].mean() for place in range(len(matrix.domains))]))


@dataclass(frozen=True)
class Performance:
    """One router's figures: by domain and averaged, in percent of the domains' own experts, with 95 % intervals."""

    raw: tuple[float, ...]  # perplexities, or scores in percent
    normalised: tuple[float, ...]
    average: float
    intervals: tuple[tuple[float, float], ...]
    average_interval: tuple[float, float]
    accuracy: float | None  # share of items sent to their domain's own expert, mean over the domains, in percent
    resampled: Resampled = field(repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class Resampled:
    """The same figures in every resample: an array a domain. Accuracies are those of the domains, in percent."""

    raw: tuple[Floats, ...]
    normalised: tuple[Floats, ...]
    accuracies: tuple[float, ...] | None
    accuracy: tuple[Floats, ...] | None


def normalised_difference(one: Performance, other: Performance, places: list[int]) -> Difference:
    """Of the mean of the normalised figures over the domains at these places."""
    return _compare(one.normalised, other.normalised, one.resampled.normalised, other.resampled.normalised, places)


def score_difference(one: Performance, other: Performance, places: list[int]) -> Difference:
    """Of the mean of the scores over the domains at these places."""
    return _compare(one.raw, other.raw, one.resampled.raw, other.resampled.raw, places)


def perplexity_difference(one: Performance, other: Performance, places: list[int]) -> Difference:
    """Of the geometric mean of the perplexities over the domains at these places, in percent of the other's."""
    drawn = [tuple(map(np.log, found.resampled.raw)) for found in (one, other)]
    found = _compare(tuple(np.log(one.raw)), tuple(np.log(other.raw)), drawn[0], drawn[1], places)
    value, low, high = (100 * float(np.expm1(end)) for end in (found.value, *found.interval))
    return Difference(value, (low, high), found.p_value)


def accuracy_difference(one: Performance, other: Performance) -> Difference | None:
    """Of the routing accuracies, where both have one."""
    mine, yours = one.resampled, other.resampled
    if mine.accuracies is None or yours.accuracies is None or mine.accuracy is None or yours.accuracy is None:
        return None
    places = list(range(len(mine.accuracies)))
    return _compare(mine.accuracies, yours.accuracies, mine.accuracy, yours.accuracy, places)


def _compare(
    one: Sequence[float],
    other: Sequence[float],
    one_drawn: Sequence[Floats],
    other_drawn: Sequence[Floats],
    places: list[int],
) -> Difference:
    with np.errstate(invalid="ignore"):  # where nothing is left, there is no figure
        drawn = [one_drawn[i] - other_drawn[i] for i in places]
    return estimate([one[i] - other[i] for i in places], drawn)


@dataclass(frozen=True, eq=False)
class Judge:
    """Figures of any number of routers on one matrix, in the same resamples for all."""

    matrix: Matrix
    resampling: Resampling = field(default_factory=LeaveOneOut)

    def of_experts(self, columns: Places, kept: Flags | None = None) -> Performance:
        """Figures of a router that sends each item to the column given for it; of some items, where not all are kept.

        What is not kept is missing from the router's figures, and not from the own expert's.
        """
        accuracy = routing_accuracy(self.matrix, columns)
        return self._figures(self.matrix.of_columns(columns), accuracy, columns == self.matrix.own_expert, kept)

    def of_column(self, column: str) -> Performance:
        """Figures of one model for everything."""
        place = self.matrix.columns.index(column)
        everywhere = np.full(len(self.matrix.items), place)
        return self.of_experts(everywhere) if column in self.matrix.experts else self.of_values(column)

    def of_values(self, column: str) -> Performance:
        """Figures of an extra: it is no expert, so there is no routing to be right or wrong."""
        return self.of_points(self.matrix.values[:, self.matrix.columns.index(column)])

    def of_points(self, values: Floats) -> Performance:
        """Figures of what was reached on each item, whoever reached it."""
        return self._figures(values, None, None)

    def oracle(self) -> Performance:
        """Figures of the best expert for each item, known in hindsight; among equals, the domain's own."""
        values = self.matrix.values[:, : len(self.matrix.experts)]
        best = values.min(axis=1) if self.matrix.metric == "perplexity" else values.max(axis=1)
        own = self.matrix.of_columns(self.matrix.own_expert)
        first = np.argmax(values == best[:, None], axis=1)
        return self.of_experts(np.where(own == best, self.matrix.own_expert, first))

    def random(self, draws: int = RANDOM_DRAWS, seed: int = 0) -> tuple[Performance, float]:
        """Figures of an expert drawn for each item: means and intervals over the draws, and their deviation."""
        rng = np.random.default_rng(seed)
        columns = rng.integers(len(self.matrix.experts), size=(draws, len(self.matrix.items)))
        values = [self.matrix.of_columns(row) for row in columns]
        figures = [self._points(row) for row in values]
        normalised = np.array([found for _, found in figures])
        averages = normalised.mean(axis=1)
        drawn = [
            self._resample(row, places == self.matrix.own_expert) for row, places in zip(values, columns, strict=True)
        ]
        hits = [one.accuracies for one in drawn if one.accuracies is not None]
        performance = Performance(
            tuple(np.mean([raw for raw, _ in figures], axis=0).tolist()),
            tuple(normalised.mean(axis=0).tolist()),
            float(averages.mean()),
            tuple(cover(column) for column in normalised.T),
            cover(averages),
            100.0 / len(self.matrix.experts),
            Resampled(
                _mean([one.raw for one in drawn]),
                _mean([one.normalised for one in drawn]),
                tuple(np.mean(hits, axis=0).tolist()),
                _mean([one.accuracy for one in drawn if one.accuracy is not None]),
            ),
        )
        return performance, float(averages.std())

    def _points(self, values: Floats, kept: Flags | None = None) -> tuple[list[float], list[float]]:
        """Raw and normalised figures by domain."""
        own = self.matrix.of_columns(self.matrix.own_expert)
        weight = self.matrix.weight
        raw, normalised = [], []
        for part in self._parts:
            total = part.sums(weight).sum(axis=0)
            reached = total if kept is None else part.sums(weight * kept).sum(axis=0)
            routed = self._metric(part.sums(values if kept is None else values * kept).sum(axis=0), reached)
            expected = self._metric(part.sums(own).sum(axis=0), total)
            raw.append(self._percent * float(routed))
            normalised.append(float(self._normalised(routed, expected)))
        return raw, normalised

    def _figures(
        self, values: Floats, accuracy: float | None, hits: Flags | None, kept: Flags | None = None
    ) -> Performance:
        raw, normalised = self._points(values, kept)
        drawn = self._resample(values, hits, kept)
        return Performance(
            tuple(raw),
            tuple(normalised),
            float(np.mean(normalised)),
            tuple(estimate([figure], [one]).interval for figure, one in zip(normalised, drawn.normalised, strict=True)),
            estimate(normalised, drawn.normalised).interval,
            accuracy,
            drawn,
        )

    def _resample(self, values: Floats, hits: Flags | None, kept: Flags | None = None) -> Resampled:
        """The figures in every resample."""
        weight = self.matrix.weight
        raw, normalised, accuracies, accuracy = [], [], [], []
        for place, part in enumerate(self._parts):
            total, expected = self._expected[place]
            reached = total if kept is None else self.resampling.sum(place, part.sums(weight * kept))
            given = values if kept is None else values * kept
            routed = self._metric(self.resampling.sum(place, part.sums(given)), reached)
            raw.append(self._percent * routed)
            normalised.append(self._normalised(routed, expected))
            if hits is not None:
                right, every = (part.sums(one.astype(np.float64)).sum(axis=1) for one in (hits, np.ones(len(hits))))
                accuracies.append(100 * float(right.sum() / every.sum()))
                drawn = self.resampling.sum(place, np.stack([right, every], axis=1))
                with np.errstate(invalid="ignore"):
                    accuracy.append(np.asarray(100 * drawn[:, 0] / drawn[:, 1]))
        found = (tuple(accuracies), tuple(accuracy)) if hits is not None else (None, None)
        return Resampled(tuple(raw), tuple(normalised), *found)

    @cached_property
    def _expected(self) -> list[tuple[Floats, Floats]]:
        """By domain: the weights' sums and the own expert's figure in every resample, the same for all routers."""
        own, found = self.matrix.of_columns(self.matrix.own_expert), []
        for place, part in enumerate(self._parts):
            total, reached = (self.resampling.sum(place, part.sums(one)) for one in (self.matrix.weight, own))
            found.append((total, self._metric(reached, total)))
        return found

    @property
    def _percent(self) -> float:
        return 1.0 if self.matrix.metric == "perplexity" else 100.0

    def _metric(self, value: Floats, weight: Floats) -> Floats:
        """The metric of a domain from the sums of its groups (…, groups)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.matrix.metric == "perplexity":  # where nothing was kept, there is no perplexity
                value, weight = value.sum(axis=-1), weight.sum(axis=-1)
                return np.asarray(np.where(weight > 0, np.exp(value / np.where(weight > 0, weight, 1.0)), np.inf))
            present = weight > 0  # a group of one cluster is gone where that is left out
            share = np.where(present, value / np.where(present, weight, 1.0), 0.0)
            return np.asarray(share.sum(axis=-1) / present.sum(axis=-1))

    def _normalised(self, routed: Floats, own: Floats) -> Floats:
        """In percent; where the own expert reached nothing there is nothing to compare with, and 100 is what it is."""
        above, below = (own, routed) if self.matrix.metric == "perplexity" else (routed, own)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(100 * np.where(below > 0, above / np.where(below > 0, below, 1.0), 1.0))

    @cached_property
    def _parts(self) -> list[_Part]:
        return [_part(self.matrix, place) for place in range(len(self.matrix.domains))]


@dataclass(frozen=True, eq=False)
class _Part:
    """A domain's items, and for each the cell of its cluster and group in a table of both."""

    items: Places
    cell: Places
    shape: tuple[int, int]  # clusters, groups

    def sums(self, values: Floats) -> Floats:
        """(clusters, groups)"""
        found = np.bincount(self.cell, weights=values[self.items], minlength=self.shape[0] * self.shape[1])
        return np.asarray(found.reshape(self.shape))


def _part(matrix: Matrix, place: int) -> _Part:
    items = np.flatnonzero(matrix.domain == place)
    clusters, cluster = np.unique(matrix.cluster[items], return_inverse=True)
    groups, group = np.unique([matrix.group[i] for i in items], return_inverse=True)
    return _Part(items, cluster * len(groups) + group, (len(clusters), len(groups)))


def _mean(drawn: Sequence[tuple[Floats, ...]]) -> tuple[Floats, ...]:
    return tuple(np.mean(one, axis=0) for one in zip(*drawn, strict=True))
