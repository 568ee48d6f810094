"""Routers along one axis: the strength λ of the penalty, and the number of training prompts, drawn ten times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from ir3de import Router
from ir3de.scorers import Blend, Logistic, Scorer, TokenRidge
from ir3de.selectors import Average, EntropyTopK, Selector
from ir3de.statistics import Statistics, collect
from ir3de_lab.experiments.choices import DRAW
from ir3de_lab.experiments.contenders import ADDITIVE, CENTRAL, DEFAULT, Entry, Texts, as_fitted, timed
from ir3de_lab.rivals.naive_bayes import NaiveBayes
from ir3de_lab.rivals.tfidf_logistic import TfidfLogistic

STRENGTHS = tuple(10.0**power for power in range(-4, 5))
PROMPTS = (10, 30, 100, 300)
DRAWS = 10
PAPER_AVG, PAPER_TOP = "IR3DE-avg (authors' code)", "IR3DE, k=10 (authors' code)"


def strengths(train: Texts) -> Iterator[Entry]:
    """The paper's form, this package's closed form and its discriminative fit, each with every λ.

    λ is not the same thing in all: the paper's is added to sums over tokens as it is, the closed form's counts windows
    of prompts, that of the discriminative fit is the usual one of a logistic regression.
    """
    counted, counting = timed(lambda: {d: collect(texts, keep_sample=True) for d, texts in train.items()})
    bare = {domain: statistics.without_sample() for domain, statistics in counted.items()}
    usual = Logistic.for_prompts(list(counted.values()))
    forms: dict[str, tuple[str, Mapping[str, Statistics], Callable[[float], Scorer], float]] = {
        PAPER_AVG: ("paper", bare, lambda s: replace(TokenRidge.authors(), strength=s), TokenRidge.strength),
        "token ridge, balanced": ("ours", bare, lambda s: TokenRidge(strength=s), TokenRidge.strength),
        f"{DEFAULT}, closed form": ("ours", bare, lambda s: Blend(strength=s), Blend.strength),
        f"{DEFAULT}, discriminative fit added": (
            "ours", counted, lambda s: replace(usual, strength=s), usual.strength,
        ),
    }  # fmt: skip
    for name, (family, given, make, own) in forms.items():
        for strength in STRENGTHS:
            router, solving = timed(partial(Router.fit, given, scorer=make(strength), selector=Average()))
            series = f"{name} by strength"
            yield Entry(
                f"{series}, {strength:g}", family, ADDITIVE, as_fitted(router), counting + solving, series, "strength",
                strength, about={"usual_strength": own},
            )  # fmt: skip


def draws(train: Texts) -> Iterator[Entry]:
    """Routers fitted on a few prompts of each domain; all of a draw on the same ones."""
    for number in PROMPTS:
        if number > min(len(found) for found in train.values()):
            break
        for draw in range(DRAWS):
            few = draw_prompts(train, number, draw)
            for name, entry in _rivals(few):
                series = f"{name} by training prompts"
                yield replace(
                    entry, name=f"{series}, {number}, draw {draw}", series=series, axis="prompts", at=float(number),
                    about={DRAW: draw},
                )  # fmt: skip


def draw_prompts(train: Texts, number: int, draw: int) -> dict[str, list[str]]:
    """As many prompts of every domain, without repetition; the same at every run."""
    rng = np.random.default_rng([number, draw])
    return {d: [found[i] for i in rng.choice(len(found), number, replace=False)] for d, found in train.items()}


def _rivals(texts: Texts) -> Iterator[tuple[str, Entry]]:
    router, seconds = timed(partial(Router.fit, texts))
    yield DEFAULT, Entry(DEFAULT, "ours", ADDITIVE, as_fitted(router), seconds)
    counted, counting = timed(lambda: {d: collect(found, prompt_sums=False) for d, found in texts.items()})
    selectors: dict[str, Selector] = {PAPER_AVG: Average(), PAPER_TOP: EntropyTopK.authors(10)}
    for name, selector in selectors.items():
        router, solving = timed(partial(Router.fit, counted, scorer=TokenRidge.authors(), selector=selector))
        yield name, Entry(name, "paper", ADDITIVE, as_fitted(router), counting + solving)
    for name, rival, traits in (
        ("naive Bayes", NaiveBayes(0.1), ADDITIVE),
        ("TF-IDF + logistic regression", TfidfLogistic(), CENTRAL),
    ):
        fitted, seconds = timed(partial(rival.fit, texts))
        yield name, Entry(name, "rivals", traits, fitted, seconds)
