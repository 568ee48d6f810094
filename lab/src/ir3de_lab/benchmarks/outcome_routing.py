"""Quality reached by routing on outcomes: the mean score of the chosen models, beside simpler ways of choosing.

The folder holds `{task}_{train,test,test_clean,ood_test}.jsonl`, plain or compressed, with rows of `text`, `task` and
scores per model. Tasks with both `train` and a test split are known, tasks with `ood_test` unseen. Everything is fitted
on `train` alone; of `test` and `test_clean` the latter is taken where it exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de import Router
from ir3de.corpora import read_rows
from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de.selectors import DEFAULT_CAP
from ir3de.statistics import collect

Floats = npt.NDArray[np.float64]
Choices = npt.NDArray[np.intp]
SMOOTHING = 1_000.0  # tokens of the tasks' mixture added to each task by naive Bayes


@dataclass(frozen=True, eq=False)
class Split:
    """The prompts of one task and split, and what each model scored on them."""

    task: str
    texts: list[str]
    scores: Floats  # (prompts, models), nan where missing

    def reached(self, chosen: Choices) -> float:
        """The mean score of the chosen models, in percent; prompts on which the chosen one has none are left out."""
        return 100.0 * float(np.nanmean(self.scores[np.arange(len(self.scores)), chosen]))


@dataclass(frozen=True)
class Row:
    """One way of choosing: the mean over known and over unseen tasks, in percent, and each task's own."""

    router: str
    known: float
    unseen: float
    by_task: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def measure(folder: Path, *, leave_out: Sequence[str] = (), field: str = "acc") -> list[Row]:
    """Fit on the training rows and choose a model for every test prompt; tasks in `leave_out` do not exist."""
    train, known, unseen = _splits(folder, leave_out)
    rows = [row for path in train.values() for row in _rows(path)]
    router = Router.fit_outcomes(rows, field=field)
    tests = [_split(task, path, router.experts, field) for task, path in {**known, **unseen}.items()]
    learnt = {task: _split(task, path, router.experts, field) for task, path in train.items()}
    means = np.stack([np.nanmean(split.scores, axis=0) for split in learnt.values()])
    by_task = Router.fit({task: split.texts for task, split in learnt.items()})
    bayes = _naive_bayes(learnt)
    best = means.argmax(axis=1)
    ways = {
        "ir3de": [_by_router(router, split) for split in tests],
        "best model of the task, usual router": [best[_by_router(by_task, split)] for split in tests],
        "best model of the task, naive Bayes": [best[_by_table(bayes, split).argmax(axis=1)] for split in tests],
        "best single model": [np.full(len(split.texts), means.mean(axis=0).argmax()) for split in tests],
        "oracle": [np.nan_to_num(split.scores, nan=-np.inf).argmax(axis=1) for split in tests],
    }
    figures = [
        _row(name, tests, [s.reached(c) for s, c in zip(tests, chosen, strict=True)], len(known))
        for name, chosen in ways.items()
    ]
    drawn = [100.0 * float(np.nanmean(split.scores)) for split in tests]
    return [*figures, _row("a model at random", tests, drawn, len(known))]


def _row(name: str, tests: Sequence[Split], reached: Sequence[float], known: int) -> Row:
    return Row(
        name,
        float(np.mean(reached[:known])),
        float(np.mean(reached[known:])) if reached[known:] else float("nan"),
        {split.task: round(value, 3) for split, value in zip(tests, reached, strict=True)},
    )


def _splits(folder: Path, leave_out: Sequence[str]) -> tuple[dict[str, Path], dict[str, Path], dict[str, Path]]:
    """Files of training, known and unseen tasks."""
    files = {path.name.split(".jsonl")[0]: path for path in sorted(folder.glob("*.jsonl*"))}

    def having(split: str) -> dict[str, Path]:
        tasks = {name.removesuffix(split): path for name, path in files.items() if name.endswith(split)}
        return {task: path for task, path in tasks.items() if task not in leave_out}

    train, unseen = having("_train"), having("_ood_test")
    tests = {**having("_test"), **having("_test_clean")}
    known = {task: path for task, path in tests.items() if task in train}
    if not known:
        raise InputError(f"no task in {folder}: expected {{task}}_train.jsonl and {{task}}_test.jsonl, or compressed")
    return train, known, unseen


def _rows(path: Path) -> list[dict[str, Any]]:
    return list(read_rows([path]))


def _split(task: str, path: Path, models: Sequence[str], field: str) -> Split:
    rows = _rows(path)
    scores = [[row[field].get(model) for model in models] for row in rows]
    return Split(task, [row["text"] for row in rows], np.array(scores, np.float64))


def _by_table(table: npt.NDArray[np.floating], split: Split) -> Floats:
    """The sum of each prompt's rows, and nothing else: (prompts, K)."""
    return np.stack([table[ids[:DEFAULT_CAP]].sum(axis=0, dtype=np.float64) for ids in _ids(split)])


def _ids(split: Split) -> list[npt.NDArray[np.intp]]:
    flat, lengths = Embedding.default().tokenizer.encode_batch(split.texts)
    return np.split(flat.astype(np.intp), np.cumsum(lengths.astype(np.int64))[:-1])


def _by_router(router: Router, split: Split) -> Choices:
    """The place among the router's experts of each prompt's."""
    place = {expert: index for index, expert in enumerate(router.experts)}
    return np.array([place[decision.best] for decision in router.route_batch(split.texts)], np.intp)


def _naive_bayes(learnt: dict[str, Split]) -> Floats:
    """log p(token | task), smoothed towards the mixture of the tasks: (V, tasks)."""
    counts = np.stack([collect(s.texts, prompt_sums=False).histogram for s in learnt.values()], axis=1)
    mixture = (counts / counts.sum(axis=0)).mean(axis=1) + 1e-9
    smoothed = counts + SMOOTHING * mixture[:, None]
    return np.asarray(np.log(smoothed / smoothed.sum(axis=0)))
