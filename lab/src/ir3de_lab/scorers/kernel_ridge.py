"""Ridge regression with a Gaussian kernel, token by token: named as future work in the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.scorers import Rows, current
from ir3de.statistics import Statistics

Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.float32]

BLOCK_ROWS = 2_048  # of the kernel matrix, in memory at a time
COMPARED_TOKENS = 1_000  # whose distances set the kernel's width
MAX_LANDMARKS = 1 << 14  # the Gram matrix of twice as many would take 8 GB
JITTER = 1e-10  # times the mean diagonal, added to it: equal landmarks would make the matrix singular


@dataclass(frozen=True)
class KernelRidge:
    """Ridge regression of one-hot domains on a token's similarity to each landmark: S = [K, 1] W.

    K_vm = exp(−γ‖E_v − E_m‖²). The landmarks m are the most frequent tokens. If these are all tokens that occur, this
    is exact kernel ridge regression, else its Nyström approximation. Without a `gamma`, γ is one over the median
    squared distance of 1,000 tokens. Every domain has the same weight. `strength` is λ per domain, as in `TokenRidge`.
    Similarities depend only on the token id, so this compiles to the same table.

    >>> KernelRidge()
    KernelRidge(strength=0.01, landmarks=2048, gamma=None)
    """

    strength: float = 1e-2
    landmarks: int = 2_048
    gamma: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.strength, (int, float)) or not 0 < self.strength < float("inf"):
            raise InputError(f"strength (λ) must be a positive number, found {self.strength!r}: try 0.01")
        if not isinstance(self.landmarks, int) or not 1 <= self.landmarks <= MAX_LANDMARKS:
            raise InputError(
                f"landmarks must be a whole number between 1 and {MAX_LANDMARKS:,}, found {self.landmarks!r}: try 2048"
            )
        if self.gamma is not None and not (isinstance(self.gamma, (int, float)) and 0 < self.gamma < float("inf")):
            raise InputError(
                f"gamma must be a positive number or None, found {self.gamma!r}: None derives it from the embedding"
            )

    def scores(self, domains: Sequence[Statistics], embeddings: Rows) -> Floats:
        weights = [1.0 / max(1, domain.tokens) for domain in domains]
        counts = np.stack([w * domain.histogram for w, domain in zip(weights, domains, strict=True)], axis=1)
        landmarks = embeddings[find_landmarks(counts, self.landmarks)]
        gamma = choose_gamma(embeddings) if self.gamma is None else self.gamma
        kernel = Kernel(landmarks, _squares(landmarks), gamma)
        W = _solve(kernel, counts, embeddings, self.strength * sum(weights))
        S = np.empty((len(embeddings), len(domains)))
        for begin in range(0, len(S), BLOCK_ROWS):
            np.dot(kernel(embeddings[begin : begin + BLOCK_ROWS]), W[:-1], out=S[begin : begin + BLOCK_ROWS])
        S += W[-1]
        return S


@dataclass(frozen=True, eq=False)
class Kernel:
    """Computes the similarity of embedding rows to each landmark, in float32."""

    landmarks: Vectors  # (M, h)
    squares: Vectors  # (M,)  ‖E_m‖²
    gamma: float

    def __call__(self, rows: Vectors) -> Floats:
        distances = rows @ self.landmarks.T
        distances *= -2.0
        distances += self.squares
        distances += _squares(rows)[:, None]
        np.maximum(distances, 0.0, out=distances)  # rounding may make the distance to itself negative
        distances *= -self.gamma
        return np.asarray(np.exp(distances, out=distances), np.float64)


def find_landmarks(counts: Floats, most: int) -> npt.NDArray[np.intp]:
    """The ids of the most frequent tokens; of equal ones, the lower id first."""
    weights = np.sort(counts, axis=1).sum(axis=1)  # sorted, so that the order of the domains changes no rounding
    order = np.argsort(-weights, kind="stable")[:most]
    return np.asarray(order[weights[order] > 0])


def choose_gamma(embeddings: Rows) -> float:
    """One over the median squared distance of tokens that are evenly spaced over the vocabulary."""
    chosen = np.unique(np.linspace(0, len(embeddings) - 1, COMPARED_TOKENS).astype(np.intp))
    X = embeddings[chosen].astype(np.float64)
    squares = np.einsum("ij,ij->i", X, X)
    distances = squares[:, None] + squares[None, :] - 2.0 * (X @ X.T)
    apart = distances[np.triu_indices(len(X), 1)]
    median = float(np.median(apart)) if apart.size else 0.0
    return 1.0 / median if median > 0 else 1.0  # all tokens are equal: any width will do


def _solve(kernel: Kernel, counts: Floats, embeddings: Rows, penalty: float) -> Floats:
    """W = (K̃ᵀ diag(n) K̃ + λR)⁻¹ K̃ᵀ n_c with K̃ = [K, 1] and R = [K of the landmarks, 1]: (M + 1, C)."""
    width = len(kernel.landmarks) + 1
    G = np.zeros((width + counts.shape[1], width + counts.shape[1]))
    seen = np.flatnonzero(counts.any(axis=1))
    for begin in range(0, len(seen), BLOCK_ROWS):
        rows = seen[begin : begin + BLOCK_ROWS]
        root = np.sqrt(counts[rows].sum(axis=1))[:, None]
        Y = np.hstack([kernel(embeddings[rows]) * root, root, counts[rows] / root])
        G += Y.T @ Y  # K̃ᵀ diag(n) K̃ and K̃ᵀ n_c in one product, as in `NumpyArithmetic`
    A, B = G[:width, :width], G[:width, width:]
    A[:-1, :-1] += penalty * kernel(kernel.landmarks)
    A[-1, -1] += penalty
    return current().solve(A, B, JITTER * float(np.trace(A)) / width)


def _squares(rows: Vectors) -> Vectors:
    return np.asarray(np.einsum("ij,ij->i", rows, rows), np.float32)
