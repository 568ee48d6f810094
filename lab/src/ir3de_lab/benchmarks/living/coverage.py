"""How often the 95 % intervals of `compare` cover the truth, on simulated logs.

The test prompts of seven tasks have the scores of seven models, so the truth is the mean over all of them. A log draws
conversations of one to three prompts of one task. The live router answers, but chance sends a share of the requests to
another of three models. Every answer is scored, and every prompt is labelled with its best model. Tokens and prices are
made up. Routers are fitted on training prompts; nothing is chosen here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de import Conversation, Router
from ir3de.corpora import read_rows
from ir3de.traffic import Comparison, Feedback, JournalPrompt, Price, TrafficRecord, compare
from ir3de_lab.benchmarks.living import Note
from ir3de_lab.benchmarks.measurement import Figure

LOGS, QUICK_LOGS = 200, 20
REQUESTS, QUICK_REQUESTS = (100, 400, 2_000), (100,)
EXPLORE = 0.3  # of the requests, to one of the other models
MODELS = 3  # the best ones on the training prompts
FEW_ROWS = 300  # that the live router is fitted on
MOST_TURNS = 3  # requests of a conversation
LEAST, MOST = 93.0, 97.0  # percent of the logs
PRICES = (Price(0.5, 1.5), Price(2.5, 10.0, 1.25), Price(1.0, 4.0))

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pool:
    """The prompts that logs are drawn from; what the two routers choose, and what each model scores."""

    texts: Sequence[str]
    tasks: npt.NDArray[np.int64]
    scores: Floats  # (prompts, models)
    tokens: npt.NDArray[np.int64]  # (prompts, 2): read and written
    models: tuple[str, ...]
    routers: tuple[Router, Router]
    chosen: npt.NDArray[np.int64]  # (2, prompts)

    def find_truth(self) -> dict[str, float]:
        """The differences over all prompts, each of which is as likely to be drawn as the others."""
        place, best = np.arange(len(self.texts)), self.scores.argmax(axis=1)
        live, candidate = self.chosen
        prices = np.array([(one.input_per_1m, one.output_per_1m) for one in PRICES]) / 1e6
        costs = [(self.tokens * prices[one]).sum(axis=1) for one in self.chosen]
        return {
            "accuracy": float(((candidate == best).astype(float) - (live == best)).mean()),
            "expected score": float((self.scores[place, candidate] - self.scores[place, live]).mean()),
            "cost": 1_000 * float((costs[0] - costs[1]).mean()),
        }


def measure(data: Path, *, quick: bool, note: Note) -> list[Figure]:
    """The share of the logs whose interval covers the truth, for each figure and size of the log."""
    pool = _read_pool(data / "routerdc7")
    truth = pool.find_truth()
    note(f"truth: {truth}; the two routers differ on {100 * np.mean(pool.chosen[0] != pool.chosen[1]):.1f} %")
    figures = []
    for requests in QUICK_REQUESTS if quick else REQUESTS:
        logs = QUICK_LOGS if quick else LOGS
        found = [_find_intervals(_compare(pool, requests, seed)) for seed in range(logs)]
        for name, value in truth.items():
            intervals = [one[name] for one in found]
            covered = 100 * float(np.mean([low <= value <= high for low, high in intervals]))
            raw = {"requests": requests, "logs": logs, "truth": value, "explore": EXPLORE, "bar": [LEAST, MOST],
                   "mean_width": float(np.mean([high - low for low, high in intervals]))}  # fmt: skip
            figures.append(Figure(f"{name}, {requests:,} requests", covered, "% of the logs", LEAST, raw=raw))
    return figures


def _read_pool(folder: Path) -> Pool:
    def read(suffix: str) -> list[dict[str, Any]]:
        paths = sorted(path for path in folder.glob(f"*{suffix}.jsonl*") if "ood" not in path.name)
        return [{**row, "task": path.name.removesuffix(suffix)} for path in paths for row in read_rows([path])]

    train, test = read("_train"), read("_test_clean") + read("humaneval_test") + read("gsm8k_test")
    names = sorted({model for row in train for model in row["acc"]})
    means = {name: float(np.mean([row["acc"].get(name) or 0.0 for row in train])) for name in names}
    models = tuple(sorted(sorted(names, key=lambda name: -means[name])[:MODELS]))
    order = np.random.default_rng(0).permutation(len(train))
    rows = [{"text": row["text"], "task": row["task"], "scores": {one: row["acc"].get(one) for one in models}}
            for row in (train[place] for place in order)]  # fmt: skip
    routers = Router.fit_outcomes(rows[:FEW_ROWS], guard=False), Router.fit_outcomes(rows, guard=False)
    texts = [row["text"] for row in test]
    places = {name: number for number, name in enumerate(models)}
    chosen = [[places[_route(router, text)] for text in texts] for router in routers]
    tasks = np.unique([row["task"] for row in test], return_inverse=True)[1]
    scores = np.array([[row["acc"].get(one) or 0.0 for one in models] for row in test])
    written = np.random.default_rng(1).lognormal(5.5, 0.7, len(test)).astype(np.int64)
    tokens = np.stack([np.array([1 + len(text) // 4 for text in texts]), written], axis=1)
    return Pool(texts, tasks.astype(np.int64), scores, tokens, models, routers, np.array(chosen))


def _route(router: Router, text: str) -> str:
    """The model for a chat of this one turn, as a gateway reads it: a pasted document is not the user's words."""
    decision = Conversation(router, envelopes=()).route(text)
    return decision.expert or decision.best


def _draw_log(pool: Pool, requests: int, seed: int) -> list[TrafficRecord]:
    random, found = np.random.default_rng(seed), list[TrafficRecord]()
    by_task = [np.flatnonzero(pool.tasks == task) for task in range(pool.tasks.max() + 1)]
    while len(found) < requests:
        own = by_task[pool.tasks[random.integers(len(pool.texts))]]
        conversation = f"c{len(found)}"
        for place in random.choice(own, random.integers(1, MOST_TURNS + 1)).tolist():
            live, explored = int(pool.chosen[0, place]), bool(random.random() < EXPLORE)
            served = (live + int(random.integers(1, MODELS))) % MODELS if explored else live
            price, (read, written) = PRICES[served], pool.tokens[place].tolist()
            feedback = Feedback(
                "people", 1.0, pool.models[int(pool.scores[place].argmax())], float(pool.scores[place, served])
            )
            found.append(
                TrafficRecord(
                    f"r{len(found)}",
                    1.76e9 + 3_600.0 * len(found),
                    decided=pool.models[live],
                    served=pool.models[served],
                    conversation=conversation,
                    propensity=EXPLORE / (MODELS - 1) if explored else 1 - EXPLORE,
                    arm="explore" if explored else "live",
                    prompt_tokens=read,
                    completion_tokens=written,
                    cost=(read * price.input_per_1m + written * price.output_per_1m) / 1e6,
                    prompt=JournalPrompt.from_text([pool.texts[place]]),
                    feedback=(feedback,),
                )
            )
    return found[:requests]


def _compare(pool: Pool, requests: int, seed: int) -> Comparison:
    prices = {name: replace(price, cached_input_per_1m=None) for name, price in zip(pool.models, PRICES, strict=True)}
    return compare(*pool.routers, _draw_log(pool, requests, seed), prices=prices, examples=0)


def _find_intervals(found: Comparison) -> dict[str, tuple[float, float]]:
    assert found.accuracy is not None and found.score is not None and found.cost is not None
    parts = (found.accuracy.difference, found.score.difference.estimate, found.cost.saving)
    names = ("accuracy", "expected score", "cost")
    return {name: (one.low, one.high) for name, one in zip(names, parts, strict=True)}
