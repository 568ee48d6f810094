"""Ridge regression with a Gaussian kernel, token by token: the paper's future work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.scorers.arithmetic import current
from ir3de.scorers.scorer import Embeddings, Floats, check_strength
from ir3de.statistics.domain import Statistics

Vectors = npt.NDArray[np.float32]

BLOCK = 2_048  # rows of the kernel matrix that exist at a time
COMPARED = 1_000  # tokens whose distances tell how wide the kernel is
MOST_LANDMARKS = 1 << 14  # the Gram of twice as many would take 8 GB
SINGULAR = 1e-10  # of the mean diagonal, added to it: landmarks may lie on top of each other


@dataclass(frozen=True)
class KernelRidge:
    """Ridge regression of one-hot domains on how near a token is to each landmark: S = [K, 1] W.

    K_vm = exp(−γ‖E_v − E_m‖²), and the landmarks m are the most frequent tokens, all that were seen if these are fewer:
    then this is kernel ridge regression itself, else its Nyström form. Without a `gamma`, γ is one over the median
    squared distance of 1,000 tokens. Every domain has the same weight, and `strength` is λ per domain, as in
    `TokenRidge`. What the kernel makes of a token depends on its id alone, so all this compiles to the same table.

    >>> KernelRidge()
    KernelRidge(strength=0.01, landmarks=2048, gamma=None)
    """

    strength: float = 1e-2
    landmarks: int = 2_048
    gamma: float | None = None

    def __post_init__(self) -> None:
        check_strength(self.strength)
        if not isinstance(self.landmarks, int) or not 1 <= self.landmarks <= MOST_LANDMARKS:
            raise InputError(
                f"landmarks must be a whole number between 1 and {MOST_LANDMARKS:,}, found {self.landmarks!r}: try 2048"
            )
        if self.gamma is not None and not (isinstance(self.gamma, (int, float)) and 0 < self.gamma < float("inf")):
            raise InputError(f"gamma must be a positive number or None, found {self.gamma!r}: None asks the embedding")

    def scores(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        weights = [1.0 / max(1, domain.tokens) for domain in domains]
        counts = np.stack([w * domain.histogram for w, domain in zip(weights, domains, strict=True)], axis=1)
        kernel = Kernel.between(
            embeddings,
            most_frequent(counts, self.landmarks),
            median_gamma(embeddings) if self.gamma is None else self.gamma,
        )
        W = _solve(kernel, counts, embeddings, self.strength * sum(weights))
        S = np.empty((len(embeddings), len(domains)))
        for begin in range(0, len(S), BLOCK):
            np.dot(kernel(embeddings[begin : begin + BLOCK]), W[:-1], out=S[begin : begin + BLOCK])
        S += W[-1]
        return S


@dataclass(frozen=True, eq=False)
class Kernel:
    """Rows of the embedding to their nearness to each landmark, worked out in float32."""

    landmarks: Vectors  # (M, h)
    squares: Vectors  # (M,)  ‖E_m‖²
    gamma: float

    @classmethod
    def between(cls, embeddings: Embeddings, ids: npt.NDArray[np.intp], gamma: float) -> Kernel:
        return cls(embeddings[ids], _squares(embeddings[ids]), gamma)

    def __call__(self, rows: Vectors) -> Floats:
        distances = rows @ self.landmarks.T
        distances *= -2.0
        distances += self.squares
        distances += _squares(rows)[:, None]
        np.maximum(distances, 0.0, out=distances)  # rounding may leave a token at less than no distance from itself
        distances *= -self.gamma
        return np.asarray(np.exp(distances, out=distances), np.float64)


def most_frequent(counts: Floats, most: int) -> npt.NDArray[np.intp]:
    """The ids of the tokens that weigh most, of equal ones the lower first."""
    weights = np.sort(counts, axis=1).sum(axis=1)  # sorted: the order of the domains does not even change the rounding
    order = np.argsort(-weights, kind="stable")[:most]
    return np.asarray(order[weights[order] > 0])


def median_gamma(embeddings: Embeddings) -> float:
    """One over the median squared distance between different tokens, evenly spaced over the vocabulary."""
    chosen = np.unique(np.linspace(0, len(embeddings) - 1, COMPARED).astype(np.intp))
    X = embeddings[chosen].astype(np.float64)
    squares = np.einsum("ij,ij->i", X, X)
    distances = squares[:, None] + squares[None, :] - 2.0 * (X @ X.T)
    apart = distances[np.triu_indices(len(X), 1)]
    median = float(np.median(apart)) if apart.size else 0.0
    return 1.0 / median if median > 0 else 1.0  # nothing to tell apart: any width will do


def _solve(kernel: Kernel, counts: Floats, embeddings: Embeddings, penalty: float) -> Floats:
    """W = (K̃ᵀ diag(n) K̃ + λR)⁻¹ K̃ᵀ n_c with K̃ = [K, 1] and R = [K of the landmarks, 1]: (M + 1, C)."""
    width = len(kernel.landmarks) + 1
    G = np.zeros((width + counts.shape[1], width + counts.shape[1]))
    seen = np.flatnonzero(counts.any(axis=1))
    for begin in range(0, len(seen), BLOCK):
        rows = seen[begin : begin + BLOCK]
        root = np.sqrt(counts[rows].sum(axis=1))[:, None]
        Y = np.hstack([kernel(embeddings[rows]) * root, root, counts[rows] / root])
        G += Y.T @ Y  # K̃ᵀ diag(n) K̃ and K̃ᵀ n_c at once, as in `TokenRidge`
    A, B = G[:width, :width], G[:width, width:]
    A[:-1, :-1] += penalty * kernel(kernel.landmarks)
    A[-1, -1] += penalty
    return current().solve(A, B, SINGULAR * float(np.trace(A)) / width)


def _squares(rows: Vectors) -> Vectors:
    return np.asarray(np.einsum("ij,ij->i", rows, rows), np.float32)
