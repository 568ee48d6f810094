"""What routing answers: a `Decision`, worked out from a prompt's token ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.policies import Calibration, Costs, Familiarity, Policy, utilities
from ir3de.routing.deferral import Deferrable
from ir3de.routing.valuation import Probabilities, Valuation
from ir3de.scorers.familiarity import FAMILIARITY_UNIT
from ir3de.scorers.table import Table
from ir3de.selectors import Ballots, EntropyTopK, Ids, Selector, Tally

Reason = Literal["", "no known token", "low confidence", "low expected score", "out of domain"]


@dataclass(frozen=True)
class DecisionRules(Deferrable):
    """Everything that turns a tally into a decision. It is small, so decisions that are kept keep no table alive."""

    experts: tuple[str, ...]
    selector: Selector
    default: int = 0  # the expert for prompts that say nothing
    valuation: Valuation = field(default_factory=Probabilities)
    familiarity: Familiarity | None = field(default_factory=lambda: None)  # may be deferred
    policy: Policy = field(default_factory=Policy)

    @property
    def columns(self) -> int:
        """How many scores a token has."""
        return self.valuation.count_columns(len(self.experts))

    @property
    def calibration(self) -> Calibration | None:
        """What turns evidence into probabilities, where it was learnt."""
        return self.valuation.calibration

    @cached_property
    def standing_penalties(self) -> list[float] | None:
        """Those of the policy's own weights."""
        return self.policy.penalties(self.experts)

    @cached_property
    def strong_weak(self) -> tuple[int, int, float] | None:
        """The places of the strong and the weak model, and the difference from which on the strong one is taken."""
        return None if (share := self.policy.strong_share) is None else share.locate(self.experts)

    def penalties(self, weights: Costs | None) -> list[float] | None:
        """What each expert's costs take from its quality; None when nothing does."""
        return self.standing_penalties if weights is None else self.policy.penalties(self.experts, weights)


@dataclass(frozen=True, eq=False)
class CompiledRouter:
    """What routing reads: rules, table and ballots. A change swaps the whole object, so no reader sees half of it."""

    rules: DecisionRules
    table: Table
    ballots: Ballots

    def __reduce__(self) -> tuple[type[CompiledRouter], tuple[DecisionRules, Table, Ballots]]:
        return CompiledRouter, (self.rules, self.table, self.ballots)  # without the function that was made of them

    @property
    def experts(self) -> tuple[str, ...]:
        return self.rules.experts

    @property
    def selector(self) -> Selector:
        return self.rules.selector

    @property
    def default(self) -> int:
        return self.rules.default

    @cached_property
    def decide_one(self) -> Callable[[Ids, int | None, Costs | None], Decision]:
        """What `decide` calls: a function that has looked up all that is the same for every prompt."""
        rules, sum_ballots, limit = self.rules, self.ballots.tally, self.ballots.limit
        cap, experts, standing_penalties = rules.selector.cap, len(rules.experts), rules.standing_penalties
        reduce = None if isinstance(rules.valuation, Probabilities) else rules.valuation.reduce

        def decide_one(ids: Ids, unknown: int | None, weights: Costs | None) -> Decision:
            counted = length = len(ids)
            if length > cap:
                ids, counted = ids[:cap], cap
            # of a prompt without a known token, the first token is unknown too: comparing all of them takes longer
            if not length or (unknown is not None and ids.item(0) == unknown and bool((ids == unknown).all())):
                return abstain(rules, length)
            if counted > limit:
                counted = limit
            tally = sum_ballots(ids)
            if reduce is not None:
                tally = reduce(rules.selector, tally, counted)
            best = int(tally.argmax())
            if best >= experts:  # the sum of the familiarities, which is no expert's
                best = int(tally[:experts].argmax())
            penalties = standing_penalties if weights is None else rules.penalties(weights)
            return make_decision(rules, tally, length, counted, best, penalties)

        return decide_one

    @classmethod
    def build(cls, rules: DecisionRules, table: Table) -> CompiledRouter:
        return cls(rules, table, rules.selector.ballots(table))

    def with_selector(self, selector: Selector) -> CompiledRouter:
        """The same scores, read by another selector."""
        rules, table, own = replace(self.rules, selector=selector), self.table, self.selector
        if not rules.valuation.accepts(selector):
            raise InputError(
                f"a router from outcomes reads the average of its tokens' scores, found {selector!r}: use Average()"
            )
        if selector.log_offset != own.log_offset:
            compiled = Table.compile(table.scores, log_offset=selector.log_offset)
            table = replace(compiled, familiarity=table.familiarity, pairs=table.pairs)
        if rules.calibration is not None and type(selector) is not type(own):
            rules = replace(rules, valuation=Probabilities())  # votes are other evidence
        if isinstance(selector, EntropyTopK) and isinstance(own, EntropyTopK) and own == replace(selector, k=own.k):
            # what each token gives does not depend on k
            return CompiledRouter(rules, table, replace(self.ballots, limit=selector.k))
        return CompiledRouter.build(rules, table)


class Decision:
    """Which expert a prompt goes to, and how clearly. Read-only.

    The prompt has `tokens`, and `counted` of them decided. `abstained` is true when the router would not choose: then
    `expert` is its default, and `reason` says why.
    """

    __slots__ = ("_best", "_counted", "_kept", "_penalties", "_reason", "_rules", "_tally", "_tokens")

    _rules: DecisionRules
    _tally: Tally  # one number per expert; then may come the sum of token familiarities, in parts of FAMILIARITY_UNIT
    _tokens: int
    _counted: int
    _best: int  # the place of the largest tally; where costs decide, of the largest utility
    _penalties: list[float] | None
    _reason: Reason
    _kept: list[float] | None  # the values of the experts, once somebody has asked for them

    def _apply_policy(self) -> None:
        values, threshold = self._values, self._rules.policy.threshold
        if self._penalties is not None:
            worth = list(zip(utilities(values, self._penalties), self._tallies, strict=True))
            self._best = worth.index(max(worth))  # of equal utilities the likelier expert's, then the first one's
        elif (pair := self._rules.strong_weak) is not None:
            strong, weak, least = pair
            self._best = strong if values[strong] - values[weak] >= least else weak
        if max(values) < threshold or threshold == 1:  # nothing is certain, however it is rounded
            self._reason = "low confidence" if self._has_probabilities else "low expected score"
        elif threshold > 0 and self.out_of_domain:
            self._reason = "out of domain"

    @property
    def expert(self) -> str:
        """The chosen expert's name."""
        return self._rules.experts[self._rules.default if self._reason else self._best]

    @property
    def best(self) -> str:
        """The expert that `confidence` or `expected_score` is about: the chosen one, or the one passed over."""
        return self._rules.experts[self._best]

    @property
    def tokens(self) -> int:
        """Tokens of the prompt; of a conversation, those of its turns times their weights."""
        return self._tokens

    @property
    def counted(self) -> int:
        """Tokens that took part in the decision: at most the selector's cap, and those it selects."""
        return self._counted

    @property
    def abstained(self) -> bool:
        """Whether the router would not choose, so that the default expert was taken."""
        return bool(self._reason)

    @property
    def reason(self) -> Reason:
        """Why the router abstained; empty when it did not."""
        return self._reason

    @property
    def familiarity(self) -> float | None:
        """The mean token familiarity, in standard deviations from the router's own prompts; None if unknown."""
        known, experts = self._rules.familiarity, len(self._rules.experts)
        if known is None or len(self._tally) == experts:
            return None
        looked_at, total = min(self._tokens, self._rules.selector.cap), self._tally.item(experts)
        return float(known.deviation(total / (FAMILIARITY_UNIT * looked_at), looked_at))  # not numpy's

    @property
    def out_of_domain(self) -> bool:
        """Whether the prompt is unlike every domain that the router knows."""
        known, found = self._rules.familiarity, self.familiarity
        return known is not None and found is not None and found < known.lowest

    @property
    def ranking(self) -> tuple[tuple[str, float], ...]:
        """Every expert with its probability, best first, its costs considered; the probabilities add up to one.

        An outcome router gives expected scores instead, which do not add up to one.
        """
        values, order = self._values, self._order
        if self._penalties is not None:
            order.sort(key=utilities(values, self._penalties).__getitem__, reverse=True)
        elif (pair := self._rules.strong_weak) is not None:  # the other one of the two comes next
            order.sort(key=lambda c: (c != self._best, c not in pair[:2]))
        if self.abstained:
            order.sort(key=lambda c: c != self._rules.default)
        return tuple((self._rules.experts[c], values[c]) for c in order)

    @property
    def quality(self) -> tuple[tuple[str, float], ...]:
        """Every expert with its probability or expected score, largest first, whatever it costs."""
        values = self._values
        return tuple((self._rules.experts[c], values[c]) for c in self._order)

    @property
    def penalties(self) -> Mapping[str, float] | None:
        """What each expert's costs take from its quality; None when costs play no part."""
        if self._penalties is None:
            return None
        return dict(zip(self._rules.experts, self._penalties, strict=True))

    @property
    def _tallies(self) -> list[float]:
        """The tally of each expert."""
        tallies: list[float] = self._tally[: len(self._rules.experts)].tolist()
        return tallies

    @property
    def _order(self) -> list[int]:
        """The experts by their tallies; ties keep the order of the experts."""
        tallies = self._tallies
        return sorted(range(len(tallies)), key=tallies.__getitem__, reverse=True)

    @property
    def confidence(self) -> float | None:
        """The probability that the best expert is the right one; None for an outcome router."""
        return self._value if self._has_probabilities else None

    @property
    def expected_score(self) -> float | None:
        """The score that an outcome router expects of the best model; None for other routers."""
        return None if self._has_probabilities else self._value

    @property
    def margin(self) -> float:
        """How far the best expert's value lies above the next one's: below zero where costs decided."""
        others = self._values[: self._best] + self._values[self._best + 1 :]
        return self._value - max(others) if others else self._value

    @property
    def evidence(self) -> list[float]:
        """What speaks for each expert before any calibration, in the order of the router's experts."""
        rules = self._rules
        return rules.valuation.evidence(rules.selector, self._tallies, self._counted)

    @property
    def _has_probabilities(self) -> bool:
        return self._rules.valuation.value_name == "probability"

    @property
    def _value(self) -> float:
        """The probability or expected score of the best expert."""
        return self._values[self._best]  # without ranking all the others

    @property
    def _values(self) -> list[float]:
        """The probability or expected score of each expert."""
        if self._kept is None:
            rules = self._rules
            self._kept = rules.valuation.values(rules.selector, self._tallies, self._counted)
        return self._kept

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        familiarity, penalties = self.familiarity, self.penalties
        name, confidence = self._rules.valuation.value_name, self.confidence
        ranking: list[dict[str, Any]] = [{"expert": expert, name: round(value, 6)} for expert, value in self.ranking]
        if penalties is not None:
            taken = [penalties[expert] for expert, _ in self.ranking]
            worth = utilities([value for _, value in self.ranking], taken)
            for row, penalty, utility in zip(ranking, taken, worth, strict=True):
                row |= {"penalty": round(penalty, 6), "utility": round(utility, 6)}
        return {
            "expert": self.expert,
            "confidence": None if confidence is None else round(confidence, 6),
            **({} if confidence is not None else {"expected_score": round(self._value, 6)}),
            "margin": round(self.margin, 6),
            "ranking": ranking,
            "tokens": self.tokens,
            "counted": self.counted,
            "abstained": self.abstained,
            "reason": self.reason,
            "familiarity": None if familiarity is None else round(familiarity, 3),
            "out_of_domain": self.out_of_domain,
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.expert, self.tokens, self.counted, self.abstained))

    def __repr__(self) -> str:
        name = "confidence" if self._has_probabilities else "expected_score"
        return f"Decision(expert={self.expert!r}, {name}={self._value:.2f}, margin={self.margin:.2f})"


_new = object.__new__


def make_decision(
    rules: DecisionRules,
    tally: Tally,
    tokens: int,
    counted: int,
    best: int,
    penalties: list[float] | None = None,
    reason: Reason = "",
) -> Decision:
    """A decision from its parts. One is made per prompt: the class, if it were called, would need twice the time."""
    decision = _new(Decision)
    decision._rules = rules
    decision._tally = tally
    decision._tokens = tokens
    decision._counted = counted
    decision._best = best
    decision._penalties = penalties
    decision._reason = reason
    decision._kept = None
    if not reason and (penalties is not None or rules.policy.threshold > 0 or rules.strong_weak):
        decision._apply_policy()
    return decision


def decide(compiled: CompiledRouter, ids: Ids, unknown: int | None, weights: Costs | None = None) -> Decision:
    """Route one prompt by its token ids."""
    return compiled.decide_one(ids, unknown, weights)


def decide_batch(
    compiled: CompiledRouter,
    flat: Ids,
    lengths: npt.NDArray[np.int64],
    unknown: int | None,
    weights: Costs | None = None,
) -> list[Decision]:
    """Route many prompts, their ids end to end: the same decisions as one by one."""
    starts, whole, rules = np.cumsum(lengths) - lengths, lengths, compiled.rules
    cap = rules.selector.cap
    if lengths.max(initial=0) > cap:
        flat = flat[np.arange(len(flat)) - np.repeat(starts, lengths) < cap]
        lengths = np.minimum(lengths, cap)
        starts = np.cumsum(lengths) - lengths
    speaking = lengths > 0
    if unknown is not None and len(flat):
        speaking[speaking] = np.add.reduceat(flat != unknown, starts[speaking], dtype=np.int64) > 0
        flat = flat[np.repeat(speaking, lengths)]
        starts = np.cumsum(lengths * speaking) - lengths * speaking
    decisions = [abstain(rules, length) for length in whole.tolist()] if not speaking.all() else []
    if not speaking.any():
        return decisions
    tallies = compiled.ballots.tallies(flat, starts[speaking])
    counted = np.minimum(lengths, compiled.ballots.limit)[speaking].tolist()
    made = read_tallies(rules, tallies, whole[speaking].tolist(), counted, weights)
    for index, decision in zip(np.flatnonzero(speaking).tolist() if decisions else (), made, strict=False):
        decisions[index] = decision
    return decisions or made


def read_tallies(
    rules: DecisionRules, tallies: Tally, tokens: Sequence[int], counted: Sequence[int], weights: Costs | None = None
) -> list[Decision]:
    """The decisions of prompts that say something, from their tallies: one row each."""
    penalties = rules.penalties(weights)
    tallies = rules.valuation.reduce_all(rules.selector, tallies, counted)
    best = tallies[:, : len(rules.experts)].argmax(axis=1).tolist()
    return [
        make_decision(rules, tally, length, number, place, penalties)
        for tally, place, length, number in zip(tallies, best, tokens, counted, strict=True)
    ]


def abstain(rules: DecisionRules, tokens: int) -> Decision:
    """The answer to a prompt without a known token: the default expert, with equal probabilities or the mean scores."""
    tally = rules.valuation.tally_nothing(len(rules.experts))
    return make_decision(rules, tally, tokens, 0, int(tally.argmax()), reason="no known token")
