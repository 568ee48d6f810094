"""The evidence for held-out prompts, from fits that did not see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ir3de.fitting.calibration import Scored, Views
from ir3de.fitting.folds import Fold, HeldOutPrompts, mean_pair_rows, mean_rows
from ir3de.scorers import Blend, Posterior, PromptRidge, Scorer, TokenRidge
from ir3de.scorers.arithmetic import current
from ir3de.scorers.blend import PAIR_PRIOR, BlendParts, balance, log_evidence, weigh_token_ridge
from ir3de.scorers.logistic import CLOSED, Logistic, LogisticParts
from ir3de.scorers.ridge import HeldWindows, add_grams, require_prompt_sums
from ir3de.scorers.sparse import Numbers
from ir3de.scorers.table import Table
from ir3de.selectors import FEW_EXPERTS, Average, Ballots, EntropyTopK, Selector
from ir3de.statistics.compact import unpack_triangle
from ir3de.statistics.domain import PromptSums

ENOUGH_PROMPTS = 1_000  # held out: further folds are not worth the solves of a discriminative fit,
MANY_PROMPTS = 2_000  # nor those of another one
MANY_TOKENS = 64  # per column of the embedding: then a fold's token ridge takes A from all prompts

Floats = npt.NDArray[np.float64]
Evidence: TypeAlias = Floats  # (prompts, C) of a fold's `views`


def score_views(folds: Sequence[Fold], scorer: Scorer, selector: Selector) -> Views:
    """Fit the scorer on every fold, and gather the selector's evidence for the held-out prompts."""
    return score_tables(folds, fit_tables(folds, scorer, selector.log_offset), selector)


def fit_tables(folds: Sequence[Fold], scorer: Scorer, log_offset: float = 0.0) -> list[Table]:
    """The scorer's table on every fold."""
    if isinstance(scorer, Logistic):
        deal = folds[0].deal
        parts = LogisticParts(deal.domains, deal.embedding.rows)
        return [_fit_logistic_table(parts, scorer, fold, log_offset) for fold in folds]
    return [Table.of(scorer, fold.training, fold.embeddings, log_offset=log_offset) for fold in folds]


def fit_logistic_fold(parts: LogisticParts, scorer: Logistic, fold: Fold) -> tuple[Numbers, Numbers | None]:
    """L/|L| of the tokens that occur and of pairs, from a fit without the held-out prompts."""
    fitted = parts.fit_without(scorer, fold.find_held())
    return fitted.score_tokens(parts.blend.rows, parts.places), fitted.score_pairs()


def _fit_logistic_table(parts: LogisticParts, scorer: Logistic, fold: Fold, log_offset: float) -> Table:
    scores, pairs = fit_logistic_fold(parts, scorer, fold)
    if scorer.closed:
        closed = BlendParts(fold.training, fold.embeddings)
        share = np.float32(scorer.closed / (parts.closed_size or 1.0))
        scores += share * CLOSED.combine(closed).astype(np.float32)
    return Table.compile(scores, log_offset=log_offset, pairs=pairs)


def score_tables(folds: Sequence[Fold], tables: Sequence[Table], selector: Selector) -> Views:
    """The selector's evidence for the held-out prompts, from a table for each fold."""
    both = zip(folds, tables, strict=True)
    return Views.join_folds(folds, [score_ballots(fold.views, selector.ballots(own), selector) for fold, own in both])


def score_ballots(held: HeldOutPrompts, ballots: Ballots, selector: Selector) -> Scored:
    """The selector's evidence for held-out prompts."""
    pairs, alone = ballots.pairs, replace(ballots, pairs=None)
    counted = np.minimum(held.lengths, ballots.limit)
    tallies = alone.tallies(held.flat, held.starts)
    if pairs is not None:  # a fold renumbers its tokens, so it has kept the buckets of the original ids
        exact = pairs if pairs.shape[1] > FEW_EXPERTS else pairs.astype(np.float64, copy=False)
        tallies += mean_pair_rows(exact, held) * held.lengths[:, None]
    rows = zip(tallies.tolist(), counted.tolist(), strict=True)
    evidence = [selector.evidence(tally, count) for tally, count in rows]
    return Scored(np.array(evidence), counted, held.experts)


class FoldParts:
    """The evidence of each part of a blend for one fold's held-out prompts.

    A ridge is linear, so its evidence is W · (mean embedding), and no table is needed. Posterior and pairs are computed
    for tokens and pairs of held-out prompts alone. Everything is scaled by the sizes of the fit on all prompts, as in
    the deployed router.
    """

    def __init__(self, fold: Fold, gram: Floats, sums: Floats, whole: BlendParts) -> None:
        self._fold, self._deal, self._gram, self._sums, self._whole = fold, fold.deal, gram, sums, whole
        self._weights: dict[float, Floats] = {}

    def linear(self, strength: float, few: float) -> Evidence:
        """The prompt ridge, and the token ridge with its weight in a blend."""
        W = self._whole.ridge(strength).factor * self._ridge_weights(strength)
        if weight := weigh_token_ridge(self._fold.windows, few):
            W += weight * self._whole.token_ridge.factor * self._token_weights
        return self._apply(W)

    def token_ridge(self) -> Evidence:
        return self._apply(self._whole.token_ridge.factor * self._token_weights)

    def posterior(self, prior: float, strength: float) -> Evidence:
        factor = self._whole.posterior(prior, strength).factor
        table = (self._posterior_scores(prior, strength) * factor).astype(np.float32)
        return mean_rows(table, self._views)

    def pairs(self) -> Evidence:
        places, held, counts = self._whole.pair_places, self._fold.views, self._whole.pair_counts
        buckets, experts = self._deal.kept_pairs(self._fold.held)
        gone = np.bincount(places[buckets] * counts.shape[1] + experts, minlength=counts.size)
        left = counts - gone.reshape(counts.shape)  # to train on
        table = log_evidence(balance(left, left.sum(axis=0)), PAIR_PRIOR)
        table *= self._whole.pairs.factor
        return mean_pair_rows(table, replace(held, buckets=places[held.buckets]))

    def vote(self, prior: float, strength: float, selectors: Sequence[EntropyTopK]) -> list[Scored]:
        """The evidence of selectors that differ in k alone, from the scores of the posterior."""
        table = Table.compile(self._posterior_scores(prior, strength))
        ballots = selectors[0].ballots(table)
        return [score_ballots(self._views, replace(ballots, limit=one.k), one) for one in selectors]

    def _posterior_scores(self, prior: float, strength: float) -> Floats:
        """The posterior's scores of the tokens that occur in held-out prompts."""
        ridge = current().apply(self._ridge_weights(strength), self._deal.rows[self._held_rows])
        return Posterior(prior, strength=strength).score_counts(self._held_counts, ridge)

    def _apply(self, W: Floats) -> Evidence:
        """W · (mean embedding), minus its mean over the experts."""
        weights = (W - W.mean(axis=1, keepdims=True)).astype(np.float32)
        held, unit = self._fold.views, self._deal.embedding.stored.unit
        means = held.sums * (unit / held.lengths[:, None]).astype(np.float32)
        return np.asarray(means @ weights[:-1] + weights[-1], np.float64)

    def _ridge_weights(self, strength: float) -> Floats:
        if strength not in self._weights:
            self._weights[strength] = PromptRidge(strength).solve(*self._ridge_system)
        return self._weights[strength]

    @cached_property
    def _ridge_system(self) -> tuple[Floats, Floats, Floats]:
        """Σ_c w_c Σ x̄x̄ᵀ, w_c Σ x̄ and w without the held-out prompts."""
        w = 1.0 / self._fold.windows
        return self._gram, self._sums * w, w

    @cached_property
    def _token_weights(self) -> Floats:
        """W of the token ridge. A has no labels, so with many tokens it may know those of the held-out prompts."""
        fold, deal = self._fold, self._deal
        w = 1.0 / np.maximum(1.0, fold.tokens)
        A, sums = self._whole.token_system
        held = _sum_groups(deal.take("totals", fold.held), deal.experts[fold.held], len(deal.domains))
        B = sums.copy()
        B[:-1] -= held.T * deal.embedding.stored.unit
        B[-1] = fold.tokens
        if deal.tokens.sum() >= MANY_TOKENS * len(A):
            return self._whole.solve_tokens(B * w)
        A = current().product(deal.rows, np.maximum(fold.count_tokens(w), 0.0)[:, None], targets=False)
        return current().solve(A, B * w, TokenRidge.strength * float(w.sum()))

    @cached_property
    def _held_rows(self) -> npt.NDArray[np.intp]:
        """Which tokens occur in held-out prompts."""
        occurs = np.zeros(len(self._deal.seen), bool)
        occurs[self._fold.held_token_rows[0]] = True
        return np.flatnonzero(occurs)

    @cached_property
    def _held_places(self) -> npt.NDArray[np.intp]:
        """The place of each token among those."""
        places = np.zeros(len(self._deal.seen), np.intp)
        places[self._held_rows] = np.arange(len(self._held_rows))
        return places

    @cached_property
    def _views(self) -> HeldOutPrompts:
        """The held-out prompts, whose rows are those of the tokens that occur in them."""
        return replace(self._fold.views, flat=self._held_places[self._fold.views.flat].astype(np.uint32))

    @cached_property
    def _held_counts(self) -> Floats:
        """How often these tokens occur in what is left to train on, with equal weight per expert: (tokens, C)."""
        deal, C = self._deal, len(self._deal.domains)
        rows, experts = self._fold.held_token_rows
        gone = np.bincount(self._held_places[rows] * C + experts, minlength=len(self._held_rows) * C)
        return balance(deal.counts[self._held_rows] - gone.reshape(-1, C), self._fold.tokens)


class Components:
    """The evidence of blends for the held-out prompts of all folds. Each part is computed once."""

    def __init__(self, folds: Sequence[Fold], whole: BlendParts) -> None:
        self.folds = folds
        deal = folds[0].deal
        sums, w = require_prompt_sums(deal.domains), np.stack([1.0 / fold.windows for fold in folds])
        held, vectors = zip(*(_take_windows(fold, sums) for fold in folds), strict=True)
        grams = (unpack_triangle(triangle, deal.embedding.width) for triangle in add_grams(sums, w, held))
        both = zip(folds, grams, vectors, strict=True)
        self.parts = [FoldParts(fold, gram, left, whole) for fold, gram, left in both]
        self._known: dict[tuple[object, ...], list[Evidence]] = {}

    def score(self, name: str, *parameters: float) -> Views:
        """The evidence of one part: `linear`, `posterior` or `token_ridge`."""
        return self.join(self._evidence(name, *parameters))

    def vote(self, scorer: Posterior, selectors: Sequence[EntropyTopK]) -> list[Views]:
        """The evidence of selectors that differ in k alone."""
        found = [part.vote(scorer.weight, scorer.strength, selectors) for part in self.parts]
        return [Views.join_folds(self.folds, scored) for scored in zip(*found, strict=True)]

    def blend(self, scorer: Blend) -> Views:
        return self.join(self.score_blend(scorer))

    def score_blend(self, scorer: Blend) -> list[Evidence]:
        """The sum of the parts, with a blend's weights, for each fold."""
        found = [S.copy() for S in self._evidence("linear", scorer.strength, scorer.few)]
        parts = [(scorer.posterior, self._evidence("posterior", scorer.prior, scorer.strength))]
        if scorer.pairs:
            parts.append((scorer.pairs, self._evidence("pairs")))
        for weight, part in parts:
            for S, P in zip(found, part, strict=True):
                S += weight * P
        return found

    def uses_token_ridge(self, few: float) -> bool:
        """Whether the token ridge has any weight in a blend."""
        return any(weigh_token_ridge(fold.windows, few) for fold in self.folds)

    def _evidence(self, name: str, *parameters: float) -> list[Evidence]:
        key = (name, *parameters)
        if key not in self._known:
            self._known[key] = [getattr(part, name)(*parameters) for part in self.parts]
        return self._known[key]

    def join(self, evidence: Sequence[Evidence]) -> Views:
        """The evidence for the held-out prompts of all folds."""
        both = zip(evidence, self.folds, strict=True)
        return Views.join_folds(self.folds, [Scored(S, fold.views.lengths, fold.views.experts) for S, fold in both])


class Comparison:
    """The evidence of the closed form and of discriminative fits for the held-out prompts of some folds."""

    def __init__(self, parts: LogisticParts, folds: Sequence[Fold]) -> None:
        self.parts, self.folds = parts, folds
        self.components = Components(folds, parts.blend)
        self.usual = Logistic.for_prompts(parts.domains)
        self._closed = self.components.score_blend(Blend())
        self._logistic: dict[Logistic, list[Evidence]] = {}

    def score(self, scorer: Scorer, selector: Selector | None = None) -> Views:
        """The evidence of any scorer. That of a `Logistic` is L/|L| + closed · B/|B|, and L is fitted once."""
        if isinstance(scorer, Blend):
            return self.components.blend(scorer)
        if not isinstance(scorer, Logistic):
            return score_views(self.folds, scorer, selector or Average())
        alone = replace(scorer, closed=0.0)
        if alone not in self._logistic:
            self._logistic[alone] = [_score_logistic(self.parts, alone, fold) for fold in self.folds]
        share = scorer.closed / (self.parts.closed_size or 1.0)
        both = zip(self._closed, self._logistic[alone], strict=True)
        return self.components.join([L + share * B for B, L in both])


def _score_logistic(parts: LogisticParts, scorer: Logistic, fold: Fold) -> Evidence:
    """The evidence of a discriminative fit without the held-out prompts for them."""
    table, pairs = fit_logistic_fold(parts, scorer, fold)
    found = mean_rows(table, fold.views)
    return found if pairs is None else found + mean_pair_rows(pairs, fold.views)


def _take_windows(fold: Fold, sums: Sequence[PromptSums]) -> tuple[HeldWindows, Floats]:
    """The windows of held-out prompts, and Σ x̄ of each expert without them: (h, C)."""
    deal = fold.deal
    held = fold.held[deal.window_prompts]
    prompts, times = deal.window_prompts[held], deal.join("window_times")[held]
    experts, units = deal.experts[prompts], np.array([own.unit for own in sums])
    X = deal.take("windows", held) * units[experts, None]
    left = np.stack([own.unit * own.vector for own in sums], axis=1)
    left -= _sum_groups(X * times[:, None], experts, len(sums)).T
    X *= np.sqrt(times / fold.windows[experts])[:, None]
    return HeldWindows(X, experts, deal.join("sample.hashes")[prompts]), left


def take_enough(folds: Sequence[Fold], enough: int = ENOUGH_PROMPTS) -> list[Fold]:
    """The first folds, until enough prompts are held out."""
    before = np.cumsum([0, *(int(fold.held.sum()) for fold in folds)])
    return [fold for fold, held in zip(folds, before, strict=False) if held < enough]


def _sum_groups(rows: npt.NDArray[np.floating], groups: npt.NDArray[np.int64], count: int) -> Floats:
    """The sum of the rows of each group. Groups lie one after the other, and some may be empty."""
    sizes = np.bincount(groups, minlength=count)
    found, some = np.zeros((count, rows.shape[1])), np.flatnonzero(sizes)
    if some.size:
        starts = (np.cumsum(sizes) - sizes)[some]
        found[some] = np.add.reduceat(rows, starts, axis=0, dtype=np.float64)
    return found
