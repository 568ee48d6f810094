"""The embedding matrix E (V, h) as it is stored: plain floats, or 4-bit blocks an eighth of their size.

A 4-bit block is 32 neighbouring values of one row: sixteen levels −8 … 7 times one float16 step. Two values share
a byte, the first in the low half. Rows whose width is not a multiple of 32 are padded with zeros.
A large matrix stays as it is stored, and only the rows that are read become float32.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import EmbeddingError
from ir3de.files.tensors import iter_row_bytes, release_pages

Floats = npt.NDArray[np.float32]
Tensors = Mapping[str, npt.NDArray[Any]]

# read of a mapped file before its pages are released, with those that the system mapped around them
MAX_MAPPED_BYTES = 1 << 26


class BFloat16:
    """Numbers stored as bfloat16, the upper halves of float32: rows become float32 when they are read."""

    dtype = np.dtype(np.float32)

    def __init__(self, halves: npt.NDArray[np.uint16]) -> None:
        self.base = halves

    @property
    def shape(self) -> tuple[int, ...]:
        return self.base.shape

    @property
    def nbytes(self) -> int:
        return int(self.base.nbytes)

    def __getitem__(self, index: Any) -> Floats:
        return widen(self.base[index])

    def astype(self, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        return widen(self.base).astype(kind, copy=False)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return self.astype(self.dtype if dtype is None else dtype)


def widen(halves: npt.NDArray[np.uint16]) -> Floats:
    """bfloat16 as float32, which loses nothing."""
    wide = halves.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


class StoredRows:
    """E (V, h) as float32, read row by row from its tensors, which may be mapped from a file."""

    def __init__(self, tensors: Tensors, width: int, unpack: Callable[[Tensors, int], Floats]) -> None:
        self._tensors, self._width, self._unpack = tensors, width, unpack
        self._touched = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), self._width

    def __len__(self) -> int:
        return int(next(iter(self._tensors.values())).shape[0])

    def __getitem__(self, index: Any) -> Floats:
        return self._unpack(self._read(index), self._width)

    def as_stored(self, index: Any) -> npt.NDArray[np.floating]:
        """Rows as the floats they are stored as, float16 perhaps, where they are stored as floats."""
        some = self._read(index)
        return some["values"] if "values" in some else self._unpack(some, self._width)

    def _read(self, index: Any) -> Tensors:
        some = {name: tensor[index] for name, tensor in self._tensors.items()}
        self._touched += sum(tensor.nbytes for tensor in some.values())
        if self._touched > MAX_MAPPED_BYTES:
            self._touched = 0
            for tensor in self._tensors.values():
                release_pages(tensor)
        return some


class FixedPointRows:
    """E / unit in whole numbers, of the rows that are read."""

    def __init__(self, rows: StoredRows, unit: float, largest: int) -> None:
        self._rows, self._scale, self._largest = rows, np.float32(1.0 / unit), largest

    @property
    def shape(self) -> tuple[int, ...]:
        return self._rows.shape

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, ids: npt.NDArray[np.intp], axis: int, out: Floats, mode: str) -> Floats:
        """As of an array: the rows of these tokens, written to `out`."""
        np.multiply(self._rows[ids], self._scale, out=out)
        np.rint(out, out=out)
        return np.clip(out, -self._largest, self._largest, out=out)


BLOCK = 32
LARGE_MATRIX_BYTES = 1 << 30  # of E as float32: a larger one is read some rows at a time
ROWS_AT_ONCE = 4_096
CACHED_ROWS = 256  # computed at a time: they stay in the cache
ROW_BITS = 10  # of the largest entry of a middling row, so that a few wild rows do not coarsen all the others
LARGEST = 1 << 11  # in fixed point, where wilder entries are cut: 8,192 of them still sum exactly in float32


@dataclass(frozen=True, eq=False)
class Matrix:
    """E as stored: `tensors` is {"values": (V, h)} or {"levels": (V, ⌈h/32⌉·16), "steps": (V, ⌈h/32⌉)}."""

    tensors: Tensors
    width: int

    @classmethod
    def plain(cls, values: npt.NDArray[np.generic] | BFloat16) -> Matrix:
        """Keep the floats as they are (float16 or float32, or bfloat16 that stands for float32)."""
        kept: Any = values if isinstance(values, BFloat16) else np.ascontiguousarray(values)
        return cls({"values": kept}, values.shape[1])

    def __reduce__(self) -> tuple[type[Matrix], tuple[Tensors, int]]:
        return Matrix, (self.tensors, self.width)  # without the float32 values that were made of them

    @property
    def rows(self) -> int:
        return int(next(iter(self.tensors.values())).shape[0])

    @property
    def encoding(self) -> str:
        return "4-bit blocks" if "levels" in self.tensors else str(self.tensors["values"].dtype)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @cached_property
    def sha256(self) -> str:
        """Of the tensors as stored, in the order of their names."""
        sha = hashlib.sha256(f"{self.rows} {self.width} {self.encoding}".encode())
        for name in sorted(self.tensors):
            for piece in iter_row_bytes(self.tensors[name]):
                sha.update(piece)
        return sha.hexdigest()

    @property
    def is_large(self) -> bool:
        """Whether E as float32 is too much to be in memory at once."""
        return self.rows * self.width * 4 > LARGE_MATRIX_BYTES

    @cached_property
    def values(self) -> Floats:
        """E as float32, read-only, however large: see `by_rows`."""
        values = _unpack(self.tensors, self.width)
        finite = np.isfinite(values)
        if not finite.all():
            raise self._not_finite(np.flatnonzero(~finite.all(axis=1)))
        values.flags.writeable = False
        return values

    @cached_property
    def by_rows(self) -> Floats | StoredRows:
        """E as float32: the array, or, if that is large, an object that reads single rows."""
        if not self.is_large:
            return self.values
        if not np.isfinite(self._largest).all():
            raise self._not_finite(np.flatnonzero(~np.isfinite(self._largest)))
        return StoredRows(self.tensors, self.width, _unpack)

    @cached_property
    def unit(self) -> float:
        """The power of two in which `fixed_point` counts."""
        largest = self._largest
        middling = float(np.sort(largest[largest > 0])[np.count_nonzero(largest) // 2]) if largest.any() else 1.0
        return float(2.0 ** (np.ceil(np.log2(middling)) - ROW_BITS))

    @cached_property
    def fixed_point(self) -> Floats | FixedPointRows:
        """E / unit rounded to whole numbers, held as float32: sums of these are exact in any order."""
        if isinstance(self.by_rows, StoredRows):
            return FixedPointRows(self.by_rows, self.unit, LARGEST)
        counted, scale = np.empty_like(self.values), np.float32(1.0 / self.unit)
        for begin in range(0, len(counted), CACHED_ROWS):
            block = counted[begin : begin + CACHED_ROWS]
            np.rint(np.multiply(self.values[begin : begin + CACHED_ROWS], scale, out=block), out=block)
            np.clip(block, -LARGEST, LARGEST, out=block)
        return counted

    def compact(self) -> Matrix:
        """The same matrix in 4-bit blocks."""
        if "levels" in self.tensors:
            return self
        packed = [_pack(block) for block in self._blocks()]
        levels, steps = (np.concatenate(parts) for parts in zip(*packed, strict=True))
        return Matrix({"levels": levels, "steps": steps}, self.width)

    @cached_property
    def _largest(self) -> Floats:
        """The largest entry of each row, whatever its sign; not finite where the row is not."""
        return np.concatenate([np.maximum(block.max(axis=1), -block.min(axis=1)) for block in self._blocks()])

    def _blocks(self) -> Iterator[Floats]:
        rows = StoredRows(self.tensors, self.width, _unpack) if self.is_large else self.values
        for begin in range(0, self.rows, ROWS_AT_ONCE):
            yield rows[begin : begin + ROWS_AT_ONCE]

    def _not_finite(self, rows: npt.NDArray[np.intp]) -> EmbeddingError:
        return EmbeddingError(
            f"the embedding is not finite: {rows.size} of {self.rows} rows hold NaN or infinity, "
            f"the first is row {rows[0]}. "
            "The weights are damaged or were saved in overflow; take them again from their source"
        )


def _pack(values: Floats) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float16]]:
    rows, width = values.shape
    padded = np.zeros((rows, -(-width // BLOCK) * BLOCK), np.float32)
    padded[:, :width] = values
    blocks = padded.reshape(-1, BLOCK)
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)  # (blocks, 1), with its sign
    levels = np.zeros(blocks.shape, np.int8)
    steps = np.ones(extreme.shape, np.float16)
    error = np.full(extreme.shape, np.inf, np.float32)
    # the extreme at level −8 is never clipped, but a step a little larger or smaller is often closer overall
    for divisor in np.arange(5.5, 9.01, 0.25, dtype=np.float32):
        step = (extreme / -divisor).astype(np.float16)
        step[step == 0] = 1
        level = np.clip(np.rint(blocks / step.astype(np.float32)), -8, 7)
        miss = ((level * step.astype(np.float32) - blocks) ** 2).sum(axis=1, keepdims=True)
        better = miss < error
        levels = np.where(better, level, levels).astype(np.int8)
        steps, error = np.where(better, step, steps), np.where(better, miss, error)
    nibbles = (levels + 8).astype(np.uint8).reshape(rows, -1)
    packed: npt.NDArray[np.uint8] = nibbles[:, 0::2] + 16 * nibbles[:, 1::2]
    return packed, steps.reshape(rows, -1)


def _unpack(tensors: Tensors, width: int) -> Floats:
    if "values" in tensors:
        return tensors["values"].astype(np.float32)
    packed, steps = tensors["levels"], tensors["steps"]
    values = np.empty((packed.shape[0], width), np.float32)
    for begin in range(0, len(values), CACHED_ROWS):
        rows = slice(begin, begin + CACHED_ROWS)
        levels = _NIBBLE_VALUES.take(packed[rows]).view(np.float32).reshape(-1, BLOCK)
        levels *= steps[rows].astype(np.float32).reshape(-1, 1)
        values[rows] = levels.reshape(len(packed[rows]), -1)[:, :width]
    return values


# what a byte's low and high half stand for, side by side as one complex number: a lookup is faster than masking
_NIBBLE_VALUES = ((np.arange(256) % 16 - 8) + 1j * (np.arange(256) // 16 - 8)).astype(np.complex64)
