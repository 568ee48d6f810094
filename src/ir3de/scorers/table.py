"""The table that routing looks up: each token's scores, vote, entropy, and rank by entropy.

All of this depends only on the token id, so routing never multiplies matrices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.scorers import PairScorer, Scorer
from ir3de.scorers.blend import Blend, BlendParts
from ir3de.scorers.logistic import Logistic, LogisticParts
from ir3de.scorers.registry import Embeddings
from ir3de.statistics.domain import Statistics

MAX_EXPERTS = 1 << 16  # a vote has 16 bits
BLOCK_NUMBERS = 1 << 18  # processed at a time: with many experts, a copy of the table would not fit in memory


class EntropyOrder(NamedTuple):
    """Each token's entropy, and its place in the order by (entropy, token id)."""

    entropy: npt.NDArray[np.float32]  # (V,)
    rank: npt.NDArray[np.uint32]  # (V,)

    @classmethod
    def measure(cls, scores: npt.NDArray[np.floating], log_offset: float) -> EntropyOrder:
        entropy = np.empty(len(scores))
        for block in row_blocks(scores.shape):
            entropy[block] = _entropy(np.asarray(scores[block], np.float64), log_offset)
        order = np.argsort(entropy, kind="stable")  # stable: equal entropies keep the order of their ids
        rank = np.empty(len(order), np.uint32)
        rank[order] = np.arange(len(order), dtype=np.uint32)
        return cls(entropy.astype(np.float32), rank)


@dataclass(frozen=True, eq=False)
class Table:
    """One row per token: all that routing needs of a fit."""

    scores: npt.NDArray[np.float32]  # (V, C)  S
    vote: npt.NDArray[np.uint16]  # (V,)  argmax_c S
    known_order: EntropyOrder | None = None  # None: computed on first use, because most selectors do not need it
    log_offset: float = 0.0  # added inside the logarithm of the entropy
    familiarity: npt.NDArray[np.float32] | None = None  # (V,)  how common each token is, in whole parts
    pairs: npt.NDArray[np.float32] | None = None  # (BUCKETS, C)  scores of neighbouring tokens
    subjects: npt.NDArray[np.int8] | None = None  # (V, k)  what each token is about

    @cached_property
    def order(self) -> EntropyOrder:
        return self.known_order or EntropyOrder.measure(self.scores, self.log_offset)

    @property
    def entropy(self) -> npt.NDArray[np.float32]:
        """−Σ_c p log p with p = softmax(S): (V,)."""
        return self.order.entropy

    @property
    def rank(self) -> npt.NDArray[np.uint32]:
        """Each token's place in the order by (entropy, token id): (V,)."""
        return self.order.rank

    @classmethod
    def compile(
        cls,
        scores: npt.NDArray[np.floating],
        *,
        log_offset: float = 0.0,
        familiarity: npt.NDArray[np.float32] | None = None,
        pairs: npt.NDArray[np.floating] | None = None,
    ) -> Table:
        """Compute vote, entropy and rank. `log_offset` is added inside the logarithm, as in the authors' code."""
        check_experts(scores.shape[1])
        kept = np.ascontiguousarray(scores, np.float32)
        # scores that are not rounded yet are not kept: what depends on them is computed at once
        order = None if scores.dtype == np.float32 else EntropyOrder.measure(scores, log_offset)
        return cls(
            kept,
            scores.argmax(axis=1).astype(np.uint16),  # ties to the lowest index
            order,
            log_offset,
            familiarity,
            None if pairs is None else np.ascontiguousarray(pairs, np.float32),
        )

    @classmethod
    def restore(
        cls,
        scores: npt.NDArray[np.float32],
        vote: npt.NDArray[np.uint16],
        entropy: npt.NDArray[np.float32],
        rank: npt.NDArray[np.uint32],
        familiarity: npt.NDArray[np.float32] | None = None,
        pairs: npt.NDArray[np.float32] | None = None,
        subjects: npt.NDArray[np.int8] | None = None,
    ) -> Table:
        """The table of these arrays, as a file has them."""
        order = EntropyOrder(entropy, rank)
        return cls(scores, vote, order, familiarity=familiarity, pairs=pairs, subjects=subjects)

    @classmethod
    def of(
        cls,
        scorer: Scorer,
        domains: Sequence[Statistics],
        embeddings: Embeddings,
        *,
        log_offset: float = 0.0,
        familiarity: bool = False,
        background: Statistics | None = None,
        unknown: int | None = None,
        parts: BlendParts | LogisticParts | None = None,
    ) -> Table:
        """Fit a scorer, and compile its table. With `familiarity` it includes token familiarities.

        Those compare the domains with the `background`, if there is one. `parts` are those of this scorer and these
        domains, where they are known already.
        """
        scores: npt.NDArray[np.floating]
        pairs: npt.NDArray[np.floating] | None = None
        if type(scorer) is Logistic:
            known = parts if isinstance(parts, LogisticParts) else None
            scores, pairs = scorer.score_tables(domains, embeddings, known)
        elif type(scorer) is Blend:  # in the precision of the table
            blend = parts if isinstance(parts, BlendParts) else BlendParts(domains, embeddings)
            scores, pairs = scorer.combine(blend), scorer.pair_scores(domains)
        else:
            scores = scorer.scores(domains, embeddings)
            pairs = scorer.pair_scores(domains) if isinstance(scorer, PairScorer) else None
        return cls.compile(
            scores,
            log_offset=log_offset,
            familiarity=token_familiarity(domains, background, unknown) if familiarity else None,
            pairs=pairs,
        )

    @cached_property
    def by_rank(self) -> npt.NDArray[np.intp]:
        """Token ids in the order of their ranks."""
        return np.argsort(self.rank)


def check_experts(count: int) -> None:
    """Raise an error for more experts than a vote can name."""
    if count > MAX_EXPERTS:
        raise InputError(
            f"a router has at most {MAX_EXPERTS:,} experts, found {count:,}: merge some, or make several routers"
        )


def row_blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    """The rows of a (V, C) table a block at a time."""
    rows = max(1, BLOCK_NUMBERS // max(1, shape[1]))
    for begin in range(0, shape[0], rows):
        yield slice(begin, begin + rows)


def _entropy(scores: npt.NDArray[np.float64], log_offset: float) -> npt.NDArray[np.float64]:
    """−Σ p log(p + offset) along the last axis, p = softmax(scores)."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    powers = np.exp(shifted)
    total = powers.sum(axis=-1)
    if log_offset:
        p = powers / total[:, None]
        return np.asarray(-(p * np.log(p + log_offset)).sum(axis=-1))
    # log p = shifted − log total stays finite where p itself rounds to 0
    return np.asarray(np.log(total) - (powers * shifted).sum(axis=-1) / total)


FAMILIARITY_UNIT = 1 << 10  # parts of 1: familiarities are integers, so that sums are exact
RARE_TOKENS = 2.0  # a is this count,
RARE_SHARE = 1e-5  # or this share of all tokens, whichever is larger
BACKGROUND_WEIGHT = 0.5  # of the log ratio to the background
BACKGROUND_PRIOR = 1.0  # as if each token had occurred once more in both

Counts = npt.NDArray[np.float64]


def token_familiarity(
    domains: Sequence[Statistics], background: Statistics | None = None, unknown: int | None = None
) -> npt.NDArray[np.float32]:
    """−log(1 + a/(ñ_v + ½)) + ½ log((k_v + 1)/(b_v + 1)) in whole parts of `FAMILIARITY_UNIT`: (V,).

    ñ are the counts of all domains, with equal weight per domain. k and b are those and the background's, scaled to the
    same size. Common tokens of the domains are near 0 in the first part, so they cannot compensate for strange ones.
    The second part is negative for tokens that the background has more often. Without a background there is none.
    The token for `unknown` text counts as never seen.
    """
    size = float(np.mean([domain.tokens for domain in domains]))
    counts = np.zeros(domains[0].histogram.size)
    for domain in domains:
        counts += domain.histogram * (size / max(1, domain.tokens))
    if background is None:
        return score_familiarity(counts, unknown)
    return score_familiarity(counts, unknown, background.histogram.astype(np.float64), background.tokens)


def score_familiarity(
    counts: Counts,
    unknown: int | npt.NDArray[np.intp] | None,
    background: Counts | None = None,
    background_tokens: float = 0.0,
) -> npt.NDArray[np.float32]:
    """The same from the counts ñ and the background's, for all tokens or some of them.

    The counts are changed in place where a token is `unknown`.
    """
    total = float(counts.sum())
    rare = max(RARE_TOKENS, RARE_SHARE * total)
    if unknown is not None:
        counts[unknown] = 0.0
    found = -np.log1p(rare / (counts + 0.5))
    if background is not None and total and background_tokens:
        if unknown is not None:
            background[unknown] = 0.0
        size = 2.0 / (1.0 / total + 1.0 / background_tokens)  # the harmonic mean, close to the smaller one
        k, b = counts * (size / total), background * (size / background_tokens)
        found += BACKGROUND_WEIGHT * np.log((k + BACKGROUND_PRIOR) / (b + BACKGROUND_PRIOR))
    return np.asarray(np.rint(found * FAMILIARITY_UNIT), np.float32)
