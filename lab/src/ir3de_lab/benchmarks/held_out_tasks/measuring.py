"""The figures of one set: what every way reaches, and how far it lies above or below ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ir3de.embedding import Embedding
from ir3de_lab.benchmarks.held_out_tasks.comparing import (
    Curve,
    Measure,
    buy,
    buy_single,
    compare,
    measure_curves,
    measure_means,
    measure_orders,
    order_calls,
)
from ir3de_lab.benchmarks.held_out_tasks.expecting import OURS, Encode, Regime, Say, Way, asked_in, expect_all
from ir3de_lab.benchmarks.held_out_tasks.sets import Floats, OutcomeSet
from ir3de_lab.experiments.resampling import Difference
from ir3de_lab.experiments.spending import find_hull

ZERO, IN_NO_ORDER = "zero router", "random order"


@dataclass(frozen=True)
class Row:
    """One way on one set in one regime. Scores and AIQ are in percent, and differences are to ours, in points."""

    way: str
    regime: Regime
    score: float | None = None
    by_task: Mapping[str, float] = field(default_factory=dict)
    difference: Difference | None = None
    worth: float | None = None  # AIQ, or 100 × APGR
    worth_difference: Difference | None = None
    curve: Sequence[tuple[float, float]] = ()  # the hull of (mean cost, mean score in percent)
    about: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Row:
        """From what `to_dict` made."""
        gaps = {name: given[name] and _read_gap(given[name]) for name in ("difference", "worth_difference")}
        return cls(**{**given, **gaps})

    def to_dict(self) -> dict[str, Any]:
        made = {**vars(self), "by_task": dict(self.by_task), "about": dict(self.about)}
        for name in ("difference", "worth_difference"):
            made[name] = made[name] and _describe_gap(made[name])
        made["curve"] = [[float(f"{cost:.6g}"), round(score, 4)] for cost, score in self.curve]
        return made


def measure(
    given: OutcomeSet, encode: Encode, say: Say = lambda _: None, embedding: Embedding | None = None
) -> list[Row]:
    """Every way in both regimes."""
    ways = list(expect_all(given, encode, say, embedding))
    rows: list[Row] = []
    for regime in dict.fromkeys(way.regime for way in ways):
        say(f"{given.name}, {regime}: intervals")
        rows += _measure_regime(given, regime, [way for way in ways if way.regime == regime])
    return rows


def _measure_regime(given: OutcomeSet, regime: Regime, ways: Sequence[Way]) -> list[Row]:
    asked = asked_in(given, regime)
    test = given.test.take(asked)
    reached = np.stack([way.reached[asked] for way in ways], axis=1)
    ours = [way.name for way in ways].index(OURS)
    scores, gaps = compare(test, ours, measure_means(reached))
    rows = [
        Row(
            way.name,
            regime,
            round(score, 4),
            {task: round(100 * float(column[test.tasks == task].mean()), 3) for task in test.names},
            None if way.name == OURS else gap,
            about=way.about,
        )
        for way, column, score, gap in zip(ways, reached.T, scores.tolist(), gaps, strict=True)
    ]
    return _measure_worth(given, regime, ways, rows) if given.cost else rows


def _measure_worth(given: OutcomeSet, regime: Regime, ways: Sequence[Way], rows: list[Row]) -> list[Row]:
    """The rows with what money buys: AIQ where answers have costs, else APGR of two models."""
    asked = asked_in(given, regime)
    test = given.test.take(asked)
    able = {way.name: way for way in ways if way.expected is not None}
    if test.costs is None:
        worth, curves = _order(given, regime, able), []
        names = [*able, IN_NO_ORDER]
    else:
        bought = [_buy(test.scores, test.costs, way, asked) for way in able.values()]
        bought.append(buy_single(test.scores, test.costs))
        single = test.weigh() @ test.costs
        worth = measure_curves(bought, (float(single.min()), float(single.max())))
        weights = test.weigh()
        curves = [find_hull(one.costs @ weights, 100 * (one.scores @ weights)) for one in bought]
        names = [*able, ZERO]
    values, gaps = compare(test, names.index(OURS), worth)
    found = {
        name: (round(float(values[i]), 4), None if name == OURS else gaps[i], curves[i] if curves else ())
        for i, name in enumerate(names)
    }
    return [
        replace(row, worth=found[row.way][0], worth_difference=found[row.way][1], curve=found[row.way][2])
        if row.way in found
        else row
        for row in [*rows, Row(names[-1], regime)]
    ]


def _buy(scores: Floats, costs: Floats, way: Way, asked: Any) -> Curve:
    assert way.expected is not None
    assert way.usual is not None
    return buy(scores, costs, way.expected[asked], way.usual[asked])


def _order(given: OutcomeSet, regime: Regime, able: Mapping[str, Way]) -> Measure:
    """APGR of every way and, last, of a random order; the strong model is the better one on the training rows."""
    asked = asked_in(given, regime)
    test = given.test.take(asked)
    weak, strong = np.argsort(given.train.weigh() @ given.train.scores)[-2:]
    suites = np.array([task if given.groups is None else given.groups[task].split()[0] for task in test.tasks])
    later = []
    for way in able.values():
        assert way.expected is not None
        gaps = way.expected[asked][:, strong] - way.expected[asked][:, weak]
        places = np.empty(len(gaps))
        for suite in np.unique(suites):  # within each, as strong calls are shared there
            places[suites == suite] = order_calls(gaps[suites == suite])
        later.append(places)
    later.append(np.full(len(suites), 0.5))
    return measure_orders(suites, test.scores[:, strong] - test.scores[:, weak], later)


def _read_gap(given: Mapping[str, Any]) -> Difference:
    low, high = given["interval"]
    return Difference(given["value"], (low, high), given["p_value"])


def _describe_gap(gap: Difference) -> dict[str, Any]:
    low, high = gap.interval
    p_value = float(f"{gap.p_value:.4g}")
    return {"value": round(gap.value, 6), "interval": [round(low, 6), round(high, 6)], "p_value": p_value}


def describe(given: OutcomeSet, rows: Sequence[Row]) -> dict[str, Any]:
    """A set for the raw file: its tasks, its models and its rows."""
    train, test = (
        dict(zip(*np.unique(part.tasks, return_counts=True), strict=True)) for part in (given.train, given.test)
    )
    return {
        "set": given.name,
        "models": list(given.models),
        "cost": given.cost,
        "tasks": {task: [int(train.get(task, 0)), int(test[task])] for task in given.test.names},
        "rows": [row.to_dict() for row in rows],
    }
