"""Blend: ridge, posterior and pairs of tokens in one score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.scorers.posterior import Posterior, balance_counts, log_evidence
from ir3de.scorers.ridge import PromptRidge, TokenRidge
from ir3de.scorers.scorer import Embeddings, Floats, check_strength
from ir3de.statistics.domain import Statistics

PAIR_PRIOR = 1.0  # as if each pair had occurred once more for every expert
ROUNDING = 1e-6  # smaller scores, relative to the largest, are rounding errors, also in float32
MAX_TOKEN_WEIGHT = 2.0
MIN_TOKEN_WEIGHT = 0.05  # a smaller weight is not worth the solve
BLOCK_ROWS = 4_096  # of the scores, squared at a time


@dataclass(frozen=True)
class Blend:
    """S = R/|R| + posterior · P/|P| + few/n · T/|T|, and for neighbouring tokens pairs · Q/|Q|.

    R is the prompt ridge, P the posterior, T the token ridge, Q = log(ñ + 1) from the counts of pairs. |·| is the size
    of the scores over the training tokens, so the weights say how much each part contributes. The ridge generalises;
    the posterior knows the words. The token ridge takes every token as an example. That is better while domains have
    few windows (n is their harmonic mean). Its weight is at most 2, and falls with n. Pairs add a little word order.
    With `pairs` 0, a route depends only on the bag of tokens.
    """

    posterior: float = 0.5
    pairs: float = 0.0
    few: float = 50.0  # windows of a domain at which the token ridge weighs as much as the prompt ridge
    strength: float = 8.0  # of the prompt ridge
    prior: float = 1.0  # weight of the posterior's prior, in tokens

    def __post_init__(self) -> None:
        for name in ("posterior", "pairs", "few"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not (math.isfinite(value) and value >= 0):
                raise InputError(f"'{name}' of a blend must be a number, at least 0, found {value!r}")
        check_strength(self.strength)
        check_strength(self.prior)

    def scores(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        R = PromptRidge(self.strength).scores(domains, embeddings)
        counts = balance_counts([domain.histogram for domain in domains])
        P = scale_to_unit(Posterior(self.prior, strength=self.strength).score_counts(counts, R), counts)
        P *= self.posterior
        S = scale_to_unit(R, counts)
        S += P
        del P, R  # (V, C) each: with many experts they are most of a fit's memory
        if weight := token_weight(domains, self.few):
            T = scale_to_unit(TokenRidge().scores(domains, embeddings), counts)
            T *= weight
            S += T
        return S

    def needs_grams(self, domains: Sequence[Statistics]) -> bool:
        return token_weight(domains, self.few) > 0

    def pair_scores(self, domains: Sequence[Statistics]) -> Floats | None:
        """The scores of the buckets of neighbouring tokens, (BUCKETS, C); None when they have no weight."""
        return None if self.pairs == 0 else self.pairs * score_pairs(domains)


def token_weight(domains: Sequence[Statistics], few: float) -> float:
    """The weight of the token ridge in a blend: few/n, at most 2, and 0 where that is small."""
    per_window = np.mean([1.0 / max(1, domain.sums.windows) for domain in domains if domain.sums is not None])
    weight = min(MAX_TOKEN_WEIGHT, few * float(per_window))
    return weight if weight >= MIN_TOKEN_WEIGHT else 0.0


def score_pairs(domains: Sequence[Statistics]) -> Floats:
    """Q/|Q|: (BUCKETS, C)."""
    pairs = [domain.sums.pairs for domain in domains if domain.sums is not None and domain.sums.pairs is not None]
    if len(pairs) < len(domains):
        raise InputError("pairs of tokens are counted with prompt sums, and a domain has none: use prompt_sums=True")
    counts = balance_counts(pairs)
    return scale_to_unit(log_evidence(counts, PAIR_PRIOR), counts)


def scale_to_unit(scores: npt.NDArray[np.floating], counts: Floats) -> Floats:
    """Scores minus their mean over the experts, with Σ_v f_v Σ_c S_vc² = 1, where f is a token's training frequency.

    Scores that differ only by rounding, as for equal domains, become zeros: noise is not scaled up.
    """
    centred = scores - scores.mean(axis=1, keepdims=True)
    frequency = counts.sum(axis=1)
    blocks = (centred[begin : begin + BLOCK_ROWS] for begin in range(0, len(centred), BLOCK_ROWS))
    squares = np.concatenate([(block**2).sum(axis=1) for block in blocks])
    size = math.sqrt(float(frequency @ squares) / max(float(frequency.sum()), 1.0))
    if size <= ROUNDING * max(float(scores.max(initial=0.0)), -float(scores.min(initial=0.0))):
        return np.zeros(scores.shape)
    centred /= size
    return np.asarray(centred, np.float64)
