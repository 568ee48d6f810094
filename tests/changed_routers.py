"""Routers of each kind that tests of the law of change fit, change and compare."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import tiny
from ir3de import Contribution, PromptRidge, Router, Statistics, collect
from ir3de.fitting import tuning
from ir3de.scorers import Blend, Logistic
from ir3de.statistics.counting import recount

NAMES = ("maths", "law", "cooking")
TEXTS = {name: tiny.sentences(name, 14, seed=5) for name in NAMES}
MORE = {name: tiny.sentences(name, 6, seed=6) for name in NAMES}
GIVEN = {
    name: [
        Contribution.of(collect(tiny.sentences(name, 9, seed=seed), embedding=tiny.embedding(), keep_sample=True))
        for seed in (7, 8)
    ]
    for name in NAMES
}
ROWS = [
    {"text": text, "task": task, "scores": {name: float(name == task) + 0.1 * (len(text) % 7) for name in NAMES}}
    for task, some in TEXTS.items()
    for text in some
]


CHOOSE = {"scorer": "choose"}
_fitted: dict[tuple[object, ...], bytes] = {}


def fit_once(key: tuple[object, ...], fit: Callable[[], Router]) -> Router:
    """Each router is fitted once. What tests get shares no number with it."""
    if tuning.choose is not real_choose:
        return fit()
    if key not in _fitted:
        _fitted[key] = pickle.dumps(fit())
    return pickle.loads(_fitted[key])  # type: ignore[no-any-return]


class FromTexts:
    """A router that is fitted from texts, with or without tuning."""

    def __init__(self, given: dict[str, Any] = TEXTS, **options: Any) -> None:
        self.given, self.options = given, options
        self.change: dict[str, Any] = {} if "scorer" in options else CHOOSE

    def fit(self, names: Sequence[str]) -> Router:
        options = self.options
        if len(names) == 1 and options.get("tune"):  # one expert cannot be tuned, but a tuned router can shrink to it
            options = {key: value for key, value in options.items() if key != "tune"}
        given = {name: self.given[name] for name in names}
        return fit_once((self, *names), lambda: Router.fit(given, embedding=tiny.embedding(), **options))

    def add(self, router: Router, name: str) -> None:
        router.add(name, self.given[name], **self.change)


class FromOutcomes:
    """A router that is fitted from the scores of models."""

    change: ClassVar[dict[str, Any]] = {}

    def rows(self, names: Sequence[str]) -> list[dict[str, Any]]:
        return [{**row, "scores": {name: row["scores"][name] for name in names}} for row in ROWS]

    def fit(self, names: Sequence[str]) -> Router:
        return fit_once((self, *names), lambda: Router.fit_outcomes(self.rows(names), embedding=tiny.embedding()))

    def add(self, router: Router, name: str) -> None:
        router.add(name, self.rows([name]))


KINDS = {
    "chosen by the fit": FromTexts(),
    "closed form": FromTexts(scorer=Blend()),
    "logistic": FromTexts(scorer=Logistic()),
    "with a scorer": FromTexts(scorer=PromptRidge(2.0)),
    "tuned": FromTexts(tune=True),
    "contributions": FromTexts(GIVEN),
    "contributions, tuned": FromTexts(GIVEN, tune=True),
    "both, tuned": FromTexts({**GIVEN, "law": TEXTS["law"]}, tune=True),
    "outcomes": FromOutcomes(),
}


def choose_smaller_windows(domains: Sequence[Statistics], *arguments: Any, windows: bool = True, **options: Any) -> Any:
    """Tuning that always counts again in half the windows, where it may and every prompt is kept."""
    choice = real_choose(domains, *arguments, windows=windows, **options)
    if not windows or any(len(domain.sample) < domain.prompts for domain in domains):
        return choice
    counted = (recount(own.sample, tiny.embedding(), own.sums.window // 2) for own in domains)
    return replace(choice, domains=tuple(counted))


real_choose = tuning.choose
