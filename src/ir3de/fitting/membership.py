"""Learn which prompts are out of domain, from examples that the router has at hand.

Each expert in turn is left out: the others are fitted without it, and its prompts are out of domain. Statistics are
sums, so such a fit is nearly free. The background's prompts are another kind: they are far from every domain. The
result is the weights of familiarity and certainty, in units that do not depend on the scorer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from string import punctuation

import numpy as np
import numpy.typing as npt

from ir3de import policies
from ir3de.defaults import DEFAULT_CAP
from ir3de.embedding import Embedding
from ir3de.fitting.calibration import (
    OUT_OF_DOMAIN_SHARE,
    BothViews,
    Floats,
    PromptFamiliarities,
    Scored,
    Views,
    find_deviations,
    fit_calibration,
    fit_familiarity,
    measure_prompts,
)
from ir3de.fitting.folds import Deal, Fold, HeldOutPrompts, Indices, mean_rows
from ir3de.policies import Calibration, Familiarity, Membership
from ir3de.routing.messages import GENERIC_WORDS
from ir3de.scorers.arithmetic import NumpyArithmetic, using
from ir3de.scorers.blend import Blend, BlendParts
from ir3de.statistics.domain import Statistics

KNOWN_PROMPTS = 1_500  # of all experts together, half of them held out
MIN_PROMPTS = 6  # of an expert
BACKGROUND_PROMPTS = 600
MAX_GROUPS = 5  # of experts that are left out together: with more experts, several play the unknown at once
MIN_LEFT = 2  # experts that remain when others are left out: one alone is always certain
GENERIC_SHARE = 0.01  # of an expert's prompts: with more that have no content, others are in domain too
UNKNOWN_SHARE = 0.1  # of traffic that is out of domain, before anything is known of a prompt
PRIOR = (0.0, 1.0, 0.5, 0.5)  # the weights that few examples leave as they are,
PRIOR_PROMPTS = 20.0  # which count as much as this many known prompts
SCORER = Blend(few=0.0)  # without the token ridge, which takes most of the time and adds little here
MAX_STEPS = 50
PRECISION = 1e-8
BIAS_PENALTY = 1e-3  # of that on the weights: the bias may be anything, but must exist
MAX_LOG_ODDS = 500.0

_generic: dict[str, npt.NDArray[np.bool_]] = {}  # by fingerprint


@dataclass(frozen=True, eq=False)
class Examples:
    """Prompts as the model sees them."""

    features: Floats  # (n, 3)  familiarity, strangeness and certainty
    is_known: npt.NDArray[np.bool_]  # (n,)
    weights: Floats  # (n,)  Σ = 1
    # of the first k prompts, which are whole: their experts, the background's after all others, and their places
    experts: Indices = field(default_factory=lambda: np.zeros(0, np.int64))  # (k,)
    places: Indices = field(default_factory=lambda: np.zeros(0, np.int64))  # (k,)  in their samples
    known: Indices = field(default_factory=lambda: np.zeros(0, np.int64))  # the experts that were not left out


def fit_membership(
    folds: Sequence[Fold],
    views: Views,
    calibration: Calibration,
    familiarity: Familiarity | None,
    measured: Sequence[BothViews],
) -> Membership | None:
    """The model of which prompts are in domain. `lowest` leaves out `OUT_OF_DOMAIN_SHARE` of the held-out prompts.

    The weights come from experts left out and from the background; bias and `lowest` from the router's own scorer, as
    it sees the prompts of the folds. There is no model without a background.
    """
    deal = folds[0].deal
    if deal.background is None:
        return None
    # This may run later than the rest of a fit, and elsewhere. So it is always numpy's arithmetic: the same bits.
    with using(NumpyArithmetic()):
        examples = list(make_examples(deal.domains, deal.embedding, deal.background))
    bias, *weights = fit_weights(examples) if examples else PRIOR
    scored = views.scored
    found = []
    for places, part in zip((views.whole, views.short), zip(*measured, strict=True), strict=True):
        joined = PromptFamiliarities(*map(np.concatenate, zip(*part, strict=True)))
        deviations = np.zeros(len(places)) if familiarity is None else find_deviations(familiarity, joined)
        found.append(find_features(scored.evidence[places], scored.counted[places], calibration, deviations))
    odds = bias + np.concatenate(found) @ np.array(weights)
    bias += (shift := math.log((1 - UNKNOWN_SHARE) / UNKNOWN_SHARE))
    is_enough, k = OUT_OF_DOMAIN_SHARE * (len(odds) // 2 + 1) >= 1, int(OUT_OF_DOMAIN_SHARE * (len(odds) + 1))
    # At most 0 before that shift: a prompt for which the evidence speaks is in domain, however clear the others are.
    lowest = min(0.0, float(np.partition(odds, k - 1)[k - 1])) + shift if is_enough else policies.TOO_FEW_PROMPTS
    return Membership(bias, weights[0], weights[1], weights[2], lowest, needs_content(deal))


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


def make_examples(
    domains: Sequence[Statistics], embedding: Embedding, background: Statistics | None
) -> Iterator[Examples]:
    """A set of examples for each group of experts that is left out."""
    if background is None or len(domains) < MIN_LEFT or any(own.sums is None or own.sample is None for own in domains):
        return
    each = max(MIN_PROMPTS, KNOWN_PROMPTS // len(domains))
    few = [*(_keep_few(domain, each) for domain in domains), _keep_few(background, BACKGROUND_PROMPTS)]
    deal = Deal(few, embedding, DEFAULT_CAP)
    if not deal.count:
        return
    fold = Fold(deal, deal.place % 2 == 0)
    for left_out in _group(len(domains)):
        if (made := _make_examples(fold, np.setdiff1d(np.arange(len(domains)), left_out))) is not None:
            yield made


def _keep_few(domain: Statistics, prompts: int) -> Statistics:
    assert domain.sample is not None
    return replace(domain, sample=domain.sample.take(np.arange(min(prompts, len(domain.sample)))))


def _group(experts: int) -> list[Indices]:
    """The experts that are left out together; none where too few would remain."""
    if experts <= MIN_LEFT:
        return [np.zeros(0, np.int64)]
    groups = min(experts, MAX_GROUPS)
    return [np.arange(first, experts, groups) for first in range(groups)]


def _make_examples(fold: Fold, experts: Indices) -> Examples | None:
    """The features of every held-out prompt, from a fit of these experts alone."""
    background = len(fold.deal.domains) - 1
    S = SCORER.combine(BlendParts([fold.training[c] for c in experts], fold.embeddings))
    alone = np.zeros(len(fold.deal.domains))
    alone[background] = 1.0
    column = fold.score_familiarity(fold.count_tokens(alone), float(fold.tokens[background]), experts)
    held = [fold.whole, fold.short]
    views = [(mean_rows(S, view), measure_prompts(column, view)) for view in held]
    is_known = np.isin(fold.whole.experts, experts)
    if is_known.all() or not is_known.any():
        return None
    labels = np.searchsorted(experts, fold.whole.experts)
    scored = [
        Scored(evidence[is_known], view.lengths[is_known], labels[is_known])
        for (evidence, _), view in zip(views, held, strict=True)
    ]
    calibration, _ = fit_calibration(Scored.concatenate(scored))
    (_, whole), (_, short) = views
    weight = 0.0 if fold.deal.embedding.is_multilingual else 1.0
    known = fit_familiarity([(whole.select(is_known), short.select(is_known))])
    features = [
        find_features(evidence, view.lengths, calibration, find_deviations(known, measured) * weight)
        for (evidence, measured), view in zip(views, held, strict=True)
    ]
    weights = _weigh(fold.whole, is_known, background)
    prompts = fold.whole.experts, fold.deal.place[fold.held], experts
    return Examples(np.concatenate(features), np.tile(is_known, 2), np.tile(weights, 2) / 2, *prompts)


def _weigh(held: HeldOutPrompts, is_known: npt.NDArray[np.bool_], background: int) -> Floats:
    """Half of the weight is that of known prompts; experts left out and the background share the other half."""
    kinds = np.where(is_known, 0, np.where(held.experts == background, 1, 2))
    sizes = np.bincount(kinds, minlength=3)
    shares = np.array([0.5, 0.25, 0.25])
    if not sizes[2] or not sizes[1]:
        shares[1:] = 0.5
    return shares[kinds] / sizes[kinds]


def find_features(
    evidence: Floats, counted: npt.NDArray[np.int64], calibration: Calibration, deviations: Floats
) -> Floats:
    """What `Membership` weighs, for many prompts: familiarity, strangeness and certainty (n, 3)."""
    z = evidence * (calibration.scale * counted.astype(np.float64) ** calibration.growth)[:, None]
    z -= z.max(axis=1, keepdims=True)
    others = np.exp(z).sum(axis=1) - 1.0  # Σ_{c ≠ best} p_c / p_best
    with np.errstate(divide="ignore"):
        certainty = -np.log(np.maximum(others, 0.0))
    certainty = np.clip(certainty, policies.MIN_CERTAINTY, policies.MAX_CERTAINTY)
    familiarity = np.clip(deviations, policies.MIN_FAMILIARITY, policies.MAX_FAMILIARITY)
    return np.stack((familiarity, np.minimum(0.0, familiarity + policies.STRANGE), certainty), axis=1)


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
