"""Prompt ridge, posterior and pairs of tokens in one score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.scorers.posterior import Posterior, balanced, log_evidence
from ir3de.scorers.ridge import PromptRidge
from ir3de.scorers.scorer import Embeddings, Floats, check_strength
from ir3de.statistics import Statistics

PAIR_PRIOR = 1.0  # pairs seen once are half believed
ROUNDING = 1e-6  # relative to the largest score: float32 is as good as float64 here


@dataclass(frozen=True)
class Blend:
    """S = ridge · R/|R| + posterior · P/|P|, and for neighbouring tokens pairs · Q/|Q|.

    R is the prompt ridge, P the posterior, Q = log(ñ + 1) from the counts of pairs; |·| is the size of the scores over
    the training tokens, so that the three weights say what each part contributes. The ridge generalises, the posterior
    knows the words, the pairs know a little of their order. With `pairs` 0 a route depends on the bag of tokens alone.
    """

    ridge: float = 1.0
    posterior: float = 1.0
    pairs: float = 0.0
    strength: float = 8.0  # of the prompt ridge
    prior: float = 1.0  # weight of the posterior's prior, in tokens

    def __post_init__(self) -> None:
        for name in ("ridge", "posterior", "pairs"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not (math.isfinite(value) and value >= 0):
                raise InputError(f"the weight '{name}' of a blend must be a number, at least 0, found {value!r}")
        if self.ridge + self.posterior <= 0:
            raise InputError("a blend needs a weight above 0 for ridge or posterior")
        check_strength(self.strength)
        check_strength(self.prior)

    def scores(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        R = PromptRidge(self.strength).scores(domains, embeddings)
        P = Posterior(self.prior, strength=self.strength).given(domains, R)
        tokens = balanced([domain.histogram for domain in domains])
        return self.ridge * unit_size(R, tokens) + self.posterior * unit_size(P, tokens)

    def pair_scores(self, domains: Sequence[Statistics]) -> Floats | None:
        """The scores of the buckets of neighbouring tokens, (BUCKETS, C); None when they have no weight."""
        return None if self.pairs == 0 else self.pairs * unit_pairs(domains)


def unit_pairs(domains: Sequence[Statistics]) -> Floats:
    """Q/|Q|: (BUCKETS, C)."""
    if any(domain.sums is None for domain in domains):
        raise InputError("pairs of tokens are counted with the prompt sums: collect with prompt_sums=True")
    counts = balanced([domain.sums.pairs for domain in domains if domain.sums is not None])
    return unit_size(log_evidence(counts, PAIR_PRIOR), counts)


def unit_size(scores: npt.NDArray[np.floating], counts: Floats) -> Floats:
    """Scores less their mean over the experts, with Σ_v f_v Σ_c S_vc² = 1, f how frequent a token is in training.

    Scores that differ by rounding alone, as those of equal domains do, are zeros: noise is not brought to that size.
    """
    centred = scores - scores.mean(axis=1, keepdims=True)
    frequency = counts.sum(axis=1)
    size = math.sqrt(float(frequency @ (centred**2).sum(axis=1)) / max(float(frequency.sum()), 1.0))
    if size <= ROUNDING * float(np.abs(scores).max(initial=0.0)):
        return np.zeros(scores.shape)
    return np.asarray(centred / size, np.float64)
