"""Sums of floats that are the same in every order, however a stream is cut into batches."""

from __future__ import annotations

import math


class ExactSum:
    """A sum without any rounding: Shewchuk's partial sums, which `math.fsum` rounds once at the end.

    >>> one, other = ExactSum(), ExactSum()
    >>> for number in (0.1, 0.2, 0.3):
    ...     one.add(number)
    >>> for number in (0.3, 0.2, 0.1):
    ...     other.add(number)
    >>> float(one) == float(other), 0.1 + 0.2 + 0.3 == 0.3 + 0.2 + 0.1
    (True, False)
    """

    def __init__(self) -> None:
        self._parts: list[float] = []  # they do not overlap, the smallest first

    def add(self, number: float) -> None:
        kept = 0
        for part in self._parts:
            large, small = (number, part) if abs(number) >= abs(part) else (part, number)
            number = large + small
            if rest := small - (number - large):
                self._parts[kept] = rest
                kept += 1
        self._parts[kept:] = [number]

    def __float__(self) -> float:
        return math.fsum(self._parts)
