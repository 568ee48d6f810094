"""Experts that come and go one by one: accuracy after each step, its time, and whether a fresh fit has the same bits.

The first two domains begin, the others are added in order, and then those added first are removed first until two are
left. One router lives through all of it, and keeps the scorer that its fit has chosen, as a change does; rivals are
fitted again from scratch after each step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, Literal

from ir3de import Router
from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de.evaluation import Shrinkage
from ir3de.scorers import Scorer
from ir3de.statistics import Statistics
from ir3de_lab.benchmarks.protocol import Texts, recalls
from ir3de_lab.experiments.material import Material
from ir3de_lab.experiments.sameness import same_router
from ir3de_lab.rivals import Baseline
from ir3de_lab.rivals.naive_bayes import NaiveBayes
from ir3de_lab.rivals.tfidf_logistic import TfidfLogistic

KIND, VERSION = "ir3de.dynamic", 1
BEGIN = 2  # experts at the beginning and at the end
ROUNDS = 3  # times that each time is taken
RIVALS: Mapping[str, Baseline] = {"TF-IDF + logistic regression": TfidfLogistic(), "naive Bayes": NaiveBayes()}

Action = Literal["begin", "add", "remove"]


@dataclass(frozen=True)
class Step:
    """One change: seconds are medians over the rounds, `accuracy` the mean over the domains present, in percent."""

    action: Action
    expert: str  # empty at the beginning
    experts: tuple[str, ...]  # present after it
    accuracy: float
    seconds: float  # from texts where one was added
    solve_seconds: float  # from statistics that were there already
    rivals: Mapping[str, float]  # seconds of fitting each again on the domains present
    identical: bool  # to a router fitted afresh, with this scorer, on the texts of the domains present
    chosen: bool  # a fit that chooses the scorer on these texts gives this router, too

    def to_dict(self) -> dict[str, Any]:
        retrained, retrain_seconds = next(iter(self.rivals.items()), (None, None))
        return {
            **vars(self),
            "experts": list(self.experts),
            "accuracy": round(self.accuracy, 3),
            "seconds": round(self.seconds, 4),
            "solve_seconds": round(self.solve_seconds, 4),
            "retrained": retrained,
            "retrain_seconds": None if retrain_seconds is None else round(retrain_seconds, 4),
            "rivals": {name: round(seconds, 4) for name, seconds in self.rivals.items()},
        }


def plan(domains: Sequence[str]) -> list[tuple[Action, str]]:
    """The steps that follow the beginning.

    >>> plan(["a", "b", "c", "d"])
    [('add', 'c'), ('add', 'd'), ('remove', 'a'), ('remove', 'b')]
    """
    more = len(domains) - BEGIN
    if more < 1:
        raise InputError(f"experts come and go among {BEGIN + 1} domains or more, found {list(domains)}: name another")
    added: list[tuple[Action, str]] = [("add", name) for name in domains[BEGIN:]]
    return [*added, *(("remove", name) for name in domains[:more])]


def measure(
    material: Material,
    *,
    rivals: Mapping[str, Baseline] = RIVALS,
    rounds: int = ROUNDS,
    embedding: Embedding | None = None,
) -> Iterator[tuple[Step, Router]]:
    """Every step and the router after it, as it happens."""
    texts = material.training_texts()
    steps, begin = plan(list(texts)), {name: texts[name] for name in list(texts)[:BEGIN]}
    test = {domain: [item.text for item in material.items if item.domain == domain] for domain in texts}
    surroundings = _Surroundings(texts, test, rivals, rounds, embedding or Embedding.default())
    surroundings.warm_up()

    fits = [_timed(surroundings.fit, begin) for _ in range(rounds)]
    router = fits[0][1]
    solves = [_timed(surroundings.fit, dict(router.statistics))[0] for _ in range(rounds)]
    times = median(seconds for seconds, _ in fits), median(solves)
    yield surroundings.after("begin", "", times, router), router
    for action, name in steps:
        times = _added(router, name, texts[name], rounds) if action == "add" else _removed(router, name, rounds)
        yield surroundings.after(action, name, times, router), router


@dataclass(frozen=True)
class _Surroundings:
    """What every step is measured with."""

    texts: Texts
    test: Texts
    rivals: Mapping[str, Baseline]
    rounds: int
    embedding: Embedding

    def fit(self, domains: Mapping[str, Statistics | Sequence[str]], scorer: Scorer | None = None) -> Router:
        return Router.fit(domains, embedding=self.embedding, scorer=scorer)

    def warm_up(self) -> None:
        """What is loaded once belongs to no step."""
        few = {name: list(given[:20]) for name, given in self.texts.items()}
        self.fit(few)
        for baseline in self.rivals.values():
            baseline.fit(few)

    def after(self, action: Action, name: str, times: tuple[float, float], router: Router) -> Step:
        """The step that was taken, and what is found of the router after it."""
        present = {expert: self.texts[expert] for expert in router.experts}
        found = recalls(
            lambda given: [decision.best for decision in router.route_batch(given)],
            {expert: self.test[expert] for expert in router.experts},
        )
        again = {
            rival: median(_timed(baseline.fit, present)[0] for _ in range(self.rounds))
            for rival, baseline in self.rivals.items()
        }
        identical, chosen = (same_router(router, self.fit(present, scorer)) for scorer in (_get_scorer(router), None))
        return Step(action, name, router.experts, mean(found.values()), *times, again, identical, chosen)


def _added(router: Router, name: str, texts: Sequence[str], rounds: int) -> tuple[float, float]:
    """Add an expert; the seconds from texts, and from statistics that were there already."""
    copies = _copies(router, 2 * rounds - 1)
    from_texts = [_timed(one.add, name, texts)[0] for one in (router, *copies[: rounds - 1])]
    counted = router.statistics[name]
    solves = [_timed(one.add, name, counted)[0] for one in copies[rounds - 1 :]]
    return median(from_texts), median(solves)


def _removed(router: Router, name: str, rounds: int) -> tuple[float, float]:
    """Remove an expert; nothing is counted, so all of it is the solve."""
    copies = _copies(router, rounds - 1)
    seconds = median(_timed(one.remove, name)[0] for one in (router, *copies))
    return seconds, seconds


def _copies(router: Router, number: int) -> list[Router]:
    """Routers to take the same step, so that its time is taken more than once."""
    given, scorer = dict(router.statistics), _get_scorer(router)
    return [Router.fit(given, embedding=router.embedding, scorer=scorer) for _ in range(number)]


def _get_scorer(router: Router) -> Scorer:
    assert not isinstance(router.scorer, Shrinkage)  # it routes by domain
    return router.scorer


def _timed(action: Callable[..., Any], *given: Any) -> tuple[float, Any]:
    begin = time.perf_counter()
    made = action(*given)
    return time.perf_counter() - begin, made
