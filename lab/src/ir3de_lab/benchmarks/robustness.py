"""How routers hold up on perturbed test prompts, suite by suite.

The defaults stand beside the closed form and the authors' form, and beside themselves fitted on prompts in boilerplate
as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from ir3de import Router
from ir3de.scorers import Blend, Scorer, TokenRidge
from ir3de.selectors import Average, EntropyTopK, Selector
from ir3de.statistics import collect
from ir3de_lab.benchmarks.accuracy import Suite, suites
from ir3de_lab.benchmarks.defaults import Material, read_material
from ir3de_lab.benchmarks.protocol import prompt_hash
from ir3de_lab.robustness import RobustnessReport, Wrapped, measure_robustness

MOST_PROMPTS = 2_000  # of a domain: a share is then good to a point or two

MOST_WRAPPED = 2_000  # training prompts of a domain that are also wrapped in boilerplate

INTENTS = ("banking77", "trec_qc")  # the sets of intents that are perturbed

FITTED_ON_WRAPPED = "ir3de, boilerplate in the fit"

CONTENDERS: tuple[tuple[str, Scorer | None, Selector | None], ...] = (
    ("ir3de (defaults)", None, None),
    ("ir3de (blend, average)", Blend(), Average()),
    ("authors' code, k=10", TokenRidge.authors(), EntropyTopK.authors(10)),
)


@dataclass(frozen=True)
class Held:
    """One router's report on one suite."""

    suite: str
    router: str
    report: RobustnessReport

    def to_dict(self) -> dict[str, Any]:
        return {"suite": self.suite, "router": self.router, **self.report.to_dict()}


@dataclass(frozen=True)
class LabelledSuite(Suite):
    """A set of prompts with labels as a suite: each label is a domain."""

    material: Material

    @property
    def in_order(self) -> tuple[str, ...]:
        return tuple(self.material.train)

    def texts(self, domain: str, split: str) -> list[str]:
        found = self.material.train if split == "train" else self.material.splits.get(split, {})
        return list(found.get(domain, ()))


def find_suites(folder: Path) -> list[Suite]:
    """The suites of a folder, and two sets of its intents: one with many experts, one with short questions."""
    plain = [suite for suite in suites(folder) if suite.name != "intents"]
    labelled = [LabelledSuite(one.name, {}, one) for one in read_material(folder) if one.name in INTENTS]
    return [*plain, *labelled]


def measure(suite: Suite) -> list[Held]:
    """Fit the contenders on the suite's training prompts, and perturb its test prompts."""
    statistics = {domain: collect(suite.texts(domain, "train"), keep_sample=True) for domain in suite.in_order}
    prompts = {domain: sampled(suite.texts(domain, "test")) for domain in suite.in_order}
    routers = {name: Router.fit(statistics, scorer=scorer, selector=selector) for name, scorer, selector in CONTENDERS}
    wrapped = {domain: collect(wrap_some(suite.texts(domain, "train")), keep_sample=True) for domain in suite.in_order}
    routers[FITTED_ON_WRAPPED] = Router.fit(wrapped)
    return [
        Held(suite.name, name, measure_robustness(router, prompts, over_experts=True))
        for name, router in routers.items()
    ]


def wrap_some(texts: list[str]) -> Iterator[str]:
    """The texts, and a sample of them once more in boilerplate: short, medium and long in turn."""
    wrappers = cycle((Wrapped("short"), Wrapped("medium"), Wrapped("long")))
    yield from texts
    for text, wrapper in zip(sampled(texts, MOST_WRAPPED), wrappers, strict=False):
        yield wrapper.wrap(text)


def sampled(texts: list[str], most: int = MOST_PROMPTS) -> list[str]:
    """At most so many of the texts, chosen by a hash of their content."""
    return sorted(texts, key=lambda text: (prompt_hash(text), text))[:most]
