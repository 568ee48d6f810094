"""Fit a router's calibration and familiarity on held-out prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ir3de.policies import Calibration, Familiarity
from ir3de.scorers.familiarity import FAMILIARITY_UNIT
from ir3de.tuning.folds import Fold, HeldOutPrompts, mean_rows

GROWTHS = (0.0, 0.25, 0.5, 1.0)
BISECTION_STEPS = 30  # over seven orders of magnitude
OUT_OF_DOMAIN_SHARE = 0.02  # of the router's own prompts may be called out of domain
WIDENINGS = (1.0, 1.5, 2.0, 3.0, 4.0)
OUT_OF_DOMAIN_DEVIATIONS = 3.0  # used where there are too few prompts to measure it

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scored:
    """Held-out prompts with the evidence for each expert. A calibration is fitted to them."""

    evidence: Floats  # (n, C)
    counted: npt.NDArray[np.int64]  # (n,)
    experts: npt.NDArray[np.int64]  # (n,)  the expert that each prompt belongs to

    @classmethod
    def concatenate(cls, parts: Sequence[Scored]) -> Scored:
        columns = ("evidence", "counted", "experts")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))

    @property
    def weights(self) -> Floats:
        """One weight per prompt. Every expert has the same total weight, and Σ = 1."""
        sizes = np.bincount(self.experts, minlength=self.evidence.shape[1])
        return np.asarray((1.0 / sizes[self.experts]) / (sizes > 0).sum())

    @property
    def accuracy(self) -> float:
        """The share of prompts that are routed to their expert, as a mean over the experts."""
        return float(self.weights @ (self.evidence.argmax(axis=1) == self.experts))


def fit_calibration(scored: Scored) -> tuple[Calibration, float]:
    """The calibration of least log loss, and that loss."""
    fitted = [(*_fit_scale(scored, growth), growth) for growth in GROWTHS]
    scale, loss, growth = min(fitted, key=lambda one: one[1])
    return Calibration(scale, growth), loss


def _fit_scale(scored: Scored, growth: float) -> tuple[float, float]:
    """The scale of least log loss, and that loss. The loss is convex in the scale, so bisection finds where it is flat.

    The targets are a little below 1: (n + 1)/(n + 2) for an expert with n prompts, as in Platt scaling. Otherwise a few
    prompts that were all routed correctly would make the router certain.
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
    for _ in range(BISECTION_STEPS):
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
    """Fit the familiarity of a router's own prompts, each measured by a fit that did not see it.

    A prompt is out of domain below the value that k of the n held-out prompts do not exceed. So at most a share of
    k/(n + 1) of new prompts is expected there.
    """
    parts = [PromptFamiliarities(*map(np.concatenate, zip(*view, strict=True))) for view in zip(*folds, strict=True)]
    means, variance, tokens = map(np.concatenate, zip(*parts, strict=True))
    within = float(np.sqrt(np.average(variance, weights=tokens)))
    mean = float(means.mean())
    between = float(np.sqrt(max(1e-4, means.var() - (within**2 / tokens).mean())))
    # Short prompts have a longer tail. `within` is widened until the tails of whole and shortened prompts agree.
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
    """The familiarity of the held-out prompts, whole and shortened."""
    values = fold.familiarity[:, None].astype(np.float64) / FAMILIARITY_UNIT

    def measure(held: HeldOutPrompts) -> PromptFamiliarities:
        mean = mean_rows(values, held)[:, 0]
        square = mean_rows(values**2, held)[:, 0]
        return PromptFamiliarities(mean, np.maximum(square - mean**2, 0.0), held.lengths)

    return measure(fold.whole), measure(fold.short)
