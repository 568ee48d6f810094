"""Every router of the experiments, in groups that share a fit: training texts in, fitted routers out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from ir3de import Router
from ir3de.embedding.packaged_models import get_title, locate
from ir3de.errors import InputError, MissingExtraError
from ir3de.scorers import CrossEntropy, KernelRidge, Posterior, PromptRidge, Scorer, TokenRidge
from ir3de.selectors import AllTokens, Average, EntropyTopK, Selector
from ir3de.statistics import Statistics, collect
from ir3de_lab.benchmarks.accuracy import PAPER_K
from ir3de_lab.benchmarks.rivals import kept_by
from ir3de_lab.experiments.choices import Traits
from ir3de_lab.experiments.settings import Encoders
from ir3de_lab.rivals import Baseline, Fitted
from ir3de_lab.rivals.bag_of_words_mlp import BagOfWordsMLP
from ir3de_lab.rivals.encoder import POOLINGS, Encoder
from ir3de_lab.rivals.encoder_heads import NearestNeighbours
from ir3de_lab.rivals.fine_tuned import FineTuned
from ir3de_lab.rivals.interface import Indices, needed
from ir3de_lab.rivals.modem import Modem
from ir3de_lab.rivals.naive_bayes import NaiveBayes
from ir3de_lab.rivals.tfidf_logistic import TfidfLogistic

Texts = Mapping[str, Sequence[str]]
Made = TypeVar("Made")

ADDITIVE = Traits(central_data=False, language_model=False, adds_experts=True)  # sums by domain, and one solve
CENTRAL = Traits(central_data=True, language_model=False, adds_experts=False)
NEIGHBOURS = Traits(central_data=True, language_model=True, adds_experts=True)  # vectors are added, none changes
TRAINED_ENCODER = Traits(central_data=True, language_model=True, adds_experts=False)

NEAREST_K = (1, 5, 10)  # as in the paper
RATES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
FULL_RATES = (1e-3, 1e-2, 1e-4, 1e-1, 1e-5)  # the usual ones first: each takes a while
MODEM_TEXTS = 1_750  # of a domain, as in the paper
SAMPLE = 512  # texts to take an encoder's time on


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
    """This package's own: the default, tuned, and its scorers one by one."""
    counted, counting = timed(lambda: {d: collect(texts, keep_sample=True) for d, texts in train.items()})
    for name, tune in (("ir3de", False), ("ir3de, tuned", True)):
        router, solving = timed(partial(Router.fit, counted, tune=tune))
        yield Entry(name, "ours", ADDITIVE, as_fitted(router), counting + solving)
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


def lacking(named: Encoders) -> str | None:
    """Why routers on these encoders cannot be run here, if they cannot: a package or a model that is not there."""
    try:
        for package in ("torch", "transformers"):
            needed(package, extra="encoders", purpose="Running a sentence encoder")
        for source in (named.bert, named.small, named.large):
            locate(source)
    except (MissingExtraError, InputError) as error:
        return str(error)
    return None


def encoders(train: Texts, named: Encoders) -> Iterator[Entry]:
    """Rivals that stand on an encoder: nearest neighbours, MoDEM frozen and fine-tuned, the BERT-router."""
    opened = {source: Encoder(locate(source), remember=True) for source in {named.bert, named.small, named.large}}
    cost = {source: _remembered(encoder, train) for source, encoder in opened.items()}
    number = sum(len(texts) for texts in train.values())
    bert, called, encoding = opened[named.bert], get_title(named.bert), cost[named.bert]
    for pooling in POOLINGS[::-1]:
        shown = "CLS" if pooling == "cls" else "mean"
        for k in NEAREST_K:
            nearest = NearestNeighbours(bert, k, pooling)
            fitted, seconds = timed(partial(nearest.fit, train))
            name, series = f"kNN, {shown}, k={k} ({called})", f"kNN, {shown} ({called})"
            yield Entry(
                name, "rivals", NEIGHBOURS, fitted, seconds + number * encoding / 1e6, series, "neighbours", float(k),
                called, encoding_us=encoding,
            )  # fmt: skip
    yield from _modem(train, named, opened, cost, frozen=True)
    router, seconds = timed(lambda: FineTuned(bert, pooling="cls", epochs=1, most_texts=MODEM_TEXTS).fit(train))
    yield Entry(f"BERT-router ({called})", "rivals", TRAINED_ENCODER, router, seconds, encoder=called)
    yield from _modem(train, named, opened, cost, frozen=False)


def _remembered(encoder: Encoder, train: Texts) -> float:
    """Encode the training texts once for all routers; returned are the microseconds a text takes, of a sample."""
    sample = [text for texts in train.values() for text in texts[: SAMPLE // len(train)]]
    with encoder.timed():
        encoder.encode(sample[:8])  # warm up
        _, seconds = timed(lambda: encoder.encode(sample))
    encoder.encode([text for texts in train.values() for text in texts])
    return 1e6 * seconds / len(sample)


def _modem(
    train: Texts, named: Encoders, opened: Mapping[str, Encoder], cost: Mapping[str, float], *, frozen: bool
) -> Iterator[Entry]:
    """MoDEM over the learning rates, once an encoder: one that stands in for both sizes is shown as both."""
    sizes: dict[str, str] = {}
    for size, source in (("small", named.small), ("large", named.large)):
        sizes[source] = f"{sizes[source]}/{size}" if source in sizes else size
    number = sum(min(len(texts), MODEM_TEXTS) for texts in train.values())
    for source, size in sizes.items():
        called, encoding = get_title(source), cost[source] if frozen else None
        series = f"MoDEM-{size}, {'frozen' if frozen else 'fine-tuned'} ({called})"
        for rate in RATES[::-1] if frozen else FULL_RATES:
            modem = Modem(opened[source], rate=rate, frozen=frozen, epochs=None if frozen else 1)
            fitted, seconds = timed(partial(modem.fit, train))
            seconds += number * (encoding or 0.0) / 1e6
            name = series.replace(" (", f", rate={rate:g} (")
            yield Entry(
                name, "rivals", TRAINED_ENCODER, fitted, seconds, series, "rate", rate, called, encoding_us=encoding
            )
