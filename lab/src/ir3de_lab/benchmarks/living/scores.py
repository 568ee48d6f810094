"""What an outcome router learns from scores alone: only the model that answered is scored.

Three sets of outcomes are streams of 5,000 requests, drawn with replacement from the training prompts. A router begins
with a few prompts of each task, on which all models are scored. It decides; with the probability of `routing.explore`
another candidate answers, as in the gateway. The score of the answer goes into the journal, and `learn_scores` makes
the next router after each round. At the end it is measured on test prompts, between two routers that know more: the
best single model by all scores of the training prompts, and the router of the stream's prompts with the scores of all
models and the true tasks. Nothing is chosen on test prompts.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de import Router
from ir3de.corpora import read_rows
from ir3de.traffic import Feedback, Journal, JournalPrompt, TrafficRecord, learn_scores
from ir3de_lab.benchmarks.living import Note
from ir3de_lab.benchmarks.measurement import Figure

SEEDS, QUICK_SEEDS = 5, 1
WORKERS = 2  # processes
ROUNDS, QUICK_ROUNDS = (1_000, 2_500, 5_000), (100, 200)
EXPLORE = 0.5  # the share of requests to another candidate: chosen on training prompts, and the gateway's largest
FEW = 8  # prompts of a task that the router begins with, scored for all models
CLIENTS = 100  # sources of feedback
LEAST_SHARE = 50.0  # percent of the gap
LEAST_GAP = 0.005  # below which there is no gap to close
FIRST_TIME_S = 1_794_873_600.0  # 2026-11-17, 00:00 UTC
TASKS = ("gsm", "crux", "math-l5")  # of ZeroEval: the others have few models
BAD_MODEL = "Meta-Llama-3.1-70B-Instruct@hyperbolic"  # whose answers to math-l5 are incomplete

Floats = npt.NDArray[np.float64]
Row = dict[str, Any]  # text, task, scores


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts with their tasks and what each model scores."""

    texts: Sequence[str]
    tasks: Sequence[str]
    scores: Floats  # (prompts, models)
    models: tuple[str, ...]

    @classmethod
    def build(cls, rows: Sequence[Row], models: tuple[str, ...]) -> Prompts:
        scores = np.array([[float(row["scores"][model]) for model in models] for row in rows])
        return cls([row["text"] for row in rows], [row["task"] for row in rows], scores, models)

    def make_rows(self, places: Sequence[int]) -> list[Row]:
        """Rows with the scores of all models."""
        return [
            {
                "text": self.texts[one],
                "task": self.tasks[one],
                "scores": dict(zip(self.models, self.scores[one].tolist(), strict=True)),
            }
            for one in places
        ]

    def measure(self, router: Router) -> float:
        """The mean score of the models that the router chooses."""
        chosen = [self.models.index(one.best) for one in router.route_batch(list(self.texts))]
        return float(self.scores[np.arange(len(chosen)), chosen].mean())


def measure(data: Path, *, quick: bool, note: Note) -> list[Figure]:
    """The share of the gap between best single model and full information that scores close, for each set."""
    figures = []
    seeds, rounds = (range(QUICK_SEEDS), QUICK_ROUNDS) if quick else (range(SEEDS), ROUNDS)
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:  # streams do not depend on one another
        for name, read in READERS.items():
            train, test = read(data)
            if quick:
                train, test = train[::10], test[::20]
            models = tuple(sorted(train[0]["scores"]))
            run = partial(run_stream, Prompts.build(train, models), Prompts.build(test, models), rounds)
            found = list(pool.map(run, seeds))
            for seed, one in zip(seeds, found, strict=True):
                note(f"{name}, seed {seed}: {one}")
            figures += _summarise(name, found)
    return figures


def _summarise(name: str, found: Sequence[dict[str, Any]]) -> list[Figure]:
    gap = fmean(one["full information"] - one["best single"] for one in found)
    above = fmean(one["learnt"] - one["best single"] for one in found)
    raw = {"streams": list(found), "explore": EXPLORE, "few": FEW, "requests": ROUNDS[-1], "with_replacement": True}
    if gap >= LEAST_GAP:
        figures = [Figure(f"{name}: share of the gap closed", 100 * above / gap, "%", LEAST_SHARE, raw=raw)]
    else:  # the best single model is as good as full information
        figures = [Figure(f"{name}: learnt, above the best single model", 100 * above, "points", None, raw=raw)]
    full = Figure(f"{name}: full information, above the best single model", 100 * gap, "points", None)
    began = fmean(one["began"] - one["best single"] for one in found)
    return [
        *figures,
        full,
        Figure(f"{name}: the few prompts, above the best single model", 100 * began, "points", None),
    ]


def run_stream(train: Prompts, test: Prompts, rounds: Sequence[int], seed: int) -> dict[str, Any]:
    """Mean scores on test prompts, at the beginning, after each round, and of the two routers that know more."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(train.texts)).tolist()
    few = [one for task in sorted(set(train.tasks)) for one in [at for at in order if train.tasks[at] == task][:FEW]]
    rest = sorted(set(order) - set(few))
    stream = random.choice(rest, rounds[-1]).tolist()
    base = Router.fit_outcomes(train.make_rows(few))
    router, measured, served = base, [], []
    with TemporaryDirectory() as folder, Journal.create(Path(folder)) as journal:
        for begin, end in zip((0, *rounds), rounds, strict=False):
            served += _serve(router, train, stream, range(begin, end), journal, random)
            router = learn_scores(base, journal, prove=False).candidate
            measured.append(round(test.measure(router), 5))
    full = Router.fit_outcomes(train.make_rows(sorted({*few, *stream})))
    return {
        "began": round(test.measure(base), 5),
        "best single": round(float(test.scores[:, int(train.scores.mean(axis=0).argmax())].mean()), 5),
        "full information": round(test.measure(full), 5),
        "learnt": measured[-1],
        "rounds": measured,
        "in the stream": round(fmean(served), 5),
    }


def _serve(
    router: Router, train: Prompts, stream: Sequence[int], part: range, journal: Journal, random: np.random.Generator
) -> list[float]:
    """Route a part of the stream, explore as the gateway does, and write requests and scores; returns the scores."""
    scores, records, feedback = [], [], []
    for number, decision in zip(part, router.route_batch([train.texts[stream[one]] for one in part]), strict=True):
        place, served, propensity, arm = stream[number], decision.best, 1.0, ""
        others = [one for one in decision.candidates if one != served]
        if others:
            explored = bool(random.random() < EXPLORE)
            propensity, arm = (EXPLORE / len(others), "explore") if explored else (1 - EXPLORE, "live")
            served = others[int(random.integers(len(others)))] if explored else served
        scores.append(float(train.scores[place, train.models.index(served)]))
        name, time, client = f"request-{number}", FIRST_TIME_S + number, f"client-{number % CLIENTS}"
        prompt = JournalPrompt.from_text([train.texts[place]])
        chance: dict[str, Any] = {"propensity": propensity, "arm": arm}
        records.append(
            TrafficRecord(name, time, key=client, decided=decision.best, served=served, prompt=prompt, **chance)
        )
        feedback.append((name, Feedback(client, time, score=scores[-1])))
    journal.append(records)
    journal.put_all(feedback)
    return scores


def _read_suite(folder: Path, field: str) -> tuple[list[Row], list[Row]]:
    """The prompts of each file's task; test prompts that are also training prompts are left out where that is known."""
    parts: tuple[list[Row], list[Row]] = ([], [])
    for path in sorted(folder.glob("*_train.jsonl*")):
        task = path.name.partition("_train.jsonl")[0]
        tests = sorted(folder.glob(f"{task}_test_clean.jsonl*")) or sorted(folder.glob(f"{task}_test.jsonl*"))
        for rows, found in zip(parts, ([path], tests), strict=True):
            rows += [{"text": row["text"], "task": task, "scores": row[field]} for row in read_rows(found)]
    return parts


def _read_routellm(data: Path) -> tuple[list[Row], list[Row]]:
    """GPT-4 and Mixtral-8x7B on MMLU and GSM8K, which are the two tasks."""
    return _read_suite(data / "routellm", "scores")


def _read_routerdc(data: Path) -> tuple[list[Row], list[Row]]:
    """Seven models, six tasks."""
    return _read_suite(data / "routerdc7", "acc")


def _read_zeroeval(data: Path) -> tuple[list[Row], list[Row]]:
    """The models that answered all prompts of three tasks. A checksum of the prompt decides which half is for tests."""
    found: list[dict[str, Any]] = [dict(row) for row in read_rows(sorted((data / "outcomes").glob("zeroeval.jsonl*")))]
    rows = [row for row in found if row["task"] in TASKS]
    answered = [{model for model, right in row["correct"].items() if right is not None} for row in rows]
    models = sorted(set.intersection(*answered) - {BAD_MODEL})
    parts: tuple[list[Row], list[Row]] = ([], [])
    for row in rows:
        scores = {model: row["correct"][model] for model in models}
        is_test = zlib.crc32(row["prompt"].encode()) % 2 == 0
        parts[is_test].append({"text": row["prompt"], "task": row["task"], "scores": scores})
    return parts


READERS: dict[str, Callable[[Path], tuple[list[Row], list[Row]]]] = {
    "routellm": _read_routellm,
    "zeroeval": _read_zeroeval,
    "routerdc7": _read_routerdc,
}
