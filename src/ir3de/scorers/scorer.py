"""The interface of a scorer: statistics in, one score per token and expert out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.scorers.arithmetic import Rows
from ir3de.statistics.domain import Statistics

Floats = npt.NDArray[np.float64]
Embeddings: TypeAlias = Rows  # E (V, h)


@runtime_checkable
class Scorer(Protocol):
    """Turns statistics into one score per token and expert."""

    def scores(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        """S (V, C), column c for `domains[c]`."""


@runtime_checkable
class PairScorer(Scorer, Protocol):
    """A scorer that may also score pairs of neighbouring tokens."""

    def pair_scores(self, domains: Sequence[Statistics]) -> Floats | None:
        """One row per bucket of pairs, (BUCKETS, C), or None."""


def check_strength(strength: float) -> None:
    """Refuse a strength that is not a positive number."""
    if not isinstance(strength, (int, float)) or not 0 < strength < float("inf"):
        raise InputError(f"strength (λ) must be a positive number, found {strength!r}: try 0.01")
