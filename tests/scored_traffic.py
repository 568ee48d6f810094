"""An outcome router and a journal of scored requests, for tests of what is learnt from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tiny
from ir3de import Router
from ir3de.traffic import Feedback, Journal, TrafficRecord
from labelled_traffic import DAY_S, FIRST_DAY, make_prompt

TASKS = ("maths", "law", "cooking")
MODELS = ("large", "small", "third")


def fit_router(prompts: int = 6, **options: Any) -> Router:
    """A router that knows the tasks, and of every model the same: nothing to choose by."""
    rows = [
        {"text": text, "task": task, "scores": {model: (0.5 + 0.01 * (model == "large")) for model in MODELS}}
        for task in TASKS
        for text in tiny.sentences(task, prompts, seed=5)
    ]
    return Router.fit_outcomes(rows, embedding=tiny.embedding(), **options)


class ScoredTraffic:
    """Writes requests and the scores of their answers into a journal."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.journal = folder, Journal.create(folder)

    def add(
        self,
        author: str,
        texts: Sequence[str],
        served: str,
        score: float | None,
        *,
        day: int = 0,
        key: str | None = None,
        keep: str = "text",
        label: str | None = None,
        **more: Any,
    ) -> list[str]:
        """Requests of a key that one expert answered, scored by an author on a day; the ids of the requests."""
        ids = []
        for number, text in enumerate(texts):
            name, time = f"{author}-{day}-{served}-{text[:12]}-{number}", FIRST_DAY + DAY_S * day + number
            prompt = None if keep == "nothing" else make_prompt(text, keep)
            more = {"propensity": 1 / 3, "arm": "explore", **more}
            self.journal.append([TrafficRecord(name, time, key=key or author, served=served, prompt=prompt, **more)])
            self.journal.put_feedback(name, Feedback(author, time, expert=label, score=score))
            ids.append(name)
        return ids

    def add_source(self, author: str, *, day: int = 0, prompts: int = 8, keep: str = "text", seed: int = 20) -> None:
        """On maths `small` is right and the others are wrong, on cooking `third` is, on law `large`."""
        best = {"maths": "small", "cooking": "third", "law": "large"}
        for task in TASKS:
            texts = tiny.sentences(task, prompts, seed=seed)
            for model in MODELS:
                self.add(author, texts, model, float(model == best[task]), day=day, keep=keep)
