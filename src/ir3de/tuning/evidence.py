"""The evidence for held-out prompts, from fits that did not see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ir3de.scorers import Blend, Posterior, PromptRidge, Scorer, TokenRidge
from ir3de.scorers.blend import scale_to_unit, score_pairs, token_weight
from ir3de.scorers.posterior import balance_counts
from ir3de.scorers.table import Table
from ir3de.selectors import Selector
from ir3de.tuning.calibrating import Scored
from ir3de.tuning.folds import Fold, mean_pair_rows, mean_rows

Floats = npt.NDArray[np.float64]
Views: TypeAlias = "tuple[Scored, Scored]"  # prompts whole, and shortened


def score_views(folds: Sequence[Fold], scorer: Scorer, selector: Selector) -> Views:
    """Fit the scorer on every fold, and gather the selector's evidence for the held-out prompts."""
    views: tuple[list[Scored], list[Scored]] = ([], [])
    for fold in folds:
        table = Table.of(scorer, fold.training, fold.embeddings, log_offset=selector.log_offset)
        ballots = selector.ballots(table)
        pairs, alone = ballots.pairs, replace(ballots, pairs=None)
        for view, held in zip(views, fold.views, strict=True):
            counted = np.minimum(held.lengths, ballots.limit)
            tallies = alone.tallies(held.flat, held.starts)
            if pairs is not None:  # a fold renumbers its tokens, so it has kept the buckets of the original ids
                tallies += mean_pair_rows(pairs, held) * held.lengths[:, None]
            rows = zip(tallies.tolist(), counted.tolist(), strict=True)
            evidence = [selector.evidence(tally, count) for tally, count in rows]
            view.append(Scored(np.array(evidence), counted, held.experts))
    return Scored.concatenate(views[0]), Scored.concatenate(views[1])


class Components:
    """The parts of a blend, each computed once. Every blend of them is then a sum of small arrays."""

    def __init__(self, folds: Sequence[Fold], strengths: Sequence[float], priors: Sequence[float]) -> None:
        self._folds = folds
        self._priors = priors
        self._tokens = [balance_counts([domain.histogram for domain in fold.training]) for fold in folds]
        self._tables = {
            strength: [
                PromptRidge(strength).scores(fold.training, fold.embeddings).astype(np.float32) for fold in folds
            ]
            for strength in strengths
        }
        self._ridge = {strength: self._means(tables) for strength, tables in self._tables.items()}
        self._posterior: dict[float, list[Floats]] = {}
        self._token_ridge: list[Floats] | None = None
        self._pairs = [
            mean_pair_rows(pairs, held)
            for fold in folds
            for pairs in [score_pairs(fold.training).astype(np.float32)]
            for held in fold.views
        ]

    def fit_posteriors(self, strength: float) -> None:
        """Compute the posteriors, with the ridge of this strength as their prior."""
        for prior in self._priors:
            scorer = Posterior(prior, strength=strength)
            parts = zip(self._tokens, self._tables[strength], strict=True)
            self._posterior[prior] = self._means([scorer.score_counts(counts, table) for counts, table in parts])

    def ridge(self, strength: float) -> Views:
        return self._views(self._ridge[strength])

    def posterior(self, prior: float) -> Views:
        return self._views(self._posterior[prior])

    def token_ridge(self) -> Views:
        return self._views(self._token_means())

    def blend(self, scorer: Blend) -> Views:
        """The sum of the parts, with a blend's weights."""
        parts = zip(self._ridge[scorer.strength], self._posterior[scorer.prior], self._pairs, strict=True)
        means = [R + scorer.posterior * P + scorer.pairs * Q for R, P, Q in parts]
        weights = [token_weight(fold.training, scorer.few) for fold in self._folds for _ in fold.views]
        if any(weights):
            means = [S + w * T for S, w, T in zip(means, weights, self._token_means(), strict=True)]
        return self._views(means)

    def _token_means(self) -> list[Floats]:
        if self._token_ridge is None:
            self._token_ridge = self._means([TokenRidge().scores(f.training, f.embeddings) for f in self._folds])
        return self._token_ridge

    def _means(self, tables: Sequence[npt.NDArray[np.floating]]) -> list[Floats]:
        """The prompts' mean scores for each fold and view, from tables scaled to unit size."""
        return [
            mean_rows(unit, held)
            for fold, table, tokens in zip(self._folds, tables, self._tokens, strict=True)
            for unit in [scale_to_unit(table, tokens).astype(np.float32)]
            for held in fold.views
        ]

    def _views(self, evidence: Sequence[Floats]) -> Views:
        held = [view for fold in self._folds for view in fold.views]
        scored = [Scored(part, view.lengths, view.experts) for part, view in zip(evidence, held, strict=True)]
        return Scored.concatenate(scored[0::2]), Scored.concatenate(scored[1::2])
