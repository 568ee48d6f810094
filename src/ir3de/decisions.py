"""What routing answers: a `Decision`, and an `Explanation` of it token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.selectors import Ballots, Ids, Selector, Tally
from ir3de.table import Table


@dataclass(frozen=True)
class Terms:
    """What a tally is read by: small, so that a decision kept for long keeps no table alive."""

    experts: tuple[str, ...]
    selector: Selector
    default: int  # the expert for prompts that say nothing


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
    def build(cls, experts: Sequence[str], table: Table, selector: Selector, default: int = 0) -> Compiled:
        return cls(Terms(tuple(experts), selector, default), table, selector.ballots(table))


class Decision:
    """Which expert a prompt goes to, and how clearly. Read-only.

    The prompt has `tokens`, and `counted` of them decided. `abstained` is true when the prompt has no known token
    at all: then `expert` is the router's default and the confidence is an even share.
    """

    # slots and properties rather than a frozen dataclass: one is made per prompt, in a fifth of the time
    __slots__ = ("_abstained", "_counted", "_expert", "_tally", "_terms", "_tokens")

    def __init__(self, expert: str, tokens: int, counted: int, abstained: bool, tally: Tally, terms: Terms) -> None:
        self._expert = expert
        self._tokens = tokens
        self._counted = counted
        self._abstained = abstained
        self._tally = tally
        self._terms = terms

    @property
    def expert(self) -> str:
        """The chosen expert's name."""
        return self._expert

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
        """Whether the prompt said nothing, so that the default expert was taken."""
        return self._abstained

    @property
    def ranking(self) -> tuple[tuple[str, float], ...]:
        """Every expert with its share, best first; the shares add up to one."""
        shares, tally = self._shares, self._tally.tolist()
        order = sorted(range(len(tally)), key=tally.__getitem__, reverse=True)  # ties keep the order of the experts
        if self.abstained:
            order.sort(key=lambda c: c != self._terms.default)
        return tuple((self._terms.experts[c], shares[c]) for c in order)

    @property
    def confidence(self) -> float:
        """The chosen expert's share."""
        return self._shares[int(self._tally.argmax())]  # without ranking all the others

    @property
    def margin(self) -> float:
        """How far the chosen expert's share lies above the next one's."""
        ranking = self.ranking
        return ranking[0][1] - ranking[1][1] if len(ranking) > 1 else ranking[0][1]

    @property
    def _shares(self) -> list[float]:
        if self.abstained:
            return [1.0 / len(self._tally)] * len(self._tally)
        return self._terms.selector.shares(self._tally.tolist(), self.counted)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        ranking = self.ranking
        return {
            "expert": self.expert,
            "confidence": round(ranking[0][1], 6),
            "margin": round(ranking[0][1] - (ranking[1][1] if len(ranking) > 1 else 0.0), 6),
            "ranking": [{"expert": expert, "share": round(share, 6)} for expert, share in ranking],
            "tokens": self.tokens,
            "counted": self.counted,
            "abstained": self.abstained,
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


def decide(compiled: Compiled, ids: Ids, unknown: int | None) -> Decision:
    """Route one prompt by its token ids."""
    length, terms = len(ids), compiled.terms
    cap = terms.selector.cap
    if length > cap:
        ids = ids[:cap]
    if not length or (unknown is not None and bool((ids == unknown).all())):
        return abstain(compiled, length)
    ballots = compiled.ballots
    tally = ballots.tally(ids)
    counted = min(len(ids), ballots.most)
    return Decision(terms.experts[tally.argmax()], length, counted, False, tally, terms)


def decide_batch(compiled: Compiled, flat: Ids, lengths: npt.NDArray[np.int64], unknown: int | None) -> list[Decision]:
    """Route many prompts, their ids end to end: the same decisions as one by one."""
    starts, whole = np.cumsum(lengths) - lengths, lengths
    cap, most, experts = compiled.selector.cap, compiled.ballots.most, compiled.experts
    if lengths.max(initial=0) > cap:
        flat = flat[np.arange(len(flat)) - np.repeat(starts, lengths) < cap]
        lengths = np.minimum(lengths, cap)
        starts = np.cumsum(lengths) - lengths
    speaking = lengths > 0
    if unknown is not None and len(flat):
        speaking[speaking] = np.add.reduceat(flat != unknown, starts[speaking], dtype=np.int64) > 0
        flat = flat[np.repeat(speaking, lengths)]
        starts = np.cumsum(lengths * speaking) - lengths * speaking
    decisions = [abstain(compiled, length) for length in whole.tolist()] if not speaking.all() else []
    if not speaking.any():
        return decisions
    tallies = compiled.ballots.tallies(flat, starts[speaking])
    made = [
        Decision(experts[best], tokens, counted, False, tally, compiled.terms)
        for best, tally, tokens, counted in zip(
            tallies.argmax(axis=1).tolist(),
            tallies,
            whole[speaking].tolist(),
            np.minimum(lengths, most)[speaking].tolist(),
            strict=True,
        )
    ]
    for index, decision in zip(np.flatnonzero(speaking).tolist() if decisions else (), made, strict=False):
        decisions[index] = decision
    return decisions or made


def abstain(compiled: Compiled, tokens: int) -> Decision:
    """The answer to a prompt without a known token: the default expert, an even share."""
    terms = compiled.terms
    return Decision(terms.experts[terms.default], tokens, 0, True, np.zeros(len(terms.experts)), terms)


def explain(compiled: Compiled, pieces: Sequence[tuple[int, str]], unknown: int | None) -> Explanation:
    """The vote, entropy and scores of every token that was looked at, and whether it counted."""
    ids = np.array([token for token, _ in pieces], np.uint32)
    decision = decide(compiled, ids, unknown)
    pieces, ids = pieces[: compiled.selector.cap], ids[: compiled.selector.cap]
    counted = _counted(compiled, ids) if not decision.abstained else np.zeros(len(ids), bool)
    table = compiled.table
    votes = tuple(
        TokenVote(
            text,
            token,
            compiled.experts[int(table.vote[token])],
            float(table.entropy[token]),
            tuple(table.scores[token].tolist()),
            bool(used),
        )
        for (token, text), used in zip(pieces, counted, strict=True)
    )
    return Explanation(decision, compiled.experts, votes)


def _counted(compiled: Compiled, ids: Ids) -> npt.NDArray[np.bool_]:
    """Which positions of the prompt the selector counts; of equal tokens the earliest."""
    counted = np.zeros(len(ids), bool)
    rank = compiled.ballots.rank
    order = np.arange(len(ids)) if rank is None else np.argsort(rank[ids], kind="stable")
    counted[order[: compiled.ballots.most]] = True
    return counted
