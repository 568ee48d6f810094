"""Published outcomes: prompts of several tasks with every model's score and, where it is known, each answer's cost."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.corpora import read_rows, text_of
from ir3de.errors import InputError

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

KNOWN_DC7 = ("mmlu", "gsm8k", "cmmlu", "arc_challenge", "humaneval")
UNSEEN_DC7 = ("MATH_prealgebra", "mbpp", "javascript", "ceval")
DAMAGED = "Meta-Llama-3.1-70B-Instruct@hyperbolic"  # its answers to MATH are not whole
SUBJECT_GROUPS = 10  # in which the subjects of MMLU are held out
THOUSAND = 1_000.0  # characters, the unit of what an answer costs in ZeroEval


@dataclass(frozen=True, eq=False)
class Part:
    """Prompts, their tasks, each model's score and, where it is known, the cost of its answer."""

    texts: tuple[str, ...]
    tasks: npt.NDArray[np.str_]
    scores: Floats  # (n, models)
    costs: Floats | None = None  # (n, models)

    def take(self, kept: Flags) -> Part:
        """The prompts that are kept."""
        texts = tuple(text for text, keep in zip(self.texts, kept, strict=True) if keep)
        return Part(texts, self.tasks[kept], self.scores[kept], None if self.costs is None else self.costs[kept])

    @property
    def names(self) -> list[str]:
        """The tasks, by name."""
        return sorted(set(self.tasks.tolist()))

    def weigh(self) -> Floats:
        """(n,)  weights that sum to one, the same for every task."""
        _, place, count = np.unique(self.tasks, return_inverse=True, return_counts=True)
        return np.asarray(1.0 / (len(count) * count[place]))


@dataclass(frozen=True, eq=False)
class OutcomeSet:
    """One published set: what is trained on, what is tested on, and which tasks are held out together."""

    name: str
    models: tuple[str, ...]
    train: Part
    test: Part
    cost: str = ""  # what stands for cost; "" where nothing does
    groups: Mapping[str, str] | None = None  # task -> group; else each task is a group

    def thin(self, train: int | None, test: int | None) -> OutcomeSet:
        """At most so many rows of each group of tasks, the same share of each task, by a hash of their prompts."""
        return replace(self, train=self._thin(self.train, train), test=self._thin(self.test, test))

    def _thin(self, part: Part, most: int | None) -> Part:
        if most is None:
            return part
        groups = self.group_of(part.names).tolist()
        keep = np.zeros(len(part.texts), np.bool_)
        for task, group in zip(part.names, groups, strict=True):
            own = sorted(np.flatnonzero(part.tasks == task), key=lambda place: _hash(part.texts[place])[1:])
            keep[own[: max(1, most // groups.count(group))]] = True
        return part.take(keep)

    def group_of(self, tasks: Iterable[str]) -> npt.NDArray[np.str_]:
        """The group of each task."""
        return np.array([task if self.groups is None else self.groups[task] for task in tasks])


def read_sets(data: Path) -> dict[str, Callable[[], OutcomeSet]]:
    """Every set by its name, each read when it is called for."""
    return {
        "RouterBench": lambda: read_routerbench(data / "routerbench" / "zs"),
        "RouterDC-7": lambda: read_routerdc(data / "routerdc7"),
        "RouteLLM": lambda: read_routellm(data / "routellm"),
        "ZeroEval": lambda: read_zeroeval(data / "outcomes", ("gsm", "crux", "math-l5"), "ZeroEval"),
        "ZeroEval, with NumerSense": lambda: read_zeroeval(
            data / "outcomes", ("gsm", "crux", "math-l5", "numersense-v2"), "ZeroEval, with NumerSense"
        ),
    }


def read_routerbench(folder: Path) -> OutcomeSet:
    """Eleven models on three tasks, with US dollars; rows that lack a score are left out."""
    splits = [
        [row for path in _find(folder, f"*_{split}.jsonl*") for row in read_rows([path]) if _is_whole(row["scores"])]
        for split in ("train", "test")
    ]
    return _make("RouterBench", splits, "scores", cost="US dollars", costs="cost")


def read_routerdc(folder: Path) -> OutcomeSet:
    """Seven models of 7 to 8 billion weights; four tasks have no training rows."""
    train = [row for task in KNOWN_DC7 for row in _read_first(folder, f"{task}_train")]
    test = [row for task in KNOWN_DC7 for row in _read_first(folder, f"{task}_test_clean", f"{task}_test")]
    test += [row for task in UNSEEN_DC7 for row in _read_first(folder, f"{task}_ood_test")]
    return _make("RouterDC-7", [train, test], "acc")


def read_routellm(folder: Path) -> OutcomeSet:
    """GPT-4 and Mixtral on MMLU and GSM8K; the subjects of MMLU are held out in groups."""
    splits = [
        [row for name in ("mmlu", "gsm8k") for row in _read_first(folder, f"{name}_{split}")]
        for split in ("train", "test")
    ]
    made = _make("RouteLLM", splits, "scores", cost="calls of the strong model")
    subjects = [task for task in made.test.names if task != "gsm8k"]
    groups = {task: f"mmlu {place % SUBJECT_GROUPS}" for place, task in enumerate(subjects)} | {"gsm8k": "gsm8k"}
    return OutcomeSet(made.name, made.models, made.train, made.test, made.cost, groups)


def read_zeroeval(folder: Path, tasks: Sequence[str], name: str) -> OutcomeSet:
    """The models that answered every row of these tasks; half of the rows, by a hash of the prompt, are trained on."""
    rows = [row for row in _read_first(folder, "zeroeval") if row["task"] in tasks]
    counted = [set(row["correct"]) - {DAMAGED} for row in rows]
    models = sorted(set.intersection(*counted)) if counted else []
    if not models:
        raise InputError(f"no model has a score in every row of {', '.join(tasks)} in {folder}")
    splits: list[list[dict[str, Any]]] = [[], []]
    for row in rows:
        kept = {field: {model: row[field][model] for model in models} for field in ("correct", "output_chars")}
        splits[is_for_test(row["prompt"])].append({**row, **kept})
    made = _make(name, splits, "correct", cost="thousands of characters written", costs="output_chars")
    train, test = (
        Part(part.texts, part.tasks, part.scores, None if part.costs is None else part.costs / THOUSAND)
        for part in (made.train, made.test)
    )
    return OutcomeSet(name, made.models, train, test, made.cost)


def is_for_test(prompt: str) -> bool:
    """Whether a prompt of a set without a split is tested on: one in two, by its SHA-256."""
    return _hash(prompt)[0] % 2 == 1


def _hash(prompt: str) -> bytes:
    return hashlib.sha256(prompt.encode(errors="surrogatepass")).digest()


def _make(
    name: str, splits: Sequence[Sequence[Mapping[str, Any]]], field: str, *, cost: str = "", costs: str = ""
) -> OutcomeSet:
    models = tuple(sorted({model for rows in splits for row in rows for model in row[field]}))
    train, test = (_make_part(name, rows, models, field, costs) for rows in splits)
    return OutcomeSet(name, models, train, test, cost)


def _make_part(name: str, rows: Sequence[Mapping[str, Any]], models: Sequence[str], field: str, costs: str) -> Part:
    if not rows:
        raise InputError(f"{name} has no rows to train on or to test on")
    lacking = next((row for row in rows if any(row[field].get(model) is None for model in models)), None)
    if lacking is not None:
        raise InputError(f"{name}: the prompt {text_of(lacking)[:60]!r} lacks a score of one of {', '.join(models)}")
    texts = tuple(text_of(row) for row in rows)
    tasks = np.array([str(row["task"]) for row in rows])
    scores, spent = (
        np.array([[float(row[kind][model]) for model in models] for row in rows]) if kind else None
        for kind in (field, costs)
    )
    assert scores is not None
    return Part(texts, tasks, scores, spent)


def _is_whole(scores: Any) -> bool:
    return None not in scores.values()


def _read_first(folder: Path, *names: str) -> list[Any]:
    for name in names:
        if found := sorted(folder.glob(f"{name}.jsonl*")):
            return list(read_rows(found[:1]))
    raise InputError(f"no {' or '.join(f'{name}.jsonl' for name in names)}, plain or packed, in {folder}")


def _find(folder: Path, pattern: str) -> list[Path]:
    if found := sorted(folder.glob(pattern)):
        return found
    raise InputError(f"no {pattern.rstrip('*')}, plain or packed, in {folder}")
