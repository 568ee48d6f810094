"""Answers of IR3DE and of other people's routers beside each other: accuracies and differences with intervals.

The draws of few prompts are chance too, so they count in the intervals:

    variance   that of a mean over prompts + that of a mean over draws
    interval   figure ± t · √variance, with degrees of freedom by Welch and Satterthwaite
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from ir3de_lab.benchmarks.alternatives import Alternative, Regime
from ir3de_lab.experiments.resampling import COVERED, Difference

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AlternativeRow:
    """One alternative on one set, with all prompts or with few: means over the draws."""

    data: str
    prompts: int | None
    router: str
    tested: int  # prompts
    accuracy: float  # percent
    interval: tuple[float, float]
    against: dict[str, dict[str, Any]]  # by router of ours: the difference in points, its interval and its p-values
    strange: float  # AUROC, percent: how well confidence tells prompts of other sets
    right: Floats = field(repr=False)  # (draws, test prompts)

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "right"}


def tabulate(
    alternative: Alternative,
    regimes: Sequence[Regime],
    answers: Sequence[Mapping[str, Any] | None],
    own: Sequence[AlternativeRow],
) -> Iterator[AlternativeRow]:
    """One row for each set and number of prompts; `own` are the rows of IR3DE on the same prompts, if they are there.

    An answer may be missing (None): then its set is left out.
    """
    groups: dict[tuple[str, int | None], list[tuple[Regime, Mapping[str, Any]]]] = {}
    for regime, answer in zip(regimes, answers, strict=True):
        if answer is not None:
            groups.setdefault((regime.data, regime.prompts), []).append((regime, answer))
    for (data, prompts), some in groups.items():
        right = np.array([_compare(regime.truth, answer["said"]) for regime, answer in some])
        beside = {row.router: row.right for row in own if (row.data, row.prompts) == (data, prompts)}
        found = estimate_mean(100 * right)
        yield AlternativeRow(
            data,
            prompts,
            alternative.name,
            right.shape[1],
            round(found.value, 2),
            _round(found.interval),
            {name: _describe(100 * (right - theirs)) for name, theirs in beside.items()},
            round(100 * float(np.mean([auroc(answer["sure"], answer["strange_sure"]) for _, answer in some])), 1),
            right,
        )


def estimate_mean(values: Floats) -> Difference:
    """The mean of values (draws, prompts) with its interval: other draws and other prompts would give another one."""
    value = float(values.mean())
    means = [values.mean(axis=0)] + ([values.mean(axis=1)] if len(values) > 1 else [])
    parts = [(float(one.var(ddof=1)) / len(one), len(one) - 1) for one in means]
    variance = sum(part for part, _ in parts)
    if not variance:
        return Difference(value, (value, value), float(value == 0))
    freedom = variance**2 / sum(part**2 / own for part, own in parts)
    reach = float(stdtrit(freedom, (1 + COVERED) / 2)) * variance**0.5
    return Difference(value, (value - reach, value + reach), 2 * float(stdtr(freedom, -abs(value) / variance**0.5)))


def auroc(inside: Sequence[float], outside: Sequence[float]) -> float:
    """How often a prompt of the set is surer than one of another set; a tie counts half.

    >>> auroc([0.9, 0.8], [0.1, 0.8])
    0.875
    """
    order = np.sort(np.asarray(outside))
    given = np.asarray(inside)
    below, upto = np.searchsorted(order, given, "left"), np.searchsorted(order, given, "right")
    return float((below + upto).mean() / 2 / len(order))


def _describe(gaps: Floats) -> dict[str, Any]:
    """A difference with its p-values: over other draws and prompts, and over other prompts with these draws."""
    found, drawn = estimate_mean(gaps), estimate_mean(gaps.mean(axis=0, keepdims=True))
    p_values = {"p_value": found.p_value, "p_value_of_these_draws": drawn.p_value}
    return {"points": round(found.value, 2), "interval": _round(found.interval), **p_values}


def _round(interval: tuple[float, float]) -> tuple[float, float]:
    return round(interval[0], 2), round(interval[1], 2)


def _compare(truth: Sequence[str], said: Sequence[str | None]) -> list[float]:
    return [float(label == found) for label, found in zip(truth, said, strict=True)]
