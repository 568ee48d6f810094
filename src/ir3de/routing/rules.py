"""The rules of a router: everything that turns a prompt's tally into a decision."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ir3de import kernel
from ir3de.policies import (
    MAX_CERTAINTY,
    MAX_FAMILIARITY,
    MIN_CERTAINTY,
    MIN_FAMILIARITY,
    STRANGE,
    AssumedCalibration,
    Calibration,
    Costs,
    Familiarity,
    Membership,
    Policy,
)
from ir3de.routing.second_opinion import SecondOpinion
from ir3de.routing.valuation import Consulted, Deferrable, Probabilities, Valuation
from ir3de.scorers.table import FAMILIARITY_UNIT
from ir3de.selectors import SCORE_UNIT, Average, Selector, Tally

if TYPE_CHECKING:
    from ir3de.kernel import Look, Values

SAFETY = 1e-6  # a quick look may differ in rounding


@dataclass(frozen=True)
class DecisionRules(Deferrable):
    """Everything that turns a tally into a decision. It is small, so decisions that are kept keep no table alive."""

    experts: tuple[str, ...]
    selector: Selector
    default: int | None = None  # the expert for prompts on which the router abstains, if one was named
    valuation: Valuation = field(default_factory=Probabilities)
    familiarity: Familiarity | None = field(default_factory=lambda: None)  # may be deferred
    membership: Membership | None = field(default_factory=lambda: None)  # may be deferred
    policy: Policy = field(default_factory=Policy)
    opinion: SecondOpinion | None = field(default_factory=lambda: None)  # may be deferred

    @property
    def columns(self) -> int:
        """How many scores a token has."""
        return self.valuation.count_columns(len(self.experts))

    @property
    def calibration(self) -> Calibration | None:
        """What turns evidence into probabilities, where it was learnt."""
        return self.valuation.calibration

    @cached_property
    def consulted_rules(self) -> DecisionRules:
        """The rules for prompts that the encoder was asked about."""
        opinion, member = self.opinion, self.membership
        if opinion is not None and member is not None and opinion.membership is not None:
            member = replace(member, lowest=opinion.membership.lowest)
        return replace(self, valuation=Consulted(), membership=member)

    @cached_property
    def standing_penalties(self) -> list[float] | None:
        """Those of the policy's own weights."""
        return self.policy.penalties(self.experts)

    @cached_property
    def strong_weak(self) -> tuple[int, int, float] | None:
        """The places of the strong and the weak model, and the difference from which on the strong one is taken."""
        return None if (share := self.policy.strong_share) is None else share.locate(self.experts)

    @cached_property
    def is_surely_in_domain(self) -> Callable[[Tally, int, int], bool]:
        """A quick look at a prompt's familiarity: whether it is in domain however uncertain the expert is.

        Nearly all prompts are. So that of the others alone must be worked out how certain the best expert is.
        """
        member, known, column = self.membership, self.familiarity, len(self.experts)
        if member is None or known is None:
            return lambda tally, tokens, best: member is None
        base = self._find_least_odds(member)
        subjects, least = member.subjects, member.least_of_subjects
        between, within, mean = known.between**2, known.within**2, known.mean
        of_familiarity, of_strangeness, sqrt = member.familiarity, member.strangeness, math.sqrt

        def is_surely_in_domain(tally: Tally, tokens: int, best: int) -> bool:
            if len(tally) == column:
                return False
            f = (tally.item(column) / (FAMILIARITY_UNIT * tokens) - mean) / sqrt(between + within / tokens)
            if f > MAX_FAMILIARITY:
                f = MAX_FAMILIARITY
            odds = base + of_familiarity * f
            if f < -STRANGE:
                odds += of_strangeness * (f + STRANGE)
            if subjects is None or odds + least > SAFETY:
                return odds + least > SAFETY
            if len(tally) == column + 1:
                return odds > SAFETY
            near, contrast = subjects.measure(tally[column + 1 :], tokens, best)
            return odds + member.nearness * near + member.contrast * contrast > SAFETY

        return is_surely_in_domain

    @cached_property
    def look(self) -> Look | None:
        """The same look for the native kernel; None where Python must take it."""
        member, known = self.membership, self.familiarity
        if kernel.native is None or member is None or known is None:
            return None
        made: Look = kernel.native.Look(
            None if member.subjects is None else member.subjects.native,
            len(self.experts),
            self._find_least_odds(member),
            member.familiarity,
            member.strangeness,
            STRANGE,
            MAX_FAMILIARITY,
            known.between**2,
            known.within**2,
            known.mean,
            FAMILIARITY_UNIT,
            member.least_of_subjects,
            member.nearness,
            member.contrast,
            SAFETY,
        )
        return made

    @cached_property
    def values(self) -> Values | None:
        """What finds the experts' probabilities and the log-odds natively; None where Python must find them."""
        valuation, member, known = self.valuation, self.membership, self.familiarity
        if kernel.native is None or type(valuation) is not Probabilities or type(self.selector) is not Average:
            return None
        if (calibration := valuation.in_force) is None:
            return None
        trust = calibration.trust if isinstance(calibration, AssumedCalibration) else 1.0
        weights = () if member is None else (
            *(member.bias, *member.weights, STRANGE),
            *(MIN_FAMILIARITY, MAX_FAMILIARITY, MIN_CERTAINTY, MAX_CERTAINTY),
        )  # fmt: skip
        made: Values = kernel.native.Values(
            None if member is None or member.subjects is None else member.subjects.native,
            len(self.experts),
            (SCORE_UNIT, calibration.scale, calibration.growth, trust),
            () if valuation.calibration is None else calibration.most,
            weights,
            () if known is None else (known.mean, known.between**2, known.within**2, FAMILIARITY_UNIT),
        )
        return made

    def _find_least_odds(self, member: Membership) -> float:
        """The log-odds above the lowest without familiarity and subject, if all experts are equally likely."""
        experts = len(self.experts)
        even = math.log(1.0 / max(1, experts - 1)) if experts > 1 else MIN_CERTAINTY
        return member.bias + member.certainty * max(even, MIN_CERTAINTY) - member.lowest

    def penalties(self, weights: Costs | None) -> list[float] | None:
        """What each expert's costs take from its quality; None when nothing does, as with a strong share."""
        found = self.standing_penalties if weights is None else self.policy.penalties(self.experts, weights)
        return found if self.policy.strong_share is None else None
