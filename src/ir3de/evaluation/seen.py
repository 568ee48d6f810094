"""Which prompts of an evaluation were in the fit: an accuracy on those is too good.

The router keeps the hashes of a sample of the prompts that it was fitted on. The sample holds the prompts whose hashes
come first. So where it is full, prompts whose hashes come later cannot be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ir3de.errors import ArtifactError
from ir3de.evaluation.json_report import JSONReport
from ir3de.router import Router
from ir3de.statistics.sample import Sample, hash_text

WORTH_A_WARNING = 0.02  # the share of prompts in the fit: a few short ones are in every collection


@dataclass(frozen=True)
class SeenPrompts(JSONReport):
    """Of the prompts evaluated, how many could be told, and how many of those were in the fit."""

    prompts: int
    told: int
    seen: int

    def describe(self, advice: str) -> str | None:
        """What is wrong with the accuracy, with `advice`; None where too few prompts were in the fit to matter."""
        if self.seen <= WORTH_A_WARNING * self.told:
            return None
        told = f"{self.told:,} prompts"
        of = told if self.told == self.prompts else f"the {told} that could be checked"
        return f"{self.seen:,} of {of} were in the fit: this accuracy is too good. {advice}"


class PromptMemory:
    """Compares the prompts of an evaluation with those that a router was fitted on."""

    def __init__(self, samples: Mapping[str, Sample]) -> None:
        self._samples = samples
        self._asked: dict[str, list[int]] = {name: [] for name in samples}

    @classmethod
    def of(cls, router: Router) -> PromptMemory | None:
        """What this router remembers; None for one from outcomes, and for a serving copy."""
        if router.kind != "domains":
            return None
        try:
            known = router.statistics
        except ArtifactError:  # left out of a serving copy
            return None
        return cls({name: own.sample if own.sample is not None else Sample.empty() for name, own in known.items()})

    def look_up(self, expert: str, text: str) -> None:
        """Remember a prompt that was asked about."""
        self._asked[expert].append(hash_text(text))

    def count(self) -> SeenPrompts:
        """How many of the prompts were in the fit, for whichever expert."""
        known = np.concatenate([np.zeros(0, np.uint32), *(sample.hashes for sample in self._samples.values())])
        told = seen = 0
        for name, asked in self._asked.items():
            hashes = np.array(asked, np.uint32)
            was_seen = np.isin(hashes, known)
            seen += int(was_seen.sum())
            told += int((was_seen | self._samples[name].would_hold(hashes)).sum())
        return SeenPrompts(sum(map(len, self._asked.values())), told, seen)
