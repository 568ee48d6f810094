"""Each expert's own Gram matrix G_c = Ẽᵀ diag(n_c) Ẽ, remembered: of a wide embedding, only what changed is computed.

G_c is a function of the expert's counts alone, and A = Σ_c w_c G_c is added up in the experts' order. So a router that
an expert joined or left is, bit for bit, the one that a fit of all its experts gives, whichever G_c were at hand.
The column of Ẽ that is the constant 1 makes Ẽᵀ n_c the last column of G_c.
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

REMEMBERED_WIDTH = 1_024  # of an embedding, from which every expert has a Gram matrix of its own
GRAM, WHOLE = "gram", "whole"  # in `Statistics.derived`


@runtime_checkable
class GramScorer(Protocol):
    """A scorer that is fitted from Gram matrices."""

    def needs_grams(self, domains: Sequence[Statistics]) -> bool:
        """Whether it is with these domains."""
        ...


@dataclass(frozen=True, eq=False)
class Gram:
    """The upper triangle of Ẽᵀ diag(n_c) Ẽ, row by row, and the arithmetic that made it."""

    packed: Floats  # ((h+1)(h+2)/2,)
    made_by: str


def remembers_grams(scorer: object, domains: Sequence[Statistics], width: int) -> bool:
    """Whether a fit leaves Gram matrices that are worth keeping: a function of what is fitted, never of what was."""
    return width >= REMEMBERED_WIDTH and isinstance(scorer, GramScorer) and scorer.needs_grams(domains)


def remember(domain: Statistics, gram: Gram | Callable[[], Gram | None]) -> None:
    """Give a domain its Gram matrix, or what fetches it when it is first asked for."""
    domain.derived[GRAM] = gram


def remembered(domain: Statistics) -> Gram | None:
    """The Gram matrix that was made of these counts before, if it is still there."""
    found = domain.derived.get(GRAM)
    if callable(found):
        found = domain.derived[GRAM] = found()
    assert found is None or isinstance(found, Gram)
    return found


def part_of(rest: Statistics, whole: Statistics) -> Statistics:
    """A domain some prompts are held out of, marked so: its Gram matrix is the whole one's less theirs."""
    if rest.derived is not whole.derived:
        rest.derived[WHOLE] = whole
    return rest


def ridge_system(
    domains: Sequence[Statistics], weights: Sequence[float], embeddings: Embeddings
) -> tuple[Floats, Floats]:
    """A = Σ_c w_c G_c and B with the columns w_c Ẽᵀ n_c, Ẽ = [E, 1]."""
    width = embeddings.shape[1] + 1
    total, B = np.zeros(triangle_size(width)), np.empty((width, len(domains)))
    ends = np.cumsum(np.arange(width, 0, -1)) - 1  # of each row of the triangle: the column of the constant
    with stage("product", sum(_rows_to_do(domain, width) for domain in domains)):
        for c, (weight, domain) in enumerate(zip(weights, domains, strict=True)):
            G = _gram(domain, embeddings)
            B[:, c] = weight * G[ends]
            total += weight * G
    return unpack_triangle(total, width), B


def _gram(domain: Statistics, embeddings: Embeddings) -> Floats:
    whole: Statistics | None = domain.derived.get(WHOLE)
    if whole is not None:  # not kept: there is one for every fold
        return _gram(whole, embeddings) - _product(whole.histogram - domain.histogram, embeddings)
    if (found := _usable(domain, embeddings.shape[1] + 1)) is None:
        found = Gram(_product(domain.histogram, embeddings), current().name)
        found.packed.flags.writeable = False
        remember(domain, found)
    return found.packed


def _usable(domain: Statistics, width: int) -> Gram | None:
    """What is remembered, unless another arithmetic made it, whose last bits may be others."""
    found = remembered(domain)
    fits = found is not None and found.made_by == current().name and found.packed.shape == (triangle_size(width),)
    return found if fits else None


def _product(counts: Integers, embeddings: Embeddings) -> Floats:
    return pack_triangle(current().product(embeddings, counts[:, None].astype(np.float64), targets=False))


def _rows_to_do(domain: Statistics, width: int) -> int:
    whole: Statistics | None = domain.derived.get(WHOLE)
    if whole is not None:
        return _rows_to_do(whole, width) + int(np.count_nonzero(whole.histogram - domain.histogram))
    return 0 if _usable(domain, width) is not None else int(np.count_nonzero(domain.histogram))
