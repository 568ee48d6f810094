"""What clipping and leaving rare tokens out cost in accuracy, how much is left to leave out, and what a Gram tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de import Router
from ir3de.embedding import Embedding
from ir3de.scorers import Blend, PromptRidge, Scorer, TokenRidge
from ir3de.selectors import Average, EntropyTopK, Selector
from ir3de.statistics import Statistics, collect
from ir3de_lab.benchmarks.accuracy import Suite
from ir3de_lab.benchmarks.protocol import recalls
from ir3de_lab.benchmarks.recovery import counts_from_gram

CLIPS, LEASTS = (1, 2, 4, 8), (2, 5, 10, 50)
SETTINGS: tuple[tuple[int | None, int], ...] = (
    (None, 1),
    *((clip, 1) for clip in CLIPS),
    *((None, least) for least in LEASTS),
    (1, 10),  # tokens that ten prompts have
)
CONTENDERS: tuple[tuple[str, Scorer, Selector], ...] = (
    ("ir3de (blend, average)", Blend(), Average()),
    ("prompt ridge, average", PromptRidge(), Average()),
    ("token ridge, balanced, average", TokenRidge(), Average()),
    ("paper as printed, k=50", TokenRidge.paper(), EntropyTopK(50)),
)
UNKNOWNS = 8_000  # counts solved for at once: half a gigabyte of equations


@dataclass(frozen=True)
class Rarity:
    """How many different tokens a domain has, and how many of them fewer than so often."""

    domain: str
    prompts: int
    tokens: int
    different: int
    below: dict[str, int]  # by the count they stay below; JSON has no other keys


@dataclass(frozen=True)
class Left:
    """What a setting leaves, as means over the domains, and how many prompts then reach their expert, in percent."""

    clip: int | None
    min_count: int
    different: float  # share of the different tokens
    occurrences: float  # share of all tokens
    accuracies: dict[str, dict[str, float | None]]  # by router: test, ood


@dataclass(frozen=True)
class Recovery:
    """How many counts of a domain's histogram were read out of its Gram matrix, of those tokens and of absent ones."""

    domain: str
    vocabulary: int
    width: int
    equations: int  # h(h+1)/2
    unknowns: int
    occurring: int
    wrong: int
    seconds: float


@dataclass(frozen=True)
class Revealed:
    """One suite's figures."""

    suite: str
    domains: tuple[Rarity, ...]
    settings: tuple[Left, ...]
    recovery: Recovery | None  # None where every domain has too many different tokens

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(suite: Suite) -> list[Revealed]:
    """Collect the suite's training prompts in every setting, fit, and route its test prompts."""
    names = list(suite.folders)
    train = {name: suite.texts(name, "train") for name in names}
    test, ood = ({name: suite.texts(name, split) for name in names} for split in ("test", "ood"))
    splits = {"test": test, "ood": ood if all(ood.values()) else {}}
    plain = {name: collect(texts, prompt_sums=False) for name, texts in train.items()}
    return [
        Revealed(
            suite.name,
            tuple(rarity(name, statistics) for name, statistics in plain.items()),
            tuple(_left(clip, least, train, plain, splits) for clip, least in SETTINGS),
            recover(plain, UNKNOWNS),
        )
    ]


def rarity(domain: str, statistics: Statistics) -> Rarity:
    """Tokens that occur, and those that occur rarely."""
    occurring = statistics.histogram[statistics.histogram > 0]
    below = {str(least): int((occurring < least).sum()) for least in LEASTS}
    return Rarity(domain, statistics.prompts, statistics.tokens, len(occurring), below)


def _left(
    clip: int | None,
    least: int,
    train: Mapping[str, Sequence[str]],
    plain: Mapping[str, Statistics],
    splits: Mapping[str, Mapping[str, Sequence[str]]],
) -> Left:
    domains = {name: collect(texts, clip=clip, min_count=least) for name, texts in train.items()}
    accuracies = {}
    for name, scorer, selector in CONTENDERS:
        router = Router.fit(domains, scorer=scorer, selector=selector)
        accuracies[name] = {split: _accuracy(router, prompts) for split, prompts in splits.items()}
    different = [_different(domains[name]) / _different(plain[name]) for name in plain]
    occurrences = [domains[name].tokens / plain[name].tokens for name in plain]
    return Left(clip, least, float(np.mean(different)), float(np.mean(occurrences)), accuracies)


def _accuracy(router: Router, prompts: Mapping[str, Sequence[str]]) -> float | None:
    found = recalls(lambda texts: [decision.best for decision in router.route_batch(texts)], prompts)
    return float(np.mean(list(found.values()))) if found else None


def _different(statistics: Statistics) -> int:
    return int(np.count_nonzero(statistics.histogram))


def recover(domains: Mapping[str, Statistics], unknowns: int) -> Recovery | None:
    """Solve the counts of the domain with the fewest different tokens from its Gram matrix and nothing else.

    Who solves does not know which tokens occur: tokens that do not are among the unknowns, up to so many.
    """
    embedding = Embedding.default()
    domain = min(domains, key=lambda name: _different(domains[name]))
    histogram = domains[domain].histogram
    seen, absent = np.flatnonzero(histogram), np.flatnonzero(histogram == 0)
    if len(seen) > unknowns:
        return None
    drawn = np.random.default_rng(0).permutation(absent)[: unknowns - len(seen)]
    tokens = np.sort(np.r_[seen, drawn])
    rows = embedding.matrix[tokens]
    gram = _gram(histogram[tokens], rows)
    begun = perf_counter()
    found = counts_from_gram(gram, rows)
    seconds = perf_counter() - begun
    width = embedding.width
    wrong = int((found != histogram[tokens]).sum())
    size = width * (width + 1) // 2
    return Recovery(domain, embedding.vocabulary_size, width, size, len(tokens), len(seen), wrong, round(seconds, 1))


def _gram(counts: npt.NDArray[np.int64], rows: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """A = Eᵀ diag(n) E, as the paper's fit sends it."""
    scaled = rows * np.sqrt(counts.astype(np.float64))[:, None]
    return np.asarray(scaled.T @ scaled, np.float64)
