"""A large embedding matrix, a few rows at a time: it stays as it is stored, and only what is asked for is float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.storage.tensors import release_pages

Floats = npt.NDArray[np.float32]
Tensors = Mapping[str, npt.NDArray[Any]]

# read of a mapped file before its pages are released, with those that the system mapped around them
MAX_MAPPED_BYTES = 1 << 26


class BFloat16:
    """Numbers stored as bfloat16, the upper halves of float32: they are float32 to whoever asks for some."""

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
    """E / unit in whole numbers, of the rows that are asked for."""

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
