"""Mean scores of the models that a router chooses; and of a strong and a weak model, what each share of calls buys.

Prompts are ordered by how far the router expects the strong model to lie above the weak one. At a share c of strong
calls, the first c of them go to the strong model. As RouteLLM defines them,

    PGR(c) = (mean score at c − weak's) / (strong's − weak's)    the performance gap recovered
    APGR   = ∫ PGR(c) dc from 0 to 1                             0.5 for a random order
    CPT(x) = the smallest c with PGR(c) ≥ x                      x for a random order
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError, UnknownExpertError, name_some
from ir3de.evaluation.intervals import JSONReport
from ir3de.evaluation.prompts import route_in_batches
from ir3de.fitting.outcomes import Row
from ir3de.fitting.quality import CONSTANT, measure_gaps
from ir3de.policies import StrongShare, check_share
from ir3de.router import Router
from ir3de.scorers.expectation import Shrinkage
from ir3de.statistics.outcomes import SCORE_UNIT

CONFIDENT = 1.96  # standard errors on each side of an interval that holds the truth 19 times of 20

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MeanScores:
    """Mean scores of the chosen models, of the best single model, of an oracle, and of random choice."""

    prompts: int
    chosen: float | None  # None where no chosen model has a score
    best_single: float | None  # None where that model has no score
    oracle: float
    random: float


@dataclass(frozen=True)
class Gain:
    """How much higher the chosen models score than the best single model, with its 95 % interval.

    The interval is that of the mean of differences prompt by prompt, each task weighing the same.
    """

    mean: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class StrongWeakReport(JSONReport):
    """How well a router orders prompts by their need for the strong model; None where the strong one is not better.

    `error` is the standard error of `apgr` over prompts, the order of the prompts given. `strong_share` is the share
    that the router's own decisions send to the strong model.
    """

    strong: str
    weak: str
    prompts: int
    strong_score: float
    weak_score: float
    strong_share: float
    apgr: float | None
    error: float | None
    cpt_50: float | None
    cpt_80: float | None


@dataclass(frozen=True)
class OutcomeReport(JSONReport):
    """The result of `evaluate_outcomes`; `overall` is the mean over the tasks.

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
    `weak` name two, the report also has what each share of strong calls buys; of two that are not named, the one
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
        find_pair(router, strong, weak)  # rejects wrong names before anything is routed

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
    own = scores[np.arange(len(scores)), chosen]
    by_task = {name: _mean_scores(scores[tasks == name], own[tasks == name], best) for name in names}
    return OutcomeReport(
        _average_tasks(list(by_task.values())),
        by_task,
        None if best is None else experts[best],
        dict(zip(experts, np.bincount(chosen, minlength=len(experts)).tolist(), strict=True)),
        int(np.isnan(own).sum()),
        None if best is None else _measure_gain(own - scores[:, best], [tasks == name for name in names]),
    )


def _measure_gain(differences: Floats, tasks: Sequence[npt.NDArray[np.bool_]]) -> Gain | None:
    """The mean over tasks of y_chosen − y_best, with the standard error √(Σ_t s_t²/n_t) / tasks."""
    parts = [found for task in tasks if len(found := differences[task & ~np.isnan(differences)]) > 1]
    if not parts:
        return None
    mean = float(np.mean([part.mean() for part in parts]))
    error = float(np.sqrt(sum(np.sort(part).var(ddof=1) / len(part) for part in parts))) / len(parts)
    return Gain(mean, mean - CONFIDENT * error, mean + CONFIDENT * error)


def _mean_scores(scores: Floats, own: Floats, best: int | None) -> MeanScores:
    return MeanScores(
        len(scores),
        _none_if_nan(_mean(own)),
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


def _mean(values: Floats) -> float:
    """Mean of the scores that are present; nan without any."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else float("nan")


def _none_if_nan(value: float) -> float | None:
    return None if np.isnan(value) else value


def find_pair(
    router: Router, strong: str | None = None, weak: str | None = None, means: Sequence[float] | None = None
) -> tuple[str, str]:
    """The strong and the weak model: those named, those of the router's policy, or the better and the other of two.

    Without names, the better of two models is found by `means`, or by the router's own expectation.
    """
    experts, share = router.experts, router.policy.strong_share
    for name in (strong, weak):
        if name is not None and name not in experts:
            raise UnknownExpertError(f"no model '{name}': this router has {name_some(experts, name)}")
    if strong is None and weak is None and share is not None:
        return share.strong, share.weak
    if (strong is None or weak is None) and len(experts) != 2:
        raise InputError(
            f"strong and weak must both be named for a router of {len(experts)} models, found strong={strong!r} and "
            f"weak={weak!r}: name two of {', '.join(experts)} (--strong and --weak on the command line)"
        )
    if strong is None and weak is None:
        rules = router.compiled.rules
        values = rules.valuation.tally_nothing(2) if means is None else np.asarray(means)
        strong = experts[int(values.argmax())]
    strong = strong or next(name for name in experts if name != weak)
    weak = weak or next(name for name in experts if name != strong)
    if strong == weak:
        raise InputError(f"strong and weak are both '{strong}': name two models")
    return strong, weak


def measure_order(gaps: npt.ArrayLike, scores: npt.ArrayLike) -> tuple[float, float, float, float] | None:
    """APGR, its standard error, CPT(50 %) and CPT(80 %) of prompts ordered by their gaps; ties share their gain.

    `scores` has two columns, strong and weak. None where the strong model is not better.

    >>> measure_order([3.0, 2.0, 1.0, 0.0], [(1, 0), (1, 0), (1, 1), (0, 0)])[0]
    0.75
    """
    found, pair = np.asarray(gaps, np.float64), np.asarray(scores, np.float64)
    gained = pair[:, 0] - pair[:, 1]
    order = np.lexsort((gained, found))  # sums of floats depend on the order
    found, gained = found[order], gained[order]
    whole = gained.sum()
    if not len(found) or whole <= 0:
        return None
    _, place, count = np.unique(-found, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    # a prompt counts from its call on: 1 − its place among all, ties in the middle of their places
    later = (1.0 - (ends - count / 2) / len(found))[place]
    apgr = float((gained * later).sum() / whole)
    error = float(np.sqrt((gained**2 * (later - apgr) ** 2).sum()) / whole)
    recovered = np.append(0.0, np.cumsum(np.bincount(place, gained)) / whole)
    calls = np.append(0.0, ends / len(found))
    return apgr, error, _find_calls(calls, recovered, 0.5), _find_calls(calls, recovered, 0.8)


def _find_calls(calls: Floats, recovered: Floats, wanted: float) -> float:
    """The smallest share of calls that recovers as much, interpolated; the last point recovers everything."""
    after = int(np.argmax(recovered >= wanted - 1e-12))
    rise = recovered[after] - recovered[after - 1]
    return float(calls[after - 1] + (calls[after] - calls[after - 1]) * (wanted - recovered[after - 1]) / rise)


@dataclass(frozen=True)
class ShareCalibration:
    """A router with its strong share, the prompts it was picked on, and the share of them that is reached."""

    router: Router
    chosen: StrongShare
    prompts: int
    reached: float

    def __repr__(self) -> str:  # in one line: the router has its own
        return f"ShareCalibration(prompts={self.prompts}, reached={self.reached:.3f}, {self.chosen}, …)"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**vars(self.chosen), "prompts": self.prompts, "reached": self.reached}


def calibrate_strong_share(
    router: Router, prompts: Iterable[str] | None, share: float, *, strong: str | None = None, weak: str | None = None
) -> ShareCalibration:
    """Send this share of the prompts to the strong model: a new router. Prompts need no scores.

    Give prompts as the router will meet them, but not those that it was fitted from: on these it expects too much. For
    them, give None: the router then takes those that it kept, and holds them out in turn. With two models, the strong
    one is that of the better mean unless named.

    >>> import ir3de
    >>> rows = [{"text": f"What is {n} times {n}?" if n % 2 else f"Who wrote book {n}?",
    ...          "scores": {"large": 1, "small": n % 2}} for n in range(400)]
    >>> made = calibrate_strong_share(ir3de.Router.fit_outcomes(rows), ["What is 2 times 3?", "Who wrote Faust?"], 0.5)
    >>> [made.router.route(text).expert for text in ("What is 7 times 5?", "Who wrote Emma?")]
    ['small', 'large']
    """
    check_share(share)
    pair = find_pair(router, strong, weak)
    if router.scorer == CONSTANT:
        raise InputError(
            "this router expects the same difference between two models on all prompts, because routing was worse than "
            "the best single model on held-out prompts: fit it with guard=False (`ir3de fit --strong-share`)"
        )
    if prompts is None:
        gaps = _measure_kept_gaps(router, pair)
    else:
        plain = router.with_policy(replace(router.policy, strong_share=None))
        routed = route_in_batches(plain, prompts, str)
        values = [dict(decision.quality) for _, decisions in routed for decision in decisions]
        gaps = [value[pair[0]] - value[pair[1]] for value in values]
    threshold = pick_share_threshold(gaps, share)
    chosen = StrongShare(*pair, share, threshold)
    reached = float((np.asarray(gaps) >= threshold).mean())
    changed = router.with_policy(replace(router.policy, strong_share=chosen))
    return ShareCalibration(changed, chosen, len(gaps), reached)


def _measure_kept_gaps(router: Router, pair: tuple[str, str]) -> list[float]:
    """The gaps of the router's kept prompts, each held out in turn."""
    assert isinstance(router.scorer, Shrinkage)
    found = measure_gaps(router.outcomes, router.scorer, *(router.experts.index(name) for name in pair))
    if found is None:
        raise InputError("the router kept no prompts to pick a threshold on: give prompts, best of recent traffic")
    return [float(gap) for gap in found]


def pick_share_threshold(gaps: Sequence[float], share: float) -> float:
    """The threshold that comes closest to this share of gaps at or above it, but some and not all of them.

    >>> pick_share_threshold([0.4, 0.1, 0.2, 0.3], 0.25)
    0.35
    """
    values, counts = np.unique(-np.asarray(gaps, np.float64), return_counts=True)
    if len(values) < 2:
        raise InputError(
            f"{len(gaps):,} prompts, and the router expects the same difference between the two models on all of them: "
            "no threshold sends a share of them to the strong one. Give more prompts, or fit from more rows"
        )
    reached = np.cumsum(counts)[:-1] / len(gaps)
    cut = int(np.abs(reached - share).argmin())
    return float(-(values[cut] + values[cut + 1]) / 2)
