"""What routing answers: a `Decision`, worked out from a prompt's token ids."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ir3de.policies import Membership, utilities
from ir3de.routing.html import draw
from ir3de.routing.messages import MAX_GENERIC_CHARS, count_content
from ir3de.routing.rules import DecisionRules
from ir3de.routing.valuation import Consulted
from ir3de.scorers.table import FAMILIARITY_UNIT
from ir3de.selectors import Tally

Reason = Literal["", "no known token", "low confidence", "low expected score", "out of domain", "no content"]
NOTHING_SPEAKS = ("no content", "no known token")  # for any domain
CANDIDATE_RATIO = 1 / 3  # of the best expert's probability: what candidates have at least
MAX_LOG_ODDS = 700.0  # the exponential of more overflows


class Decision:
    """Which expert a prompt goes to, and how clearly. Read-only.

    Of the prompt, `tokens` were read, and `counted` of them decided. `abstained` is true when the router does not
    choose: then `expert` is its default expert, or None where no default was named, and `reason` is why.
    """

    __slots__ = (
        *("_best", "_counted", "_given_tally", "_in_domain", "_kept", "_penalties", "_reason", "_rules", "_tokens"),
    )

    _rules: DecisionRules
    # one number per expert; then may come the sum of token familiarities, in parts of FAMILIARITY_UNIT, and the sums of
    # the tokens' subject rows
    _given_tally: Tally | bytes  # bytes are made sooner than an array, and few tallies are read
    _tokens: int
    _counted: int
    _best: int  # the place of the largest tally; where costs decide, of the largest utility
    _penalties: list[float] | None
    _reason: Reason
    _kept: list[float] | None  # the values of the experts, once they are read
    _in_domain: float  # the log-odds that the prompt is in domain; with `_kept`

    @property
    def _tally(self) -> Tally:
        given = self._given_tally
        if isinstance(given, bytes):
            given = self._given_tally = np.frombuffer(given, np.float64)
        return given

    def _apply_policy(self) -> None:
        values, threshold = self._values, self._rules.policy.threshold
        if self._penalties is not None:
            worth = list(zip(utilities(values, self._penalties), self._tallies, strict=True))
            self._best = worth.index(max(worth))  # of equal utilities the likelier expert's, then the first one's
        elif (pair := self._rules.strong_weak) is not None:
            strong, weak, least = pair
            self._best = strong if values[strong] - values[weak] >= least else weak
        if (threshold > 0 or self._rules.membership is not None) and self.out_of_domain:
            self._reason = "out of domain"
        elif max(values) < threshold or threshold == 1:  # nothing is certain, however it is rounded
            self._reason = "low confidence" if self._has_probabilities else "low expected score"

    @property
    def expert(self) -> str | None:
        """The chosen expert's name; None where the router abstained and has no default expert."""
        if not self._reason:
            return self._rules.experts[self._best]
        default = self._rules.default
        return None if default is None else self._rules.experts[default]

    @property
    def best(self) -> str:
        """The expert that `confidence` or `expected_score` is about: the chosen one, or the one passed over."""
        return self._rules.experts[self._best]

    @property
    def experts(self) -> tuple[str, ...]:
        """The names of all experts, in the router's order."""
        return self._rules.experts

    @property
    def tokens(self) -> int:
        """Tokens that were read, at most the selector's cap; of a chat, those of its turns times their weights."""
        return self._tokens

    @property
    def counted(self) -> int:
        """Tokens that took part in the decision: at most the selector's cap, and those it selects."""
        return self._counted

    @property
    def abstained(self) -> bool:
        """Whether the router did not choose: `expert` is then the default expert, or None."""
        return bool(self._reason)

    @property
    def reason(self) -> Reason:
        """Why the router abstained; empty when it did not."""
        return self._reason

    @property
    def consulted(self) -> bool:
        """Whether the router's encoder was asked for a second opinion on this prompt."""
        return isinstance(self._rules.valuation, Consulted)

    @property
    def familiarity(self) -> float | None:
        """The mean token familiarity, in standard deviations from the router's own prompts; None if unknown."""
        known, experts = self._rules.familiarity, len(self._rules.experts)
        if known is None or len(self._tally) == experts:
            return None
        mean = self._tally.item(experts) / (FAMILIARITY_UNIT * self._tokens)
        return float(known.deviation(mean, self._tokens))  # not numpy's

    @property
    def in_domain(self) -> float | None:
        """The probability that the prompt belongs to any of the domains; None if that was not learnt."""
        if self._rules.membership is None or not self._has_probabilities:
            return None
        return self._find_share()

    @property
    def out_of_domain(self) -> bool:
        """Whether the prompt belongs to none of the router's domains."""
        member, known = self._rules.membership, self._rules.familiarity
        if member is not None:
            self._find_values()
            return self._in_domain < member.lowest
        found = self.familiarity
        return known is not None and found is not None and found < known.lowest

    @property
    def candidates(self) -> tuple[str, ...]:
        """The best expert, and those at least a third as likely. If the best expected score is -1: those down to -3."""
        values, best = self._find_values(), self._best
        least = values[best] * CANDIDATE_RATIO if values[best] > 0 else values[best] / CANDIDATE_RATIO
        order = sorted(self._order, key=lambda c: c != best)
        return tuple(self._rules.experts[c] for c in order if values[c] >= least)

    @property
    def ranking(self) -> tuple[tuple[str, float], ...]:
        """Every expert with its probability, best first, its costs considered; they add up to `in_domain`, or to one.

        An outcome router gives expected scores instead, which do not add up to one.
        """
        values, order = self._values, self._order
        if self._penalties is not None:
            order.sort(key=utilities(values, self._penalties).__getitem__, reverse=True)
        elif (pair := self._rules.strong_weak) is not None:  # the other one of the two comes next
            order.sort(key=lambda c: (c != self._best, c not in pair[:2]))
        if self.abstained and self._rules.default is not None:
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
        """P(in domain) · P(best expert | in domain); None for an outcome router."""
        return self._value if self._has_probabilities else None

    @property
    def expected_score(self) -> float | None:
        """The score that an outcome router expects of the best model; None for other routers."""
        return None if self._has_probabilities else self._value

    @property
    def margin(self) -> float:
        """How far the best expert's value lies above the next one's: below zero where costs decided."""
        values, share, best = self._find_values(), self._find_share(), self._best
        value = values[best] * share
        return value - max(values[:best] + values[best + 1 :]) * share if len(values) > 1 else value

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
        return self._find_values()[self._best] * self._find_share()  # without ranking all the others

    @property
    def _values(self) -> list[float]:
        """The probability or expected score of each expert."""
        values, share = self._find_values(), self._find_share()
        return values if share == 1.0 else [value * share for value in values]

    def _find_share(self) -> float:
        """The probability that the prompt is in domain, 1 where that was not learnt."""
        self._find_values()
        odds = self._in_domain
        return 1.0 if odds == math.inf else 1.0 / (1.0 + math.exp(-odds)) if odds > -MAX_LOG_ODDS else 0.0

    def _find_values(self) -> list[float]:
        """The value of each expert if the prompt is in domain."""
        if (values := self._kept) is None:
            values, self._in_domain = self._find_natively() or self._find_in_python()
            self._kept = values
        return values

    def _find_natively(self) -> tuple[list[float], float] | None:
        """The values and the log-odds that the prompt is in domain, by the kernel; None where it may not."""
        if self._reason in NOTHING_SPEAKS or (native := self._rules.values) is None:
            return None
        return native.find(self._given_tally, self._tokens, self._counted)

    def _find_in_python(self) -> tuple[list[float], float]:
        rules = self._rules
        values, odds = rules.valuation.values(rules.selector, self._tallies, self._counted), math.inf
        if (member := rules.membership) is not None and self._reason in NOTHING_SPEAKS:
            odds = -math.inf
        elif member is not None:
            odds = member.find_log_odds(self.familiarity or 0.0, max(values), *self._subject(member))
        return values if (calibration := rules.calibration) is None else calibration.limit(values), odds

    def _subject(self, member: Membership) -> tuple[float, float]:
        """How near the prompt is to what the experts' prompts are about; zeros where that is not known."""
        experts, subjects = len(self._rules.experts), member.subjects
        sums = self._tally[experts + 1 :]
        if subjects is None or not len(sums):
            return 0.0, 0.0
        return subjects.measure(sums, self._tokens, int(self._tally[:experts].argmax()))

    def under(self, rules: DecisionRules) -> Decision:
        """The decision on the same prompt by other rules, such as another calibration of the same router."""
        if self._reason == "no known token":
            return abstain(rules, self._tokens)
        if self.consulted:
            known = self._tally, self._tokens, self._counted, self._in_domain
            return make_consulted(rules, *known, rules.standing_penalties)
        parts = (self._tally, self._tokens, self._counted, self._order[0], rules.standing_penalties)
        made = make_decision(rules, *parts)
        return _deny_content(made) if self._reason == "no content" else made

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
            "in_domain": None if (share := self.in_domain) is None else round(share, 6),
            "out_of_domain": self.out_of_domain,
            **({} if self._rules.opinion is None else {"consulted": self.consulted}),
        }

    def _repr_html_(self) -> str:
        """What notebooks show: the best five experts as bars, and how sure that is or why the router abstained."""
        return draw("decision", decision=self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.expert, self.tokens, self.counted, self.abstained))

    def __repr__(self) -> str:
        name = "confidence" if self._has_probabilities else "expected_score"
        why = f", reason={self.reason!r}" if self.abstained else ""
        return f"Decision(expert={self.expert!r}, {name}={self._value:.2f}, margin={self.margin:.2f}{why})"


_new = object.__new__


def make_plain_decision(rules: DecisionRules, tally: Tally | bytes, tokens: int, counted: int, best: int) -> Decision:
    """A decision for the expert of the largest tally. The class, if it were called, would need twice the time."""
    decision = _new(Decision)
    decision._rules = rules
    decision._given_tally = tally
    decision._tokens = tokens
    decision._counted = counted
    decision._best = best
    decision._penalties = None
    decision._reason = ""
    decision._kept = None
    return decision


def make_unsure_decision(rules: DecisionRules, tally: bytes, tokens: int, counted: int, best: int) -> Decision:
    """The same for a prompt that may be out of domain, where no policy has a say."""
    decision = make_plain_decision(rules, tally, tokens, counted, best)
    if decision.out_of_domain:
        decision._reason = "out of domain"
    return decision


def make_decision(
    rules: DecisionRules,
    tally: Tally,
    tokens: int,
    counted: int,
    best: int,
    penalties: list[float] | None = None,
    reason: Reason = "",
) -> Decision:
    """A decision from its parts."""
    decision = make_plain_decision(rules, tally, tokens, counted, best)
    decision._penalties = penalties
    decision._reason = reason
    if reason:
        return decision
    if penalties is not None or rules.policy.threshold > 0 or rules.strong_weak:
        decision._apply_policy()
    elif not rules.is_surely_in_domain(tally, tokens, best) and decision.out_of_domain:
        decision._reason = "out of domain"
    return decision


def make_consulted(
    rules: DecisionRules,
    tally: Tally,
    tokens: int,
    counted: int,
    in_domain: float,
    penalties: list[float] | None = None,
) -> Decision:
    """The decision on a prompt that the encoder was asked about.

    The tally is made of the logarithms of the experts' probabilities, up to a constant.
    """
    own, best = rules.consulted_rules, int(tally[: len(rules.experts)].argmax())
    decision = make_decision(own, tally, tokens, counted, best, penalties, "no content")  # so far without the policy
    values = own.valuation.values(own.selector, decision._tallies, counted)
    decision._kept = values if (calibration := rules.calibration) is None else calibration.limit(values)
    decision._in_domain, decision._reason = in_domain, ""
    decision._apply_policy()
    return decision


def abstain(rules: DecisionRules, tokens: int) -> Decision:
    """The answer to a prompt without a known token: equal probabilities, or the mean scores."""
    tally = rules.valuation.tally_nothing(len(rules.experts))
    return make_decision(rules, tally, tokens, 0, int(tally.argmax()), reason="no known token")


def require_content(decision: Decision, text: str) -> Decision:
    """The decision on a text, or that the router abstains, where the text has generic words alone and that matters."""
    if len(text) > MAX_GENERIC_CHARS or count_content(text) or decision._reason == "no known token":
        return decision
    member = decision._rules.membership
    if member is None or not member.needs_content:
        return decision
    return _deny_content(decision)


def _deny_content(decision: Decision) -> Decision:
    parts = (decision._rules, decision._tally, decision._tokens, decision._counted, decision._best)
    return make_decision(*parts, decision._penalties, "no content")
