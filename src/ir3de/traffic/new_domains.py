"""New domains: the prompts that fit no expert, in groups, each named by its words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ir3de.fitting.clusters import cluster
from ir3de.router import Router
from ir3de.traffic.labelling import KnownPrompt, embed_prompts, read_prompts
from ir3de.traffic.records import TrafficRecord

LEAST_PROMPTS = 5  # of a group that is shown
PROMPTS_PER_GROUP = 40
MAX_GROUPS = 12
NAME_WORDS = 4
_WORDS = re.compile(r"[^\W\d_]{3,40}")


@dataclass(frozen=True)
class NewDomain:
    """Prompts that fit no expert and are about the same."""

    words: tuple[str, ...]  # that set them apart, the clearest first
    requests: int
    prompts: tuple[str, ...]  # different ones, the most typical first

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def find_new_domains(router: Router, records: Iterable[TrafficRecord]) -> list[NewDomain]:
    """Groups of prompts on which the router abstains, the largest first. The same prompts give the same groups."""
    everything = read_prompts(router, records)
    strange = [one for one in everything if one.abstained]
    if len(strange) < LEAST_PROMPTS:
        return []
    vectors = embed_prompts(router, strange)
    count = min(max(len(strange) // PROMPTS_PER_GROUP, 1), MAX_GROUPS)
    groups = cluster(vectors, count)
    known = Counter(word for one in everything for word in _list_words(one))
    found = []
    for group in range(count):
        places = np.flatnonzero(groups == group)
        if len(places) >= LEAST_PROMPTS:
            typical = vectors[places] @ vectors[places].mean(axis=0)
            own = [strange[places[place]] for place in np.argsort(-typical, kind="stable").tolist()]
            found.append(_describe(own, known, len(everything)))
    return sorted(found, key=lambda one: (-one.requests, one.words))


def _list_words(prompt: KnownPrompt) -> set[str]:
    return set(_WORDS.findall(prompt.text.casefold()))


def _describe(own: Sequence[KnownPrompt], known: Counter[str], total: int) -> NewDomain:
    """Words that many prompts of the group have, and few of the others: share here times the lift over all."""
    counts = Counter(word for one in own for word in _list_words(one))

    def lift(word: str) -> float:
        here, elsewhere = counts[word] / len(own), (known[word] - counts[word] + 1) / (total - len(own) + 2)
        return here * min(here / elsewhere, 100.0)

    words = sorted((word for word in counts if counts[word] > 1), key=lambda word: (-lift(word), word))[:NAME_WORDS]
    return NewDomain(tuple(words), sum(one.requests for one in own), tuple(one.text for one in own))
