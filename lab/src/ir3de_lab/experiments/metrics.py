"""From an outcome matrix and one expert an item to the figures of the paper's tables, with bootstrap intervals.

    perplexity of a domain   exp(Σ nll / Σ tokens)                           normalised: own expert's / routed × 100
    score of a domain        mean over its groups of Σ points / Σ possible   normalised: routed / own expert's × 100

The average is that of the normalised figures over the domains. Intervals resample the items of each domain and group,
the own expert's outcomes along with the routed ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ir3de_lab.experiments.matrix import Floats, Matrix, Places

RESAMPLES = 1_000
COVERED = 0.95


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


@dataclass(frozen=True, eq=False)
class Judge:
    """Figures of any number of routers on one matrix; the resamples are drawn once, the same for all."""

    matrix: Matrix
    resamples: int = RESAMPLES
    seed: int = 0

    def of_experts(self, columns: Places) -> Performance:
        """Figures of a router that sends each item to the column given for it."""
        return self._figures(self.matrix.of_columns(columns), routing_accuracy(self.matrix, columns))

    def of_column(self, column: str) -> Performance:
        """Figures of one model for everything."""
        place = self.matrix.columns.index(column)
        everywhere = np.full(len(self.matrix.items), place)
        return self.of_experts(everywhere) if column in self.matrix.experts else self.of_values(column)

    def of_values(self, column: str) -> Performance:
        """Figures of an extra: it is no expert, so there is no routing to be right or wrong."""
        return self._figures(self.matrix.values[:, self.matrix.columns.index(column)], None)

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
        shape = draws, len(self.matrix.items)
        figures = [self._points(self.matrix.of_columns(c)) for c in rng.integers(len(self.matrix.experts), size=shape)]
        normalised = np.array([found for _, found in figures])
        averages = normalised.mean(axis=1)
        performance = Performance(
            tuple(np.mean([raw for raw, _ in figures], axis=0).tolist()),
            tuple(normalised.mean(axis=0).tolist()),
            float(averages.mean()),
            tuple(_interval(column) for column in normalised.T),
            _interval(averages),
            100.0 / len(self.matrix.experts),
        )
        return performance, float(averages.std())

    def _points(self, values: Floats) -> tuple[list[float], list[float]]:
        """Raw and normalised figures by domain."""
        own = self.matrix.of_columns(self.matrix.own_expert)
        percent = 1.0 if self.matrix.metric == "perplexity" else 100.0
        raw, normalised = [], []
        for groups in self._groups:
            routed = self._metric([(values[g.items].sum(), g.total) for g in groups])
            expected = self._metric([(own[g.items].sum(), g.total) for g in groups])
            raw.append(percent * float(routed))
            normalised.append(float(self._normalised(routed, expected)))
        return raw, normalised

    def _figures(self, values: Floats, accuracy: float | None) -> Performance:
        own = self.matrix.of_columns(self.matrix.own_expert)
        raw, normalised = self._points(values)
        drawn = [
            self._normalised(
                self._metric([(g.draws @ values[g.items], g.drawn_total) for g in groups]),
                self._metric([(g.draws @ own[g.items], g.drawn_total) for g in groups]),
            )
            for groups in self._groups
        ]
        return Performance(
            tuple(raw),
            tuple(normalised),
            float(np.mean(normalised)),
            tuple(_interval(draws) for draws in drawn),
            _interval(np.mean(drawn, axis=0)),
            accuracy,
        )

    def _metric(self, sums: list[tuple[Floats, Floats]]) -> Floats:
        """The metric of a domain from the sums of its groups: numbers, or arrays of one a resample."""
        if self.matrix.metric == "perplexity":
            return np.asarray(np.exp(sum(value for value, _ in sums) / sum(weight for _, weight in sums)))
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


def _tails() -> tuple[float, float]:
    return (1 - COVERED) / 2, (1 + COVERED) / 2


def _interval(draws: Floats) -> tuple[float, float]:
    low, high = np.quantile(draws, _tails())
    return float(low), float(high)
