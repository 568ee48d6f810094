"""What texts are about: how near a prompt is to the prompts of an expert, and to the background instead.

A subject is a direction in a space of few dimensions. Each expert's prompts are summed up by some centroids. Rare words
hardly turn the direction, so a prompt in other words than the expert's stays near, and a prompt about something else
does not, however common its words are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de import kernel

Numbers = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]

FARTHEST, NEAREST = -6.0, 3.0  # standard deviations: values beyond these count as these
# Parts of 1 that centroids and centre are rounded to, for products with whole numbers that are exact in any order.
CENTROID_PARTS, CENTRE_PARTS = 1 << 20, 1 << 16


@dataclass(frozen=True, eq=False)
class Subjects:
    """The subjects of every expert's prompts, and those of the background.

    `nearness` is the cosine to the nearest centroid of the best expert. `contrast` is that to the nearest one of any
    expert, less that to the nearest of the background. Both are in standard deviations of the router's own prompts.
    """

    centre: Numbers  # (k,)  of general prompts, in the units of the subject rows
    centroids: Numbers  # (n, k)  of unit length, expert after expert
    sizes: npt.NDArray[np.int64]  # (C,)  how many of them each expert has, at least one
    background: Numbers  # (m, k)  of unit length
    means: tuple[float, float] = (0.0, 0.0)  # of nearness and contrast
    spreads: tuple[float, float] = (1.0, 1.0)

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where each expert's centroids begin."""
        return np.cumsum(self.sizes) - self.sizes

    def find_directions(self, rows: npt.NDArray[np.floating]) -> Numbers:
        """The directions of prompts, from the means of their tokens' rows: (n, k)."""
        return find_directions(rows, self.centre)

    def compare(self, rows: npt.NDArray[np.floating], best: npt.NDArray[np.integer]) -> Floats:
        """Nearness and contrast of many prompts, as cosines: (n, 2). `best` are their best experts."""
        w = self.find_directions(rows)
        near = np.maximum.reduceat(w @ self.centroids.T, self.starts, axis=1)
        contrast = near.max(axis=1) - (w @ self.background.T).max(axis=1)
        return np.stack((near[np.arange(len(w)), best], contrast), axis=1).astype(np.float64)

    def scale(self, cosines: Floats) -> Floats:
        """Cosines in standard deviations: (n, 2)."""
        return np.clip((cosines - self.means) / self.spreads, FARTHEST, NEAREST)

    def measure(self, sums: npt.NDArray[np.floating], tokens: int, best: int) -> tuple[float, float]:
        """Both for one prompt, in standard deviations, from the sums of its tokens' rows. Every route calls it.

        With s the sums and m the centre, w = s − tokens · m has the direction; its products with centroids are M s −
        tokens · M m, and |w|² = s² − 2 · tokens · s · m + tokens² · m². Few calls to numpy are needed.
        """
        if (native := self.native) is not None and sums.dtype == np.float64:
            return native.measure(sums, tokens, best)
        M, Mm, m, mm, bounds = self._prepared
        products = M.dot(sums)
        products -= tokens * Mm
        square = float(sums.dot(sums)) - tokens * (2.0 * float(sums.dot(m)) - tokens * mm)
        *near, background = np.maximum.reduceat(products, bounds).tolist()
        shorter = 1.0 / math.sqrt(square) if square > 0 else 0.0
        (mean, other), (spread, wide) = self.means, self.spreads
        contrast = (max(near) - background) * shorter
        return _cut((near[best] * shorter - mean) / spread), _cut((contrast - other) / wide)

    @cached_property
    def _prepared(self) -> tuple[Floats, Floats, Floats, float, npt.NDArray[np.int64]]:
        """All centroids M, M m, m, m², and where each expert's centroids and the background's begin."""
        M = _round(np.concatenate((self.centroids, self.background)), CENTROID_PARTS)
        m = _round(self.centre, CENTRE_PARTS)
        return M, M.dot(m), m, float(m.dot(m)), np.append(self.starts, len(self.centroids))

    @cached_property
    def native(self) -> kernel.Subjects | None:
        """The same numbers for the native kernel; None where numpy computes."""
        if kernel.native is None:
            return None
        M, Mm, m, mm, bounds = self._prepared
        parts = M, Mm, m, bounds, self.means, self.spreads, mm, FARTHEST, NEAREST
        made: kernel.Subjects = kernel.native.Subjects(*parts)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what the kernel made of them cannot be pickled."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Subjects):
            return NotImplemented
        if (self.means, self.spreads) != (other.means, other.spreads):
            return False
        names = ("centre", "centroids", "sizes", "background")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]


def _round(numbers: Numbers, parts: int) -> Floats:
    return np.rint(numbers.astype(np.float64) * parts) / parts


def _cut(deviations: float) -> float:
    return float(FARTHEST if deviations < FARTHEST else NEAREST if deviations > NEAREST else deviations)


def find_directions(rows: npt.NDArray[np.floating], centre: Numbers) -> Numbers:
    """Rows less the centre, at unit length. A row that is the centre has no direction: it stays zero."""
    w = rows.astype(np.float32) - centre
    lengths = np.linalg.norm(w, axis=1, keepdims=True)
    return np.asarray(w / np.where(lengths > 0, lengths, 1), np.float32)
