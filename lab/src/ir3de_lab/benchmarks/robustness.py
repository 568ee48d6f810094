"""How routers hold up on perturbed test prompts: the default beside the authors' form, suite by suite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ir3de import Router
from ir3de.evaluation import RobustnessReport, measure_robustness
from ir3de.scorers import Blend, Scorer, TokenRidge
from ir3de.selectors import Average, EntropyTopK, Selector
from ir3de.statistics import collect
from ir3de_lab.benchmarks.accuracy import Suite
from ir3de_lab.benchmarks.protocol import prompt_hash

MOST_PROMPTS = 2_000  # of a domain: a share is then good to a point or two

CONTENDERS: tuple[tuple[str, Scorer, Selector], ...] = (
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


def measure(suite: Suite) -> list[Held]:
    """Fit the contenders on the suite's training prompts, and perturb its test prompts."""
    statistics = {domain: collect(suite.texts(domain, "train")) for domain in suite.folders}
    prompts = {domain: sampled(suite.texts(domain, "test")) for domain in suite.folders}
    return [
        Held(suite.name, name, measure_robustness(Router.fit(statistics, scorer=scorer, selector=selector), prompts))
        for name, scorer, selector in CONTENDERS
    ]


def sampled(texts: list[str], most: int = MOST_PROMPTS) -> list[str]:
    """At most so many of the texts, chosen by a hash of their content."""
    return sorted(texts, key=lambda text: (prompt_hash(text), text))[:most]
