"""The default scorer, chosen on held-out prompts: closed form, discriminative fit, or how much of each.

Prompts are held out in two ways. Random folds are like the training prompts, so they favour scorers that know the
words. Hard folds hold out whole sources where those are known, else whole clusters of similar prompts. They show what
is lost on prompts that are unlike all that was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ir3de.embedding import Embedding
from ir3de.fitting.calibration import Views
from ir3de.fitting.clusters import hold_out_groups
from ir3de.fitting.evidence import Comparison, take_enough
from ir3de.fitting.folds import Deal, Fold, make_folds
from ir3de.fitting.tuning import Choice, ConfidenceModel, ConfidenceSetting, Parts, Trial, fit_confidence
from ir3de.scorers import Blend, Scorer
from ir3de.scorers.arithmetic import fits
from ir3de.scorers.blend import BlendParts
from ir3de.scorers.logistic import Logistic, LogisticParts
from ir3de.scorers.solver import ConvergenceError
from ir3de.selectors import Average
from ir3de.statistics.counting import recount
from ir3de.statistics.domain import Statistics

# The weight of the closed form that is tried besides the usual one, and the lead that it needs.
CLOSED_WEIGHTS = {1.0: 0.005, 0.3: 0.01}
MIN_LEAD_OF_LOGISTIC = 0.005  # of the usual sum over what tuning chose: it scores pairs, which take time
HARD_SHARE = 0.2  # of a loss on clusters held out whole that counts: traffic seldom lacks whole clusters
SOURCE_SHARE = 1.0  # of a loss on sources held out whole
MAX_HARD_PROMPTS = 2_000  # of all experts, in the hard folds


@dataclass(frozen=True)
class DefaultChoice:
    """What was chosen, its confidence model, what was tried, best first, and why nothing was, if so."""

    scorer: Scorer
    confidence: Callable[[], ConfidenceModel] | None  # None where no prompts could be held out
    trials: tuple[Trial, ...] = ()
    parts: Parts = None
    reason: str = ""  # why the closed form was taken without trying anything


def choose_default(
    domains: Sequence[Statistics], embedding: Embedding, selector: Average, background: Statistics | None = None
) -> DefaultChoice:
    """Decide between the closed form, the discriminative fit and their sum; the closed form if nothing can be tried."""
    blend = BlendParts(domains, embedding.rows)

    def take_closed_form(reason: str) -> DefaultChoice:
        setting = ConfidenceSetting(domains, embedding, Blend(), selector, background)
        return DefaultChoice(Blend(), setting.calibrate(blend), parts=blend, reason=reason)

    if len(domains) < 2:
        return take_closed_form("")
    if bare := sum(domain.sample is None or not len(domain.sample) for domain in domains):
        return take_closed_form(f"{bare} of {len(domains)} experts have no kept prompts")
    folds = make_folds(domains, embedding, background, cap=selector.cap)
    if not folds:
        return take_closed_form("there are too few prompts to hold any out")
    parts, enough = LogisticParts(domains, embedding.rows, blend), take_enough(folds)
    try:
        with fits(len(enough) + 2):  # of the folds, the hard one, and all prompts
            choice = _choose(Comparison(parts, enough), _compare_hard(domains, embedding, selector), selector)
    except ConvergenceError as error:
        return take_closed_form(str(error))
    if isinstance(choice.scorer, Blend):  # its confidence comes from all folds, as that of a given scorer does
        setting = ConfidenceSetting(domains, embedding, choice.scorer, selector, background)
        return replace(choice, confidence=setting.calibrate(blend))
    return choice


def try_discriminative(choice: Choice, embedding: Embedding, background: Statistics | None = None) -> Choice:
    """Compare discriminative fits with what tuning chose, at more strengths and weights than a fit tries."""
    domains, cap = choice.domains, choice.selector.cap
    if not all(domain.sums and domain.sample is not None and len(domain.sample) for domain in domains):
        return choice
    folds = take_enough(make_folds(domains, embedding, background, cap=cap))
    if not (folds[0].deal.windows > 0).all():
        return choice
    known = choice.parts if isinstance(choice.parts, BlendParts) else None
    parts, average = LogisticParts(domains, embedding.rows, known), Average(cap=cap)
    comparison = Comparison(parts, folds)
    usual, best = comparison.usual, next(trial for trial in choice.trials if trial.chosen)
    tried = (usual, *(replace(usual, strength=usual.strength * times) for times in (1 / 3, 3.0)))
    tried += (replace(usual, means=2 * usual.means), replace(usual, pairs=2 * usual.pairs))
    leads = {usual.closed: MIN_LEAD_OF_LOGISTIC, **CLOSED_WEIGHTS}
    views: dict[Scorer, Views] = {}
    trials: list[Trial] = []
    default = comparison.score(best.scorer, best.selector).correctness
    with fits(len(tried) * len(folds)):
        for fit in tried:
            for weight in leads:
                scorer = replace(fit, closed=weight)
                try:
                    views[scorer] = comparison.score(scorer)
                except ConvergenceError:  # the others may converge
                    break
                measured = views[scorer]
                trial = replace(Trial.measure(scorer, average, measured), window=best.window)
                trials.append(trial.with_lead(measured.correctness - default, measured.weights, leads[weight]))
    clear = [trial for trial in trials if trial.lead >= trial.required_lead]
    if not clear:
        return replace(choice, trials=_sort((*choice.trials, *trials)))
    found = max(clear, key=lambda trial: trial.lead)
    assert isinstance(found.scorer, Logistic)
    try:
        parts.fit(found.scorer)
    except ConvergenceError:
        return replace(choice, trials=_sort((*choice.trials, *trials)))
    every = [replace(trial, chosen=trial is found) for trial in (*choice.trials, *trials)]
    confidence = fit_confidence(folds, views[found.scorer])
    return Choice(found.scorer, average, domains, confidence, _sort(every), parts)


def _sort(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Best first."""
    return tuple(sorted(trials, key=lambda trial: (-trial.score, trial.loss)))


def _compare_hard(domains: Sequence[Statistics], embedding: Embedding, selector: Average) -> HardComparison | None:
    """The same on prompts whose sources, or clusters, are held out whole.

    A source can only be held out of prompts that are all known. So both scorers are fitted to kept prompts alone.
    """
    each, small = max(10, MAX_HARD_PROMPTS // len(domains)), []
    for domain in domains:
        assert domain.sample is not None and domain.sums is not None
        sample = domain.sample.take(np.arange(min(each, len(domain.sample))))
        small.append(replace(recount(sample, embedding, domain.sums.window), sample=sample))
    deal = Deal(small, embedding, selector.cap)
    if not deal.count or not (deal.windows > 0).all():
        return None
    held, are_sources = hold_out_groups(deal)
    fold = Fold(deal, held)
    if not fold.held.any():
        return None
    return HardComparison(Comparison(LogisticParts(small, embedding.rows), [fold]), are_sources)


@dataclass(frozen=True, eq=False)
class HardComparison:
    """A comparison on groups of prompts that are held out whole."""

    comparison: Comparison
    are_sources: bool

    @property
    def share(self) -> float:
        """How much of a loss on these prompts counts."""
        return SOURCE_SHARE if self.are_sources else HARD_SHARE

    def add_to(self, trial: Trial, usual: Logistic) -> Trial:
        """The trial with its accuracy on these prompts. What it loses there against the usual sum counts in part."""
        own, usually = (float(self.comparison.score(one).correctness.mean()) for one in (trial.scorer, usual))
        lead = trial.lead + self.share * min(0.0, own - usually)
        return replace(trial, lead=lead, hard_accuracy=own, hard_groups="sources" if self.are_sources else "clusters")


def _choose(random: Comparison, hard: HardComparison | None, selector: Average) -> DefaultChoice:
    """The usual sum, unless another one or the closed form clearly leads it."""
    usual = random.usual
    scorers: list[Blend | Logistic] = [usual, Blend()]
    scorers += [replace(usual, closed=weight) for weight in CLOSED_WEIGHTS if weight < usual.closed]
    views: dict[Scorer, Views] = {scorer: random.score(scorer) for scorer in scorers}
    default, trials = views[usual].correctness, []
    # Every prompt counts alike here. The mean over the experts is noisier: it hangs on the smallest of them.
    equal = np.full(len(default), 1 / len(default))
    for scorer in scorers:
        closed = scorer.closed if isinstance(scorer, Logistic) else 0.0
        needed = None if scorer is usual else CLOSED_WEIGHTS.get(closed, 0.0)
        trial = Trial.measure(scorer, selector, views[scorer], equal)
        trial = trial.with_lead(views[scorer].correctness - default, equal, needed)
        trials.append(trial if hard is None else hard.add_to(trial, usual))
    clear = [trial for trial in trials if trial.lead >= trial.required_lead]
    best = max(clear, key=lambda trial: trial.lead)  # of equals the usual one, which is first
    tried = _sort([replace(trial, chosen=trial is best) for trial in trials])
    parts = random.parts.blend if isinstance(best.scorer, Blend) else random.parts
    if isinstance(best.scorer, Logistic):
        random.parts.fit(best.scorer)  # now, so that a fit without a minimum is noticed here
    confidence = partial(fit_confidence, random.folds, views[best.scorer])
    return DefaultChoice(best.scorer, confidence, tried, parts)
