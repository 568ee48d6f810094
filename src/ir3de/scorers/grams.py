"""A cache of each expert's Gram matrix G_c = Ẽᵀ diag(n_c) Ẽ, so that a change computes only what changed.

G_c depends only on the expert's counts, and A = Σ_c w_c G_c is added up in the experts' order. So after an expert is
added or removed, the router is bit for bit the one that a fresh fit gives, whichever G_c were cached.
Ẽ ends with a column of ones, which makes Ẽᵀ n_c the last column of G_c.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from ir3de.scorers.arithmetic import current, stage
from ir3de.scorers.scorer import Embeddings, Floats
from ir3de.statistics.domain import Statistics
from ir3de.statistics.integers import Integers
from ir3de.statistics.prompt_sums import pack_triangle, triangle_size, unpack_triangle

MIN_REMEMBERED_WIDTH = 1_024  # of the embedding: for narrower ones the product is cheap
GRAM, WHOLE = "gram", "whole"  # keys of `Statistics.derived`


@runtime_checkable
class GramScorer(Protocol):
    """A scorer that is fitted from Gram matrices."""

    def needs_grams(self, domains: Sequence[Statistics]) -> bool:
        """Whether a fit of these domains uses Gram matrices."""


@dataclass(frozen=True, eq=False)
class Gram:
    """The upper triangle of Ẽᵀ diag(n_c) Ẽ, row by row, and the arithmetic that made it."""

    packed: Floats  # ((h+1)(h+2)/2,)
    made_by: str


def needs_remembered_grams(scorer: object, domains: Sequence[Statistics], width: int) -> bool:
    """Whether a fit leaves Gram matrices that are worth keeping. This depends on what is fitted, never on the past."""
    return width >= MIN_REMEMBERED_WIDTH and isinstance(scorer, GramScorer) and scorer.needs_grams(domains)


def remember(domain: Statistics, gram: Gram | Callable[[], Gram | None]) -> None:
    """Give a domain its Gram matrix, or a function that loads it at first use."""
    domain.derived[GRAM] = gram


def recall(domain: Statistics) -> Gram | None:
    """The Gram matrix of these counts, if it is cached."""
    found = domain.derived.get(GRAM)
    if callable(found):
        found = domain.derived[GRAM] = found()
    assert found is None or isinstance(found, Gram)
    return found


def mark_part(rest: Statistics, whole: Statistics) -> Statistics:
    """Mark a domain as `whole` minus held-out prompts: its Gram matrix is then computed by subtraction."""
    if rest.derived is not whole.derived:
        rest.derived[WHOLE] = whole
    return rest


def is_part(domain: Statistics) -> bool:
    """Whether a domain is marked as part of a whole. Both must then have rows for the same tokens."""
    return WHOLE in domain.derived


def ridge_system(
    domains: Sequence[Statistics], weights: Sequence[float], embeddings: Embeddings
) -> tuple[Floats, Floats]:
    """A = Σ_c w_c G_c and B with the columns w_c Ẽᵀ n_c, Ẽ = [E, 1]."""
    width = embeddings.shape[1] + 1
    total, B = np.zeros(triangle_size(width)), np.empty((width, len(domains)))
    ends = np.cumsum(np.arange(width, 0, -1)) - 1  # the last entry of each row of the triangle: the column of ones
    with stage("product", sum(_count_rows(domain, width) for domain in domains)):
        for c, (weight, domain) in enumerate(zip(weights, domains, strict=True)):
            G = _gram(domain, embeddings)
            B[:, c] = weight * G[ends]
            total += weight * G
    return unpack_triangle(total, width), B


def _gram(domain: Statistics, embeddings: Embeddings) -> Floats:
    whole: Statistics | None = domain.derived.get(WHOLE)
    if whole is not None:  # not cached: there is one for every fold
        return _gram(whole, embeddings) - _product(whole.histogram - domain.histogram, embeddings)
    if (found := _recall_usable(domain, embeddings.shape[1] + 1)) is None:
        found = Gram(_product(domain.histogram, embeddings), current().name)
        found.packed.flags.writeable = False
        remember(domain, found)
    return found.packed


def _recall_usable(domain: Statistics, width: int) -> Gram | None:
    """The cached Gram matrix, unless another arithmetic made it: its last bits may differ."""
    found = recall(domain)
    fits = found is not None and found.made_by == current().name and found.packed.shape == (triangle_size(width),)
    return found if fits else None


def _product(counts: Integers, embeddings: Embeddings) -> Floats:
    return pack_triangle(current().product(embeddings, counts[:, None].astype(np.float64), targets=False))


def _count_rows(domain: Statistics, width: int) -> int:
    whole: Statistics | None = domain.derived.get(WHOLE)
    if whole is not None:
        return _count_rows(whole, width) + int(np.count_nonzero(whole.histogram - domain.histogram))
    return 0 if _recall_usable(domain, width) is not None else int(np.count_nonzero(domain.histogram))
