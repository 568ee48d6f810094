"""What routing answers: a `Decision`, and an `Explanation` of it token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ir3de.expectations import Expectation
from ir3de.pairs import pair_buckets
from ir3de.policies import Calibration, Cost, Familiarity, Policy
from ir3de.scorers import USUALNESS_UNIT
from ir3de.selectors import Ballots, Ids, Selector, Tally
from ir3de.table import Table

Weights: TypeAlias = "Cost | Mapping[str, float]"
Reason = Literal["", "no known token", "low confidence", "unlike every domain"]


@dataclass(frozen=True)
class Terms:
    """What a tally is read by: small, so that a decision kept for long keeps no table alive."""

    experts: tuple[str, ...]
    selector: Selector
    default: int = 0  # the expert for prompts that say nothing
    calibration: Calibration | None = None
    familiarity: Familiarity | None = None
    policy: Policy = field(default_factory=Policy)
    expectation: Expectation | None = None  # of a router fitted from outcomes: what tallies are worth

    @property
    def columns(self) -> int:
        """Scores a token has: one an expert, and one a task where expectations need them."""
        return len(self.experts) + (0 if self.expectation is None else len(self.expectation.tasks))

    def qualities(self, expectation: Expectation, tally: Tally, counted: int) -> Tally:
        """The tally of an outcome router, tasks and models, as one expected quality a model."""
        return expectation.of(self.selector.evidence(tally.tolist(), counted))

    def penalties(self, weights: Weights | None) -> list[float] | None:
        return self.policy.penalties(self.experts, weights)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A fitted router's read side: swapped as one object, so a reader never sees half a change."""

    terms: Terms
    table: Table
    ballots: Ballots

    @property
    def experts(self) -> tuple[str, ...]:
        return self.terms.experts

    @property
    def selector(self) -> Selector:
        return self.terms.selector

    @property
    def default(self) -> int:
        return self.terms.default

    @classmethod
    def build(cls, terms: Terms, table: Table) -> Compiled:
        return cls(terms, table, terms.selector.ballots(table))


class Decision:
    """Which expert a prompt goes to, and how clearly. Read-only.

    The prompt has `tokens`, and `counted` of them decided. `abstained` is true when the router would not choose: then
    `expert` is its default, and `reason` says why.
    """

    # slots and properties rather than a frozen dataclass: one is made per prompt, in a fifth of the time
    __slots__ = ("_best", "_counted", "_penalties", "_reason", "_tally", "_terms", "_tokens", "_usual")

    def __init__(
        self,
        terms: Terms,
        tally: Tally,
        tokens: int,
        counted: int,
        *,
        usual: float | None = None,
        penalties: list[float] | None = None,
        reason: Reason = "",
    ) -> None:
        self._terms = terms
        self._tally = tally
        self._tokens = tokens
        self._counted = counted
        self._usual = usual
        self._penalties = penalties
        self._reason: Reason = reason
        self._best = int(tally.argmax())
        if not reason and (penalties is not None or terms.policy.threshold > 0):
            self._apply_policy()

    def _apply_policy(self) -> None:
        probabilities, threshold = self._shares, self._terms.policy.threshold
        if self._penalties is not None:
            utility = [p - penalty for p, penalty in zip(probabilities, self._penalties, strict=True)]
            self._best = utility.index(max(utility))
        if max(probabilities) < threshold:
            self._reason = "low confidence"
        elif threshold > 0 and self.unlike:
            self._reason = "unlike every domain"

    @property
    def expert(self) -> str:
        """The chosen expert's name."""
        return self._terms.experts[self._terms.default if self._reason else self._best]

    @property
    def tokens(self) -> int:
        """Tokens of the prompt."""
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
        """How usual the prompt's tokens are, in standard deviations from the router's own prompts; None if unknown."""
        known, looked_at = self._terms.familiarity, min(self._tokens, self._terms.selector.cap)
        if known is None or self._usual is None:
            return None
        return known.deviation(self._usual / (USUALNESS_UNIT * looked_at), looked_at)

    @property
    def unlike(self) -> bool:
        """Whether the prompt is unlike every domain the router knows."""
        known, found = self._terms.familiarity, self.familiarity
        return known is not None and found is not None and found < known.lowest

    @property
    def ranking(self) -> tuple[tuple[str, float], ...]:
        """Every expert with its probability, best first, its costs considered; the probabilities add up to one.

        Of a router fitted from outcomes these are expected qualities instead, and add up to nothing in particular.
        """
        shares, penalties = self._shares, self._penalties
        value = self._tally.tolist()
        if penalties is not None:
            value = [share - penalty for share, penalty in zip(shares, penalties, strict=True)]
        order = sorted(range(len(value)), key=value.__getitem__, reverse=True)  # ties keep the order of the experts
        if self.abstained:
            order.sort(key=lambda c: c != self._terms.default)
        return tuple((self._terms.experts[c], shares[c]) for c in order)

    @property
    def confidence(self) -> float:
        """The probability that the best expert is the right one, calibrated where the router is; or its quality."""
        return self._shares[self._best]  # without ranking all the others

    @property
    def margin(self) -> float:
        """How far the confidence lies above the next expert's probability."""
        shares, confidence = self._shares, self.confidence
        others = shares[: self._best] + shares[self._best + 1 :]
        return confidence - max(others) if others else confidence

    @property
    def expects_quality(self) -> bool:
        """Whether shares are the qualities expected of models, in the units of their scores, not probabilities."""
        return self._terms.expectation is not None

    @property
    def _shares(self) -> list[float]:
        if self._terms.expectation is not None:
            qualities: list[float] = self._tally.tolist()  # worked out already
            return qualities
        if self._reason == "no known token":
            return [1.0 / len(self._tally)] * len(self._tally)
        tally, terms = self._tally.tolist(), self._terms
        if terms.calibration is None:
            return terms.selector.shares(tally, self._counted)
        return terms.calibration.probabilities(terms.selector.evidence(tally, self._counted), self._counted)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        familiarity = self.familiarity
        return {
            "expert": self.expert,
            "confidence": round(self.confidence, 6),
            "margin": round(self.margin, 6),
            "ranking": [{"expert": expert, "share": round(share, 6)} for expert, share in self.ranking],
            "tokens": self.tokens,
            "counted": self.counted,
            "abstained": self.abstained,
            "reason": self.reason,
            "familiarity": None if familiarity is None else round(familiarity, 3),
            "unlike": self.unlike,
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.expert, self.tokens, self.counted, self.abstained))

    def __repr__(self) -> str:
        return f"Decision(expert={self.expert!r}, confidence={self.confidence:.2f}, margin={self.margin:.2f})"


@dataclass(frozen=True, slots=True)
class TokenVote:
    """One token of a prompt: what it is, whom it votes for, how sure it is, and whether it counted."""

    text: str
    id: int
    vote: str
    entropy: float
    scores: tuple[float, ...]  # in the order of the router's experts
    counted: bool

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "id": self.id,
            "vote": self.vote,
            "entropy": round(self.entropy, 6),
            "scores": [round(score, 6) for score in self.scores],
            "counted": self.counted,
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision and the part in it of every token that was looked at: the prompt's first, up to the selector's cap."""

    decision: Decision
    experts: tuple[str, ...]
    tokens: tuple[TokenVote, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.decision.to_dict(),
            "experts": list(self.experts),
            "votes": [token.to_dict() for token in self.tokens],
        }


def decide(compiled: Compiled, ids: Ids, unknown: int | None, weights: Weights | None = None) -> Decision:
    """Route one prompt by its token ids."""
    length, terms = len(ids), compiled.terms
    cap = terms.selector.cap
    if length > cap:
        ids = ids[:cap]
    if not length or (unknown is not None and bool((ids == unknown).all())):
        return abstain(terms, length)
    ballots = compiled.ballots
    tally, usual = ballots.tally(ids), None
    counted = min(len(ids), ballots.most)
    if len(tally) > (experts := len(terms.experts)):
        if terms.expectation is not None:
            tally = terms.qualities(terms.expectation, tally, counted)
        else:
            tally, usual = tally[:experts], tally[experts]
    return Decision(terms, tally, length, counted, usual=usual, penalties=terms.penalties(weights))


def decide_batch(
    compiled: Compiled,
    flat: Ids,
    lengths: npt.NDArray[np.int64],
    unknown: int | None,
    weights: Weights | None = None,
) -> list[Decision]:
    """Route many prompts, their ids end to end: the same decisions as one by one."""
    starts, whole, terms = np.cumsum(lengths) - lengths, lengths, compiled.terms
    cap, most, experts = terms.selector.cap, compiled.ballots.most, len(terms.experts)
    if lengths.max(initial=0) > cap:
        flat = flat[np.arange(len(flat)) - np.repeat(starts, lengths) < cap]
        lengths = np.minimum(lengths, cap)
        starts = np.cumsum(lengths) - lengths
    speaking = lengths > 0
    if unknown is not None and len(flat):
        speaking[speaking] = np.add.reduceat(flat != unknown, starts[speaking], dtype=np.int64) > 0
        flat = flat[np.repeat(speaking, lengths)]
        starts = np.cumsum(lengths * speaking) - lengths * speaking
    decisions = [abstain(terms, length) for length in whole.tolist()] if not speaking.all() else []
    if not speaking.any():
        return decisions
    tallies, penalties = compiled.ballots.tallies(flat, starts[speaking]), terms.penalties(weights)
    counted = np.minimum(lengths, most)[speaking].tolist()
    if (expectation := terms.expectation) is not None:  # one by one, so that not a bit differs from `decide`
        each = zip(tallies, counted, strict=True)
        tallies = np.stack([terms.qualities(expectation, tally, number) for tally, number in each])
    usual = tallies[:, experts].tolist() if tallies.shape[1] > experts else [None] * len(tallies)
    made = [
        Decision(terms, tally, tokens, number, usual=usualness, penalties=penalties)
        for tally, usualness, tokens, number in zip(
            tallies[:, :experts], usual, whole[speaking].tolist(), counted, strict=True
        )
    ]
    for index, decision in zip(np.flatnonzero(speaking).tolist() if decisions else (), made, strict=False):
        decisions[index] = decision
    return decisions or made


def abstain(terms: Terms, tokens: int) -> Decision:
    """The answer to a prompt without a known token: the default expert, an even share or the usual qualities."""
    tally = np.zeros(len(terms.experts)) if terms.expectation is None else terms.expectation.at_rest
    return Decision(terms, tally, tokens, 0, reason="no known token")


def explain(
    compiled: Compiled, pieces: Sequence[tuple[int, str]], unknown: int | None, weights: Weights | None = None
) -> Explanation:
    """The vote, entropy and scores of every token that was looked at, and whether it counted.

    Where neighbouring tokens have scores of their own, each token is given half of those with its left and its right.
    For a router fitted from outcomes, a token's scores are the qualities expected if it were the whole prompt, and its
    entropy is that of its tasks.
    """
    ids = np.array([token for token, _ in pieces], np.uint32)
    decision = decide(compiled, ids, unknown, weights)
    pieces, ids = pieces[: compiled.selector.cap], ids[: compiled.selector.cap]
    said = decision.reason != "no known token"
    counted = _counted(compiled, ids) if said else np.zeros(len(ids), bool)
    scores, vote = _scores(compiled, ids)
    votes = tuple(
        TokenVote(
            text,
            token,
            compiled.experts[int(vote[place])],
            float(compiled.table.entropy[token]),
            tuple(scores[place].tolist()),
            bool(counted[place]),
        )
        for place, (token, text) in enumerate(pieces)
    )
    return Explanation(decision, compiled.experts, votes)


def _scores(compiled: Compiled, ids: Ids) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.integer]]:
    """What each token, with its share of its neighbours, says of each expert, and whom it votes for."""
    table = compiled.table
    scores = table.scores[ids]
    if (expectation := compiled.terms.expectation) is not None:
        qualities = expectation.alone(scores)
        return qualities.astype(np.float32), qualities.argmax(axis=1)
    if table.pairs is None or compiled.ballots.pairs is None or len(ids) < 2:
        return scores, table.vote[ids]
    halves = table.pairs[pair_buckets(ids)] / 2
    scores[:-1] += halves
    scores[1:] += halves
    return scores, scores.argmax(axis=1)


def _counted(compiled: Compiled, ids: Ids) -> npt.NDArray[np.bool_]:
    """Which positions of the prompt the selector counts; of equal tokens the earliest."""
    counted = np.zeros(len(ids), bool)
    rank = compiled.ballots.rank
    order = np.arange(len(ids)) if rank is None else np.argsort(rank[ids], kind="stable")
    counted[order[: compiled.ballots.most]] = True
    return counted
