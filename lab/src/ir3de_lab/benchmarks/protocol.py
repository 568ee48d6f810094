"""How routers are compared: the same prompts, cuts and draws for all, and the mean over domains of the share right.

Any function from texts to names of domains can be scored: `score(route, prompts)`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de_lab.benchmarks.accuracy import Suite

Texts = Mapping[str, Sequence[str]]
Route = Callable[[Sequence[str]], Sequence[str]]

FIRST = 32  # tokens of a prompt that is cut short
SHOTS, DRAWS = 30, 10


@dataclass(frozen=True)
class Prompts:
    """A suite's prompts by domain: to fit on, and to route, whole, cut short, and from other sources.

    `ood` is empty unless every domain has such prompts.
    """

    suite: str
    train: Texts
    test: Texts
    first_32: Texts = field(default_factory=dict)
    ood: Texts = field(default_factory=dict)


@dataclass(frozen=True)
class Scores:
    """By split and domain, the percentage of prompts routed to their own domain."""

    recalls: dict[str, dict[str, float]]

    def mean(self, split: str) -> float | None:
        """The mean over the domains, or None where the split was not measured."""
        return float(np.mean(list(self.recalls[split].values()))) if self.recalls.get(split) else None


def prompts_of(suite: Suite) -> Prompts:
    """Read a suite, and cut its test prompts short."""
    train, test, ood = (
        {domain: suite.texts(domain, split) for domain in sorted(suite.folders)} for split in ("train", "test", "ood")
    )
    short = {domain: [first_tokens(text) for text in texts] for domain, texts in test.items()}
    return Prompts(suite.name, train, test, short, ood if all(ood.values()) else {})


def first_tokens(text: str, count: int = FIRST) -> str:
    """The text up to the end of that many tokens of IR3DE's own tokenizer.

    >>> first_tokens("Is this contract void?", 3)
    'Is this contract'
    """
    return "".join(piece for _, piece in Embedding.default().tokenizer.pieces(text)[:count])


def prompt_hash(text: str) -> int:
    """Hash a prompt to 32 bits: which prompts a benchmark draws depends on their texts alone.

    >>> prompt_hash("What is 2 + 2?")
    4100265294
    """
    return zlib.crc32(text.encode("utf-8", "replace"))


def score(route: Route, prompts: Prompts, splits: Sequence[str] = ("test", "first_32", "ood")) -> Scores:
    """Route the prompts of the splits, each split's in one call."""
    return Scores({split: recalls(route, texts) for split in splits if (texts := getattr(prompts, split))})


def recalls(route: Route, domains: Texts) -> dict[str, float]:
    """Per domain with prompts, the percentage routed to it."""
    chosen = iter(route([text for texts in domains.values() for text in texts]))
    return {
        domain: 100.0 * float(np.mean([next(chosen) == domain for _ in texts]))
        for domain, texts in domains.items()
        if texts
    }


def few_shot(train: Texts, shots: int = SHOTS, draws: int = DRAWS) -> Iterator[dict[str, list[str]]]:
    """Small training sets, the same ones every time: `shots` prompts of each domain, drawn without repeats."""
    scarce = [domain for domain, texts in train.items() if len(texts) < shots]
    if scarce:
        raise InputError(
            f"the domain {scarce[0]!r} has {len(train[scarce[0]])} training prompts, and {shots} are to be drawn: "
            "draw fewer"
        )
    for draw in range(draws):
        rng = np.random.default_rng(draw)
        yield {
            domain: [train[domain][i] for i in rng.choice(len(train[domain]), shots, replace=False)]
            for domain in sorted(train)
        }
