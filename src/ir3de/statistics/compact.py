"""Dataclasses of arrays, and arrays that take little memory until they are read: counts that are mostly zero, and the
Gram matrix of few windows. What they give is the same integers each time."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

BLOCK_COLUMNS = 64  # of a product at a time
SMALLER = 4  # times: what would save less memory is kept as it is


@dataclass(frozen=True, eq=False)
class SparseCounts:
    """Counts of which most are zero."""

    size: int
    places: npt.NDArray[np.uint32]  # of the others
    counts: npt.NDArray[np.integer]

    @classmethod
    def of(cls, counts: npt.NDArray[np.integer]) -> SparseCounts | None:
        """None where that saves little."""
        places = np.flatnonzero(counts)
        if SMALLER * places.size * (4 + counts.itemsize) > counts.nbytes:
            return None
        return cls(len(counts), places.astype(np.uint32), counts[places])

    def restrict_to(self, seen: npt.NDArray[np.intp]) -> SparseCounts:
        """The counts of these places, in ascending order. All others are zero."""
        return SparseCounts(len(seen), np.searchsorted(seen, self.places).astype(np.uint32), self.counts)

    def restore(self) -> npt.NDArray[np.integer]:
        found = np.zeros(self.size, self.counts.dtype)
        found[self.places] = self.counts
        return found


@dataclass(frozen=True, eq=False)
class WindowRows:
    """The means of a few windows, in whole numbers. Their Gram matrix is much larger."""

    means: npt.NDArray[np.int32]  # (n, h)
    times: Integers  # (n,)  how often each window counts

    @classmethod
    def none(cls, width: int) -> WindowRows:
        return cls(np.zeros((0, width), np.int32), np.zeros(0, np.int64))

    @classmethod
    def fits(cls, windows: int, width: int) -> bool:
        """Whether so many windows take much less memory than their Gram matrix."""
        return SMALLER * windows <= width

    def __add__(self, other: WindowRows) -> WindowRows:
        return WindowRows(np.concatenate([self.means, other.means]), np.concatenate([self.times, other.times]))

    def restore(self) -> Integers:
        """The upper triangle of Σ x̄x̄ᵀ, row by row."""
        parts = [(times, self.means[self.times == times]) for times in np.unique(self.times).tolist()]
        if not parts:
            return np.zeros(triangle_size(self.means.shape[1]), np.int64)
        first, *others = [_multiply(means, times) for times, means in parts]
        for other in others:
            first += other
        return first


def _multiply(means: npt.NDArray[np.int32], times: int) -> Integers:
    """The upper triangle of times · XᵀX.

    Means are integers up to 2¹⁹. Sums of 1,024 products stay below 2⁵³, so float64 BLAS is exact.
    """
    X, h = means.astype(np.float64), means.shape[1]
    packed, end = np.empty(triangle_size(h), np.int64), 0
    for begin in range(0, h, BLOCK_COLUMNS):  # the whole square would have to be written and read again
        for place, row in enumerate(X[:, begin : begin + BLOCK_COLUMNS].T @ X[:, begin:]):
            packed[end : end + len(row) - place] = row[place:]
            end += len(row) - place
    if times != 1:
        packed *= times
    return packed


class ArrayFields:
    """A dataclass with arrays: equal if its compared fields are, and pickled by calling its constructor again.

    An array may be kept in a compact form. Then it is made anew whenever it is read.
    """

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        names = [one.name for one in fields(self) if one.compare]  # type: ignore[arg-type]
        return self is other or all(_is_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        names = [one.name for one in fields(self) if one.init]  # type: ignore[arg-type]
        return type(self), tuple(self.find_compact(name) or getattr(self, name) for name in names)

    def __getattr__(self, name: str) -> Any:  # called only for attributes that are not there
        if (found := vars(self).get("_compact", {}).get(name)) is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return freeze(found.restore())

    def find_compact(self, name: str) -> Any:
        """The compact form of a field; None if it has none."""
        return vars(self).get("_compact", {}).get(name)

    def keep_compact(self, name: str, compact: SparseCounts | WindowRows | None) -> None:
        """Keep that in the place of a field, if there is any."""
        if compact is not None:
            vars(self).setdefault("_compact", {})[name] = compact
            vars(self).pop(name, None)

    def keep_whole(self, name: str) -> None:
        """Keep a field as it is read."""
        if name not in vars(self):
            vars(self)[name] = getattr(self, name)
            del vars(self)["_compact"][name]


def _is_equal(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)  # type: ignore[arg-type]
    return one is other or one == other


def read_only(array: Integers) -> Integers:
    """The array itself if it cannot be written to, else a read-only copy."""
    part: object = array
    while isinstance(part, np.ndarray):
        if part.flags.writeable:
            return freeze(array.copy())
        part = part.base
    return array


def freeze(array: Integers) -> Integers:
    """Make a new array read-only in place, so that `read_only` needs no copy."""
    array.flags.writeable = False
    return array


def triangle_size(width: int) -> int:
    """Entries in the upper triangle, diagonal included, of a width × width matrix."""
    return width * (width + 1) // 2


@lru_cache(maxsize=4)
def triangle_indices(width: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Row and column of each entry of the upper triangle, row by row."""
    return np.triu_indices(width)


def unpack_triangle(packed: npt.NDArray[np.floating], width: int) -> npt.NDArray[np.float64]:
    """The symmetric (h, h) matrix of an upper triangle."""
    square, begin = np.empty((width, width)), 0
    for row in range(width):  # lists of indices would be twice as large as the matrix
        part = packed[begin : begin + width - row]
        square[row, row:] = square[row:, row] = part
        begin += len(part)
    return square


def pack_triangle(square: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The upper triangle of a symmetric matrix, row by row."""
    packed, begin = np.empty(triangle_size(len(square))), 0
    for row, values in enumerate(square):
        packed[begin : begin + len(square) - row] = values[row:]
        begin += len(square) - row
    return packed
