"""Which scorer, with which parameters: measured on held-out prompts, the simplest that is not beaten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.embeddings import Embedding
from ir3de.errors import InputError
from ir3de.policies import Calibration, Familiarity
from ir3de.scorers import Blend, Posterior, PromptRidge, Scorer
from ir3de.selectors import Average, EntropyTopK, Selector
from ir3de.statistics import Statistics
from ir3de.tuning.calibrating import Scored, fit_calibration, fit_familiarity
from ir3de.tuning.evidence import Components, Views, score_views
from ir3de.tuning.folds import Fold, folds_of

STRENGTHS = (2.0, 8.0, 32.0)
PRIORS = (0.3, 1.0, 3.0)
# To a ridge of 1, and at most half of it: held-out prompts come from the sources of the training prompts, where
# counts of words and pairs look better than they are elsewhere. docs/scorers.md has the figures.
POSTERIORS = (0.0, 0.25, 0.5)
PAIRS = (0.0, 0.25, 0.5)
VOTERS = (5, 10, 20, 50)
SLACK = 1.05  # a simpler scorer may lose this much in log loss


@dataclass(frozen=True)
class Trial:
    """One scorer and selector tried: mean accuracy over the experts on held-out prompts, whole and cut short."""

    scorer: Scorer
    selector: Selector
    accuracy: float
    short_accuracy: float
    loss: float  # log loss after calibration
    chosen: bool = False

    @property
    def score(self) -> float:
        return (self.accuracy + self.short_accuracy) / 2

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "scorer": repr(self.scorer), "selector": repr(self.selector)}


@dataclass(frozen=True)
class Reading:
    """How the evidence of a fit is to be read: what calibration finds."""

    calibration: Calibration | None = None
    familiarity: Familiarity | None = None


@dataclass(frozen=True)
class Choice:
    """What tuning chose, how to read it, and everything it tried, best first."""

    scorer: Scorer
    selector: Selector
    reading: Reading
    trials: tuple[Trial, ...]


def calibrate(domains: Sequence[Statistics], embedding: Embedding, scorer: Scorer, selector: Selector) -> Reading:
    """Learn from held-out prompts how sure the router may be; without a sample of prompts, nothing."""
    folds = folds_of(domains, embedding) if len(domains) > 1 else []
    if not folds:
        return Reading()
    return _reading(score_views(folds, embedding.matrix, scorer, selector), folds, embedding)


def choose(domains: Sequence[Statistics], embedding: Embedding, *, cap: int = 1_024) -> Choice:
    """Try scorers and selectors on held-out prompts and choose: accuracy first, and of equals the simplest."""
    if len(domains) < 2:
        raise InputError("tuning needs at least two experts to choose between")
    folds = folds_of(domains, embedding)
    if not folds:
        raise InputError(
            "tuning needs a sample of the prompts, and there is none: fit from texts, or collect with keep_sample=True"
        )
    search = _Search(folds, embedding, cap)
    search.run()
    best, trials = search.outcome()
    views = score_views(folds, embedding.matrix, best.scorer, best.selector)
    return Choice(best.scorer, best.selector, _reading(views, folds, embedding), trials)


def _reading(views: Views, folds: Sequence[Fold], embedding: Embedding) -> Reading:
    unknown = embedding.tokenizer.unknown_id
    return Reading(fit_calibration(Scored.together(views))[0], fit_familiarity(folds, unknown))


class _Search:
    """Tries one thing after the other, each with the best found before it."""

    def __init__(self, folds: Sequence[Fold], embedding: Embedding, cap: int) -> None:
        self._folds = folds
        self._matrix = embedding.matrix
        self._average, self._cap = Average(cap=cap), cap
        self._trials: list[Trial] = []
        self._right: list[npt.NDArray[np.bool_]] = []
        self._weights = np.zeros(0)

    def run(self) -> None:
        parts = Components(self._folds, self._matrix, STRENGTHS, PRIORS)
        ridge = self._best([(PromptRidge(s), parts.ridge(s)) for s in STRENGTHS])
        parts.settle(ridge.strength)
        posterior = self._best([(Posterior(m, strength=ridge.strength), parts.posterior(m)) for m in PRIORS])
        common = {"strength": ridge.strength, "prior": posterior.weight}
        self._best(
            [
                (Blend(1.0, p, q, **common), parts.blend(ridge.strength, posterior.weight, (1.0, p, q)))
                for p in POSTERIORS
                for q in PAIRS
                if p or q
            ]
        )
        for k in VOTERS:
            selector = EntropyTopK(k, cap=self._cap)
            self._try(posterior, selector, score_views(self._folds, self._matrix, posterior, selector))

    def _best(self, candidates: Sequence[tuple[Any, Views]]) -> Any:
        """The best of these by accuracy, then by log loss."""
        trials = [self._try(scorer, self._average, views) for scorer, views in candidates]
        return max(trials, key=lambda trial: (round(trial.score, 4), -trial.loss)).scorer

    def _try(self, scorer: Scorer, selector: Selector, views: Views) -> Trial:
        both = Scored.together(views)
        trial = Trial(scorer, selector, views[0].accuracy, views[1].accuracy, fit_calibration(both)[1])
        self._trials.append(trial)
        self._right.append(both.evidence.argmax(axis=1) == both.experts)
        self._weights = both.weights
        return trial

    def outcome(self) -> tuple[Trial, tuple[Trial, ...]]:
        """The simplest trial that the best does not beat by a standard error of their difference, and all of them."""
        order = sorted(range(len(self._trials)), key=lambda i: (-self._trials[i].score, self._trials[i].loss))
        best = order[0]
        chosen = next(i for i in sorted(order, key=self._complexity) if i == best or self._as_good(i, best))
        trials = tuple(replace(self._trials[i], chosen=i == chosen) for i in order)
        return self._trials[chosen], trials

    def _as_good(self, simple: int, best: int) -> bool:
        difference = self._right[best].astype(np.float64) - self._right[simple]
        lead = float(self._weights @ difference)
        error = float(np.sqrt(self._weights**2 @ (difference - lead) ** 2))
        return lead <= error and self._trials[simple].loss <= SLACK * self._trials[best].loss

    def _complexity(self, index: int) -> tuple[int, float, float]:
        """Ridge before blends, blends before those with pairs, then all else; within a kind the better first."""
        trial = self._trials[index]
        scorer, kind = trial.scorer, 3
        if isinstance(scorer, PromptRidge):
            kind = 0
        elif isinstance(scorer, Blend):
            kind = 2 if scorer.pairs else 1
        return kind, -round(trial.score, 4), trial.loss
