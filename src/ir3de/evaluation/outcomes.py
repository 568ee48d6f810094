"""Mean scores of the models that a router chooses, compared with simpler ways to choose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.evaluation.accuracy import route_in_batches
from ir3de.evaluation.json_report import JSONReport
from ir3de.evaluation.strong_weak import StrongWeakReport, find_pair, measure_order
from ir3de.outcomes.rows import Row
from ir3de.outcomes.sums import SCORE_UNIT
from ir3de.router import Router

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MeanScores:
    """Mean scores of the chosen models, of the best single model, of an oracle, and of random choice."""

    prompts: int
    chosen: float | None  # None where no chosen model has a score
    best_single: float | None  # None where that model has no score
    oracle: float
    random: float


CONFIDENT = 1.96  # standard errors on each side of an interval that holds the truth 19 times of 20


@dataclass(frozen=True)
class Gain:
    """How much higher the chosen models score than the best single model, with its 95 % interval.

    The interval is that of the mean of differences prompt by prompt, each task weighing the same.
    """

    mean: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class OutcomeReport(JSONReport):
    """What `evaluate_outcomes` found; `overall` is the mean over the tasks.

    The best single model is the best in hindsight, over these very prompts, among those with scores on every task.
    Prompts on which the chosen model has no score are `unscored`, and left out of `chosen`.
    """

    overall: MeanScores
    tasks: Mapping[str, MeanScores]
    best_model: str | None
    choices: Mapping[str, int]
    unscored: int
    gain: Gain | None = None  # None where no task has two prompts with both scores
    strong_weak: StrongWeakReport | None = None  # of two models
    abstained: int = 0
    left_out: int = 0  # rows without a score of any model of the router
    unknown_models: tuple[str, ...] = ()  # models with scores that the router does not know


def evaluate_outcomes(
    router: Router,
    rows: Iterable[Mapping[str, Any]],
    *,
    field: str = "scores",
    strong: str | None = None,
    weak: str | None = None,
) -> OutcomeReport:
    """Route the prompts of rows as `Router.fit_outcomes` takes them, and look up what the chosen models scored.

    The router may also be fitted from texts, as long as its experts have scores. With two models, or where `strong` and
    `weak` name two, the report also says what each share of strong calls buys; of two that are not named, the one
    with the better mean on these prompts is the strong one.

    >>> import ir3de
    >>> rows = [{"text": "What is 12 times 7?", "scores": {"large": 1, "small": 0}}]
    >>> evaluate_outcomes(ir3de.Router.fit_outcomes(rows), rows).overall.chosen
    1.0
    """
    place = {model: index for index, model in enumerate(router.experts)}
    scores: list[list[float]] = []
    chosen: list[int] = []
    values: list[list[float]] = []
    tasks: list[str] = []
    unknown_models: set[str] = set()
    abstained = left_out = 0
    has_pair = strong is not None or weak is not None or len(place) == 2 or router.policy.strong_share is not None
    if has_pair:
        find_pair(router, strong, weak)  # or it is refused before anything is routed

    def rows_with_scores() -> Iterator[Row]:
        nonlocal left_out
        for number, given in enumerate(rows, 1):
            row = Row.read(number, given, field)
            unknown_models.update(row.named.difference(place))
            if place.keys().isdisjoint(row.scores):
                left_out += 1
            else:
                yield row

    for batch, decisions in route_in_batches(router, rows_with_scores(), lambda row: row.text):
        for row, decision in zip(batch, decisions, strict=True):
            scores.append([row.scores.get(model, np.nan) * SCORE_UNIT for model in place])
            tasks.append(row.task)
            chosen.append(place[decision.expert or decision.best])
            if has_pair:
                quality = dict(decision.quality)
                values.append([quality[model] for model in place])
            abstained += decision.abstained
    if not scores:
        raise InputError(f"no row has a score of {', '.join(router.experts)}: there is nothing to compare")
    found = np.array(scores)
    report = _summarise(router.experts, found, np.array(chosen), np.array(tasks))
    if has_pair:
        pair = find_pair(router, strong, weak, [_mean(column) for column in found.T])
        report = replace(report, strong_weak=_compare_pair(pair, place, found, np.array(values), np.array(chosen)))
    return replace(report, abstained=abstained, left_out=left_out, unknown_models=tuple(sorted(unknown_models)))


def _compare_pair(
    pair: tuple[str, str], place: Mapping[str, int], scores: Floats, values: Floats, chosen: npt.NDArray[np.intp]
) -> StrongWeakReport | None:
    """What each share of strong calls buys, on the prompts on which both models have a score."""
    strong, weak = place[pair[0]], place[pair[1]]
    both = ~np.isnan(scores[:, [strong, weak]]).any(axis=1)
    if not both.any():
        return None
    scored, gaps = scores[both][:, [strong, weak]], values[both, strong] - values[both, weak]
    found = measure_order(gaps, scored) or (None, None, None, None)
    means = float(scored[:, 0].mean()), float(scored[:, 1].mean())
    return StrongWeakReport(*pair, len(scored), *means, float((chosen[both] == strong).mean()), *found)


def _summarise(
    experts: tuple[str, ...], scores: Floats, chosen: npt.NDArray[np.intp], tasks: npt.NDArray[np.str_]
) -> OutcomeReport:
    names = sorted(set(tasks.tolist()))
    means = np.array([[_mean(column) for column in scores[tasks == name].T] for name in names])  # (tasks, models)
    whole = np.where(np.isnan(means).any(axis=0), -np.inf, means.mean(axis=0))
    best = int(whole.argmax()) if np.isfinite(whole.max()) else None
    by_task = {name: _mean_scores(scores[tasks == name], chosen[tasks == name], best) for name in names}
    return OutcomeReport(
        _average_tasks(list(by_task.values())),
        by_task,
        None if best is None else experts[best],
        dict(zip(experts, np.bincount(chosen, minlength=len(experts)).tolist(), strict=True)),
        int(np.isnan(_pick_chosen(scores, chosen)).sum()),
        None if best is None else _measure_gain(scores, chosen, best, [tasks == name for name in names]),
    )


def _measure_gain(
    scores: Floats, chosen: npt.NDArray[np.intp], best: int, tasks: Sequence[npt.NDArray[np.bool_]]
) -> Gain | None:
    """The mean over tasks of y_chosen − y_best, with the standard error √(Σ_t s_t²/n_t) / tasks."""
    differences = _pick_chosen(scores, chosen) - scores[:, best]
    parts = [found for task in tasks if len(found := differences[task & ~np.isnan(differences)]) > 1]
    if not parts:
        return None
    mean = float(np.mean([part.mean() for part in parts]))
    error = float(np.sqrt(sum(np.sort(part).var(ddof=1) / len(part) for part in parts))) / len(parts)
    return Gain(mean, mean - CONFIDENT * error, mean + CONFIDENT * error)


def _mean_scores(scores: Floats, chosen: npt.NDArray[np.intp], best: int | None) -> MeanScores:
    return MeanScores(
        len(scores),
        _none_if_nan(_mean(_pick_chosen(scores, chosen))),
        None if best is None else _none_if_nan(_mean(scores[:, best])),
        float(np.nanmax(scores, axis=1).mean()),
        float(np.sort(np.nanmean(scores, axis=1)).mean()),
    )


def _average_tasks(tasks: list[MeanScores]) -> MeanScores:
    """Average over the tasks, each with the same weight."""

    def mean(name: str) -> float | None:
        found = [value for task in tasks if (value := getattr(task, name)) is not None]
        return float(np.mean(found)) if found else None

    oracle, random = mean("oracle"), mean("random")
    assert oracle is not None and random is not None  # no prompt is without a score
    return MeanScores(sum(task.prompts for task in tasks), mean("chosen"), mean("best_single"), oracle, random)


def _pick_chosen(scores: Floats, chosen: npt.NDArray[np.intp]) -> Floats:
    return np.asarray(scores[np.arange(len(scores)), chosen])


def _mean(values: Floats) -> float:
    """Mean of the scores that are present; nan without any."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else float("nan")


def _none_if_nan(value: float) -> float | None:
    return None if np.isnan(value) else value
