"""A journal of requests with labels, for tests of what is learnt from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tiny
from ir3de.traffic import Feedback, Journal, JournalPrompt, TrafficRecord

DAY_S = 86_400.0
FIRST_DAY = 1_794_873_600.0  # 2026-11-17, 00:00 UTC
NAMES = ("maths", "law", "cooking")
TEXTS = {name: tiny.sentences(name, 14, seed=5) for name in NAMES}


def make_prompt(text: str, keep: str = "text") -> JournalPrompt:
    if keep == "text":
        return JournalPrompt.from_text([text])
    ids = tiny.embedding().tokenizer.encode(text)
    return JournalPrompt.from_ids(keep, [np.asarray(ids, np.uint32)])  # type: ignore[arg-type]


class LabelledTraffic:
    """Writes requests and labels into a journal, each request with an id of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.journal = folder, Journal.create(folder)
        self.written: Counter[tuple[str, int]] = Counter()  # a source's requests do not depend on those of others

    def add(
        self,
        author: str,
        texts: Sequence[str],
        expert: str | None,
        *,
        day: int = 0,
        key: str | None = None,
        keep: str = "text",
        score: float | None = None,
    ) -> list[str]:
        """Requests of a key, labelled by an author on a day; the ids of the requests."""
        ids = []
        for text in texts:
            self.written[author, day] += 1
            number = self.written[author, day]
            name, time = f"{author}-{day}-{number}", FIRST_DAY + DAY_S * day + number
            record = TrafficRecord(name, time, key=key or author, served="law", prompt=make_prompt(text, keep))
            self.journal.append([record])
            self.journal.put_feedback(name, Feedback(author, time, expert=expert, score=score))
            ids.append(name)
        return ids
