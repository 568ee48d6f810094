"""Every router of the experiments, in groups that share a fit: training texts in, fitted routers out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ir3de import Router
from ir3de.scorers import Blend, Logistic, Posterior, PromptRidge, Scorer, TokenRidge
from ir3de.selectors import AllTokens, Average, EntropyTopK, Selector
from ir3de.statistics import Statistics, collect
from ir3de_lab.benchmarks.accuracy import PAPER_K
from ir3de_lab.benchmarks.rivals import kept_by
from ir3de_lab.experiments.choices import Traits
from ir3de_lab.experiments.material import Item
from ir3de_lab.rivals import Baseline, Fitted
from ir3de_lab.rivals.bag_of_words_mlp import BagOfWordsMLP
from ir3de_lab.rivals.interface import Indices
from ir3de_lab.rivals.naive_bayes import NaiveBayes
from ir3de_lab.rivals.tfidf_logistic import TfidfLogistic
from ir3de_lab.scorers import CrossEntropy, KernelRidge

Texts = Mapping[str, Sequence[str]]
Facts = Mapping[str, Any]
Made = TypeVar("Made")

ADDITIVE = Traits(central_data=False, language_model=False, adds_experts=True)  # sums by domain, and one solve
CENTRAL = Traits(central_data=True, language_model=False, adds_experts=False)

DEFAULT = "ir3de"  # the router that a fit without any option makes


@dataclass(frozen=True)
class Entry:
    """A fitted router, what it is called and what it took; `series`, `axis` and `at` place it on a curve."""

    name: str
    family: str
    traits: Traits
    fitted: Fitted
    fit_seconds: float
    series: str | None = None
    axis: str | None = None
    at: float | None = None
    encoder: str | None = None
    protocol: str = "clean"
    encoding_us: float | None = None  # a text, where its vector is remembered: then routing shows none of it
    about: Facts = field(default_factory=dict)  # more that its file keeps
    route_items: Callable[[Sequence[Item]], tuple[list[str], Facts]] | None = None  # where texts do not say everything


def timed(make: Callable[[], Made]) -> tuple[Made, float]:
    """What is made, and the seconds it took."""
    begin = time.perf_counter()
    made = make()
    return made, time.perf_counter() - begin


def as_fitted(router: Router) -> Fitted:
    """An IR3DE router behind the interface of its rivals."""
    places = {name: place for place, name in enumerate(router.experts)}

    def choose(texts: list[str]) -> Indices:
        return np.array([places[decision.best] for decision in router.route_batch(texts)], np.intp)

    return Fitted(router.experts, choose, *kept_by(router))


def paper(train: Texts) -> Iterator[Entry]:
    """The paper's router in both published forms, with every selector."""
    counted, counting = timed(lambda: {d: collect(texts, prompt_sums=False) for d, texts in train.items()})
    yield from _form(counted, counting, "authors' code", TokenRidge.authors(), EntropyTopK.authors, "order")
    yield from _form(counted, counting, "as printed", TokenRidge.paper(), EntropyTopK, "probability")


def _form(
    counted: Mapping[str, Statistics],
    counting: float,
    form: str,
    scorer: Scorer,
    top: Callable[[int], Selector],
    ties: str,
) -> Iterator[Entry]:
    router, solving = timed(lambda: Router.fit(counted, scorer=scorer, selector=Average()))
    seconds = counting + solving
    for entry in selections(router, form, top, ties):
        yield Entry(entry[0], "paper", ADDITIVE, as_fitted(entry[1]), seconds, *entry[2:])


def selections(
    router: Router, form: str, top: Callable[[int], Selector], ties: str
) -> Iterator[tuple[str, Router, str | None, str | None, float | None]]:
    """A router with each of the paper's selectors: -avg, -all, and the k tokens of lowest entropy."""
    yield f"IR3DE-avg ({form})", router, None, None, None
    every = AllTokens(ties="order") if ties == "order" else AllTokens()
    yield f"IR3DE-all ({form})", router.with_selector(every), None, None, None
    for k in PAPER_K:
        yield f"IR3DE, k={k} ({form})", router.with_selector(top(k)), f"IR3DE ({form})", "k", float(k)


def ours(train: Texts) -> Iterator[Entry]:
    """This package's own: the default, the two fits that it chooses between, tuned, and its scorers one by one."""
    counted, counting = timed(lambda: {d: collect(texts, keep_sample=True) for d, texts in train.items()})
    alone = replace(Logistic.for_prompts(list(counted.values())), closed=0.0)
    for name, options in (
        (DEFAULT, {}),
        (f"{DEFAULT}, closed form", {"scorer": Blend()}),
        (f"{DEFAULT}, discriminative fit", {"scorer": alone}),
        (f"{DEFAULT}, tuned", {"tune": True}),
    ):
        router, solving = timed(partial(Router.fit, counted, **options))
        fitted, seconds = as_fitted(router), counting + solving
        yield Entry(name, "ours", ADDITIVE, fitted, seconds, about={"scorer": repr(router.scorer)})
    bare = {domain: statistics.without_sample() for domain, statistics in counted.items()}  # nothing is calibrated
    scorers: dict[str, Scorer] = {
        "token ridge, balanced": TokenRidge(),
        "prompt ridge": PromptRidge(),
        "posterior": Posterior(),
        "cross-entropy": CrossEntropy(),
        "kernel ridge": KernelRidge(),
    }
    for name, scorer in scorers.items():
        router, solving = timed(partial(Router.fit, bare, scorer=scorer))
        yield Entry(name, "ours", ADDITIVE, as_fitted(router), counting + solving)


def words(train: Texts) -> Iterator[Entry]:
    """Rivals that count words or tokens."""
    rivals: list[tuple[str, Baseline, Traits]] = [
        ("naive Bayes", NaiveBayes(0.1), ADDITIVE),
        ("TF-IDF + logistic regression", TfidfLogistic(), CENTRAL),
        ("MLP-router", BagOfWordsMLP(), CENTRAL),
    ]
    for name, rival, traits in rivals:
        fitted, seconds = timed(partial(rival.fit, train))
        yield Entry(name, "rivals", traits, fitted, seconds)
