"""How sure a measured share is: intervals that hold the true value 95 times in 100."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Z = 1.959963984540054  # 95 % of a normal distribution lie within this many standard deviations
DRAWS = 4_000  # of a bootstrap
MAX_SHRINK = 0.8  # of the gain from one doubling of the prompts to the next: no learning curve goes on for ever

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Estimate:
    """A measured value and its 95 % interval."""

    value: float
    low: float
    high: float


def estimate_share(right: int, of: int) -> Estimate:
    """A share with Wilson's interval, which never leaves 0 to 1 and has a width even where all or none are right.

    >>> estimate_share(90, 100)
    Estimate(value=0.9, low=0.825634, high=0.944771)
    """
    share, z2 = right / of, Z * Z
    centre = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = Z * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return _round(share, min(share, centre - half), max(share, centre + half))


def estimate_difference(one: Flags, other: Flags) -> Estimate:
    """The accuracy of one router minus that of another on the same prompts: Agresti and Min's interval for pairs.

    Half a prompt is added to each of the four counts (both right, one, the other, none), so that the interval has a
    width even where the two never differ.

    >>> from numpy import array
    >>> estimate_difference(array([True] * 90 + [False] * 10), array([True] * 80 + [False] * 20))
    Estimate(value=0.1, low=0.037215, high=0.158863)
    """
    n = len(one)
    gained, lost = int((one & ~other).sum()), int((other & ~one).sum())
    more, less, of = (gained + 0.5) / (n + 2), (lost + 0.5) / (n + 2), n + 2
    half = Z * math.sqrt(max(0.0, more + less - (more - less) ** 2) / of)
    difference, centre = (gained - lost) / n, more - less
    return _round(difference, min(difference, centre - half), max(difference, centre + half))


def estimate_doubling(quarter: Flags, half: Flags, whole: Flags) -> Estimate:
    """What twice the prompts would bring, from who was right with a quarter, a half and all of the training prompts.

    The last doubling brought d₂ and the one before d₁. The next one is expected to bring d₂ · d₂/d₁, but no more than
    0.8 d₂: curves level off. Prompts are drawn again and again for the interval, with a seed.
    """
    patterns = np.bincount(4 * quarter.astype(int) + 2 * half + whole, minlength=8)
    n = int(patterns.sum())
    drawn = np.random.default_rng(0).multinomial(n, patterns / n, DRAWS)
    low, high = np.quantile(_expect_gains(drawn), (0.025, 0.975)).tolist()
    value = float(_expect_gains(patterns[None, :])[0])
    return _round(value, min(value, low), max(value, high))


def _expect_gains(patterns: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The next gain of each row of counts by (quarter right, half right, whole right)."""
    n = patterns.sum(axis=1)
    number = np.arange(8)
    accuracy = [patterns[:, (number & bit) > 0].sum(axis=1) / n for bit in (4, 2, 1)]
    first, last = accuracy[1] - accuracy[0], accuracy[2] - accuracy[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        shrink = np.where(first > 0, np.clip(last / first, 0.0, MAX_SHRINK), MAX_SHRINK)
    return np.asarray(last * shrink)


def _round(value: float, low: float, high: float) -> Estimate:
    """Figures that nobody can tell apart are rounded, so that they are the same on every machine."""
    return Estimate(*(round(number, 6) + 0.0 for number in (value, low, high)))
