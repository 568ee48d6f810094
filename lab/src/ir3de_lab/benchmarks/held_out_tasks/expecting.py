"""What every way of choosing expects of each model on each test prompt: with all tasks known, with its task held out.

Ours is fitted with its defaults and never tuned here. A rival's setting is chosen on training rows: for held-out tasks
on tasks that are held out of the training tasks, for known tasks on rows that are held out of the training rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ir3de import Router
from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de_lab.benchmarks.held_out_tasks.heads import Head, Setting, Vectors, list_heads
from ir3de_lab.benchmarks.held_out_tasks.sets import Flags, Floats, OutcomeSet, Part, Places

Regime = Literal["known", "held out"]
REGIMES: tuple[Regime, ...] = ("known", "held out")
OURS, SINGLE, OF_TASK, RANDOM, ORACLE = (
    "ir3de, from outcomes",
    "best single model",
    "best model of the true task",
    "a model at random",
    "oracle",
)
PARTS = 4  # of the training tasks or rows, each held out once to choose a rival's setting

Encode = Callable[[tuple[str, ...]], Vectors]
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Way:
    """One way of choosing in one regime: (n,) scores of its choices on the test prompts, and what it expected."""

    name: str
    regime: Regime
    reached: Floats
    expected: Floats | None = None  # (n, models); None where a way expects nothing
    usual: Floats | None = None  # (n, models)  costs of the training rows in use
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Fold:
    """Training rows in use, and the test prompts that are asked with them."""

    name: str
    train: Flags
    test: Flags


def expect_all(
    given: OutcomeSet, encode: Encode, say: Say = lambda _: None, embedding: Embedding | None = None
) -> Iterator[Way]:
    """Every way in both regimes; `known` leaves the prompts of tasks without training rows at nan.

    `embedding` is that of our router, by default the bundled one.
    """
    vectors = encode(given.train.texts), encode(given.test.texts)
    for regime in REGIMES:
        folds = _fold(given, regime)
        say(f"{given.name}, {regime}: ours")
        yield _expect_ours(given, regime, folds, embedding)
        for name, grid in list_heads().items():
            say(f"{given.name}, {regime}: {name}")
            yield _expect_rival(given, regime, folds, name, grid, vectors)
        yield from _list_plain(given, regime, folds)


def asked_in(given: OutcomeSet, regime: Regime) -> Flags:
    """(n,)  which test prompts count in a regime: where tasks are known, those of a task with training rows."""
    asked = np.ones(len(given.test.tasks), np.bool_)
    return np.isin(given.test.tasks, given.train.tasks) if regime == "known" else asked


def _fold(given: OutcomeSet, regime: Regime) -> list[_Fold]:
    everything = np.ones(len(given.train.tasks), np.bool_)
    if regime == "known":
        return [_Fold("all tasks", everything, asked_in(given, "known"))]
    trained, tested = given.group_of(given.train.tasks), given.group_of(given.test.tasks)
    folds = [_Fold(name, trained != name, tested == name) for name in sorted(set(trained.tolist()))]
    if poor := next((fold.name for fold in folds if len(set(given.train.tasks[fold.train].tolist())) < 2), None):
        raise InputError(
            f"{given.name}: without '{poor}' fewer than two tasks are left to train on; give outcomes of three or more"
        )
    never = ~np.isin(tested, trained)
    return [*folds, _Fold("tasks without training rows", everything, never)] if never.any() else folds


def _expect_ours(given: OutcomeSet, regime: Regime, folds: list[_Fold], embedding: Embedding | None) -> Way:
    shape = len(given.test.texts), len(given.models)
    expected, usual, reached = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape[0], np.nan)
    about = {}
    for fold in folds:
        rows = _to_rows(given, fold.train)
        texts = _texts(given.test, fold.test)
        router = Router.fit_outcomes(rows, embedding=embedding)
        place = {model: index for index, model in enumerate(given.models)}
        chosen = np.array([place[decision.best] for decision in router.route_batch(texts)], np.intp)
        reached[fold.test] = _look_up(given.test.scores[fold.test], chosen)
        about[fold.name] = {"shrinkage": str(router.scorer), "reason": router.validation.reason}
        if given.cost:
            usual[fold.test] = _find_usual(given, fold)
            if router.validation.reason:  # the guard has acted, else both are the same
                # as --strong-share does: the order of prompts counts
                router = Router.fit_outcomes(rows, embedding=embedding, guard=False)
            found = [dict(decision.quality) for decision in router.route_batch(texts)]
            expected[fold.test] = [[one[model] for model in given.models] for one in found]
    return Way(OURS, regime, reached, expected if given.cost else None, usual, about)


def _expect_rival(
    given: OutcomeSet,
    regime: Regime,
    folds: list[_Fold],
    name: str,
    grid: Mapping[Setting, Head],
    vectors: tuple[Vectors, Vectors],
) -> Way:
    shape = len(given.test.texts), len(given.models)
    expected, usual = np.full(shape, np.nan), np.full(shape, np.nan)
    about = {}
    for fold in folds:
        known, part = vectors[0][fold.train], given.train.take(fold.train)
        setting = choose_setting(grid, known, part, _split_tasks(part) if regime == "held out" else _split_rows(part))
        expected[fold.test] = grid[setting](known, part.scores, vectors[1][fold.test])
        usual[fold.test] = _find_usual(given, fold)
        about[fold.name] = list(setting)
    reached = np.full(shape[0], np.nan)
    asked = ~np.isnan(expected[:, 0])
    reached[asked] = _look_up(given.test.scores[asked], expected[asked].argmax(axis=1))
    return Way(name, regime, reached, expected, usual, {"settings": about})


def choose_setting(grid: Mapping[Setting, Head], known: Vectors, part: Part, places: Places) -> Setting:
    """The setting whose choices score best where each place of the rows is held out in turn, tasks weighted alike.

    Among equals it is the one with the lower squared error, then the first.
    """
    weights = part.weigh()
    found = []
    for setting, head in grid.items():
        expected = np.empty_like(part.scores)
        for place in np.unique(places):
            out = places == place
            expected[out] = head(known[~out], part.scores[~out], known[out])
        reached = float(weights @ _look_up(part.scores, expected.argmax(axis=1)))
        error = float(weights @ ((expected - part.scores) ** 2).mean(axis=1))
        found.append((round(reached, 9), -error, setting))
    return max(found, key=lambda one: one[:2])[2]


def _split_tasks(part: Part) -> Places:
    """(n,)  the place of each row's task among at most four groups, which the tasks join in turn by name."""
    groups = min(PARTS, len(part.names))
    place = {task: index % groups for index, task in enumerate(part.names)}
    return np.array([place[task] for task in part.tasks.tolist()], np.intp)


def _split_rows(part: Part) -> Places:
    """(n,)  one of four parts, by a hash of the prompt."""
    digests = (hashlib.sha256(text.encode(errors="surrogatepass")).digest() for text in part.texts)
    return np.array([digest[1] % PARTS for digest in digests], np.intp)


def _list_plain(given: OutcomeSet, regime: Regime, folds: list[_Fold]) -> Iterator[Way]:
    """Ways that know nothing of a prompt but, at most, its task; and bounds."""
    scores, asked = given.test.scores, asked_in(given, regime)
    single, of_task = (np.full(len(scores), np.nan) for _ in range(2))
    for fold in folds:
        part = given.train.take(fold.train)
        single[fold.test] = scores[fold.test, int((part.weigh() @ part.scores).argmax())]
    for task in sorted(set(given.test.tasks[asked].tolist())):
        own, rows = given.test.tasks == task, given.train.tasks == task
        learnt = given.train.scores[rows] if rows.any() else scores[own]
        of_task[own] = scores[own, int(learnt.mean(axis=0).argmax())]
    yield Way(SINGLE, regime, single)
    yield Way(OF_TASK, regime, of_task)
    yield Way(RANDOM, regime, np.where(asked, scores.mean(axis=1), np.nan))
    yield Way(ORACLE, regime, np.where(asked, scores.max(axis=1), np.nan))


def _find_usual(given: OutcomeSet, fold: _Fold) -> Floats:
    """(models,)  what an answer costs on average in the training rows in use, tasks weighted alike; else nothing."""
    part = given.train.take(fold.train)
    return np.zeros(len(given.models)) if part.costs is None else part.weigh() @ part.costs


def _to_rows(given: OutcomeSet, kept: Flags) -> list[dict[str, Any]]:
    part = given.train.take(kept)
    return [
        {"text": text, "task": task, "scores": dict(zip(given.models, scores, strict=True))}
        for text, task, scores in zip(part.texts, part.tasks.tolist(), part.scores.tolist(), strict=True)
    ]


def _texts(part: Part, kept: Flags) -> list[str]:
    return [text for text, keep in zip(part.texts, kept, strict=True) if keep]


def _look_up(scores: Floats, chosen: npt.NDArray[np.intp]) -> Floats:
    return np.asarray(scores[np.arange(len(scores)), chosen])
