"""A decision token by token: what each one says, and whether it counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.policies import Costs
from ir3de.routing.decision import Compiled, Decision, decide
from ir3de.selectors import Ids
from ir3de.statistics.pairs import pair_buckets


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


def explain(
    compiled: Compiled, pieces: Sequence[tuple[int, str]], unknown: int | None, weights: Costs | None = None
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
    scores = compiled.terms.valuation.value_tokens(table.scores[ids])
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
