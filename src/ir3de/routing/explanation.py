"""Explain a decision token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.policies import Costs
from ir3de.routing.decision import CompiledRouter, Decision, decide
from ir3de.selectors import Ids
from ir3de.statistics.pairs import pair_buckets


@dataclass(frozen=True, slots=True)
class TokenVote:
    """One token of a prompt: its vote, entropy and scores, and whether it counted."""

    text: str
    id: int
    vote: str
    entropy: float
    scores: tuple[float, ...]  # in the order of the router's experts
    counted: bool

    def to_dict(self) -> dict[str, Any]:
        scores = [round(score, 6) for score in self.scores]
        return {**asdict(self), "entropy": round(self.entropy, 6), "scores": scores}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision, and the part of every token in it, up to the selector's cap."""

    decision: Decision
    experts: tuple[str, ...]
    tokens: tuple[TokenVote, ...]

    def to_dict(self) -> dict[str, Any]:
        votes = [token.to_dict() for token in self.tokens]
        return {**self.decision.to_dict(), "experts": list(self.experts), "votes": votes}


def explain(
    compiled: CompiledRouter, pieces: Sequence[tuple[int, str]], unknown: int | None, weights: Costs | None = None
) -> Explanation:
    """Explain a decision by the vote, entropy and scores of every token up to the cap.

    Where pairs have scores, each token gets half of the scores of the pairs with its left and its right neighbour.
    In an outcome router, a token's scores are the expected scores if it were the whole prompt, and its entropy is
    that of its tasks.
    """
    ids = np.array([token for token, _ in pieces], np.uint32)
    decision = decide(compiled, ids, unknown, weights)
    pieces, ids = pieces[: compiled.selector.cap], ids[: compiled.selector.cap]
    counted = _find_counted(compiled, ids) & (decision.reason != "no known token")
    scores, vote = _score_tokens(compiled, ids)
    rows = zip(
        pieces, vote.tolist(), compiled.table.entropy[ids].tolist(), scores.tolist(), counted.tolist(), strict=True
    )
    votes = tuple(
        TokenVote(text, token, compiled.experts[expert], entropy, tuple(said), counts)
        for (token, text), expert, entropy, said, counts in rows
    )
    return Explanation(decision, compiled.experts, votes)


def _score_tokens(compiled: CompiledRouter, ids: Ids) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.integer]]:
    """Each token's scores, with its half of its pairs, and its vote."""
    table = compiled.table
    scores = compiled.rules.valuation.value_tokens(table.scores[ids])
    if table.pairs is None or compiled.ballots.pairs is None or len(ids) < 2:
        return scores, table.vote[ids]
    halves = table.pairs[pair_buckets(ids)] / 2
    scores[:-1] += halves
    scores[1:] += halves
    return scores, scores.argmax(axis=1)


def _find_counted(compiled: CompiledRouter, ids: Ids) -> npt.NDArray[np.bool_]:
    """Which positions of the prompt the selector counts. Of equal tokens, the earliest count."""
    counted = np.zeros(len(ids), bool)
    rank = compiled.ballots.rank
    order = np.arange(len(ids)) if rank is None else np.argsort(rank[ids], kind="stable")
    counted[order[: compiled.ballots.limit]] = True
    return counted
