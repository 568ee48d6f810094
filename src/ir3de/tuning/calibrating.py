"""Fit the calibration and the familiarity of a router on held-out prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ir3de.policies import Calibration, Familiarity
from ir3de.scorers.familiarity import FAMILIARITY_UNIT
from ir3de.tuning.folds import Fold, Held, mean_rows

GROWTHS = (0.0, 0.25, 0.5, 1.0)
STEPS = 30  # of bisection, over seven orders of magnitude
OUT_OF_DOMAIN_SHARE = 0.02  # of the router's own prompts that may be called out of domain
WIDENINGS = (1.0, 1.5, 2.0, 3.0, 4.0)
OUT_OF_DOMAIN_DEVIATIONS = 3.0  # where there are too few prompts to tell

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scored:
    """Held-out prompts with the evidence for each expert: what a calibration is fitted to."""

    evidence: Floats  # (n, C)
    counted: npt.NDArray[np.int64]  # (n,)
    experts: npt.NDArray[np.int64]  # (n,)  whose each prompt is

    @classmethod
    def together(cls, parts: Sequence[Scored]) -> Scored:
        return cls(
            np.concatenate([part.evidence for part in parts]),
            np.concatenate([part.counted for part in parts]),
            np.concatenate([part.experts for part in parts]),
        )

    @property
    def weights(self) -> Floats:
        """Every expert alike, however many prompts it has: Σ = 1."""
        sizes = np.bincount(self.experts, minlength=self.evidence.shape[1])
        share: Floats = (1.0 / sizes[self.experts]) / (sizes > 0).sum()
        return share

    @property
    def accuracy(self) -> float:
        """The mean over the experts of the share of prompts that would reach them."""
        return float(self.weights @ (self.evidence.argmax(axis=1) == self.experts))


def fit_calibration(scored: Scored) -> tuple[Calibration, float]:
    """The calibration of least log loss, and that loss."""
    fitted = [_fit_scale(scored, growth) for growth in GROWTHS]
    best = min(range(len(fitted)), key=lambda index: fitted[index][1])
    return Calibration(fitted[best][0], GROWTHS[best]), fitted[best][1]


def _fit_scale(scored: Scored, growth: float) -> tuple[float, float]:
    """The scale of least log loss: a convex function of one number, so its slope is brought to zero by bisection.

    The targets are a little less than certain, (n + 1)/(n + 2) after n prompts of an expert, as in Platt's scaling:
    a handful of prompts that were all routed right do not make the router sure for ever.
    """
    z = (scored.evidence - scored.evidence.max(axis=1, keepdims=True)) * (scored.counted[:, None] ** growth)
    n, C = z.shape
    sizes = np.bincount(scored.experts, minlength=C)[scored.experts]
    targets = np.repeat((1.0 / ((sizes + 2.0) * max(1, C - 1)))[:, None], C, axis=1)
    targets[np.arange(n), scored.experts] = (sizes + 1.0) / (sizes + 2.0)
    weights = scored.weights
    target_z = (targets * z).sum(axis=1)

    def slope(scale: float) -> float:
        p = np.exp(scale * z)
        return float(weights @ ((p * z).sum(axis=1) / p.sum(axis=1) - target_z))

    spread = float(np.abs(z).mean()) or 1.0
    low, high = 1e-3 / spread, 1e4 / spread
    for _ in range(STEPS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    loss = np.log(np.exp(low * z).sum(axis=1)) - low * target_z
    return low, float(weights @ loss)


class PromptFamiliarities(NamedTuple):
    """Each prompt's mean token familiarity, the variance among its tokens, and their number."""

    mean: Floats
    variance: Floats
    tokens: npt.NDArray[np.int64]


def fit_familiarity(folds: Sequence[tuple[PromptFamiliarities, PromptFamiliarities]]) -> Familiarity:
    """How familiar prompts of these domains are, each measured by a fit that did not see it.

    Out of domain begins where k/(n + 1) of the n held-out prompts lie below: no larger share of new ones is expected
    there.
    """
    parts = [PromptFamiliarities(*map(np.concatenate, zip(*view, strict=True))) for view in zip(*folds, strict=True)]
    means, variance, tokens = map(np.concatenate, zip(*parts, strict=True))
    within = float(np.sqrt(np.average(variance, weights=tokens)))
    mean = float(means.mean())
    between = float(np.sqrt(max(1e-4, means.var() - (within**2 / tokens).mean())))
    # few tokens make a long tail: within is widened until the tails of prompts whole and cut short agree
    known = [Familiarity(mean, between, widening * within, 0.0) for widening in WIDENINGS]
    best = min(
        known, key=lambda one: float(np.ptp([np.quantile(_deviations(one, p), OUT_OF_DOMAIN_SHARE) for p in parts]))
    )
    deviations = np.sort(np.concatenate([_deviations(best, part) for part in parts]))
    k = int(OUT_OF_DOMAIN_SHARE * (len(deviations) + 1))
    lowest = float(deviations[k - 1]) if k else min(-OUT_OF_DOMAIN_DEVIATIONS, float(deviations[0]))
    return replace(best, lowest=lowest)


def _deviations(known: Familiarity, part: PromptFamiliarities) -> Floats:
    return np.array([known.deviation(u, n) for u, n in zip(part.mean.tolist(), part.tokens.tolist(), strict=True)])


def measure_familiarity(fold: Fold) -> tuple[PromptFamiliarities, PromptFamiliarities]:
    """The familiarity of the held-out prompts, whole and cut short."""
    return _measure(fold, fold.whole), _measure(fold, fold.short)


def _measure(fold: Fold, held: Held) -> PromptFamiliarities:
    values = fold.familiarity[:, None].astype(np.float64) / FAMILIARITY_UNIT
    mean = mean_rows(values, held)[:, 0]
    square = mean_rows(values**2, held)[:, 0]
    return PromptFamiliarities(mean, np.maximum(square - mean**2, 0.0), held.lengths)
