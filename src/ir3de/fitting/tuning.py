"""Choose scorer, selector and their parameters on held-out prompts: the simplest that is not clearly beaten."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de.fitting.calibration import (
    Floats,
    HeldOut,
    Views,
    fit_calibration,
    fit_familiarity,
    limit_calibration,
    measure_familiarity,
)
from ir3de.fitting.evidence import (
    ENOUGH_PROMPTS,
    MANY_PROMPTS,
    Comparison,
    Components,
    fit_tables,
    score_tables,
    score_views,
    take_enough,
)
from ir3de.fitting.folds import Fold, make_folds
from ir3de.fitting.membership import fit_membership
from ir3de.policies import Calibration, Familiarity, Membership
from ir3de.scorers import Blend, Posterior, PromptRidge, Scorer, TokenRidge
from ir3de.scorers.arithmetic import TRIALS, steps
from ir3de.scorers.blend import BlendParts
from ir3de.scorers.logistic import Logistic, LogisticParts
from ir3de.selectors import AllTokens, Average, EntropyTopK, Selector
from ir3de.statistics.counting import recount, split_windows
from ir3de.statistics.defaults import DEFAULT_CAP, PROMPT_STRENGTH
from ir3de.statistics.domain import Statistics
from ir3de.statistics.sample import FULL_TRUST, TAUGHT

STRENGTHS = (PROMPT_STRENGTH / 4, PROMPT_STRENGTH, 4 * PROMPT_STRENGTH)
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
MOST_PROMPT_TRIALS = 1 + sum(map(len, (STRENGTHS, PRIORS, POSTERIORS, PAIRS, PAIRS, VOTER_COUNTS))) - 2

Parts: TypeAlias = "BlendParts | LogisticParts | None"


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
    lead: float = 0.0  # of its accuracy over that of the default
    lead_error: float = 0.0  # one standard error of the lead
    required_lead: float = 0.0  # to be chosen instead of the default; 0 for the default itself
    hard_accuracy: float | None = None  # on prompts whose sources or clusters were held out whole
    hard_groups: str | None = None  # "sources" or "clusters"

    @classmethod
    def measure(cls, scorer: Scorer, selector: Selector, views: Views, weights: Floats | None = None) -> Trial:
        """Measure the evidence of a scorer and selector, with a weight per prompt."""
        whole, short = (float((views.weights if weights is None else weights) @ right) for right in views.right)
        return cls(scorer, selector, whole, short, fit_calibration(views.scored)[1])

    def with_lead(self, difference: Floats, weights: Floats, needed: float | None) -> Trial:
        """The trial with its lead over the default, from the difference on each prompt, and the lead that it needs."""
        lead = float(weights @ difference)
        error = float(np.sqrt(weights**2 @ (difference - lead) ** 2))
        return replace(
            self, lead=lead, lead_error=error, required_lead=0.0 if needed is None else max(2 * error, needed)
        )

    @property
    def score(self) -> float:
        return (self.accuracy + self.short_accuracy) / 2

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "scorer": repr(self.scorer), "selector": repr(self.selector)}


@dataclass(frozen=True)
class ConfidenceModel:
    """What is learnt from held-out prompts."""

    calibration: Calibration
    familiarity: Familiarity | None  # None for multilingual embeddings
    membership: Membership | None  # None without a background
    held_out: HeldOut = field(compare=False)  # what it was learnt from


@dataclass(frozen=True)
class Choice:
    """What tuning chose, its confidence model, and all trials, best first."""

    scorer: Scorer
    selector: Selector
    domains: tuple[Statistics, ...]  # counted in windows of the chosen size
    confidence: ConfidenceModel
    trials: tuple[Trial, ...]
    parts: Parts = None  # of the chosen scorer, where they are known


@dataclass(frozen=True)
class ConfidenceSetting:
    """A scorer and selector whose confidence is learnt on held-out prompts of these domains."""

    domains: Sequence[Statistics]
    embedding: Embedding
    scorer: Scorer
    selector: Selector
    background: Statistics | None = None

    def calibrate(self, parts: Parts = None) -> Callable[[], ConfidenceModel] | None:
        """A function that fits the confidence model; None where no sample of prompts was kept.

        The prompts are prepared and checked at once. `parts` are those of the scorer for these domains, if known.
        """
        folds = self.hold_out()
        return (lambda: fit_confidence(folds, self._score(folds, parts))) if folds else None

    def score_again(self) -> HeldOut | None:
        """The held-out prompts from which the confidence was learnt; None where none can be held out."""
        if not (folds := self.hold_out()):
            return None
        return HeldOut.gather(folds, self._score(folds), [measure_familiarity(fold) for fold in folds])

    def hold_out(self) -> list[Fold]:
        domains, embedding, cap = self.domains, self.embedding, self.selector.cap
        folds = make_folds(domains, embedding, self.background, cap=cap) if len(domains) > 1 else []
        return take_enough(folds, ENOUGH_PROMPTS if isinstance(self.scorer, Logistic) else MANY_PROMPTS)

    def _score(self, folds: Sequence[Fold], parts: Parts = None) -> Views:
        """The evidence of a blend and of a discriminative fit from parts, of others from tables."""
        scorer, rows = self.scorer, self.embedding.rows
        if type(self.selector) is Average and isinstance(scorer, Blend):
            known = parts if isinstance(parts, BlendParts) else BlendParts(self.domains, rows)
            return Components(folds, known).blend(scorer)
        if type(self.selector) is Average and isinstance(scorer, Logistic):
            fitted = parts if isinstance(parts, LogisticParts) else LogisticParts(self.domains, rows)
            return Comparison(fitted, folds).score(scorer)
        return score_views(folds, scorer, self.selector)


def choose(
    domains: Sequence[Statistics],
    embedding: Embedding,
    *,
    cap: int = DEFAULT_CAP,
    windows: bool = True,
    background: Statistics | None = None,
) -> Choice:
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
    folds = make_folds(domains, embedding, background, cap=cap)
    if not folds:
        raise InputError("tuning holds prompts out, and no expert has two prompts: give them more texts")
    search = _Search(folds, cap)
    others = _list_windows(domains) if windows else []
    with steps(TRIALS, search.most + len(others)) as search.advance:
        search.run()
        counted = {search.window: tuple(domains)}
        for window in others if search.parts is not None else ():
            counted[window] = tuple(recount(s.sample, embedding, window) for s in domains if s.sample is not None)
            search.run_window(window, make_folds(counted[window], embedding, background, cap=cap))
        best, trials = search.conclude()
        confidence, parts = search.fit_confidence(best)
    return Choice(best.scorer, best.selector, counted[best.window], confidence, trials, parts)


def _list_windows(domains: Sequence[Statistics]) -> list[int]:
    """The sizes of windows to try: others than those counted, where every prompt is kept and they cut any of them."""
    if not all(map(_has_all_prompts, domains)):
        return []
    known = {domain.sums.window for domain in domains if domain.sums is not None}
    longest = max(int(domain.sample.lengths.max(initial=0)) for domain in domains if domain.sample is not None)
    none = np.zeros(1, np.int64)

    def count(window: int) -> int:
        return len(split_windows(none, none + longest, window)[0])

    return [window for window in WINDOWS if window not in known and any(count(window) != count(one) for one in known)]


def recount_all(domain: Statistics, embedding: Embedding, window: int) -> Statistics:
    """The domain counted in windows of that size; as it is where not every prompt is kept."""
    return recount(domain.sample, embedding, window) if domain.sample and _has_all_prompts(domain) else domain


def find_windows(counted: Mapping[str, Statistics], owned: Mapping[str, Statistics]) -> dict[str, int]:
    """The windows in which experts were counted that are now counted in others."""
    sums = {name: own.sums for name, own in counted.items()}
    return {name: own.window for name, own in sums.items() if own is not None and own != owned[name].sums}


def _has_all_prompts(domain: Statistics) -> bool:
    """Whether every prompt is in the sample, so that all can be counted again in other windows."""
    if domain.sums is None or (sample := domain.sample) is None or (sample.every != 1).any():
        return False  # a subsample would draw other windows in another size
    return len(sample) == domain.prompts and int(sample.kept.sum()) == domain.tokens


def fit_confidence(folds: Sequence[Fold], views: Views) -> ConfidenceModel:
    """The confidence model, from the evidence for the folds' held-out prompts."""
    calibration, _ = fit_calibration(views.scored)
    calibration = replace(calibration, scale=calibration.scale * find_trust(folds[0].deal.domains))
    measured = [measure_familiarity(fold) for fold in folds]
    familiarity = None if folds[0].deal.embedding.is_multilingual else fit_familiarity(measured)
    membership = fit_membership(folds, views, calibration, familiarity, measured)
    held_out = HeldOut.gather(folds, views, measured)
    return ConfidenceModel(limit_calibration(calibration, folds[0].deal.domains), familiarity, membership, held_out)


def find_trust(domains: Sequence[Statistics]) -> float:
    """What the scale of a calibration is multiplied by: 1 without a teacher, else the mean trust in its labels."""
    sources = [own.sample.sources[own.sample.is_taught] for own in domains if own.sample is not None]
    taught = np.concatenate([np.zeros(0, np.uint32), *sources]).astype(np.int64)
    return float((taught - TAUGHT).sum()) / (FULL_TRUST * len(taught)) if len(taught) else 1.0


class _Search:
    """Tries one parameter after the other, each with the best values found so far."""

    def __init__(self, folds: Sequence[Fold], cap: int) -> None:
        self._folds = folds
        self._average, self._cap = Average(cap=cap), cap
        self._trials: list[Trial] = []
        self._right: list[Floats] = []
        self._weights = np.zeros(0)
        self._default = 0
        self._components: dict[int | None, tuple[Components, BlendParts, Sequence[Fold]]] = {}
        self.advance: Callable[[int], None] = lambda more: None
        sums = folds[0].deal.domains[0].sums
        self.window = None if sums is None else sums.window
        # Prompt scorers need a window of every expert in every fold.
        self.parts = self._prepare(folds, self.window) if (folds[0].deal.windows > 0).all() else None
        self.most = MOST_PROMPT_TRIALS if self.parts else len(TOKEN_STRENGTHS) + 1 + len(VOTER_COUNTS)

    def _prepare(self, folds: Sequence[Fold], window: int | None) -> Components:
        whole = BlendParts(folds[0].deal.domains, folds[0].deal.embedding.rows)
        self._components[window] = (Components(folds, whole), whole, folds)
        return self._components[window][0]

    def run(self) -> None:
        if self.parts is None:
            self._try_token_scorers()
        else:
            self._try_prompt_scorers(self.parts)

    def _try_token_scorers(self) -> None:
        """Try what needs no prompt sums: only tokens were counted, or too few windows drawn."""
        scorers = [TokenRidge(strength) for strength in TOKEN_STRENGTHS]
        self._default = scorers.index(TokenRidge())
        tables = {scorer: fit_tables(self._folds, scorer) for scorer in scorers}
        best = self._try_all([(s, score_tables(self._folds, own, self._average)) for s, own in tables.items()])
        selectors: list[Selector] = [AllTokens(cap=self._cap), *(EntropyTopK(k, cap=self._cap) for k in VOTER_COUNTS)]
        for selector in selectors:
            self._try(best, selector, score_tables(self._folds, tables[best], selector))

    def _try_prompt_scorers(self, parts: Components) -> None:
        ridge = self._try_all([(PromptRidge(s), parts.score("linear", s, 0.0)) for s in STRENGTHS])
        posteriors = [Posterior(m, strength=ridge.strength) for m in PRIORS]
        posterior = self._try_all([(p, parts.score("posterior", p.weight, p.strength)) for p in posteriors])
        default = replace(Blend(), strength=ridge.strength, prior=posterior.weight)
        self._try(default, self._average, parts.blend(default))
        self._default = len(self._trials) - 1
        best = self._try_blends(parts, [replace(default, posterior=p) for p in POSTERIORS], default)
        for blend in dict.fromkeys((default, best)):  # pairs with the usual posterior, and with the best
            self._try_blends(parts, [replace(blend, pairs=q) for q in PAIRS], blend)
        if parts.uses_token_ridge(default.few):
            self._try(TokenRidge(), self._average, parts.score("token_ridge"))
        voters = [EntropyTopK(k, cap=self._cap) for k in VOTER_COUNTS]
        for selector, views in zip(voters, parts.vote(posterior, voters), strict=True):
            self._try(posterior, selector, views)

    def _try_blends(self, parts: Components, blends: Sequence[Blend], known: Blend) -> Blend:
        """Try these blends. The best of them and the one that is known already, by accuracy, then by log loss."""
        tried = [self._try(one, self._average, parts.blend(one)) for one in blends if one != known]
        before = [trial for trial in self._trials if trial.scorer == known]
        best: Blend = _find_best([*before, *tried]).scorer  # type: ignore[assignment]
        return best

    def run_window(self, window: int, folds: Sequence[Fold]) -> None:
        """Try the default blend again, on the same prompts counted in other windows."""
        default = self._trials[self._default].scorer
        assert isinstance(default, Blend)
        self._try(default, self._average, self._prepare(folds, window).blend(default), window)

    def _try_all(self, candidates: Sequence[tuple[Any, Views]]) -> Any:
        """Try all of these: the best by accuracy, then by log loss."""
        return _find_best([self._try(scorer, self._average, views) for scorer, views in candidates]).scorer

    def _try(self, scorer: Scorer, selector: Selector, views: Views, window: int | None = None) -> Trial:
        self._weights = views.weights
        trial = replace(Trial.measure(scorer, selector, views), window=window or self.window)
        self._trials.append(trial)
        self._right.append(views.correctness)
        self.advance(1)
        return trial

    def conclude(self) -> tuple[Trial, tuple[Trial, ...]]:
        """The trial with the largest lead over the default, and all trials, best first."""
        trials = [self._measure_lead(index) for index in range(len(self._trials))]
        surplus = [trial.lead - trial.required_lead for trial in trials]
        chosen = max(range(len(trials)), key=lambda index: (surplus[index], index == self._default))
        order = sorted(range(len(trials)), key=lambda index: (-trials[index].score, trials[index].loss))
        return trials[chosen], tuple(replace(trials[index], chosen=index == chosen) for index in order)

    def _measure_lead(self, index: int) -> Trial:
        trial, difference = self._trials[index], self._right[index] - self._right[self._default]
        required = None if index == self._default else _required_lead(trial.scorer)
        return trial.with_lead(difference, self._weights, required)

    def fit_confidence(self, best: Trial) -> tuple[ConfidenceModel, BlendParts | None]:
        """The confidence model of the chosen trial, and its parts if it is a blend."""
        if not isinstance(best.scorer, Blend):
            return fit_confidence(self._folds, score_views(self._folds, best.scorer, best.selector)), None
        components, parts, folds = self._components[best.window]
        return fit_confidence(folds, components.blend(best.scorer)), parts


def _find_best(trials: Sequence[Trial]) -> Trial:
    return max(trials, key=lambda trial: (round(trial.score, 4), -trial.loss))


def _required_lead(scorer: Scorer) -> float:
    counts = isinstance(scorer, Posterior) or (isinstance(scorer, Blend) and (scorer.pairs or scorer.posterior > 1))
    return MIN_LEAD_OF_COUNTS if counts else MIN_LEAD
