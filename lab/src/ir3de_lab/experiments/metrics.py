"""From an outcome matrix and one expert an item to the figures of the paper's tables, with bootstrap intervals.

    perplexity of a domain   exp(Σ nll / Σ tokens)                           normalised: own expert's / routed × 100
    score of a domain        mean over its groups of Σ points / Σ possible   normalised: routed / own expert's × 100

The average is that of the normalised figures over the domains. Intervals resample the items of each domain and group,
the own expert's outcomes along with the routed ones. All routers see the same resamples, drawn from a fixed seed: the
difference of two routers is taken within each resample, and its interval is a paired one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ir3de_lab.experiments.matrix import Floats, Matrix, Places

Flags = npt.NDArray[np.bool_]
RESAMPLES = 1_000
COVERED = 0.95
TOLERANCE = 1e-9  # of a difference that is zero but for the rounding of sums


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
    drawn: Drawn = field(repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class Drawn:
    """The same figures in every resample: (domains, resamples), and (resamples,) of the routing accuracy."""

    raw: Floats
    normalised: Floats
    accuracy: Floats | None


@dataclass(frozen=True)
class Difference:
    """How far one router is above another, with the 95 % interval of that difference over the same resamples."""

    value: float
    interval: tuple[float, float]

    @property
    def is_above(self) -> bool:
        """Whether all of the interval is above zero."""
        return self.interval[0] > TOLERANCE

    @property
    def is_below(self) -> bool:
        return self.interval[1] < -TOLERANCE


def normalised_difference(one: Performance, other: Performance, places: list[int]) -> Difference:
    """Of the mean of the normalised figures over the domains at these places."""
    return _difference(
        float(np.mean([one.normalised[i] - other.normalised[i] for i in places])),
        np.mean(one.drawn.normalised[places] - other.drawn.normalised[places], axis=0),
    )


def score_difference(one: Performance, other: Performance, places: list[int]) -> Difference:
    """Of the mean of the scores over the domains at these places."""
    return _difference(
        float(np.mean([one.raw[i] - other.raw[i] for i in places])),
        (one.drawn.raw[places] - other.drawn.raw[places]).mean(axis=0),
    )


def perplexity_difference(one: Performance, other: Performance, places: list[int]) -> Difference:
    """Of the geometric mean of the perplexities over the domains at these places, in percent of the other's."""
    ratio = np.mean([np.log(one.raw[i] / other.raw[i]) for i in places])
    drawn = np.log(one.drawn.raw[places] / other.drawn.raw[places]).mean(axis=0)
    return _difference(100 * float(np.expm1(ratio)), 100 * np.expm1(drawn))


def accuracy_difference(one: Performance, other: Performance) -> Difference | None:
    """Of the routing accuracies, where both have one."""
    if one.accuracy is None or other.accuracy is None or one.drawn.accuracy is None or other.drawn.accuracy is None:
        return None
    return _difference(one.accuracy - other.accuracy, one.drawn.accuracy - other.drawn.accuracy)


def _difference(value: float, drawn: Floats) -> Difference:
    return Difference(value, _interval(drawn))


@dataclass(frozen=True, eq=False)
class Judge:
    """Figures of any number of routers on one matrix; the resamples are drawn once, the same for all."""

    matrix: Matrix
    resamples: int = RESAMPLES
    seed: int = 0

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
        return self._figures(self.matrix.values[:, self.matrix.columns.index(column)], None, None)

    def oracle(self) -> Performance:
        """Figures of the best expert for each item, known in hindsight; among equals, the domain's own."""
        values = self.matrix.values[:, : len(self.matrix.experts)]
        best = values.min(axis=1) if self.matrix.metric == "perplexity" else values.max(axis=1)
        own = self.matrix.of_columns(self.matrix.own_expert)
        first = np.argmax(values == best[:, None], axis=1)
        return self.of_experts(np.where(own == best, self.matrix.own_expert, first))

    def random(self, draws: int = 100, seed: int = 0) -> tuple[Performance, float]:
        """Figures of an expert drawn for each item: means and intervals over the draws, and their deviation."""
        rng = np.random.default_rng(seed)
        columns = rng.integers(len(self.matrix.experts), size=(draws, len(self.matrix.items)))
        values = np.stack([self.matrix.of_columns(row) for row in columns])
        figures = [self._points(row) for row in values]
        normalised = np.array([found for _, found in figures])
        averages = normalised.mean(axis=1)
        performance = Performance(
            tuple(np.mean([raw for raw, _ in figures], axis=0).tolist()),
            tuple(normalised.mean(axis=0).tolist()),
            float(averages.mean()),
            tuple(_interval(column) for column in normalised.T),
            _interval(averages),
            100.0 / len(self.matrix.experts),
            self._draw(values, columns == self.matrix.own_expert),
        )
        return performance, float(averages.std())

    def _points(self, values: Floats, kept: Flags | None = None) -> tuple[list[float], list[float]]:
        """Raw and normalised figures by domain."""
        own = self.matrix.of_columns(self.matrix.own_expert)
        percent = 1.0 if self.matrix.metric == "perplexity" else 100.0
        weight = self.matrix.weight
        raw, normalised = [], []
        for groups in self._groups:
            if kept is None:
                routed = self._metric([(values[g.items].sum(), g.total) for g in groups])
            else:
                places = [g.items[kept[g.items]] for g in groups]
                routed = self._metric([(values[i].sum(), np.asarray(weight[i].sum())) for i in places])
            expected = self._metric([(own[g.items].sum(), g.total) for g in groups])
            raw.append(percent * float(routed))
            normalised.append(float(self._normalised(routed, expected)))
        return raw, normalised

    def _figures(
        self, values: Floats, accuracy: float | None, hits: Flags | None, kept: Flags | None = None
    ) -> Performance:
        raw, normalised = self._points(values, kept)
        drawn = self._draw(values[None], None if hits is None else hits[None], kept)
        return Performance(
            tuple(raw),
            tuple(normalised),
            float(np.mean(normalised)),
            tuple(_interval(draws) for draws in drawn.normalised),
            _interval(drawn.normalised.mean(axis=0)),
            accuracy,
            drawn,
        )

    def _draw(self, values: Floats, hits: Flags | None, kept: Flags | None = None) -> Drawn:
        """The figures in every resample; of several rows of values (rows, n), resamples take one after another."""
        own = self.matrix.of_columns(self.matrix.own_expert)[None]
        if kept is not None:
            values, weight = values * kept, (self.matrix.weight * kept)[None]
        percent = 1.0 if self.matrix.metric == "perplexity" else 100.0
        raw, normalised, accuracies = [], [], []
        for groups in self._groups:
            totals = [g.drawn_total if kept is None else _weighed(g, weight) for g in groups]
            routed = self._metric([(_weighed(g, values), total) for g, total in zip(groups, totals, strict=True)])
            expected = self._metric([(_weighed(g, own), g.drawn_total) for g in groups])
            raw.append(percent * routed)
            normalised.append(self._normalised(routed, expected))
            if hits is not None:
                number = sum(len(g.items) for g in groups)
                accuracies.append(np.sum([_weighed(g, hits) for g in groups], axis=0) / number)
        accuracy = None if hits is None else 100 * np.mean(accuracies, axis=0)
        return Drawn(np.stack(raw), np.stack(normalised), accuracy)

    def _metric(self, sums: list[tuple[Floats, Floats]]) -> Floats:
        """The metric of a domain from the sums of its groups: numbers, or arrays of one a resample."""
        if self.matrix.metric == "perplexity":
            value, weight = (np.asarray(sum(part)) for part in zip(*sums, strict=True))
            with np.errstate(divide="ignore", invalid="ignore"):  # where nothing was kept, there is no perplexity
                return np.asarray(np.where(weight > 0, np.exp(value / np.where(weight > 0, weight, 1.0)), np.inf))
        return np.asarray(np.mean([value / weight for value, weight in sums], axis=0))

    def _normalised(self, routed: Floats, own: Floats) -> Floats:
        """In percent; where the own expert reached nothing there is nothing to compare with, and 100 is what it is."""
        above, below = (own, routed) if self.matrix.metric == "perplexity" else (routed, own)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(100 * np.where(below > 0, above / np.where(below > 0, below, 1.0), 1.0))

    @cached_property
    def _groups(self) -> list[list[_Group]]:
        rng = np.random.default_rng(self.seed)
        return [list(self._of_domain(place, rng)) for place in range(len(self.matrix.domains))]

    def _of_domain(self, place: int, rng: np.random.Generator) -> Iterator[_Group]:
        places = np.flatnonzero(self.matrix.domain == place)
        names = np.array([self.matrix.group[i] for i in places])
        for name in dict.fromkeys(names.tolist()):
            items = places[names == name]
            draws = rng.multinomial(len(items), np.full(len(items), 1 / len(items)), self.resamples).astype(np.float64)
            weight = self.matrix.weight[items]
            yield _Group(items, draws, np.asarray(weight.sum()), draws @ weight)


@dataclass(frozen=True, eq=False)
class _Group:
    items: Places
    draws: Floats  # (resamples, items)  how often each item was drawn
    total: Floats  # the weights' sum
    drawn_total: Floats  # (resamples,)


def _weighed(group: _Group, values: Floats | Flags) -> Floats:
    """The sum of a group's values in every resample, by the row of values that belongs to the resample."""
    own = values[:, group.items].astype(np.float64)
    if len(own) == 1:
        return np.asarray(group.draws @ own[0])
    rows = np.arange(len(group.draws)) % len(own)
    return np.asarray(np.einsum("ri,ri->r", group.draws, own[rows]))


def _tails() -> tuple[float, float]:
    return (1 - COVERED) / 2, (1 + COVERED) / 2


def _interval(draws: Floats) -> tuple[float, float]:
    low, high = np.quantile(draws, _tails())
    return float(low), float(high)
