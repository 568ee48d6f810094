"""Ridge regression of domains on embeddings, token by token or prompt by prompt, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ir3de.errors import InputError
from ir3de.scorers.scorer import Embeddings, Floats, check_strength
from ir3de.statistics import Statistics, full_square, triangle_size

BLOCK = 4_096  # rows of E in one symmetric product: memory is bounded, and BLAS has enough to do
CACHED = 128  # rows of E taken to float64 at a time: they stay in the cache


@dataclass(frozen=True)
class TokenRidge:
    """Ridge regression of one-hot domains on token embeddings: W = (A + λI)⁻¹B, S = Ẽ W.

    `strength` is λ. `bias` appends a constant column to E (regularised with the rest). `balanced` gives every
    domain the same weight whatever its size; λ is then per domain. `unit_columns` divides each column of W by
    the norm of its rows that are not the bias.

    >>> TokenRidge.paper()
    TokenRidge(strength=0.01, bias=False, balanced=False, unit_columns=False)
    >>> TokenRidge.authors()
    TokenRidge(strength=0.01, bias=True, balanced=False, unit_columns=True)
    """

    strength: float = 1e-2
    bias: bool = True
    balanced: bool = True
    unit_columns: bool = False

    def __post_init__(self) -> None:
        check_strength(self.strength)

    @classmethod
    def paper(cls) -> TokenRidge:
        """The paper's formula to the letter."""
        return cls(bias=False, balanced=False)

    @classmethod
    def authors(cls) -> TokenRidge:
        """The formula their published code computes: with a bias, columns brought to unit norm."""
        return cls(bias=True, balanced=False, unit_columns=True)

    def scores(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        weights = [1.0 / max(1, domain.tokens) if self.balanced else 1.0 for domain in domains]
        penalty = self.strength * (sum(weights) if self.balanced else 1.0)
        counts = np.stack([w * domain.histogram for w, domain in zip(weights, domains, strict=True)], axis=1)
        W = self._solve(counts, embeddings, penalty)
        if self.unit_columns:
            norms = np.linalg.norm(W[: embeddings.shape[1]], axis=0)
            W = W / np.where(norms > 0, norms, 1.0)
        return apply(W, embeddings)

    def _solve(self, counts: Floats, embeddings: Embeddings, penalty: float) -> Floats:
        """W from the (weighted) histograms n_c, the columns of `counts`, in one symmetric product.

        With rows √n·[x, 1] and n_c/√n beside them, YᵀY holds A = Ẽᵀ diag(n) Ẽ and B_c = Ẽᵀ n_c at once.
        """
        h = embeddings.shape[1]
        width, experts = h + self.bias, counts.shape[1]
        seen = np.flatnonzero(counts.any(axis=1))
        block = np.empty((min(BLOCK, len(seen)), width + experts))  # one buffer: fresh pages cost as much as the sums
        G = np.zeros((width + experts, width + experts))
        for begin in range(0, len(seen), BLOCK):
            for first in range(begin, min(begin + BLOCK, len(seen)), CACHED):
                rows = seen[first : min(first + CACHED, begin + BLOCK)]
                Y = block[first - begin : first - begin + len(rows)]
                root = np.sqrt(counts[rows].sum(axis=1))[:, None]
                np.multiply(embeddings[rows], root, out=Y[:, :h])
                Y[:, h:width] = root
                np.divide(counts[rows], root, out=Y[:, width:])
            Y = block[: min(BLOCK, len(seen) - begin)]
            G += Y.T @ Y
        return solve_ridge(G[:width, :width], G[:width, width:], penalty)


@dataclass(frozen=True)
class PromptRidge:
    """The same ridge one level up: one-hot domains on the mean embedding of each prompt.

    A = Σ_c w_c Σ x̃x̃ᵀ and B_c = w_c Σ x̃ with x̃ = [x̄, 1] and w_c = 1 / windows(c), so that size gives a
    domain no advantage. A prompt's score is the mean of its tokens' rows of S = Ẽ W, so it compiles to the same table.

    `strength` counts windows: the fit is pulled towards zero as if each domain had that many more windows, of
    average size and pointing everywhere alike. A domain of thirty prompts is held back, one of thousands is not.
    """

    strength: float = 8.0

    def __post_init__(self) -> None:
        check_strength(self.strength)

    def scores(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        h = embeddings.shape[1]
        A, B = np.zeros((h + 1, h + 1)), np.zeros((h + 1, len(domains)))
        packed, penalty = np.zeros(triangle_size(h)), 0.0
        for c, domain in enumerate(domains):
            sums = domain.sums
            if sums is None or sums.windows == 0:
                raise InputError(
                    "prompt ridge needs prompt sums, and a domain has none: collect it with prompt_sums=True, "
                    "a smaller sample if one was asked for, and at least one text, or use TokenRidge"
                )
            w = 1.0 / sums.windows
            packed += w * (sums.gram * sums.unit**2)
            B[:h, c] = w * sums.unit * sums.vector
            B[h, c] = 1.0
            penalty += self.strength * w
        A[:h, :h] = full_square(packed, h)
        A[:h, h] = A[h, :h] = B[:h].sum(axis=1)
        A[h, h] = len(domains)
        energy = np.trace(A[:h, :h]) / (h * len(domains))  # mean square of an entry of x̄
        penalty *= float(energy) or 1.0
        return apply(solve_ridge(A, B, penalty), embeddings)


def solve_ridge(A: Floats, B: Floats, penalty: float) -> Floats:
    """W = (A + λI)⁻¹B."""
    return np.asarray(np.linalg.solve(A + penalty * np.eye(len(A)), B), np.float64)


def apply(W: Floats, embeddings: Embeddings) -> Floats:
    """S = Ẽ W: (V, C)."""
    h = embeddings.shape[1]
    S = np.empty((embeddings.shape[0], W.shape[1]))
    block = np.empty((min(CACHED, len(S)), h))
    for begin in range(0, len(S), CACHED):
        rows = embeddings[begin : begin + CACHED]
        np.copyto(block[: len(rows)], rows)
        np.dot(block[: len(rows)], W[:h], out=S[begin : begin + CACHED])
    if len(W) > h:
        S += W[h]
    return S
