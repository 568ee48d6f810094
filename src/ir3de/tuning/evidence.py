"""The evidence that fits without them give to held-out prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ir3de.scorers import Blend, Posterior, PromptRidge, Scorer, TokenRidge
from ir3de.scorers.blend import token_weight, unit_pairs, unit_size
from ir3de.scorers.posterior import balanced
from ir3de.scorers.table import Table
from ir3de.selectors import Selector
from ir3de.tuning.calibrating import Scored
from ir3de.tuning.folds import Fold, Held, mean_pair_rows, mean_rows

Floats = npt.NDArray[np.float64]
Views: TypeAlias = "tuple[Scored, Scored]"  # prompts whole, and cut short


def score_views(folds: Sequence[Fold], scorer: Scorer, selector: Selector) -> Views:
    """What a selector makes of a scorer's table, fold by fold."""
    views: tuple[list[Scored], list[Scored]] = ([], [])
    for fold in folds:
        table = Table.of(scorer, fold.training, fold.embeddings, log_offset=selector.log_offset)
        ballots = selector.ballots(table)
        pairs, alone = ballots.pairs, replace(ballots, pairs=None)
        for view, held in zip(views, fold.views, strict=True):
            counted = np.minimum(held.lengths, ballots.most)
            tallies = alone.tallies(held.flat, held.starts)
            if pairs is not None:  # a fold numbers its tokens in its own way, and so it brings its buckets along
                tallies += mean_pair_rows(pairs, held) * held.lengths[:, None]
            rows = zip(tallies.tolist(), counted.tolist(), strict=True)
            evidence = [selector.evidence(tally, count) for tally, count in rows]
            view.append(Scored(np.array(evidence), counted, held.experts))
    return Scored.together(views[0]), Scored.together(views[1])


class Components:
    """The parts of a blend, each worked out once: every blend of them is then a sum of small arrays."""

    def __init__(self, folds: Sequence[Fold], strengths: Sequence[float], priors: Sequence[float]) -> None:
        self._folds = folds
        self._priors = priors
        self._tokens = [balanced([domain.histogram for domain in fold.training]) for fold in folds]
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
            for pairs in [unit_pairs(fold.training).astype(np.float32)]
            for held in fold.views
        ]

    def settle(self, strength: float) -> None:
        """Work out the posteriors, with the ridge of this strength as their prior."""
        tables = self._tables[strength]
        for prior in self._priors:
            scorer = Posterior(prior, strength=strength)
            given = [scorer.given(counts, table) for counts, table in zip(self._tokens, tables, strict=True)]
            self._posterior[prior] = self._means(given)

    def ridge(self, strength: float) -> Views:
        return self._views(self._ridge[strength])

    def posterior(self, prior: float) -> Views:
        return self._views(self._posterior[prior])

    def token_ridge(self) -> Views:
        return self._views(self._token_means())

    def blend(self, scorer: Blend) -> Views:
        """The parts in a blend's proportions."""
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
        """Of each fold and view the prompts' mean scores, scores of unit size."""
        return [
            mean_rows(unit, held)
            for fold, table, tokens in zip(self._folds, tables, self._tokens, strict=True)
            for unit in [unit_size(table, tokens).astype(np.float32)]
            for held in fold.views
        ]

    def _views(self, evidence: Sequence[Floats]) -> Views:
        held: list[Held] = [view for fold in self._folds for view in fold.views]
        scored = [Scored(part, view.lengths, view.experts) for part, view in zip(evidence, held, strict=True)]
        return Scored.together(scored[0::2]), Scored.together(scored[1::2])
