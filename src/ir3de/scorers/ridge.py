"""Ridge regression of domains on embeddings, token by token or prompt by prompt, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ir3de.errors import InputError
from ir3de.scorers import grams
from ir3de.scorers.arithmetic import current
from ir3de.scorers.scorer import Embeddings, Floats, check_strength
from ir3de.statistics.domain import Statistics
from ir3de.statistics.prompt_sums import triangle_size, unpack_triangle


@dataclass(frozen=True)
class TokenRidge:
    """Ridge regression of one-hot domains on token embeddings: W = (A + λI)⁻¹B, S = Ẽ W.

    `strength` is λ. `bias` appends a constant column to E (regularised with the rest). `balanced` gives every
    domain the same weight whatever its size; λ is then per domain. `unit_columns` divides each column of W by
    the norm of its part without the bias.

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
        """The formula as printed in the paper: no bias, no normalisation."""
        return cls(bias=False, balanced=False)

    @classmethod
    def authors(cls) -> TokenRidge:
        """The formula in the authors' published code: with a bias, and columns of unit norm."""
        return cls(bias=True, balanced=False, unit_columns=True)

    def scores(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        weights = [1.0 / max(1, domain.tokens) if self.balanced else 1.0 for domain in domains]
        penalty = self.strength * (sum(weights) if self.balanced else 1.0)
        W = current().solve(*self._system(domains, weights, embeddings), penalty)
        if self.unit_columns:
            norms = np.linalg.norm(W[: embeddings.shape[1]], axis=0)
            W = W / np.where(norms > 0, norms, 1.0)
        return current().apply(W, embeddings)

    def needs_grams(self, domains: Sequence[Statistics]) -> bool:
        return True

    def _system(
        self, domains: Sequence[Statistics], weights: Sequence[float], embeddings: Embeddings
    ) -> tuple[Floats, Floats]:
        """A = Ẽᵀ diag(Σ w_c n_c) Ẽ and B_c = w_c Ẽᵀ n_c: in one product, or from the Gram matrices if E is wide."""
        width = embeddings.shape[1] + self.bias
        if embeddings.shape[1] >= grams.MIN_REMEMBERED_WIDTH:
            A, B = grams.ridge_system(domains, weights, embeddings)
            return A[:width, :width], B[:width]
        counts = np.stack([w * domain.histogram for w, domain in zip(weights, domains, strict=True)], axis=1)
        G = current().product(embeddings, counts, bias=self.bias)
        return G[:width, :width], G[:width, width:]


@dataclass(frozen=True)
class PromptRidge:
    """Ridge regression of one-hot domains on the mean embedding of each prompt.

    A = Σ_c w_c Σ x̃x̃ᵀ and B_c = w_c Σ x̃ with x̃ = [x̄, 1] and w_c = 1 / windows(c), so that large domains have no
    advantage. A prompt's score is the mean of its tokens' rows of S = Ẽ W, so it compiles to the same table.

    `strength` counts windows. It acts like that many more windows per domain, of average size and in all directions.
    So it holds back a domain of thirty prompts, but hardly one of thousands.
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
                    "prompt ridge needs prompt sums, and a domain has none: collect at least one text with "
                    "prompt_sums=True (on the command line without --histogram-only) and a smaller subsample, or use "
                    "TokenRidge (--scorer token-ridge)"
                )
            w = 1.0 / sums.windows
            packed += w * (sums.gram * sums.unit**2)
            B[:h, c] = w * sums.unit * sums.vector
            B[h, c] = 1.0
            penalty += self.strength * w
        A[:h, :h] = unpack_triangle(packed, h)
        A[:h, h] = A[h, :h] = B[:h].sum(axis=1)
        A[h, h] = len(domains)
        energy = np.trace(A[:h, :h]) / (h * len(domains))  # mean square of an entry of x̄
        penalty *= float(energy) or 1.0
        return current().apply(current().solve(A, B, penalty), embeddings)
