"""How confidence tells right answers from wrong ones, and known prompts from unknown ones.

A router that answers only above a threshold covers fewer prompts and errs less often. Unknown prompts belong to no
expert, so each one that is answered is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.routing.decision import Decision

STEPS = 1_000  # of confidence: prompts of one step are not told apart, so that memory stays bounded
COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)  # of the known prompts
SURE = 0.9
FALSE_ALARMS = 0.05  # of the known prompts

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CoveragePoint:
    """What a threshold gives: the share of prompts answered, and the share of those that are wrong."""

    threshold: float
    coverage: float
    error: float
    error_with_unknown: float | None  # the same if the unknown prompts are asked too; None without them


@dataclass(frozen=True)
class UnknownReport:
    """Prompts that belong to none of the experts.

    `told` is the share on which the router abstains, `sure` that above 90 % confidence. `area` says how often a known
    prompt has more confidence than an unknown one: ½ is chance. `told_at_5` is the share below the confidence that 5 %
    of the known prompts do not reach.
    """

    prompts: int
    told: float
    sure: float
    area: float
    told_at_5: float


class ConfidenceCounts:
    """How many right, wrong and unknown prompts have which confidence. Prompts on which it abstains come last."""

    def __init__(self) -> None:
        self._right, self._wrong, self._unknown = np.zeros((3, STEPS + 2), np.int64)  # step 0: abstained
        self._told = self._sure = 0

    def count(self, decisions: Sequence[Decision], right: npt.NDArray[np.bool_]) -> None:
        """Count prompts whose experts are known."""
        steps = _find_steps(decisions)
        self._right += np.bincount(steps[right], minlength=STEPS + 2)
        self._wrong += np.bincount(steps[~right], minlength=STEPS + 2)

    def count_unknown(self, decisions: Sequence[Decision]) -> None:
        """Count prompts that belong to no expert."""
        self._unknown += np.bincount(_find_steps(decisions), minlength=STEPS + 2)
        self._told += sum(decision.abstained for decision in decisions)
        self._sure += sum((decision.confidence or 0.0) > SURE for decision in decisions)

    @property
    def area(self) -> float | None:
        """How often a right answer has more confidence than a wrong one; None without either."""
        return measure_area(self._right, self._wrong)

    def find_points(self) -> tuple[CoveragePoint, ...]:
        """The thresholds that cover certain shares of the known prompts, the smallest first."""
        right, wrong, unknown = (_count_above(counts) for counts in (self._right, self._wrong, self._unknown))
        answered = right + wrong
        total, points = int(self._right.sum() + self._wrong.sum()), dict[int, CoveragePoint]()
        for coverage in COVERAGES:
            step = 1 + int(np.argmax(answered[1:] <= coverage * total))  # the last one covers nothing
            if not answered[step]:
                continue
            asked = int(answered[step] + unknown[step])
            with_unknown = int(wrong[step] + unknown[step]) / asked if self._unknown.any() else None
            points[step] = CoveragePoint(
                (step - 1) / STEPS, int(answered[step]) / total, int(wrong[step]) / int(answered[step]), with_unknown
            )
        return tuple(points.values())

    def report_unknown(self) -> UnknownReport | None:
        """What became of the unknown prompts; None if there were none."""
        prompts, known = int(self._unknown.sum()), self._right + self._wrong
        if not prompts:
            return None
        area = measure_area(known, self._unknown)
        assert area is not None
        allowed = FALSE_ALARMS * int(known.sum())
        step = int(np.searchsorted(np.cumsum(known), allowed, "right"))  # so many known prompts lie below this step
        told_at_5 = int(self._unknown[:step].sum()) / prompts
        return UnknownReport(prompts, self._told / prompts, self._sure / prompts, area, told_at_5)


def measure_area(higher: npt.NDArray[Any], lower: npt.NDArray[Any]) -> float | None:
    """P(one of `higher` > one of `lower`) + ½ P(they are equal), from counts for each step.

    >>> measure_area(np.array([0, 1, 1]), np.array([1, 1, 0]))
    0.875
    """
    pairs = int(higher.sum()) * int(lower.sum())
    below = np.cumsum(lower) - lower
    return float((higher * (below + lower / 2)).sum() / pairs) if pairs else None


def _find_steps(decisions: Sequence[Decision]) -> Counts:
    """0 for prompts on which the router abstains, else 1 + the step of the confidence."""
    steps = [0 if one.abstained else 1 + int((one.confidence or 0.0) * STEPS) for one in decisions]
    return np.array(steps, np.int64)


def _count_above(counts: Counts) -> Counts:
    """How many prompts have that step or a higher one."""
    return np.cumsum(counts[::-1])[::-1]
