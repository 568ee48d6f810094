"""Traffic of which some requests get a label, as a journal: what learning is measured on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ir3de import Router
from ir3de.traffic import Feedback, Journal, JournalPrompt, TrafficRecord
from ir3de_lab.benchmarks.defaults import Material, draw_few
from ir3de_lab.benchmarks.living.streams import list_labelled

FEW = 8  # prompts of an expert that the router begins with
REQUESTS = 4_000
LABELLED_SHARE = 0.05
WRONG_SHARE = 0.1  # of the labels
SOURCES = 10
FIRST_TIME_S = 1_794_873_600.0  # 2026-11-17, 00:00 UTC

Texts = dict[str, list[str]]


@dataclass(frozen=True)
class LabelledRequest:
    """A request, its right expert, and the label that somebody gave it."""

    text: str
    expert: str
    author: str = ""
    label: str | None = None


@dataclass(frozen=True)
class LabelledStream:
    """A few prompts of each expert, and the requests that follow: training prompts that were not drawn."""

    few: Mapping[str, Sequence[str]]
    requests: Sequence[LabelledRequest]

    @classmethod
    def draw(cls, material: Material, seed: int) -> LabelledStream:
        """Draw prompts, requests, labels and errors; the same ones for the same seed."""
        random, few = np.random.default_rng(seed), draw_few(material.train, FEW, seed)
        drawn = {(text, name) for name, own in few.items() for text in own}
        rest = [one for one in zip(*list_labelled(material.train), strict=True) if one not in drawn]
        chosen = [rest[place] for place in random.permutation(len(rest))[:REQUESTS]]
        labelled = set(random.permutation(len(chosen))[: round(LABELLED_SHARE * len(chosen))].tolist())
        names, requests = list(few), []
        for place, (text, expert) in enumerate(chosen):
            author = f"client-{place % SOURCES}"
            label = None
            if place in labelled:
                wrong = random.random() < WRONG_SHARE
                label = draw_other(names, expert, random) if wrong else expert
            requests.append(LabelledRequest(text, expert, author, label))
        return cls(few, requests)

    def add(self, more: Sequence[tuple[str, str]]) -> Texts:
        """The few prompts and others, by expert."""
        texts: Texts = {name: list(own) for name, own in self.few.items()}
        for text, expert in more:
            texts[expert].append(text)
        return texts

    @property
    def labelled(self) -> list[LabelledRequest]:
        return [one for one in self.requests if one.label is not None]


def draw_other(names: Sequence[str], expert: str, random: np.random.Generator) -> str:
    """Another expert than this one."""
    return names[(names.index(expert) + int(random.integers(1, len(names)))) % len(names)]


@contextmanager
def write_journal(requests: Sequence[LabelledRequest]) -> Iterator[Journal]:
    """A journal with these requests and their labels, one second apart. It is deleted in the end."""
    with TemporaryDirectory() as folder, Journal.create(Path(folder)) as journal:
        for number, one in enumerate(requests):
            name, time = f"request-{number}", FIRST_TIME_S + number
            journal.append([TrafficRecord(name, time, key=one.author, prompt=JournalPrompt.from_text([one.text]))])
            if one.label is not None:
                journal.put_feedback(name, Feedback(one.author, time, expert=one.label))
        yield journal


def measure_accuracy(router: Router, material: Material) -> float:
    """The share of test prompts whose nearest expert is the right one, in percent."""
    texts, experts = list_labelled(material.splits["test"])
    nearest = [one.best for one in router.route_batch(texts)]
    return 100.0 * float(np.mean([one == other for one, other in zip(nearest, experts, strict=True)]))
