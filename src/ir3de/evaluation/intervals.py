"""Measured values: reports of plain values, sums without rounding, and 95 % intervals."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Z = 1.959963984540054  # 95 % of a normal distribution lie within this many standard deviations
DRAWS = 4_000  # of a bootstrap
MAX_SHRINK = 0.8  # of the gain from one doubling of the prompts to the next: no learning curve goes on for ever

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class JSONReport:
    """A report whose fields are plain values."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Estimate:
    """A measured value and its 95 % interval."""

    value: float
    low: float
    high: float


def estimate_share(right: float, of: float) -> Estimate:
    """A share with Wilson's interval, which never leaves 0 to 1 and has a width even where all or none are right.

    >>> estimate_share(90, 100)
    Estimate(value=0.9, low=0.825634, high=0.944771)
    """
    share, z2 = right / of, Z * Z
    centre = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = Z * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return _round(share, min(share, centre - half), max(share, centre + half))


def estimate_weighted_share(right: Flags, weights: Floats) -> Estimate:
    """A share of weighted prompts: Wilson's interval for as many equal prompts as would be as exact.

    >>> from numpy import array
    >>> estimate_weighted_share(array([True] * 90 + [False] * 10), array([1.0] * 100))
    Estimate(value=0.9, low=0.825634, high=0.944771)
    """
    shares = _normalise(weights)
    size = _find_effective_size(right.astype(np.float64), shares)
    return estimate_share(min(1.0, math.fsum(shares[right])) * size, size)


def estimate_difference(one: Flags, other: Flags, weights: Floats | None = None) -> Estimate:
    """The accuracy of one router minus that of another on the same prompts: Agresti and Min's interval for pairs.

    Half a prompt is added to each of the four counts (both right, one, the other, none), so that the interval has a
    width even where the two never differ. Weighted prompts count as many as would be as exact.

    >>> from numpy import array
    >>> estimate_difference(array([True] * 90 + [False] * 10), array([True] * 80 + [False] * 20))
    Estimate(value=0.1, low=0.037215, high=0.158863)
    """
    shares = _normalise(np.ones(len(one)) if weights is None else weights)
    gained, lost = math.fsum(shares[one & ~other]), math.fsum(shares[other & ~one])
    n = _find_effective_size(one.astype(np.float64) - other, shares)
    more, less, of = (gained * n + 0.5) / (n + 2), (lost * n + 0.5) / (n + 2), n + 2
    half = Z * math.sqrt(max(0.0, more + less - (more - less) ** 2) / of)
    difference, centre = gained - lost, more - less
    return _round(difference, min(difference, centre - half), max(difference, centre + half))


def _normalise(weights: Floats) -> Floats:
    return np.asarray(weights / math.fsum(weights))


def _find_effective_size(values: Floats, shares: Floats) -> float:
    """How many prompts of equal weight would give the mean of the values the same variance; n for equal weights.

    Σ w²(y − ȳ)² is the variance of the mean, and Var(y)/n that of n equal prompts. Kish's 1/Σ w² holds where weights
    and values are independent. A larger size than that must stand even if one of the heaviest prompts were an error:
    a heavy expert without any error is little evidence of how rare its errors are.
    """
    mean = math.fsum(shares * values)
    squares, kish = shares * shares, 1.0 / math.fsum(shares * shares)
    spread, variance = math.fsum(shares * (values - mean) ** 2), math.fsum(squares * (values - mean) ** 2)
    if not variance:
        return kish
    return min(spread / variance, max(kish, spread / (variance + float(squares.max()))))


def estimate_doubling(quarter: Flags, half: Flags, whole: Flags, weights: Floats | None = None) -> Estimate:
    """What twice the prompts would bring, from who was right with a quarter, a half and all of the training prompts.

    The last doubling brought d₂ and the one before d₁. The next one is expected to bring d₂ · d₂/d₁, but no more than
    0.8 d₂: curves level off. Prompts are drawn again and again for the interval, with a seed.
    """
    shares = _normalise(np.ones(len(whole)) if weights is None else weights)
    kinds, group = np.unique(np.round(shares * len(shares), 9), return_inverse=True)
    number = 8 * group + 4 * quarter.astype(int) + 2 * half + whole
    patterns = np.bincount(number, minlength=8 * len(kinds))
    n = int(patterns.sum())
    drawn = np.random.default_rng(0).multinomial(n, patterns / n, DRAWS)
    low, high = np.quantile(_expect_gains(drawn, kinds), (0.025, 0.975)).tolist()
    value = float(_expect_gains(patterns[None, :], kinds)[0])
    return _round(value, min(value, low), max(value, high))


def _expect_gains(patterns: npt.NDArray[np.int64], weights: Floats) -> Floats:
    """The next gain of each row of counts by (weight, quarter right, half right, whole right)."""
    number = np.arange(8)
    weighted = (patterns.reshape(len(patterns), -1, 8) * weights[None, :, None]).sum(axis=1)
    n = weighted.sum(axis=1)
    accuracy = [weighted[:, (number & bit) > 0].sum(axis=1) / n for bit in (4, 2, 1)]
    first, last = accuracy[1] - accuracy[0], accuracy[2] - accuracy[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        shrink = np.where(first > 0, np.clip(last / first, 0.0, MAX_SHRINK), MAX_SHRINK)
    return np.asarray(last * shrink)


def write_points(difference: float) -> str:
    """A difference of shares, in points, with its sign.

    >>> write_points(0.021)
    '+2.1'
    """
    return f"{100 * difference:+.1f}"


def _round(value: float, low: float, high: float) -> Estimate:
    """Round to six digits, so that figures are the same on every machine."""
    return Estimate(*(round(number, 6) + 0.0 for number in (value, low, high)))


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
