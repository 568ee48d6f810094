"""The prompts of an evaluation: routed in batches, weighted by the mix of the experts, and looked up in the fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ir3de.errors import ArtifactError
from ir3de.evaluation.intervals import JSONReport
from ir3de.router import Router
from ir3de.routing.decision import Decision
from ir3de.statistics.sample import Sample, hash_text

BATCH_PROMPTS = 4_096
BATCH_CHARACTERS = 4_000_000
WORTH_A_WARNING = 0.02  # the share of prompts in the fit: a few short ones are in every collection
NOTABLE = 0.01  # a mean over the experts that differs by more from the figure on the mix is shown next to it

Item = TypeVar("Item")
Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def route_in_batches(
    router: Router, items: Iterable[Item], text_of: Callable[[Item], str]
) -> Iterator[tuple[list[Item], list[Decision]]]:
    """Route the texts of many items, a bounded number of prompts and characters at a time."""
    batch: list[Item] = []
    characters = 0
    for item in items:
        batch.append(item)
        characters += len(text_of(item))
        if len(batch) >= BATCH_PROMPTS or characters >= BATCH_CHARACTERS:
            yield batch, router.route_batch([text_of(one) for one in batch])
            batch, characters = [], 0
    if batch:
        yield batch, router.route_batch([text_of(one) for one in batch])


def weigh_by_mix(experts: Indices, prompts: Indices) -> Floats:
    """One weight per held-out prompt, Σ = 1: an expert's prompts weigh its share of all prompts.

    Of a large expert only a sample of prompts is kept, so its share of the held-out prompts is not its share of all
    prompts. `experts` (n,) are the places of their experts, `prompts` (C,) the number of prompts of each expert.
    Experts without a held-out prompt are left out.

    >>> weigh_by_mix(np.array([0, 0, 1]), np.array([900, 100, 500]))
    array([0.45, 0.45, 0.1 ])
    """
    sizes = np.bincount(experts, minlength=len(prompts))
    shares = find_shares(sizes, prompts)
    return np.asarray(shares[experts] / sizes[experts])


def find_shares(held: Indices, prompts: Indices) -> Floats:
    """Each expert's share of all prompts, among those that have held-out prompts."""
    measured = np.where(held > 0, prompts, 0)
    return np.asarray(measured / measured.sum())


def weigh_experts_alike(experts: Indices, count: int) -> Floats:
    """One weight per held-out prompt, Σ = 1: every expert has the same."""
    return weigh_by_mix(experts, np.ones(count, np.int64))


@dataclass(frozen=True)
class SeenPrompts(JSONReport):
    """Of the prompts evaluated, how many could be looked up (`told`), and how many of those were in the fit."""

    prompts: int
    told: int
    seen: int

    def describe(self, advice: str) -> str | None:
        """A warning about the accuracy, with `advice`; None where too few prompts were in the fit to matter."""
        if self.seen <= WORTH_A_WARNING * self.told:
            return None
        checked = f"{self.told:,} prompts"
        of = checked if self.told == self.prompts else f"the {checked} that could be checked"
        return f"{self.seen:,} of {of} were in the fit: the accuracy is too optimistic. {advice}"


class PromptMemory:
    """Compares the prompts of an evaluation with those that a router was fitted on.

    The router keeps the hashes of a sample of its prompts: those whose hashes come first. Where the sample is full,
    prompts whose hashes come later cannot be looked up.
    """

    def __init__(self, samples: Mapping[str, Sample]) -> None:
        self._samples = samples
        self._hashes: dict[str, list[int]] = {name: [] for name in samples}

    @classmethod
    def of(cls, router: Router) -> PromptMemory | None:
        """The memory of this router; None for an outcome router, and for a serving copy."""
        if router.kind != "domains":
            return None
        try:
            known = router.statistics
        except ArtifactError:  # left out of a serving copy
            return None
        return cls({name: own.sample if own.sample is not None else Sample.empty() for name, own in known.items()})

    def look_up(self, expert: str, text: str) -> None:
        """Add a prompt of the evaluation."""
        self._hashes[expert].append(hash_text(text))

    def count(self) -> SeenPrompts:
        """How many of the prompts were in the fit, of any expert."""
        known = np.concatenate([np.zeros(0, np.uint32), *(sample.hashes for sample in self._samples.values())])
        told = seen = 0
        for name, own in self._hashes.items():
            hashes = np.array(own, np.uint32)
            was_seen = np.isin(hashes, known)
            seen += int(was_seen.sum())
            told += int((was_seen | self._samples[name].would_hold(hashes)).sum())
        return SeenPrompts(sum(map(len, self._hashes.values())), told, seen)
