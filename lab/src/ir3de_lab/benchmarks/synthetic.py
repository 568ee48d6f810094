"""As many domains as wanted, made from real prompts: each has a vocabulary of word pairs of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

MOST_WORDS = 40  # of a real prompt
PAIRS = 24  # of words that belong to a domain
LETTERS = 4  # of a word in a pair, at least


@dataclass(frozen=True)
class Synthetic:
    """Domains by number. A prompt is a real one with about as many words of its domain's pairs strewn in.

    Pairs are drawn from the words of the real prompts, so domains share most of what they are made of. No real
    prompt is in the training and the held-out part of the same domain.
    """

    texts: Sequence[str]

    @cached_property
    def _words(self) -> list[str]:
        return sorted({word for text in self.texts for word in text.split() if word.isalpha() and len(word) >= LETTERS})

    def prompts(self, domain: int, count: int, *, held_out: bool = False) -> list[str]:
        """So many prompts of a domain, always the same."""
        own = Random(f"domain {domain}")
        pairs = [f"{own.choice(self._words)} {own.choice(self._words)}" for _ in range(PAIRS)]
        turn = own.randrange(len(self.texts))
        draw = Random(f"domain {domain} {held_out}")
        half = len(self.texts) // 2
        made = []
        for _ in range(count):
            at = turn + half * held_out + draw.randrange(half)
            words = self.texts[at % len(self.texts)].split()[:MOST_WORDS]
            for _ in range(1 + len(words) // 2):
                words.insert(draw.randrange(len(words) + 1), draw.choice(pairs))
            made.append(" ".join(words))
        return made
