"""A bounded sample of the prompts that models were scored on: their mean embeddings and scores, no text.

Sums cannot say what the chosen models scored, because a choice is no sum. So some prompts are kept one by one. For each
model these are the prompts whose digests come first. So the samples of two parts add up to the sample of both, in any
order, and a model that is taken out leaves no trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from heapq import nsmallest

import numpy as np

from ir3de.statistics.integers import Integers

MAX_PROMPTS = 2_048  # of each model

PromptKey = tuple[int, str]  # digest of the text, task
ScoreSum = tuple[int, int]  # how often the prompt was scored, Σ y / SCORE_UNIT


def digest_text(text: str) -> int:
    """63 bits that depend on the text alone."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True, eq=False)
class KeptPrompt:
    """A prompt's fold, and its mean embedding in fixed point as in the sums."""

    fold: int
    vector: Integers  # (h,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptPrompt) and self.fold == other.fold and np.array_equal(self.vector, other.vector)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class OutcomeSample:
    """The kept prompts, and the scores that each model had on those it keeps."""

    prompts: Mapping[PromptKey, KeptPrompt]
    scores: Mapping[str, Mapping[PromptKey, ScoreSum]]

    def __add__(self, other: OutcomeSample) -> OutcomeSample:
        return self._combine(other, +1)

    def __sub__(self, other: OutcomeSample) -> OutcomeSample:
        """Without the other's scores. Prompts that did not fit in before do not come back."""
        return self._combine(other, -1)

    def without(self, model: str) -> OutcomeSample:
        return self._keep({name: own for name, own in self.scores.items() if name != model})

    def only(self, model: str) -> OutcomeSample:
        return self._keep({name: own for name, own in self.scores.items() if name == model})

    def without_length(self) -> OutcomeSample:
        """The same prompts without the last column."""
        shorter = {key: KeptPrompt(prompt.fold, prompt.vector[:-1]) for key, prompt in self.prompts.items()}
        return OutcomeSample(shorter, self.scores)

    def _combine(self, other: OutcomeSample, sign: int) -> OutcomeSample:
        scores = dict(self.scores)
        for model, theirs in other.scores.items():
            own = dict(scores.get(model, {}))
            for key, (count, total) in theirs.items():
                before = own.get(key, (0, 0))
                if sign > 0 or before[0] > count:
                    own[key] = before[0] + sign * count, before[1] + sign * total
                else:
                    own.pop(key, None)
            scores[model] = {key: own[key] for key in nsmallest(MAX_PROMPTS, own)}
        return OutcomeSample({**other.prompts, **self.prompts}, scores)._keep(scores)

    def _keep(self, scores: Mapping[str, Mapping[PromptKey, ScoreSum]]) -> OutcomeSample:
        """These scores, and their prompts in the order of their keys."""
        kept = {model: own for model, own in sorted(scores.items()) if own}
        used = sorted(set().union(*kept.values()))
        return OutcomeSample({key: self.prompts[key] for key in used}, kept)


EMPTY = OutcomeSample({}, {})
