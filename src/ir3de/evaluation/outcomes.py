"""How good the models are that a router chooses, on prompts whose outcomes are known, beside simpler ways to choose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.outcomes.rows import Row
from ir3de.outcomes.sums import SCORE_UNIT
from ir3de.router import Router

BATCH_ROWS = 4_096

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Reached:
    """Mean scores on some prompts: of the models chosen, of the best single one, of the best and of any for each."""

    prompts: int
    chosen: float | None  # None where no chosen model has a score
    best_single: float | None  # None where that model has no score
    oracle: float
    random: float


@dataclass(frozen=True)
class OutcomeReport:
    """What `evaluate_outcomes` found; `overall` is the mean over the tasks.

    The best single model is the best in hindsight, over these very prompts, among those with scores on every task.
    Prompts on which the chosen model has no score are `unscored`, and left out of `chosen`.
    """

    overall: Reached
    tasks: Mapping[str, Reached]
    best_model: str | None
    choices: Mapping[str, int]
    unscored: int
    abstained: int
    left_out: int  # rows without a score of any model of the router
    strangers: tuple[str, ...]  # models with scores that the router does not know

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def evaluate_outcomes(router: Router, rows: Iterable[Mapping[str, Any]], *, field: str = "scores") -> OutcomeReport:
    """Route the prompts of rows as `Router.fit_outcomes` takes them, and look up what the chosen models scored.

    Any router whose experts have scores will do, also one that was fitted from texts.

    >>> import ir3de
    >>> rows = [{"text": "What is 12 times 7?", "scores": {"large": 1, "small": 0}}]
    >>> evaluate_outcomes(ir3de.Router.fit_outcomes(rows), rows).overall.chosen
    1.0
    """
    place = {model: index for index, model in enumerate(router.experts)}
    checked = (Row.read(number, row, field) for number, row in enumerate(rows, 1))
    scores: list[Floats] = []
    chosen: list[int] = []
    tasks: list[str] = []
    strangers: set[str] = set()
    abstained = left_out = 0
    while batch := list(islice(checked, BATCH_ROWS)):
        strangers.update(*(row.named.difference(place) for row in batch))
        known = [row for row in batch if not place.keys().isdisjoint(row.scores)]
        left_out += len(batch) - len(known)
        for row, decision in zip(known, router.route_batch([row.text for row in known]), strict=True):
            found = np.full(len(place), np.nan)
            for model in place.keys() & row.scores.keys():
                found[place[model]] = row.scores[model] * SCORE_UNIT
            scores.append(found)
            tasks.append(row.task)
            chosen.append(place[decision.expert])
            abstained += decision.abstained
    if not scores:
        raise InputError(f"no row has a score of {', '.join(router.experts)}: there is nothing to compare")
    return _report(
        router, np.stack(scores), np.array(chosen), np.array(tasks), abstained, left_out, tuple(sorted(strangers))
    )


def _report(
    router: Router,
    scores: Floats,
    chosen: npt.NDArray[np.intp],
    tasks: npt.NDArray[np.str_],
    abstained: int,
    left_out: int,
    strangers: tuple[str, ...],
) -> OutcomeReport:
    names = sorted(set(tasks.tolist()))
    means = np.array([[_mean(column) for column in scores[tasks == name].T] for name in names])  # (tasks, models)
    whole = np.where(np.isnan(means).any(axis=0), -np.inf, means.mean(axis=0))
    best = int(whole.argmax()) if np.isfinite(whole.max()) else None
    by_task = {name: _reached(scores[tasks == name], chosen[tasks == name], best) for name in names}
    counts = np.bincount(chosen, minlength=len(router.experts)).tolist()
    return OutcomeReport(
        _over_tasks(list(by_task.values())),
        by_task,
        None if best is None else router.experts[best],
        dict(zip(router.experts, counts, strict=True)),
        int(np.isnan(_taken(scores, chosen)).sum()),
        abstained,
        left_out,
        strangers,
    )


def _reached(scores: Floats, chosen: npt.NDArray[np.intp], best: int | None) -> Reached:
    return Reached(
        len(scores),
        _or_none(_mean(_taken(scores, chosen))),
        None if best is None else _or_none(_mean(scores[:, best])),
        float(np.nanmax(scores, axis=1).mean()),
        float(np.nanmean(scores, axis=1).mean()),
    )


def _over_tasks(tasks: list[Reached]) -> Reached:
    """Each task weighs the same."""

    def mean(name: str) -> float | None:
        found = [value for task in tasks if (value := getattr(task, name)) is not None]
        return float(np.mean(found)) if found else None

    oracle, random = mean("oracle"), mean("random")
    assert oracle is not None and random is not None  # no prompt is without a score
    return Reached(sum(task.prompts for task in tasks), mean("chosen"), mean("best_single"), oracle, random)


def _taken(scores: Floats, chosen: npt.NDArray[np.intp]) -> Floats:
    return np.asarray(scores[np.arange(len(scores)), chosen])


def _mean(values: Floats) -> float:
    """Of what is not missing; nan where all is."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else float("nan")


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else value
