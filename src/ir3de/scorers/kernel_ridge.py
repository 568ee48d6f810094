"""Ridge regression in the feature space of a Gaussian kernel, token by token: the paper's future work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ir3de.errors import InputError
from ir3de.scorers.ridge import solve_ridge
from ir3de.scorers.scorer import Embeddings, Floats, check_strength
from ir3de.statistics import Statistics

BLOCK = 2_048  # rows of φ(E) that exist at a time
COMPARED = 1_000  # tokens whose distances tell how wide the kernel is
MOST_FEATURES = 1 << 14  # the Gram of twice as many would take 8 GB


@dataclass(frozen=True)
class KernelRidge:
    """Ridge regression of one-hot domains on random features φ(x) of token embeddings: S = [φ(E), 1] W.

    φ(x) = √(2/D) cos(xΩ + b) with D `features`, Ω normal with variance 2γ and b uniform on a circle (random Fourier
    features): φ(x)·φ(y) is about exp(−γ‖x − y‖²). Without a `gamma`, γ is one over the median squared distance of
    1,000 tokens. Every domain has the same weight, and `strength` is λ per domain, as in `TokenRidge`. What φ makes of
    a token depends on its id alone, so all this compiles to the same table. The same `seed` draws the same features.

    >>> KernelRidge()
    KernelRidge(strength=0.01, features=1024, gamma=None, seed=0)
    """

    strength: float = 1e-2
    features: int = 1_024
    gamma: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_strength(self.strength)
        if not isinstance(self.features, int) or not 1 <= self.features <= MOST_FEATURES:
            raise InputError(
                f"features must be a whole number between 1 and {MOST_FEATURES:,}, found {self.features!r}: try 1024"
            )
        if self.gamma is not None and not (isinstance(self.gamma, (int, float)) and 0 < self.gamma < float("inf")):
            raise InputError(f"gamma must be a positive number or None, found {self.gamma!r}: None asks the embedding")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise InputError(f"seed must be a whole number from 0, found {self.seed!r}")

    def scores(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        weights = [1.0 / max(1, domain.tokens) for domain in domains]
        counts = np.stack([w * domain.histogram for w, domain in zip(weights, domains, strict=True)], axis=1)
        lift = Lift.drawn(self, embeddings)
        W = _solve(lift, counts, embeddings, self.strength * sum(weights))
        S = np.empty((len(embeddings), len(domains)))
        for begin in range(0, len(S), BLOCK):
            np.dot(lift(embeddings[begin : begin + BLOCK]), W[:-1], out=S[begin : begin + BLOCK])
        S += W[-1]
        return S


@dataclass(frozen=True, eq=False)
class Lift:
    """φ: rows of the embedding to rows of random features, in float32, which is far finer than their own error."""

    frequencies: Embeddings  # (h, D)  Ω
    phases: Embeddings  # (D,)  b

    @classmethod
    def drawn(cls, scorer: KernelRidge, embeddings: Embeddings) -> Lift:
        """Ω and b from the scorer's seed, as wide as its gamma says."""
        gamma = median_gamma(embeddings) if scorer.gamma is None else scorer.gamma
        draw = np.random.default_rng(scorer.seed)
        frequencies = np.sqrt(2.0 * gamma) * draw.standard_normal((embeddings.shape[1], scorer.features))
        phases = draw.uniform(0.0, 2.0 * np.pi, scorer.features)
        return cls(frequencies.astype(np.float32), phases.astype(np.float32))

    def __call__(self, rows: Embeddings) -> Floats:
        angles = rows @ self.frequencies
        angles += self.phases
        np.cos(angles, out=angles)
        return np.asarray(np.sqrt(2.0 / len(self.phases)) * angles.astype(np.float64))


def median_gamma(embeddings: Embeddings) -> float:
    """One over the median squared distance between different tokens, evenly spaced over the vocabulary."""
    chosen = np.unique(np.linspace(0, len(embeddings) - 1, COMPARED).astype(np.intp))
    X = embeddings[chosen].astype(np.float64)
    squares = np.einsum("ij,ij->i", X, X)
    distances = squares[:, None] + squares[None, :] - 2.0 * (X @ X.T)
    apart = distances[np.triu_indices(len(X), 1)]
    median = float(np.median(apart)) if apart.size else 0.0
    return 1.0 / median if median > 0 else 1.0  # nothing to tell apart: any width will do


def _solve(lift: Lift, counts: Floats, embeddings: Embeddings, penalty: float) -> Floats:
    """W of the ridge on [φ, 1], from the weighted histograms, as `TokenRidge` finds it on [x, 1]: (D + 1, C)."""
    width = len(lift.phases) + 1
    G = np.zeros((width + counts.shape[1], width + counts.shape[1]))
    seen = np.flatnonzero(counts.any(axis=1))
    for begin in range(0, len(seen), BLOCK):
        rows = seen[begin : begin + BLOCK]
        root = np.sqrt(counts[rows].sum(axis=1))[:, None]
        Y = np.hstack([lift(embeddings[rows]) * root, root, counts[rows] / root])
        G += Y.T @ Y  # Ẽᵀ diag(n) Ẽ and Ẽᵀ n_c at once
    return solve_ridge(G[:width, :width], G[:width, width:], penalty)
