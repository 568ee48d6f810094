"""Valuations turn tallies into one value per expert: a probability, or an expected score in outcome routers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from ir3de.outcomes.expectation import Expectation
from ir3de.policies import AssumedCalibration, Calibration
from ir3de.routing.deferral import Deferrable
from ir3de.selectors import Average, Selector, Tally

ValueName = Literal["probability", "expected_score"]


class Valuation(Protocol):
    """Turns the tally of a prompt into one value per expert. `counted` is 0 for a prompt without a known token."""

    @property
    def value_name(self) -> ValueName: ...

    @property
    def calibration(self) -> Calibration | None: ...

    def accepts(self, selector: Selector) -> bool:
        """Whether values can be worked out from the tallies of this selector."""

    def count_columns(self, experts: int) -> int:
        """How many scores a token has."""

    def tally_nothing(self, experts: int) -> Tally:
        """The reduced tally of a prompt without a known token."""

    def reduce(self, selector: Selector, tally: Tally, counted: int) -> Tally:
        """A tally as one number per expert; and the sum of token familiarities, where it was counted."""

    def reduce_all(self, selector: Selector, tallies: Tally, counted: Sequence[int]) -> Tally:
        """The same for many tallies, one row each, bit for bit."""

    def compare(self, selector: Selector, tallies: Tally, counted: int) -> Tally:
        """Tallies as numbers whose differences say how far one expert is ahead; rounding may differ from `reduce`."""

    def values(self, selector: Selector, reduced: list[float], counted: int) -> list[float]:
        """The values of the experts, from a reduced tally."""

    def evidence(self, selector: Selector, reduced: list[float], counted: int) -> list[float]:
        """What speaks for each expert before any calibration, from a reduced tally."""

    def value_tokens(self, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """What each token says of each expert: (tokens, experts) from the table's (tokens, columns)."""


@dataclass(frozen=True)
class Probabilities(Deferrable):
    """The probability that an expert is the right one, calibrated where there were prompts to learn it from."""

    calibration: Calibration | None = field(default_factory=lambda: None)  # may be deferred
    value_name: Literal["probability"] = "probability"
    assumed: AssumedCalibration | None = None  # in place of a calibration, where there was nothing to learn it from

    @property
    def in_force(self) -> Calibration | None:
        """The calibration that was learnt; else the assumed one."""
        return self.calibration or self.assumed

    def accepts(self, selector: Selector) -> bool:
        return True

    def count_columns(self, experts: int) -> int:
        return experts

    def tally_nothing(self, experts: int) -> Tally:
        return np.zeros(experts)

    def reduce(self, selector: Selector, tally: Tally, counted: int) -> Tally:
        return tally

    def reduce_all(self, selector: Selector, tallies: Tally, counted: Sequence[int]) -> Tally:
        return tallies

    def compare(self, selector: Selector, tallies: Tally, counted: int) -> Tally:
        return tallies

    def values(self, selector: Selector, reduced: list[float], counted: int) -> list[float]:
        if not counted:
            return [1.0 / len(reduced)] * len(reduced)
        if (calibration := self.in_force) is None:
            return selector.shares(reduced, counted)
        return calibration.probabilities(selector.evidence(reduced, counted), counted)

    def evidence(self, selector: Selector, reduced: list[float], counted: int) -> list[float]:
        return selector.evidence(reduced, counted) if counted else reduced

    def value_tokens(self, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return scores


@dataclass(frozen=True)
class ExpectedScores:
    """The score that is expected of each model, in the units of the outcomes; a tally is reduced to it at once."""

    expectation: Expectation
    value_name: Literal["expected_score"] = "expected_score"
    calibration: None = None

    def accepts(self, selector: Selector) -> bool:
        return isinstance(selector, Average) and not selector.log_offset  # it reads mean scores and nothing else

    def count_columns(self, experts: int) -> int:
        return experts + len(self.expectation.tasks)

    def tally_nothing(self, experts: int) -> Tally:
        return self.expectation.at_rest

    def reduce(self, selector: Selector, tally: Tally, counted: int) -> Tally:
        return self.expectation.of(selector.evidence(tally.tolist(), counted), counted)

    def reduce_all(self, selector: Selector, tallies: Tally, counted: Sequence[int]) -> Tally:
        # one by one, so that not a bit differs
        return np.stack([self.reduce(selector, tally, n) for tally, n in zip(tallies, counted, strict=True)])

    def compare(self, selector: Selector, tallies: Tally, counted: int) -> Tally:
        means = np.array([selector.evidence(tally, counted) for tally in tallies.tolist()])
        return self.expectation.alone(means, counted)

    def values(self, selector: Selector, reduced: list[float], counted: int) -> list[float]:
        return reduced

    def evidence(self, selector: Selector, reduced: list[float], counted: int) -> list[float]:
        return list(reduced)

    def value_tokens(self, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return self.expectation.alone(scores).astype(np.float32)
