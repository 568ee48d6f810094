"""Choose scorer, selector and their parameters on held-out prompts: the simplest that is not clearly beaten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de.policies import Calibration, Familiarity
from ir3de.scorers import Blend, Posterior, PromptRidge, Scorer, TokenRidge
from ir3de.scorers.blend import token_weight
from ir3de.selectors import AllTokens, Average, EntropyTopK, Selector
from ir3de.statistics.counting import recount
from ir3de.statistics.domain import Statistics
from ir3de.tuning.calibrating import Scored, fit_calibration, fit_familiarity, measure_familiarity
from ir3de.tuning.evidence import Components, Views, score_views
from ir3de.tuning.folds import Fold, make_folds

STRENGTHS = (2.0, 8.0, 32.0)
TOKEN_STRENGTHS = (1e-3, 1e-2, 1e-1)
PRIORS = (0.3, 1.0, 3.0)
POSTERIORS = (0.25, 0.5, 1.0, 2.0)
PAIRS = (0.0, 0.25, 0.5, 1.0)
VOTER_COUNTS = (5, 10, 20, 50)
WINDOWS = (64, 128, 256)  # tokens; tried only where the sample holds every prompt, so that no text is read again
# Held-out prompts come from the same sources as the training prompts. There, counts of words and pairs look better than
# elsewhere (docs/scorers.md). So a candidate must beat the default by two standard errors and by half a point. A
# candidate that relies on counts or pairs must win by a point: both generalise worse, and pairs double routing time.
MIN_LEAD, MIN_LEAD_OF_COUNTS = 0.005, 0.01


@dataclass(frozen=True)
class Trial:
    """One scorer and selector, with its mean accuracy over the experts on held-out prompts, whole and shortened."""

    scorer: Scorer
    selector: Selector
    accuracy: float
    short_accuracy: float
    loss: float  # log loss after calibration
    window: int | None = None  # tokens of the windows of the prompt sums
    chosen: bool = False

    @property
    def score(self) -> float:
        return (self.accuracy + self.short_accuracy) / 2

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "scorer": repr(self.scorer), "selector": repr(self.selector)}


@dataclass(frozen=True)
class ConfidenceModel:
    """What calibration learns from held-out prompts. Empty where there are none."""

    calibration: Calibration | None = None
    familiarity: Familiarity | None = None


@dataclass(frozen=True)
class Choice:
    """What tuning chose, its confidence model, and all trials, best first."""

    scorer: Scorer
    selector: Selector
    domains: tuple[Statistics, ...]  # counted in windows of the chosen size
    confidence: ConfidenceModel
    trials: tuple[Trial, ...]


def calibrate(
    domains: Sequence[Statistics], embedding: Embedding, scorer: Scorer, selector: Selector
) -> ConfidenceModel:
    """Fit the confidence model on held-out prompts. Without a sample of prompts it is empty."""
    if len(domains) < 2:
        return ConfidenceModel()
    return _fit_confidence(make_folds(domains, embedding, cap=selector.cap), scorer, selector)


def choose(domains: Sequence[Statistics], embedding: Embedding, *, cap: int = 1_024, windows: bool = True) -> Choice:
    """Try scorers and selectors on held-out prompts, and choose the most accurate; of equals, the simplest.

    Without `windows`, the prompt sums keep their windows. Contributions need that, so that they can be taken out again.
    """
    if len(domains) < 2:
        raise InputError("tuning needs at least two experts to choose between")
    if bare := sum(domain.sample is None for domain in domains):
        raise InputError(
            f"tuning needs a sample of every expert's prompts, and {bare} of {len(domains)} have none: fit from texts, "
            "or collect with keep_sample=True"
        )
    folds = list(make_folds(domains, embedding, cap=cap))
    if not folds:
        raise InputError("tuning holds prompts out, and no expert has two prompts: give them more texts")
    search = _Search(folds, cap)
    search.run()
    counted = {search.window: tuple(domains)}
    for window in WINDOWS if windows and all(map(_has_all_prompts, domains)) else ():
        if window != search.window:
            counted[window] = tuple(recount(s.sample, embedding, window) for s in domains if s.sample is not None)
            search.run_window(window, list(make_folds(counted[window], embedding, cap=cap)))
    best, trials = search.conclude()
    chosen = counted[best.window]
    confidence = _fit_confidence(make_folds(chosen, embedding, cap=cap), best.scorer, best.selector)
    return Choice(best.scorer, best.selector, chosen, confidence, trials)


def _has_all_prompts(domain: Statistics) -> bool:
    """Whether every prompt is in the sample, so that all can be counted again in other windows."""
    sample = domain.sample
    return (
        domain.sums is not None
        and sample is not None
        and (len(sample) == domain.prompts and int(sample.kept.sum()) == domain.tokens)
        and bool((sample.every == 1).all())  # a subsample would draw other windows in another size
    )


def _fit_confidence(folds: Iterable[Fold], scorer: Scorer, selector: Selector) -> ConfidenceModel:
    """Fit the confidence model, one fold in memory at a time."""
    scored: list[Scored] = []
    familiarities = []
    for fold in folds:
        scored += score_views([fold], scorer, selector)
        familiarities.append(measure_familiarity(fold))
    if not scored:
        return ConfidenceModel()
    return ConfidenceModel(fit_calibration(Scored.concatenate(scored))[0], fit_familiarity(familiarities))


class _Search:
    """Tries one parameter after the other, each with the best values found so far."""

    def __init__(self, folds: Sequence[Fold], cap: int) -> None:
        self._folds = folds
        self._average, self._cap = Average(cap=cap), cap
        self._trials: list[Trial] = []
        self._right: list[npt.NDArray[np.bool_]] = []
        self._weights = np.zeros(0)
        self._default = 0
        sums = folds[0].training[0].sums
        self.window = None if sums is None else sums.window

    def run(self) -> None:
        if all(domain.sums and domain.sums.windows for fold in self._folds for domain in fold.training):
            self._try_prompt_scorers()
        else:
            self._try_token_scorers()

    def _try_token_scorers(self) -> None:
        """Try what needs no prompt sums: only tokens were counted, or too few windows drawn."""
        scorers = [TokenRidge(strength) for strength in TOKEN_STRENGTHS]
        self._default = scorers.index(TokenRidge())
        best = self._try_all([(s, score_views(self._folds, s, self._average)) for s in scorers])
        selectors: list[Selector] = [AllTokens(cap=self._cap), *(EntropyTopK(k, cap=self._cap) for k in VOTER_COUNTS)]
        for selector in selectors:
            self._try(best, selector, score_views(self._folds, best, selector))

    def _try_prompt_scorers(self) -> None:
        parts = Components(self._folds, STRENGTHS, PRIORS)
        ridge = self._try_all([(PromptRidge(s), parts.ridge(s)) for s in STRENGTHS])
        parts.fit_posteriors(ridge.strength)
        posterior = self._try_all([(Posterior(m, strength=ridge.strength), parts.posterior(m)) for m in PRIORS])
        default = replace(Blend(), strength=ridge.strength, prior=posterior.weight)
        self._try(default, self._average, parts.blend(default))
        self._default = len(self._trials) - 1
        others = [replace(default, posterior=p, pairs=q) for q in PAIRS for p in POSTERIORS]
        for blend in others:
            if blend != default:
                self._try(blend, self._average, parts.blend(blend))
        if any(token_weight(fold.training, default.few) for fold in self._folds):
            self._try(TokenRidge(), self._average, parts.token_ridge())
        for k in VOTER_COUNTS:
            selector = EntropyTopK(k, cap=self._cap)
            self._try(posterior, selector, score_views(self._folds, posterior, selector))

    def run_window(self, window: int, folds: Sequence[Fold]) -> None:
        """Try the default blend again, on the same prompts counted in other windows."""
        default = self._trials[self._default].scorer
        self._try(default, self._average, score_views(folds, default, self._average), window)

    def _try_all(self, candidates: Sequence[tuple[Any, Views]]) -> Any:
        """Try all of these: the best by accuracy, then by log loss."""
        trials = [self._try(scorer, self._average, views) for scorer, views in candidates]
        return max(trials, key=lambda trial: (round(trial.score, 4), -trial.loss)).scorer

    def _try(self, scorer: Scorer, selector: Selector, views: Views, window: int | None = None) -> Trial:
        both = Scored.concatenate(views)
        loss = fit_calibration(both)[1]
        trial = Trial(scorer, selector, views[0].accuracy, views[1].accuracy, loss, window or self.window)
        self._trials.append(trial)
        self._right.append(both.evidence.argmax(axis=1) == both.experts)
        self._weights = both.weights
        return trial

    def conclude(self) -> tuple[Trial, tuple[Trial, ...]]:
        """The trial with the largest lead over the default, and all trials, best first."""
        leads = [self._lead(index) for index in range(len(self._trials))]
        chosen = max(range(len(leads)), key=lambda index: (leads[index], index == self._default))
        order = sorted(range(len(leads)), key=lambda index: (-self._trials[index].score, self._trials[index].loss))
        return self._trials[chosen], tuple(replace(self._trials[index], chosen=index == chosen) for index in order)

    def _lead(self, index: int) -> float:
        """The accuracy of a trial minus that of the default, minus the required lead."""
        both = self._right[index].astype(np.float64) - self._right[self._default]
        difference = both.reshape(2, -1).mean(axis=0)  # a prompt, whole and shortened, is one observation
        weights = self._weights.reshape(2, -1).sum(axis=0)
        lead = float(weights @ difference)
        error = float(np.sqrt(weights**2 @ (difference - lead) ** 2))
        return lead - (0.0 if index == self._default else max(2 * error, _required_lead(self._trials[index].scorer)))


def _required_lead(scorer: Scorer) -> float:
    counts = isinstance(scorer, Posterior) or (isinstance(scorer, Blend) and (scorer.pairs or scorer.posterior > 1))
    return MIN_LEAD_OF_COUNTS if counts else MIN_LEAD
