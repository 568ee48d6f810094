"""Examples of known and unknown prompts, from what a router has at hand.

Each expert in turn is left out: the others are fitted without it, and its prompts are unknown. Statistics are sums, so
such a fit is nearly free. The background's prompts are another kind of unknown ones: they are far from every domain.
Known prompts are also shown as other people write them: from a group of prompts that was held out whole, and with
phrases around them that say nothing. So what is learnt holds for prompts of other sources, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ir3de import policies
from ir3de.defaults import DEFAULT_CAP
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
    MAX_CENTROIDS,
    find_centre,
    find_centroids,
    join_subjects,
    standardise,
)
from ir3de.policies import Calibration
from ir3de.scorers.blend import Blend, BlendParts
from ir3de.scorers.subjects import Subjects, find_directions
from ir3de.scorers.table import FAMILIARITY_UNIT
from ir3de.statistics.counting import recount
from ir3de.statistics.domain import Statistics

KNOWN_PROMPTS = 1_500  # of all experts together, half of them held out;
NEIGHBOURS = 3_000  # more where subjects are known, a quarter of them held out: the others are compared with
MIN_PROMPTS = 6  # of an expert
BACKGROUND_PROMPTS, BACKGROUND_NEIGHBOURS = 600, 1_200  # without and with subjects
MAX_GROUPS = 5  # of experts that are left out together: with more experts, several play the unknown at once
MIN_LEFT = 2  # experts that remain when others are left out: one alone is always certain
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
) -> Iterator[Examples]:
    """A set of examples for each group of experts that is left out."""
    if background is None or len(domains) < MIN_LEFT or any(own.sums is None or own.sample is None for own in domains):
        return
    known, others, parts = KNOWN_PROMPTS, BACKGROUND_PROMPTS, 2
    if embedding.subjects is not None:
        known, others, parts = NEIGHBOURS, BACKGROUND_NEIGHBOURS, 4
    each = max(MIN_PROMPTS, known // len(domains))
    few = [*(_keep_few(domain, each) for domain in domains), _keep_few(background, others)]
    deal = Deal(few, embedding, DEFAULT_CAP)
    if not deal.count:
        return
    held = Fold(deal, deal.place % parts == 0)
    group = _hold_out_group(few, embedding) if embedding.subjects is not None else held
    for left_out in _group(len(domains)):
        experts = np.setdiff1d(np.arange(len(domains)), left_out)
        if (made := _make_examples(held, group, experts)) is not None:
            yield made


def _keep_few(domain: Statistics, prompts: int) -> Statistics:
    assert domain.sample is not None
    return replace(domain, sample=domain.sample.take(np.arange(min(prompts, len(domain.sample)))))


def _hold_out_group(domains: Sequence[Statistics], embedding: Embedding) -> Fold:
    """A group of each expert's prompts held out whole. Only prompts that are kept can be, so only those are counted."""
    kept = []
    for own in domains[:-1]:
        assert own.sample is not None and own.sums is not None
        kept.append(replace(recount(own.sample, embedding, own.sums.window), sample=own.sample))
    deal = Deal([*kept, domains[-1]], embedding, DEFAULT_CAP)
    return Fold(deal, hold_out_groups(deal)[0] & (deal.experts < len(kept)))


def _group(experts: int) -> list[Indices]:
    """The experts that are left out together; none where too few would remain."""
    if experts <= MIN_LEFT:
        return [np.zeros(0, np.int64)]
    groups = min(experts, MAX_GROUPS)
    return [np.arange(first, experts, groups) for first in range(groups)]


class _Fit:
    """A fit of some experts without a fold's held-out prompts, and its view of those."""

    def __init__(self, fold: Fold, experts: Indices) -> None:
        self.fold, self.experts, self.background = fold, experts, len(fold.deal.domains) - 1
        alone = np.zeros(len(fold.deal.domains))
        alone[self.background] = 1.0
        column = fold.score_familiarity(fold.count_tokens(alone), float(fold.tokens[self.background]), experts)
        self.scores = SCORER.combine(BlendParts([fold.training[c] for c in experts], fold.embeddings))
        self.column = column.astype(np.float64) / FAMILIARITY_UNIT
        rows = fold.deal.subjects
        self.rows = np.zeros((len(column), 0), np.float32) if rows is None else rows

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

    def gather_subjects(self) -> Subjects | None:
        """What the prompts that are not held out are about."""
        if not self.rows.shape[1]:
            return None
        deal = self.fold.deal
        directions, left = find_directions(mean_rows(self.rows, deal.whole), find_centre(deal)), ~self.fold.held
        own = [directions[left & (deal.experts == c)] for c in self.experts]
        background = find_centroids(directions[left & (deal.experts == self.background)], BACKGROUND_CENTROIDS)
        each = max(1, min(EXPERT_CENTROIDS, MAX_CENTROIDS // len(own)))
        return join_subjects(find_centre(deal), own, background, each) if len(background) else None


def _make_examples(fold: Fold, group: Fold, experts: Indices) -> Examples | None:
    """The features of every held-out prompt, from fits of these experts alone."""
    fit = _Fit(fold, experts)
    whole, short = fit.view(fold.whole), fit.view(fold.short)
    is_known = np.isin(fold.whole.experts, experts)
    if is_known.all() or not is_known.any():
        return None
    labels = np.searchsorted(experts, fold.whole.experts[is_known])
    known = [view.select(is_known) for view in (whole, short)]
    scored = [Scored(view.evidence, view.measured.tokens, labels) for view in known]
    calibration, _ = fit_calibration(Scored.concatenate(scored))
    familiarity = fit_familiarity([(known[0].measured, known[1].measured)])
    weight = 0.0 if fold.deal.embedding.is_multilingual else 1.0
    subjects = fit.gather_subjects()
    if subjects is not None:
        cosines = subjects.compare(known[0].rows, known[0].evidence.argmax(axis=1))
        subjects = standardise(subjects, cosines)

    def describe(view: View, about: Subjects | None) -> Floats:
        deviations = find_deviations(familiarity, view.measured) * weight
        return find_features(view.evidence, view.measured.tokens, calibration, deviations, about, view.rows)

    weights = _weigh(fold.whole, is_known, fit.background, KNOWN_SHARE if subjects is not None else 0.5) / 2
    parts = [(describe(view, subjects), is_known, weights, USUAL) for view in (whole, short)]
    if subjects is not None:  # by words alone, an unusual prompt looks like one about something else
        parts.append((*_share(describe(fit.view_wordy(known[0]), subjects), WORDY_SHARE), WORDY_KIND))
        other, others = _Fit(group, experts), np.isin(group.whole.experts, experts)
        if others.any() and (about := other.gather_subjects()) is not None:
            about = replace(about, means=subjects.means, spreads=subjects.spreads)
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
