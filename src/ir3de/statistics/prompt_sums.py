"""Prompt sums: Σ 1, Σ x̄ and Σ x̄x̄ᵀ over windows of prompts, in integers, and the packed matrices that hold them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError, MismatchError
from ir3de.statistics.integers import Integers, freeze, keep_at_least, read_only
from ir3de.statistics.pairs import BUCKETS

MAX_SUM = (1 << 62) - 1  # two sums of this size still add up in 64 bits


@dataclass(frozen=True, eq=False)
class PromptSums:
    """Σ 1, Σ x̄ and Σ x̄x̄ᵀ over a domain's windows, in integers.

    With subsampling of 1 window in `s`, a window counts `s` times in `windows` and in the sums. That is an unbiased
    estimate of the whole, and still adds up with any other.
    """

    window: int  # tokens a window aims at; shorter prompts are one window
    unit: float  # real value of the integer 1, a power of two
    windows: int
    vector: Integers  # (h,)  Σ x̄ / unit
    gram: Integers  # (h(h+1)/2,)  upper triangle of Σ x̄x̄ᵀ / unit², row by row
    pairs: Integers | None = None  # (BUCKETS,)  how often each bucket of neighbouring tokens occurred

    def __post_init__(self) -> None:
        for name in ("vector", "gram", "pairs"):
            if (values := getattr(self, name)) is not None:
                object.__setattr__(self, name, read_only(values))
        if self.pairs is not None and self.pairs.shape != (BUCKETS,):
            raise InputError(f"prompt sums count pairs in {BUCKETS:,} buckets, found {self.pairs.size:,}")
        if self.gram.shape != (triangle_size(self.width),):
            raise InputError(
                f"prompt sums of width {self.width} need {triangle_size(self.width)} Gram entries, "
                f"found {self.gram.size}"
            )
        diagonal = self.gram[np.cumsum(np.r_[0, np.arange(self.width, 1, -1)])]
        if self.windows < 0 or (diagonal < 0).any() or (self.pairs is not None and (self.pairs < 0).any()):
            raise InputError("prompt sums fell below zero: what was subtracted was never added")
        parts = (self.vector, self.gram, *(() if self.pairs is None else (self.pairs,)))
        if any(max(int(part.max(initial=0)), -int(part.min(initial=0))) > MAX_SUM for part in parts):
            raise InputError("prompt sums overflow: they are beyond 2⁶². Collect fewer texts, or a histogram only")

    @property
    def width(self) -> int:
        return int(self.vector.size)

    def full_gram(self) -> npt.NDArray[np.float64]:
        """Σ x̄x̄ᵀ as the symmetric (h, h) matrix of real values."""
        return unpack_triangle(self.gram * self.unit**2, self.width)

    def __add__(self, other: PromptSums) -> PromptSums:
        return self.combine(other, +1)

    def __sub__(self, other: PromptSums) -> PromptSums:
        return self.combine(other, -1)

    def combine(self, other: PromptSums, sign: int) -> PromptSums:
        """The sum for a `sign` of +1, the difference for −1."""
        if (self.window, self.unit) != (other.window, other.unit):
            raise MismatchError(
                f"prompt sums over windows of {self.window} tokens in units of {self.unit} cannot be combined with "
                f"windows of {other.window} in units of {other.unit}: collect both the same way"
            )
        if (self.pairs is None) != (other.pairs is None):
            raise MismatchError(
                "sums with counts of pairs cannot be combined with sums without: collect both the same way"
            )
        return PromptSums(
            self.window,
            self.unit,
            self.windows + sign * other.windows,
            freeze(self.vector + sign * other.vector),
            freeze(self.gram + sign * other.gram),
            None if self.pairs is None or other.pairs is None else freeze(self.pairs + sign * other.pairs),
        )

    def pairs_at_least(self, count: int) -> PromptSums:
        """The same sums, without the buckets of pairs that occurred less often."""
        return self if self.pairs is None else replace(self, pairs=keep_at_least(self.pairs, count))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PromptSums) and (
            (self.window, self.unit, self.windows) == (other.window, other.unit, other.windows)
            and np.array_equal(self.vector, other.vector)
            and np.array_equal(self.gram, other.gram)
            and (self.pairs is None) == (other.pairs is None)
            and (self.pairs is None or other.pairs is None or np.array_equal(self.pairs, other.pairs))
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return PromptSums, (self.window, self.unit, self.windows, self.vector, self.gram, self.pairs)


def unpack_triangle(packed: npt.NDArray[np.floating], width: int) -> npt.NDArray[np.float64]:
    """The symmetric (h, h) matrix of an upper triangle."""
    square = np.empty((width, width))
    begin = 0
    for row in range(width):  # lists of indices would be twice as large as the matrix
        part = packed[begin : begin + width - row]
        square[row, row:] = square[row:, row] = part
        begin += len(part)
    return square


def pack_triangle(square: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The upper triangle of a symmetric matrix, row by row."""
    width = len(square)
    packed = np.empty(triangle_size(width))
    begin = 0
    for row in range(width):
        packed[begin : begin + width - row] = square[row, row:]
        begin += width - row
    return packed


def triangle_size(width: int) -> int:
    """Entries in the upper triangle, diagonal included, of a width × width matrix."""
    return width * (width + 1) // 2


@lru_cache(maxsize=4)
def triangle_indices(width: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Row and column of each entry of the upper triangle, row by row."""
    return np.triu_indices(width)
