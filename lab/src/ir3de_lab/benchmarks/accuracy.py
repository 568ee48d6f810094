"""Routing accuracy on a folder of suites: how many test prompts reach their expert.

The folder is laid out as `{suite}/{domain}/{train,test,ood}.jsonl`, plain or compressed; a folder of domains is one
suite. Routers are fitted on `train` alone; `ood` holds prompts of the same domains from other sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ir3de import Router
from ir3de.corpora import read_texts
from ir3de.errors import InputError
from ir3de.scorers import Blend, Posterior, PromptRidge, Scorer, TokenRidge
from ir3de.selectors import AllTokens, Average, EntropyTopK, Selector
from ir3de.statistics import Statistics, collect
from ir3de_lab.experiments import settings
from ir3de_lab.scorers import CrossEntropy, KernelRidge

PAPER_K = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # the values the paper tried


@dataclass(frozen=True)
class Row:
    """One router's accuracies on one suite: the mean over domains, in percent, and each domain's own."""

    suite: str
    router: str
    test: float
    first_32: float
    ood: float | None
    by_domain: dict[str, float]
    fit_s: float  # from statistics to a router that routes

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Suite:
    """The domains of one suite and where their splits lie."""

    name: str
    folders: dict[str, Path]

    @property
    def in_order(self) -> tuple[str, ...]:
        """The domains as the experiments on the same suite have them, else as they are.

        The authors' code gives a tie to the expert that comes first, so the order is part of the router: here and in
        the experiments it must be the same.
        """
        orders = (
            settings.load(name).domains for name in settings.SHIPPED if settings.load(name).data.suite == self.name
        )
        return next((order for order in orders if set(order) == set(self.folders)), tuple(self.folders))

    def texts(self, domain: str, split: str) -> list[str]:
        found = sorted(self.folders[domain].glob(f"{split}.jsonl*"))
        return list(read_texts(found)) if found else []


def suites(folder: Path) -> list[Suite]:
    """Every suite in a folder, or the folder itself as one."""
    found = [suite for path in sorted(folder.iterdir()) if path.is_dir() and (suite := _suite(path))]
    if not found and (alone := _suite(folder)):
        found = [alone]
    if not found:
        raise InputError(
            f"no suite in {folder}: expected {{suite}}/{{domain}}/train.jsonl and test.jsonl, plain or compressed"
        )
    return found


def _suite(folder: Path) -> Suite | None:
    domains = {
        path.name: path
        for path in sorted(folder.iterdir())
        if path.is_dir() and list(path.glob("train.jsonl*")) and list(path.glob("test.jsonl*"))
    }
    return Suite(folder.name, domains) if domains else None


def contenders() -> Iterator[tuple[str, Scorer, Callable[..., Selector]]]:
    """Every router compared: its name, its scorer, and its selector, still to be given a cap on tokens."""
    yield "ir3de (blend, average)", Blend(), Average
    yield "blend with pairs, average", Blend(pairs=0.25), Average
    yield "posterior, average", Posterior(), Average
    yield "prompt ridge, average", PromptRidge(), Average
    yield "token ridge, balanced, average", TokenRidge(), Average
    for name, scorer in (("cross-entropy", CrossEntropy()), ("kernel ridge", KernelRidge())):
        yield f"{name}, average", scorer, Average
        yield f"{name}, k=10", scorer, partial(EntropyTopK, 10)
    authors, printed = TokenRidge.authors(), TokenRidge.paper()
    yield "authors' code, -avg", authors, Average
    yield "authors' code, -all", authors, partial(AllTokens, ties="order")
    for k in PAPER_K:
        yield f"authors' code, k={k}", authors, partial(EntropyTopK, k, ties="order", log_offset=1e-10)
    for k in PAPER_K:
        yield f"paper as printed, k={k}", printed, partial(EntropyTopK, k)


def measure(suite: Suite) -> list[Row]:
    """Fit every contender on the suite's training prompts and route its test prompts."""
    statistics = {domain: collect(suite.texts(domain, "train")) for domain in suite.in_order}
    splits = {split: {domain: suite.texts(domain, split) for domain in suite.in_order} for split in ("test", "ood")}
    return [_row(suite, name, statistics, scorer, selector, splits) for name, scorer, selector in contenders()]


def _row(
    suite: Suite,
    name: str,
    statistics: dict[str, Statistics],
    scorer: Scorer,
    selector: Callable[..., Selector],
    splits: dict[str, dict[str, list[str]]],
) -> Row:
    begun = perf_counter()
    router = Router.fit(statistics, scorer=scorer, selector=selector())
    fit_s = perf_counter() - begun
    by_domain = _recalls(router, splits["test"])
    short = _recalls(router.with_selector(selector(cap=32)), splits["test"])
    ood = _recalls(router, splits["ood"])
    return Row(
        suite.name,
        name,
        float(np.mean(list(by_domain.values()))),
        float(np.mean(list(short.values()))),
        float(np.mean(list(ood.values()))) if len(ood) == len(suite.folders) else None,
        {domain: round(recall, 3) for domain, recall in by_domain.items()},
        round(fit_s, 3),
    )


def _recalls(router: Router, prompts: dict[str, list[str]]) -> dict[str, float]:
    """Per domain with prompts, the percentage routed to it."""
    return {
        domain: 100.0 * float(np.mean([decision.best == domain for decision in router.route_batch(texts)]))
        for domain, texts in prompts.items()
        if texts
    }
