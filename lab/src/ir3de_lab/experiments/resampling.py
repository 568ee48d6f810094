"""How sure a figure is: items that belong together are left out together, one cluster after another.

    variance of a domain's figure   (G − 1) / G · Σ (figure without cluster g − figure)²      G clusters
    interval                        figure ± t · √variance, with G − 1 degrees of freedom
    mean over domains               variances add up; degrees of freedom by Welch and Satterthwaite

This is the cluster jackknife. It has no seed, so no sign depends on one, and with few clusters it covers more often
than a bootstrap does (MacKinnon, Nielsen and Webb, 2023). The bootstrap by cluster is here too: it checks the signs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

Floats = npt.NDArray[np.float64]
COVERED = 0.95
FALSE_SIGNS = 0.05  # the chance that a family of rows has any false sign
TOLERANCE = 1e-9  # of a difference that is zero but for the rounding of sums
RESAMPLES = 10_000  # of a bootstrap
_CHUNK = 1_000  # resamples that are multiplied at a time


class Resampling(Protocol):
    """How often each cluster of a domain counts in each resample."""

    def sum(self, domain: int, parts: Floats) -> Floats:
        """(resamples, …)  the sums over a domain's clusters, of which `parts` (clusters, …) holds one each."""


class LeaveOneOut:
    """Every cluster is left out once: there are as many resamples as clusters."""

    def sum(self, domain: int, parts: Floats) -> Floats:
        return np.asarray(parts.sum(axis=0) - parts)


@dataclass(frozen=True)
class Bootstrap:
    """As many clusters as there are, drawn with replacement; the same for all routers."""

    seed: int = 0
    resamples: int = RESAMPLES
    _drawn: dict[tuple[int, int], npt.NDArray[np.uint16]] = field(default_factory=dict, repr=False, compare=False)

    def sum(self, domain: int, parts: Floats) -> Floats:
        drawn = self._draw(domain, len(parts))
        flat = parts.reshape(len(parts), -1)
        sums = [drawn[at : at + _CHUNK].astype(np.float64) @ flat for at in range(0, len(drawn), _CHUNK)]
        return np.concatenate(sums).reshape(-1, *parts.shape[1:])

    def _draw(self, domain: int, clusters: int) -> npt.NDArray[np.uint16]:
        if (domain, clusters) not in self._drawn:
            rng = np.random.default_rng([self.seed, domain])
            share = np.full(clusters, 1 / clusters)
            self._drawn[domain, clusters] = rng.multinomial(clusters, share, self.resamples).astype(np.uint16)
        return self._drawn[domain, clusters]


@dataclass(frozen=True)
class Difference:
    """How far one router is above another, with the 95 % interval of that difference and its two-sided p-value."""

    value: float
    interval: tuple[float, float]
    p_value: float = 1.0

    @property
    def is_above(self) -> bool:
        """Whether all of the interval is above zero, with no correction for the other rows of a table."""
        return self.interval[0] > TOLERANCE

    @property
    def is_below(self) -> bool:
        return self.interval[1] < -TOLERANCE


def estimate(figures: Sequence[float], without: Sequence[Floats]) -> Difference:
    """The mean of independent figures, of which `without` has each one without one cluster after another."""
    value = float(np.mean(figures))
    pairs = list(zip(figures, without, strict=True))
    if any(len(left) < 2 or not np.isfinite(left).all() for _, left in pairs):
        return Difference(value, (-np.inf, np.inf))  # of a single cluster there is no spread
    variances = [_vary(figure, left) / len(pairs) ** 2 for figure, left in pairs]
    whole = sum(variances)
    if whole <= TOLERANCE**2:
        return Difference(value, (value, value), 1.0 if abs(value) <= TOLERANCE else 0.0)
    freedom = whole**2 / sum(one**2 / (len(left) - 1) for one, (_, left) in zip(variances, pairs, strict=True))
    reach = float(stdtrit(freedom, (1 + COVERED) / 2)) * whole**0.5
    p_value = 2 * float(stdtr(freedom, -abs(value) / whole**0.5))
    return Difference(value, (value - reach, value + reach), p_value)


def _vary(figure: float, without: Floats) -> float:
    return float((len(without) - 1) / len(without) * ((without - figure) ** 2).sum())


def cover(drawn: Floats) -> tuple[float, float]:
    """The 95 % interval of what a bootstrap drew."""
    low, high = np.quantile(drawn, ((1 - COVERED) / 2, (1 + COVERED) / 2)).tolist()
    return low, high


def compare_drawn(value: float, drawn: Floats) -> Difference:
    """A difference with the interval and the p-value that a bootstrap gives: twice the share beyond zero."""
    beyond = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    return Difference(value, cover(drawn), min(1.0, 2 * max(beyond, 1) / (len(drawn) + 1)))


def find_leanings(differences: Iterable[Difference | None]) -> list[int]:
    """−1, 0 or 1 for each row: to which side of zero its own interval lies, with no correction for the other rows.

    >>> find_leanings([Difference(1.0, (0.1, 1.9), 0.03), Difference(-1.0, (-2.1, 0.1), 0.07), None])
    [1, 0, 0]
    """
    return [0 if one is None else int(one.is_above) - int(one.is_below) for one in differences]


def find_signs(differences: Iterable[Difference | None]) -> list[int]:
    """−1, 0 or 1 for each row of a family: which way it surely differs, by Holm's rule.

    >>> near, far = Difference(1.0, (0.1, 1.9), 0.03), Difference(-2.0, (-2.9, -1.1), 0.001)
    >>> find_signs([near]), find_signs([near, far, None]), find_signs([near, near, far])
    ([1], [1, -1, 0], [0, 0, -1])
    """
    rows = list(differences)
    compared = sorted((one.p_value, place) for place, one in enumerate(rows) if one is not None)
    signs = [0] * len(rows)
    for done, (p_value, place) in enumerate(compared):
        if p_value * (len(compared) - done) > FALSE_SIGNS:
            break
        found = rows[place]
        signs[place] = 0 if found is None else int(np.sign(found.value))
    return signs
