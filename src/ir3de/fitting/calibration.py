"""Fit a router's calibration and familiarity on held-out prompts, and assume them where none can be held out."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ir3de.fitting.folds import Fold, HeldOutPrompts, Indices, mean_rows
from ir3de.fitting.inputs import list_carriers
from ir3de.policies import AssumedCalibration, Calibration, Familiarity
from ir3de.routing.compiled import read_tallies
from ir3de.routing.decision import Decision
from ir3de.routing.rules import DecisionRules
from ir3de.scorers.table import FAMILIARITY_UNIT
from ir3de.selectors import Average, Selector, find_unit
from ir3de.statistics.domain import Statistics

GROWTHS = (0.0, 0.25, 0.5, 1.0)
MIN_SCALE, FIRST_SCALE, MAX_SCALE = 1e-3, 10.0, 1e4  # of the evidence divided by its spread
MAX_STEPS = 60
PRECISION = 1e-6  # of the last step, relative
MAX_GROWTH_NUMBERS = 1 << 17  # of the evidence that the growth is fitted to
BLOCK_NUMBERS = 1 << 16  # of the evidence at a time: they stay in the cache
OUT_OF_DOMAIN_SHARE = 0.02  # of the router's own prompts may be called out of domain
WIDENINGS = (1.0, 1.5, 2.0, 3.0, 4.0)
AGREEMENT = 0.25  # standard deviations: tails that differ by no more agree
OUT_OF_DOMAIN_DEVIATIONS = 3.0  # used where there are too few prompts to measure it

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scored:
    """Held-out prompts with the evidence for each expert. A calibration is fitted to them."""

    evidence: Floats  # (n, C)
    counted: npt.NDArray[np.int64]  # (n,)
    experts: npt.NDArray[np.int64]  # (n,)  the expert that each prompt belongs to
    times: npt.NDArray[np.int64] | None = None  # (n,)  how often each prompt counts; None for once

    @classmethod
    def concatenate(cls, parts: Sequence[Scored]) -> Scored:
        columns = ("evidence", "counted", "experts", *(() if parts[0].times is None else ("times",)))
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))

    def in_fixed_order(self) -> Scored:
        """The same prompts in an order that depends on them alone, because sums of floats depend on the order."""
        order = np.lexsort((*self.evidence.T, self.counted, self.experts))
        return Scored(self.evidence[order], self.counted[order], self.experts[order])

    @property
    def sizes(self) -> Floats:
        """How many prompts each expert has: (C,)."""
        return np.bincount(self.experts, weights=self.times, minlength=self.evidence.shape[1]).astype(np.float64)

    @property
    def weights(self) -> Floats:
        """One weight per prompt. Every expert has the same total weight, and Σ = 1."""
        sizes = self.sizes
        weights = (1.0 / sizes[self.experts]) / (sizes > 0).sum()
        return np.asarray(weights if self.times is None else weights * self.times)

    @property
    def accuracy(self) -> float:
        """The share of prompts that are routed to their expert, as a mean over the experts."""
        return float(self.weights @ (self.evidence.argmax(axis=1) == self.experts))


@dataclass(frozen=True, eq=False)
class Views:
    """Held-out prompts whole and shortened. Prompts that are short anyway are the same in both, and are there once."""

    scored: Scored
    whole: npt.NDArray[np.intp]  # (n,)  the place of each prompt in `scored`
    short: npt.NDArray[np.intp]  # (n,)  and of the same prompt shortened

    @classmethod
    def join_folds(cls, folds: Sequence[Fold], scored: Sequence[Scored]) -> Views:
        """From the evidence for the `views` of each fold."""
        whole, short, parts, begin = [], [], [], 0
        for fold, own in zip(folds, scored, strict=True):
            n, cut = len(fold.whole.lengths), fold.cut
            places = np.arange(n)
            places[cut] = n + np.arange(len(cut))
            whole.append(begin + np.arange(n))
            short.append(begin + places)
            parts.append(replace(own, times=np.bincount(np.concatenate([np.arange(n), places]))))
            begin += len(own.experts)
        return cls(Scored.concatenate(parts), np.concatenate(whole), np.concatenate(short))

    @cached_property
    def right(self) -> tuple[Floats, Floats]:
        """Whether each prompt is routed to its expert, whole and shortened: 1 or 0."""
        right = (self.scored.evidence.argmax(axis=1) == self.scored.experts).astype(np.float64)
        return right[self.whole], right[self.short]

    @property
    def correctness(self) -> Floats:
        """How far each prompt is routed correctly: a prompt, whole and shortened, is one observation."""
        return np.asarray(np.mean(self.right, axis=0))

    @cached_property
    def weights(self) -> Floats:
        """One weight per prompt. Every expert has the same total weight, and Σ = 1."""
        experts = self.scored.experts[self.whole]
        sizes = np.bincount(experts, minlength=self.scored.sizes.size)
        return np.asarray((1.0 / sizes[experts]) / (sizes > 0).sum())


def fit_calibration(scored: Scored) -> tuple[Calibration, float]:
    """The calibration of least log loss, and that loss. With many numbers, the growth is found on some prompts."""
    loss = _LogLoss(scored)
    some = loss.select(slice(None, None, max(1, scored.evidence.size // MAX_GROWTH_NUMBERS)))
    fitted = [(*some.fit_scale(growth), growth) for growth in GROWTHS]
    scale, least, growth = min(fitted, key=lambda one: one[1])
    if len(some.z) < len(loss.z):
        scale, least = loss.fit_scale(growth, scale)
    return Calibration(scale, growth), least


class _LogLoss:
    """The log loss of held-out prompts as a function of a calibration's scale and growth.

    The targets are (n + 1)/(n + 2) for n prompts of all experts, as in Platt scaling. Targets of 1 would make the
    router certain after a few prompts that were all routed correctly.
    """

    def __init__(self, scored: Scored) -> None:
        evidence = scored.evidence
        self.z = (evidence - evidence.max(axis=1, keepdims=True)).astype(np.float32)
        n, C = self.z.shape
        size = float(scored.sizes.sum())
        other = 1.0 / ((size + 2.0) * max(1, C - 1))
        own = self.z[np.arange(n), scored.experts].astype(np.float64)
        self.target_z = other * (self.z.sum(axis=1, dtype=np.float64) - own) + (size + 1.0) / (size + 2.0) * own
        self.weights, self.counted = scored.weights, scored.counted

    def select(self, chosen: slice) -> _LogLoss:
        """Some of the prompts."""
        some = copy(self)
        for name, values in vars(self).items():
            setattr(some, name, values[chosen])
        some.weights = some.weights / some.weights.sum()
        return some

    def fit_scale(self, growth: float, start: float | None = None) -> tuple[float, float]:
        """The scale of least loss, and that loss: Newton's method, with bisection where a step leads too far.

        The loss is convex in the scale. The prompts of many tokens have larger scales: z · tokens^growth.
        """
        longer = self.counted.astype(np.float64) ** growth
        spread = float(longer @ np.abs(self.z).sum(axis=1, dtype=np.float64)) / max(1, self.z.size) or 1.0
        low, high = MIN_SCALE / spread, MAX_SCALE / spread
        scale = min(max(start or FIRST_SCALE / spread, low), high)
        for _ in range(MAX_STEPS):
            loss, slope, curvature = self._derivatives(scale, longer)
            step = -slope / curvature if curvature > 0 else -scale
            if abs(step) <= PRECISION * scale:
                break
            low, high = (scale, high) if slope < 0 else (low, scale)
            if high <= (1 + PRECISION) * low:
                break
            scale = scale + step if low < scale + step < high else math.sqrt(low * high)
        return scale, loss

    def _derivatives(self, scale: float, longer: Floats) -> tuple[float, float, float]:
        """The loss and its first and second derivative in the scale."""
        totals = np.empty((3, len(self.z)))
        rows = max(1, BLOCK_NUMBERS // self.z.shape[1])
        for begin in range(0, len(self.z), rows):
            z = self.z[begin : begin + rows]
            p = z * (scale * longer[begin : begin + rows, None]).astype(np.float32)
            np.exp(p, out=p)
            part = totals[:, begin : begin + rows]
            part[0] = p.sum(axis=1)
            p *= z
            part[1] = p.sum(axis=1)
            part[2] = np.einsum("nc,nc->n", p, z)
        whole, first, second = totals
        mean = first / whole
        loss = self.weights @ (np.log(whole) - scale * longer * self.target_z)
        slope = (self.weights * longer) @ (mean - self.target_z)
        return float(loss), float(slope), float((self.weights * longer**2) @ (second / whole - mean**2))


class PromptFamiliarities(NamedTuple):
    """Each prompt's mean token familiarity, the variance among its tokens, and their number."""

    mean: Floats
    variance: Floats
    tokens: npt.NDArray[np.int64]

    def select(self, chosen: npt.NDArray[np.bool_]) -> PromptFamiliarities:
        """Some of the prompts."""
        return PromptFamiliarities(self.mean[chosen], self.variance[chosen], self.tokens[chosen])


BothViews: TypeAlias = tuple[PromptFamiliarities, PromptFamiliarities]  # of prompts, whole and shortened


def fit_familiarity(folds: Sequence[BothViews]) -> Familiarity:
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
    tails = [np.ptp([np.quantile(find_deviations(one, p), OUT_OF_DOMAIN_SHARE) for p in parts]) for one in known]
    best = next(one for one, tail in zip(known, tails, strict=True) if tail <= min(tails) + AGREEMENT)
    deviations = np.sort(np.concatenate([find_deviations(best, part) for part in parts]))
    k = int(OUT_OF_DOMAIN_SHARE * (len(deviations) + 1))
    lowest = float(deviations[k - 1]) if k else min(-OUT_OF_DOMAIN_DEVIATIONS, float(deviations[0]))
    return replace(best, lowest=lowest)


def find_deviations(known: Familiarity, part: PromptFamiliarities) -> Floats:
    """The familiarity of each prompt, in standard deviations."""
    return (part.mean - known.mean) / np.sqrt(known.between**2 + known.within**2 / part.tokens)


def measure_familiarity(fold: Fold) -> BothViews:
    """The familiarity of the held-out prompts, whole and shortened."""
    return measure_prompts(fold.familiarity, fold.whole), measure_prompts(fold.familiarity, fold.short)


def measure_prompts(familiarity: npt.NDArray[np.float32], held: HeldOutPrompts) -> PromptFamiliarities:
    """The familiarity of prompts, from that of tokens in parts of `FAMILIARITY_UNIT`."""
    values = familiarity.astype(np.float64) / FAMILIARITY_UNIT
    mean, square = mean_rows(np.stack([values, values**2], axis=1), held).T
    return PromptFamiliarities(mean, np.maximum(square - mean**2, 0.0), held.lengths)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The evidence for held-out prompts. It does not depend on calibration, costs or thresholds."""

    experts: Indices  # (n,)  the expert that each prompt belongs to
    places: Indices  # (n,)  in that expert's sample
    tokens: Indices  # (n,)
    counted: Indices  # (n,)
    evidence: Floats  # (n, C)
    familiarity: Floats  # (n,)  of the tokens, as a mean
    subjects: Floats | None  # (n, k)  of the tokens, as a mean

    @classmethod
    def gather(cls, folds: Sequence[Fold], views: Views, measured: Sequence[BothViews]) -> HeldOut:
        """The prompts as they are, without the shortened ones."""
        scored, whole = views.scored, views.whole
        return cls(
            scored.experts[whole],
            np.concatenate([fold.deal.place[fold.held] for fold in folds]),
            np.concatenate([fold.whole.lengths for fold in folds]),
            scored.counted[whole],
            scored.evidence[whole],
            np.concatenate([part.mean for part, _ in measured]),
            None
            if (rows := folds[0].deal.subjects) is None
            else np.concatenate([mean_rows(rows, fold.whole) for fold in folds]),
        )

    def decide(self, rules: DecisionRules) -> list[Decision]:
        """The decision on each prompt. Ballots are integers, so the evidence is rounded to the tally that it was."""
        tallies = np.rint(self.evidence * (find_unit(rules.selector) * self.counted[:, None]))
        if rules.familiarity is not None:
            tallies = np.column_stack((tallies, self.familiarity * (FAMILIARITY_UNIT * self.tokens)))
            if self.subjects is not None:
                tallies = np.column_stack((tallies, np.rint(self.subjects * self.tokens[:, None])))
        return read_tallies(rules, tallies, self.tokens.tolist(), self.counted.tolist())


FEW_PROMPTS = 30  # of an expert: with fewer, its probability has a limit
DESCRIPTION_PROMPTS = 4  # that a description teaches as much as: docs/few-prompts.md
PRIOR_PROMPTS = 20  # the weight of even odds for all experts where no prompts are kept
ENOUGH_PROMPTS = 1_000  # of every expert: from then on, the shares are used unchanged
USUAL_TOKENS = 64  # of a prompt whose shares are used unchanged
GROWTH = 0.5  # the chance in a mean over n tokens shrinks with √n, so short prompts have less weight


def limit_probability(domain: Statistics) -> float:
    """The largest probability that an expert with few prompts may have: (n + 1)/(n + 2), Laplace's rule of succession.

    Had all of its n prompts been right when they were held out, the next one would be right with that probability.
    """
    n = count_few(domain)
    return (n + 1) / (n + 2) if n < FEW_PROMPTS else 1.0


def count_few(domain: Statistics) -> int:
    """The kept prompts of an expert, and those that its description teaches as much as."""
    kept = len(domain.sample or ())
    return kept + DESCRIPTION_PROMPTS * (domain.prompts - kept >= len(list_carriers()))


def limit_calibration(calibration: Calibration, domains: Sequence[Statistics]) -> Calibration:
    """The calibration with the limits of these experts; as it is where none has few prompts."""
    most = tuple(map(limit_probability, domains))
    return replace(calibration, most=most) if min(most) < 1.0 else calibration


def assume_calibration(domains: Collection[Statistics], selector: Selector) -> AssumedCalibration | None:
    """The calibration where no prompts can be held out and the smallest expert has n; None where all have many.

    As after n prompts and a Dirichlet prior of 20 for even odds: p = (n · p + 20 / C) / (n + 20). Where all prompts are
    kept, and are one of each expert or its description, p is drawn so far that a certain one reaches the limit of the
    smallest expert. Fractions of votes are not changed.
    """
    fewest, experts = min(domain.prompts for domain in domains), len(domains)
    if not isinstance(selector, Average) or fewest >= ENOUGH_PROMPTS:
        return None
    trust = fewest / (fewest + PRIOR_PROMPTS)
    if experts > 1 and all(domain.sample is not None for domain in domains):
        trust = (min(map(limit_probability, domains)) - 1 / experts) / (1 - 1 / experts)
    return AssumedCalibration(selector.sharpness / math.sqrt(USUAL_TOKENS), GROWTH, trust=trust)
