"""Examples of known and unknown prompts, from what a router has at hand.

Each expert in turn is left out: the others are fitted without it, and its prompts are unknown. Statistics are sums, so
such a fit is nearly free. The background's prompts are another kind of unknown ones: they are far from every domain.
Known prompts are also shown as other people write them: from a group of prompts that was held out whole, and with
phrases around them that say nothing. So what is learnt holds for prompts of other sources, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from weakref import ref

import numpy as np
import numpy.typing as npt

from ir3de import policies
from ir3de.embedding import Embedding
from ir3de.fitting.calibration import (
    Floats,
    PromptFamiliarities,
    Scored,
    find_deviations,
    fit_calibration,
    fit_familiarity,
    measure_prompts,
)
from ir3de.fitting.clusters import hold_out_groups
from ir3de.fitting.folds import Deal, Fold, HeldOutPrompts, Indices, mean_rows
from ir3de.fitting.subjects import (
    BACKGROUND_CENTROIDS,
    EXPERT_CENTROIDS,
    MAX_PROMPTS,
    find_centroids,
    find_prompt_directions,
    join_subjects,
    standardise,
)
from ir3de.policies import Calibration
from ir3de.scorers.arithmetic import current
from ir3de.scorers.blend import Blend, Posterior, balance, find_factor, measure_size
from ir3de.scorers.ridge import PromptRidge, add_grams, require_prompt_sums
from ir3de.scorers.subjects import Subjects
from ir3de.scorers.table import FAMILIARITY_UNIT
from ir3de.statistics.compact import unpack_triangle
from ir3de.statistics.defaults import DEFAULT_CAP
from ir3de.statistics.domain import Statistics

KNOWN_PROMPTS = 1_500  # of all experts together, half of them held out;
NEIGHBOURS = 3_000  # more where subjects are known, a quarter of them held out: the others are compared with
MIN_PROMPTS = 6  # of an expert
BACKGROUND_PROMPTS, BACKGROUND_NEIGHBOURS = 600, 1_200  # without and with subjects
MAX_EXPERTS = 40  # that play known and unknown: with more, some are enough for a few weights
MAX_GROUPS = 5  # of experts that are left out together: with more experts, several play the unknown at once
GROUPS_OF_MANY = 3  # enough with `MAX_EXPERTS`: each group has many prompts
MIN_LEFT = 2  # experts that remain when others are left out: one alone is always certain
CACHE = "examples"  # key of `Statistics.derived` of the background
SCORER = Blend(few=0.0)  # without the token ridge, which takes most of the time and adds little here
USUAL, WORDY_KIND, GROUP_KIND = range(3)  # kinds of known prompts
KNOWN_SHARE, GROUP_SHARE, WORDY_SHARE = 0.35, 0.05, 0.1  # of the weight; unknown prompts have the other half
WORDY = (
    "Hello there, hope you are doing well today. I was wondering whether you could help me out with something. "
    "Thanks a lot in advance for your help, I really appreciate it!",
    "Good evening! Quick thing, and please bear with me, since this is my first time asking anything at all in here. "
    "Let me know what you think about that when you get a chance, cheers.",
    "To whom it may concern: I would be grateful for your assistance regarding the matter that is set out below. "
    "I would be much obliged for an early reply. Yours sincerely.",
    "ok so this might sound a bit silly but i really dont know who else i could ask, maybe you know more than me. "
    "Hope that was clear enough, otherwise just say so.",
)  # phrases around a prompt that say nothing


@dataclass(frozen=True, eq=False)
class Examples:
    """Prompts as the model sees them."""

    features: Floats  # (n, 5)  familiarity, strangeness, certainty, nearness and contrast
    is_known: npt.NDArray[np.bool_]  # (n,)
    weights: Floats  # (n,)
    kinds: npt.NDArray[np.int64]  # (n,)  `USUAL`, `WORDY_KIND` or `GROUP_KIND`
    # of the first k prompts, which are whole: their experts, the background's after all others, and their places
    experts: Indices = field(default_factory=lambda: np.zeros(0, np.int64))  # (k,)
    places: Indices = field(default_factory=lambda: np.zeros(0, np.int64))  # (k,)  in their samples
    known: Indices = field(default_factory=lambda: np.zeros(0, np.int64))  # the experts that were not left out


@dataclass(frozen=True, eq=False)
class View:
    """A fit's view of prompts: evidence, familiarity, and the mean of their subject rows."""

    evidence: Floats  # (n, C)
    measured: PromptFamiliarities
    rows: Floats  # (n, k); k is 0 where the embedding has no subject rows

    def select(self, chosen: npt.NDArray[np.bool_]) -> View:
        return View(self.evidence[chosen], self.measured.select(chosen), self.rows[chosen])


def make_examples(
    domains: Sequence[Statistics], embedding: Embedding, background: Statistics | None
) -> Sequence[Examples]:
    """A set of examples for each group of experts that is left out. Those of the last fit are kept.

    With many experts, some of them are enough. Which ones depends on their prompts alone, so that most changes of other
    experts leave the examples as they are.
    """
    if background is None or len(domains) < MIN_LEFT:
        return []
    if any(own.sums is None or not own.sums.windows or own.sample is None for own in domains):
        return []
    known, others, parts = KNOWN_PROMPTS, BACKGROUND_PROMPTS, 2
    if embedding.subjects is not None:
        known, others, parts = NEIGHBOURS, BACKGROUND_NEIGHBOURS, 4
    each = max(MIN_PROMPTS, known // min(len(domains), 2 * MAX_EXPERTS))
    chosen = _choose_experts(domains, each)
    own = [domains[c] for c in chosen]
    kept = background.derived.get(CACHE)
    if kept is None or kept[0] != (each, len(own)) or any(a() is not b for a, b in zip(kept[1], own, strict=True)):
        few = [*(domain.keep_first(each) for domain in own), background.keep_first(others)]
        made = _leave_out_groups(few, embedding, parts)
        kept = background.derived[CACHE] = ((each, len(own)), [ref(one) for one in own], made)
    numbers = np.array([*chosen, len(domains)])
    return [replace(one, experts=numbers[one.experts], known=numbers[one.known]) for one in kept[2]]


def _choose_experts(domains: Sequence[Statistics], each: int) -> list[int]:
    """Those with the most prompts, up to the number that is used; of equals, by their content."""
    if len(domains) <= MAX_EXPERTS:
        return list(range(len(domains)))
    samples = [own.sample for own in domains if own.sample is not None]
    keys = [(-min(each, len(own)), zlib.crc32(own.hashes.astype("<u4").tobytes())) for own in samples]
    return sorted(sorted(range(len(domains)), key=lambda c: keys[c])[:MAX_EXPERTS])


def _leave_out_groups(few: Sequence[Statistics], embedding: Embedding, parts: int) -> list[Examples]:
    deal, experts = Deal(few, embedding, DEFAULT_CAP), len(few) - 1
    if not deal.count:
        return []
    most = MAX_GROUPS if experts < MAX_EXPERTS else GROUPS_OF_MANY
    count = min(experts, most) if experts > MIN_LEFT else 1
    groups = np.arange(experts) % count if count > 1 else np.ones(experts, np.int64)  # too few to leave out any
    usual, unusual = _Training(Fold(deal, deal.place % parts == 0), groups), None
    if deal.subjects is not None:  # only prompts that are kept can be held out as a group, so only those are counted
        alone = _keep_alone(deal)
        unusual = _Training(Fold(alone, hold_out_groups(alone, experts)[0]), groups, kept_alone=True)
    made = [_make_examples(usual, unusual, group) for group in range(count)]
    return [one for one in made if one is not None]


def _keep_alone(deal: Deal) -> Deal:
    """The same prompts of experts that have no others. The background, which is last, stays as it is."""
    found, experts, C = copy(deal), deal.experts, len(deal.domains)
    of_windows = experts[deal.window_prompts]
    tokens = np.bincount(experts, weights=deal.kept, minlength=C).astype(np.float64)
    windows = np.bincount(of_windows, weights=deal.join("window_times"), minlength=C).astype(np.float64)
    places = deal.token_rows * C + np.repeat(experts, deal.kept)
    counts = np.bincount(places, minlength=deal.counts.size).reshape(deal.counts.shape).astype(np.float64)
    tokens[-1], windows[-1], counts[:, -1] = deal.tokens[-1], deal.windows[-1], deal.counts[:, -1]
    found.tokens, found.windows, found.counts = tokens, windows, counts
    return found


class _Training:
    """What is left of every expert without a fold's held-out prompts. All fits of some experts start from it.

    With `kept_alone`, experts have no other prompts than those that are kept.
    """

    def __init__(self, fold: Fold, groups: Indices, *, kept_alone: bool = False) -> None:
        self.fold, self.groups, self.kept_alone, deal = fold, groups, kept_alone, fold.deal
        rows, experts = fold.held_token_rows
        gone = np.bincount(rows * deal.counts.shape[1] + experts, minlength=deal.counts.size)
        self.counts = deal.counts - gone.reshape(deal.counts.shape)
        self.windows = fold.windows[:-1]  # without the background's
        self._weigh_windows()
        self.gram = self._sum_gram(groups >= 0)
        self.centroids = []
        for c, most in enumerate([*[EXPERT_CENTROIDS] * len(groups), BACKGROUND_CENTROIDS]):
            own = find_prompt_directions(deal, c)
            left = ~fold.held[deal.experts == c] if len(own) else slice(0)
            self.centroids.append(find_centroids(own[left][:MAX_PROMPTS], most))

    def _weigh_windows(self) -> None:
        """w_c Σ x̄ of each expert, (h, C); and √w_c x̄ of the windows that make up the sums, or are taken from them."""
        fold, deal = self.fold, self.fold.deal
        self._sums, w = require_prompt_sums(deal.domains[:-1]), 1.0 / np.maximum(self.windows, 1.0)
        used = fold.held[deal.window_prompts] != self.kept_alone
        self._experts, times = deal.experts[deal.window_prompts[used]], deal.join("window_times")[used]
        X = deal.join("windows")[used] * np.array([own.unit for own in self._sums])[self._experts, None]
        total = (((self._experts == np.arange(len(w))[:, None]) * times) @ X).T
        if not self.kept_alone:
            total = np.stack([own.unit * own.vector for own in self._sums], axis=1) - total
        self.vectors, self._rows = total * w, X * np.sqrt(times * w[self._experts])[:, None]

    def _sum_gram(self, chosen: npt.NDArray[np.bool_]) -> Floats:
        """Σ_c w_c Σ x̄x̄ᵀ over these experts."""
        X = self._rows[chosen[self._experts]]
        if self.kept_alone:
            return np.asarray(X.T @ X)
        sums = [own for own, is_chosen in zip(self._sums, chosen, strict=True) if is_chosen]
        packed = add_grams(sums, 1.0 / self.windows[None, chosen])[0]
        return np.asarray(unpack_triangle(packed, X.shape[1]) - X.T @ X)

    def fit(self, left_out: int) -> _Fit:
        """Fit all experts but those of one group."""
        fold, chosen = self.fold, self.groups != left_out
        experts = np.flatnonzero(chosen)
        gram = self.gram if chosen.all() else self.gram - self._sum_gram(~chosen)
        W = PromptRidge(SCORER.strength).solve(gram, self.vectors[:, experts], 1.0 / self.windows[experts])
        R = np.asarray(current().apply(W.astype(np.float32), fold.embeddings), np.float64)
        largest = float(np.abs(R).max(initial=0.0))
        R -= R.mean(axis=1, keepdims=True)
        counts = balance(self.counts[:, experts], fold.tokens[experts])
        P, frequency = Posterior(SCORER.prior).score_counts(counts, R), counts.sum(axis=1)
        scores = R * find_factor(measure_size(R, frequency, largest))
        scores += P * (SCORER.posterior * find_factor(measure_size(P, frequency, np.abs(P).max(initial=1.0))))
        column = fold.score_familiarity(self.counts[:, -1].copy(), float(fold.tokens[-1]), experts)
        subjects = join_subjects(fold.deal, [self.centroids[c] for c in experts], self.centroids[-1])
        return _Fit(fold, experts, scores, column.astype(np.float64) / FAMILIARITY_UNIT, subjects)


@dataclass(frozen=True, eq=False)
class _Fit:
    """A fit of some experts without a fold's held-out prompts, and its view of those."""

    fold: Fold
    experts: Indices
    scores: Floats  # (tokens, C)
    column: Floats  # (tokens,)  familiarities
    subjects: Subjects | None  # of the prompts that are not held out

    @property
    def rows(self) -> npt.NDArray[np.float32]:
        rows = self.fold.deal.subjects
        return np.zeros((len(self.column), 0), np.float32) if rows is None else rows

    def view(self, held: HeldOutPrompts) -> View:
        return View(
            mean_rows(self.scores, held),
            measure_prompts((self.column * FAMILIARITY_UNIT).astype(np.float32), held),
            mean_rows(self.rows, held) if self.rows.shape[1] else np.zeros((len(held.lengths), 0)),
        )

    def view_wordy(self, view: View) -> View:
        """The same prompts with phrases around them. Every number is a mean over tokens, so phrases are added to it."""
        tokenizer, deal, n = self.fold.deal.embedding.tokenizer, self.fold.deal, view.measured.tokens
        phrases = [deal.find_rows(tokenizer.encode(text).astype(np.int64)) for text in WORDY]
        chosen = np.arange(len(n)) % len(phrases)
        more = np.array([len(rows) for rows in phrases])[chosen]

        def mix(means: Floats, table: npt.NDArray[np.floating]) -> Floats:
            sums = np.stack([table[rows].sum(axis=0) for rows in phrases])[chosen]
            return np.asarray((means * n[:, None] + sums) / (n + more)[:, None])

        mean, variance, _ = view.measured
        squares = np.stack((mean, variance + mean**2), axis=1)
        mean, square = mix(squares, np.stack((self.column, self.column**2), axis=1)).T
        measured = PromptFamiliarities(mean, np.maximum(square - mean**2, 0.0), n + more)
        return View(mix(view.evidence, self.scores), measured, mix(view.rows, self.rows))


def _make_examples(training: _Training, unusual: _Training | None, left_out: int) -> Examples | None:
    """The features of every held-out prompt, from fits without a group of experts."""
    fit, fold = training.fit(left_out), training.fold
    whole, short, experts = fit.view(fold.whole), fit.view(fold.short), fit.experts
    is_known = np.isin(fold.whole.experts, experts)
    if is_known.all() or not is_known.any():
        return None
    labels = np.searchsorted(experts, fold.whole.experts[is_known])
    known = [view.select(is_known) for view in (whole, short)]
    scored = [Scored(view.evidence, view.measured.tokens, labels) for view in known]
    calibration, _ = fit_calibration(Scored.concatenate(scored))
    familiarity = fit_familiarity([(known[0].measured, known[1].measured)])
    weight = 0.0 if fold.deal.embedding.is_multilingual else 1.0
    subjects = fit.subjects
    if subjects is not None:
        cosines = subjects.compare(known[0].rows, known[0].evidence.argmax(axis=1))
        subjects = standardise(subjects, cosines)

    def describe(view: View, about: Subjects | None) -> Floats:
        deviations = find_deviations(familiarity, view.measured) * weight
        return find_features(view.evidence, view.measured.tokens, calibration, deviations, about, view.rows)

    weights = _weigh(fold.whole, is_known, len(training.groups), KNOWN_SHARE if subjects is not None else 0.5) / 2
    parts = [(describe(view, subjects), is_known, weights, USUAL) for view in (whole, short)]
    if (
        subjects is not None and unusual is not None
    ):  # by words alone, such a prompt looks like one about something else
        parts.append((*_share(describe(fit.view_wordy(known[0]), subjects), WORDY_SHARE), WORDY_KIND))
        group = unusual.fold
        others = np.isin(group.whole.experts, experts)
        if others.any() and unusual.windows[experts].all() and (other := unusual.fit(left_out)).subjects is not None:
            about = replace(other.subjects, means=subjects.means, spreads=subjects.spreads)
            seen = other.view(group.whole).select(others)
            parts.append((*_share(describe(seen, about), GROUP_SHARE), GROUP_KIND))
    columns = zip(*[(f, known, w, np.full(len(w), kind)) for f, known, w, kind in parts], strict=True)
    features, known_ones, weighed, kinds = map(np.concatenate, columns)
    places = fold.deal.place[fold.held]
    return Examples(features, known_ones, weighed, kinds, fold.whole.experts, places, experts)


def _share(features: Floats, weight: float) -> tuple[Floats, npt.NDArray[np.bool_], Floats]:
    """The features of known prompts that share this weight."""
    return features, np.ones(len(features), bool), np.full(len(features), weight / len(features))


def _weigh(held: HeldOutPrompts, is_known: npt.NDArray[np.bool_], background: int, known: float) -> Floats:
    """Known prompts share that weight; experts left out and the background share half of all."""
    kinds = np.where(is_known, 0, np.where(held.experts == background, 1, 2))
    sizes = np.bincount(kinds, minlength=3)
    shares = np.array([known, 0.25, 0.25])
    if not sizes[2] or not sizes[1]:
        shares[1:] = 0.5
    return shares[kinds] / sizes[kinds]


def find_features(
    evidence: Floats,
    counted: npt.NDArray[np.int64],
    calibration: Calibration,
    deviations: Floats,
    subjects: Subjects | None,
    rows: Floats,
) -> Floats:
    """What `Membership` weighs, for many prompts: familiarity, strangeness, certainty, nearness and contrast (n, 5)."""
    about = np.zeros((len(evidence), 2))
    if subjects is not None:
        about = subjects.scale(subjects.compare(rows, evidence.argmax(axis=1)))
    return np.column_stack((find_shares(evidence, counted, calibration, deviations), about))


def find_shares(
    evidence: Floats, counted: npt.NDArray[np.int64], calibration: Calibration, deviations: Floats
) -> Floats:
    """Familiarity, strangeness and certainty: (n, 3)."""
    z = evidence * (calibration.scale * counted.astype(np.float64) ** calibration.growth)[:, None]
    z -= z.max(axis=1, keepdims=True)
    others = np.exp(z).sum(axis=1) - 1.0  # Σ_{c ≠ best} p_c / p_best
    with np.errstate(divide="ignore"):
        certainty = -np.log(np.maximum(others, 0.0))
    certainty = np.clip(certainty, policies.MIN_CERTAINTY, policies.MAX_CERTAINTY)
    familiarity = np.clip(deviations, policies.MIN_FAMILIARITY, policies.MAX_FAMILIARITY)
    return np.stack((familiarity, np.minimum(0.0, familiarity + policies.STRANGE), certainty), axis=1)
