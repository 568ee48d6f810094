"""Valuations turn tallies into one value per expert: a probability, or an expected score in outcome routers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from ir3de.policies import AssumedCalibration, Calibration
from ir3de.scorers.expectation import Expectation
from ir3de.selectors import Average, Selector, Tally

D = TypeVar("D", bound="Deferrable")


class Deferrable:
    """A dataclass whose fields may be computed on first access.

    A deferred field must have no default in the class. Comparing, replacing and pickling compute it.
    """

    def defer(self: D, fields: Mapping[str, Callable[[], Any]]) -> D:
        """A copy in which these fields are computed on first access."""
        made = copy(self)  # of a value that has all of its fields
        for name in fields:
            del vars(made)[name]
        vars(made)["_deferred"] = dict(fields)
        return made

    def __getattr__(self, name: str) -> Any:  # called only for attributes that are not there
        compute = vars(self).get("_deferred", {}).get(name)
        if compute is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        vars(self)[name] = value = compute()
        vars(self)["_deferred"] = {other: later for other, later in vars(self)["_deferred"].items() if other != name}
        return value

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what was computed from them may be a function, which cannot be pickled."""
        return {part.name: getattr(self, part.name) for part in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Probabilities(Deferrable):
    """The probability that an expert is the right one, calibrated where there were prompts to learn it from.

    `counted` is 0 for a prompt without a known token.
    """

    calibration: Calibration | None = field(default_factory=lambda: None)  # may be deferred
    value_name: Literal["probability"] = "probability"
    assumed: AssumedCalibration | None = None  # in place of a calibration, where there was nothing to learn it from

    @property
    def in_force(self) -> Calibration | None:
        """The calibration that was learnt; else the assumed one."""
        return self.calibration or self.assumed

    def accepts(self, selector: Selector) -> bool:
        """Whether values can be computed from the tallies of this selector."""
        return True

    def count_columns(self, experts: int) -> int:
        """How many scores a token has."""
        return experts

    def tally_nothing(self, experts: int) -> Tally:
        """The reduced tally of a prompt without a known token."""
        return np.zeros(experts)

    def reduce(self, selector: Selector, tally: Tally, counted: int) -> Tally:
        """A tally as one number per expert; and the sum of token familiarities, where it was counted."""
        return tally

    def reduce_all(self, selector: Selector, tallies: Tally, counted: Sequence[int]) -> Tally:
        """The same for many tallies, one row each, bit for bit."""
        return tallies

    def compare(self, selector: Selector, tallies: Tally, counted: int) -> Tally:
        """Tallies as numbers whose differences are leads of experts; rounding may differ from `reduce`."""
        return tallies

    def values(self, selector: Selector, reduced: list[float], counted: int) -> list[float]:
        """The values of the experts, from a reduced tally."""
        if not counted:
            return [1.0 / len(reduced)] * len(reduced)
        if (calibration := self.in_force) is None:
            return selector.shares(reduced, counted)
        return calibration.probabilities(selector.evidence(reduced, counted), counted)

    def evidence(self, selector: Selector, reduced: list[float], counted: int) -> list[float]:
        """What speaks for each expert before any calibration, from a reduced tally."""
        return selector.evidence(reduced, counted) if counted else reduced

    def value_tokens(self, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The value of each token for each expert: (tokens, experts) from the table's (tokens, columns)."""
        return scores


@dataclass(frozen=True)
class Consulted(Probabilities):
    """Probabilities from tallies that are their logarithms, up to a constant: those of prompts shown to an encoder."""

    def values(self, selector: Selector, reduced: list[float], counted: int) -> list[float]:
        return AS_THEY_ARE.probabilities(reduced, 1)

    def evidence(self, selector: Selector, reduced: list[float], counted: int) -> list[float]:
        return reduced


AS_THEY_ARE = Calibration(1.0)


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


Valuation: TypeAlias = Probabilities | ExpectedScores
