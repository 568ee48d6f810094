"""Learn which prompts are out of domain: the weights of familiarity, certainty and subject, from examples.

The weights are in units that do not depend on the scorer. `membership_examples` makes the examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from string import punctuation

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding
from ir3de.fitting.calibration import (
    OUT_OF_DOMAIN_DEVIATIONS,
    OUT_OF_DOMAIN_SHARE,
    BothViews,
    Floats,
    PromptFamiliarities,
    Views,
    find_deviations,
)
from ir3de.fitting.folds import Deal, Fold, Indices
from ir3de.fitting.membership_examples import GROUP_KIND, WORDY_KIND, Examples, find_shares, make_examples
from ir3de.fitting.subjects import compare_folds, find_background, gather_subjects, standardise
from ir3de.policies import Calibration, Familiarity, Membership
from ir3de.routing.messages import GENERIC_WORDS
from ir3de.scorers.arithmetic import NumpyArithmetic, using
from ir3de.scorers.subjects import Subjects
from ir3de.statistics.domain import Statistics

GENERIC_SHARE = 0.01  # of an expert's prompts: with more that have no content, others are in domain too
UNKNOWN_SHARE = 0.1  # of traffic that is out of domain, before anything is known of a prompt
PRIOR = (0.0, 1.0, 0.5, 0.5, 0.3, 0.3)  # the bias and weights that few examples leave as they are,
PRIOR_PROMPTS = 20.0  # which count as much as this many known prompts
MAX_STEPS = 50
PRECISION = 1e-8
BIAS_PENALTY = 1e-3  # of that on the weights: the bias may be anything, but must exist
MAX_LOG_ODDS = 500.0

_generic: dict[str, npt.NDArray[np.bool_]] = {}  # by fingerprint


def fit_membership(
    folds: Sequence[Fold],
    views: Views,
    calibration: Calibration,
    familiarity: Familiarity | None,
    measured: Sequence[BothViews],
) -> Membership | None:
    """The model of which prompts are in domain. There is none without a background.

    The weights come from examples; the bias and `lowest` from the router's own scorer, as it sees the prompts of the
    folds. `lowest` leaves out at most `OUT_OF_DOMAIN_SHARE` of those, and of each kind of unusual examples.
    """
    deal = folds[0].deal
    if deal.background is None:
        return None
    # This may run later than the rest of a fit, and elsewhere. So it is always numpy's arithmetic: the same bits.
    with using(NumpyArithmetic()):
        examples = list(make_examples(deal.domains, deal.embedding, deal.background))
    bias, *weights = fit_weights(examples) if examples else PRIOR
    scored = views.scored
    shares = []
    for places, part in zip((views.whole, views.short), zip(*measured, strict=True), strict=True):
        joined = PromptFamiliarities(*map(np.concatenate, zip(*part, strict=True)))
        deviations = np.zeros(len(places)) if familiarity is None else find_deviations(familiarity, joined)
        shares.append(find_shares(scored.evidence[places], scored.counted[places], calibration, deviations))
    subjects, about = _measure_subjects(folds, views, deal.background)
    weights = weights if subjects is not None else [*weights[:3], 0.0, 0.0]
    odds = bias + np.column_stack((np.concatenate(shares), about)) @ np.array(weights)
    shift = math.log((1 - UNKNOWN_SHARE) / UNKNOWN_SHARE)
    if OUT_OF_DOMAIN_SHARE * (len(odds) // 2 + 1) >= 1:
        lowest = shift + min(0.0, _find_lowest(odds, OUT_OF_DOMAIN_SHARE), *_find_unusual(examples, bias, weights))
    else:  # too few prompts to measure such a share: below all of them, and far below their mean
        whole = odds[: len(views.whole)]
        lowest = shift + min(0.0, float(whole.min()), float(whole.mean() - OUT_OF_DOMAIN_DEVIATIONS * whole.std()))
    familiar, strange, certain, near, contrast = weights
    return Membership(bias + shift, familiar, strange, certain, lowest, needs_content(deal), near, contrast, subjects)


def _find_lowest(odds: Floats, share: float) -> float:
    """The value below which at most that share of new prompts is expected."""
    k = max(1, int(share * (len(odds) + 1)))
    return float(np.partition(odds, k - 1)[k - 1])


def _find_unusual(examples: Sequence[Examples], bias: float, weights: Sequence[float]) -> Iterator[float]:
    """The same for each kind of unusual prompts."""
    for kind in (WORDY_KIND, GROUP_KIND):
        features = np.concatenate([np.zeros((0, 5)), *(one.features[one.kinds == kind] for one in examples)])
        if len(features):
            yield _find_lowest(bias + features @ np.array(weights), OUT_OF_DOMAIN_SHARE)


def _measure_subjects(folds: Sequence[Fold], views: Views, background: Statistics) -> tuple[Subjects | None, Floats]:
    """What the router's own prompts are about; and nearness and contrast of the held-out ones, whole and shortened."""
    deal, best = folds[0].deal, views.scored.evidence.argmax(axis=1)
    ends = np.cumsum([len(fold.whole.lengths) for fold in folds])[:-1]
    found: list[tuple[Indices, Indices]] = list(
        zip(np.split(best[views.whole], ends), np.split(best[views.short], ends), strict=True)
    )
    centroids = find_background(deal, background)
    cosines = compare_folds(folds, found, centroids) if deal.subjects is not None else None
    subjects = None if cosines is None else gather_subjects(deal, centroids)
    if cosines is None or subjects is None:
        return None, np.zeros((len(views.whole) + len(views.short), 2))
    subjects = standardise(subjects, cosines[0])
    return subjects, subjects.scale(np.concatenate(cosines))


def needs_content(deal: Deal) -> bool:
    """Whether prompts of generic words alone are out of domain: hardly any prompt of any expert is one."""
    is_generic = _mark_generic(deal.embedding)
    for own in deal.prompts:
        sample = own.sample
        generic = np.add.reduceat(is_generic[sample.ids], sample.starts, dtype=np.int64) if len(sample) else np.zeros(0)
        if (generic == sample.kept).sum() > GENERIC_SHARE * len(sample):
            return False
    return True


def _mark_generic(embedding: Embedding) -> npt.NDArray[np.bool_]:
    """Which tokens occur in generic words, found once for each embedding."""
    if (name := embedding.fingerprint) not in _generic:
        forms = [form for word in GENERIC_WORDS for form in (word, word.capitalize())]
        found = embedding.tokenizer.encode_batch([*forms, *(f" {form}" for form in forms), *punctuation])[0]
        _generic[name] = np.zeros(embedding.vocabulary_size, bool)
        _generic[name][found] = True
    return _generic[name]


def fit_weights(examples: Sequence[Examples], weights: Sequence[float] = PRIOR) -> list[float]:
    """Bias and weights of least log loss, by Newton's method. No weight is below zero; all are drawn to `weights`."""
    X = np.concatenate([one.features for one in examples])
    X = np.column_stack((np.ones(len(X)), X))
    signs = 1.0 - 2.0 * np.concatenate([one.is_known for one in examples])
    w = np.concatenate([one.weights for one in examples]) / len(examples)
    prior, free = np.array(weights), np.ones(len(weights), bool)
    penalty = np.full(len(weights), PRIOR_PROMPTS / max(1, int((signs < 0).sum())))
    penalty[0] *= BIAS_PENALTY

    def measure_loss(b: Floats) -> float:
        return float(w @ np.logaddexp(0.0, signs * (X @ b)) + 0.5 * penalty @ (b - prior) ** 2)

    while True:
        b = np.where(free, prior, 0.0)
        least = measure_loss(b)
        for _ in range(MAX_STEPS):
            z = np.clip(X @ b, -MAX_LOG_ODDS, MAX_LOG_ODDS)
            p = 1.0 / (1.0 + np.exp(-z))
            slope = X.T @ (w * (p - (signs < 0))) + penalty * (b - prior)
            curvature = (X.T * (w * p * (1.0 - p))) @ X + np.diag(penalty)
            step = np.zeros(len(b))
            step[free] = np.linalg.solve(curvature[np.ix_(free, free)], slope[free])
            while (loss := measure_loss(b - step)) > least and np.abs(step).max() > PRECISION:
                step /= 2.0  # Newton's step may lead too far
            b, least = b - step, min(loss, least)
            if np.abs(step).max() <= PRECISION:
                break
        below = free & (b < 0)
        below[0] = False
        if not below.any():
            return [float(one) for one in b]
        free &= ~below
