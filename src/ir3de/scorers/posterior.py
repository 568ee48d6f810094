"""Token counts as evidence, with the ridge as prior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de.scorers.ridge import PromptRidge
from ir3de.scorers.scorer import Embeddings, Floats, check_strength
from ir3de.statistics.domain import Statistics
from ir3de.statistics.integers import Integers

MIN_PRIOR = 1e-100  # keeps the logarithm finite where a sharp prior rounds to 0


@dataclass(frozen=True)
class Posterior:
    """p(c|v) ∝ ñ_vc + m·q(c|v), score = log p: naive Bayes where there is data, embeddings where there is none.

    ñ are the counts with every domain scaled to the same size. The prior q = softmax(sharpness · prompt ridge)
    weighs as much as `weight` tokens (m). `strength` is the strength of that ridge.
    """

    weight: float = 1.0
    sharpness: float = 2.0
    strength: float = 8.0

    def __post_init__(self) -> None:
        for value in (self.weight, self.sharpness, self.strength):
            check_strength(value)

    def scores(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        ridge = PromptRidge(self.strength).scores(domains, embeddings)
        return self.score_counts(balance_counts([domain.histogram for domain in domains]), ridge)

    def score_counts(self, counts: Floats, ridge: npt.NDArray[np.floating]) -> Floats:
        """The scores from the balanced counts ñ and the scores of the prompt ridge."""
        q = ridge.astype(np.float64)  # q = softmax(sharpness · ridge), in place: the table is large
        q -= ridge.max(axis=1, keepdims=True)
        q *= self.sharpness
        np.exp(q, out=q)
        q /= q.sum(axis=1, keepdims=True)
        np.maximum(q, MIN_PRIOR, out=q)
        q *= self.weight
        return log_evidence(counts, q)


def balance_counts(counts: Sequence[Integers]) -> Floats:
    """Scale every domain's counts to the same size, the harmonic mean of the sizes: (V, C).

    It is close to the smallest size, so that counts weigh no more than the smallest domain justifies.
    """
    sizes = np.array([int(count.sum()) for count in counts], np.float64)
    return balance(np.stack(counts, axis=1).astype(np.float64), sizes)


def balance(counts: Floats, sizes: Floats) -> Floats:
    """The same for counts in columns (V, C), which are changed in place, of domains of these sizes."""
    sizes = np.maximum(sizes, 1.0)
    counts *= len(sizes) / (1.0 / sizes).sum() / sizes
    return counts


def log_evidence(counts: Floats, prior: Floats | float) -> Floats:
    """log(ñ + prior) minus its mean over the experts."""
    S = counts + prior
    np.log(S, out=S)
    S -= S.mean(axis=1, keepdims=True)
    return S
