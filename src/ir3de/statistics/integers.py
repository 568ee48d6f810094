"""Arrays of integers that statistics are made of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


def read_only(array: Integers) -> Integers:
    """The array itself if nobody can write to it, else a read-only copy."""
    part: object = array
    while isinstance(part, np.ndarray):
        if part.flags.writeable:
            return freeze(array.copy())
        part = part.base
    return array


def freeze(array: Integers) -> Integers:
    """Make an array read-only in place. Only for arrays that nobody else holds: `read_only` then needs no copy."""
    array.flags.writeable = False
    return array


def keep_at_least(counts: Integers, least: int) -> Integers:
    """The counts with those below `least` set to zero."""
    return freeze(np.where(counts >= least, counts, 0))


def little_endian(values: Integers) -> memoryview:
    """The integers as little-endian bytes, eight each. They are copied only if they are stored in another way."""
    return np.ascontiguousarray(values, "<i8").data
