"""Sparse matrices of float32: products with dense ones, by the native kernel or with numpy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ir3de.kernel import native

Numbers = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

GATHERED_NUMBERS = 1 << 17  # of the dense matrix at a time: they stay in the cache


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """Entries sorted by row, then by column."""

    starts: Indices  # (n + 1,)  where each row's entries begin, and where the last row's end
    columns: Indices  # (entries,)
    values: Numbers  # (entries,)
    width: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def transposed(self) -> SparseMatrix:
        rows = np.repeat(np.arange(len(self)), np.diff(self.starts))
        order = _sort(self.columns, self.width)
        starts = np.append(0, np.cumsum(np.bincount(self.columns, minlength=self.width)))
        return SparseMatrix(starts, rows[order], self.values[order], len(self))

    def take(self, rows: Indices) -> SparseMatrix:
        """Some of the rows, in this order."""
        lengths = np.diff(self.starts)[rows]
        ends = np.cumsum(lengths)
        entries = np.repeat(self.starts[rows] - (ends - lengths), lengths) + np.arange(int(lengths.sum()))
        return SparseMatrix(np.append(0, ends), self.columns[entries], self.values[entries], self.width)

    def sum_squares(self, weights: Numbers) -> npt.NDArray[np.float64]:
        """Σ_i w_i x_ij² of each column j."""
        squares = self.values.astype(np.float64) ** 2 * np.repeat(weights, np.diff(self.starts))
        return np.bincount(self.columns, squares, minlength=self.width).astype(np.float64, copy=False)

    def first_columns(self, count: int) -> SparseMatrix:
        """The same rows without the other columns."""
        kept = self.columns < count
        starts = np.append(0, np.cumsum(kept))[self.starts]
        return SparseMatrix(starts, self.columns[kept], self.values[kept], count)

    def multiply(self, dense: Numbers, out: Numbers | None = None) -> Numbers:
        """X W: (n, C)."""
        product = np.empty((len(self), dense.shape[1]), np.float32) if out is None else out
        if native is not None:
            native.multiply(self.starts, self.columns, self.values, np.ascontiguousarray(dense), product)
            return product
        product[np.diff(self.starts) == 0] = 0.0
        for rows, columns, values in self._groups:
            step = max(1, GATHERED_NUMBERS // (columns.shape[1] * dense.shape[1]))
            for begin in range(0, len(rows), step):
                part = slice(begin, begin + step)
                product[rows[part]] = np.matmul(values[part], dense.take(columns[part], axis=0))[:, 0]
        return product

    def multiply_transposed(self, dense: Numbers, out: Numbers | None = None) -> Numbers:
        """XᵀR: (width, C)."""
        product = np.empty((self.width, dense.shape[1]), np.float32) if out is None else out
        if native is None:
            return self.transposed.multiply(dense, product)
        native.multiply_transposed(self.starts, self.columns, self.values, np.ascontiguousarray(dense), product)
        return product

    @cached_property
    def _groups(self) -> tuple[tuple[Indices, Indices, Numbers], ...]:
        """Rows of about the same length: their indices, and their columns and values, padded with zeros."""
        return tuple(self._group())

    def _group(self) -> Iterator[tuple[Indices, Indices, Numbers]]:
        lengths = np.diff(self.starts)
        padded = _round_up(lengths)
        for length in np.unique(padded[lengths > 0]).tolist():
            rows = np.flatnonzero(padded == length)
            places = np.arange(length)
            within = places < lengths[rows, None]
            entries = np.where(within, self.starts[rows, None] + places, 0)
            yield rows, self.columns[entries], np.where(within, self.values[entries], np.float32(0.0))[:, None, :]


def _round_up(lengths: Indices) -> Indices:
    """To 1, 2, 3, 4, 6, 8, 12, 16, 24, …: few different lengths, and little padding."""
    power = 1 << np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    return np.where((lengths > 2) & (lengths <= 3 * power // 4), 3 * power // 4, power)


def _sort(numbers: Indices, below: int) -> Indices:
    """The stable order of whole numbers from 0. numpy sorts 16 bits in linear time, so it gets 16 at a time."""
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    if below > 1 << 16:
        order = order[np.argsort((numbers[order] >> 16).astype(np.uint16), kind="stable")]
    return order
