"""The words that speak most for each expert, as far as prompts say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from ir3de.router import Router

MAX_PROMPTS = 40  # of each expert, that are explained
MAX_WORDS = 8
MIN_LETTERS = 2
MAX_LETTERS = 30


@dataclass(frozen=True)
class SpokenWord:
    """A word of an expert's prompts, and what it contributes to it over some of them."""

    text: str
    contribution: float


def find_words(router: Router, domains: Mapping[str, Iterable[str]]) -> dict[str, tuple[SpokenWord, ...]]:
    """For each expert the words that gave it the largest lead over the next expert, in prompts that it gets.

    Words that other experts' prompts have as well count less.

    >>> router = Router.fit({"maths": ["Solve x + 3 = 10."], "law": ["Is this contract void?"]})
    >>> [word.text for word in find_words(router, {"law": ["Is this contract void?"]})["law"]][:1]
    ['contract']
    """
    said = {name: _sum_words(router, name, islice(texts, MAX_PROMPTS)) for name, texts in domains.items()}
    everywhere = sum((counts for counts, _ in said.values()), Counter[str]())
    return {name: _choose(counts, sums, everywhere) for name, (counts, sums) in said.items()}


def _sum_words(router: Router, name: str, texts: Iterable[str]) -> tuple[Counter[str], dict[str, float]]:
    """How often each word occurs in an expert's prompts, and what it contributes where the expert gets them."""
    counts, sums = Counter[str](), defaultdict[str, float](float)
    for text in texts:
        found = router.explain(text)
        words = [(word.text.strip().casefold(), word.contribution) for word in found.words if word.counted]
        words = [(word, value) for word, value in words if _is_word(word)]
        counts.update(word for word, _ in words)
        if found.decision.best == name:
            for word, value in words:
                sums[word] += value
    return counts, sums


def _is_word(text: str) -> bool:
    return MIN_LETTERS <= len(text) <= MAX_LETTERS and text.isalpha()


def _choose(counts: Counter[str], sums: Mapping[str, float], everywhere: Counter[str]) -> tuple[SpokenWord, ...]:
    worth = {word: value * counts[word] / everywhere[word] for word, value in sums.items() if value > 0}
    best = sorted(worth, key=lambda word: (-worth[word], word))[:MAX_WORDS]
    return tuple(SpokenWord(word, worth[word]) for word in best)
