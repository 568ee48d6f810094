"""Outcomes to expected quality: per-task means, moved by the prompt's own embedding, in closed form.

    q_m(x̄, ℓ) = Σ_t p_t(x̄) · μ_tm + δ_m(x̄) + γ_m·(ℓ − ℓ̄),    p = softmax(SHARPNESS · task scores of x̄)

μ_tm is model m's mean score on task t, shrunk towards its other tasks and the other models; the task scores
are a prompt ridge over tasks; δ_m and γ_m are a ridge of the residuals on x̄ and on ℓ, the logarithm of the prompt's
length, less their mean over the models: the prompt moves models against each other, and its task gives how hard it is
for all of them. Cross-validation chooses the shrinkage; of equals it takes the most cautious. Task scores and δ are
linear in x̄, so they compile to a table of tokens.

The result is compared with the best single model on held-out prompts. For each fold, the other three are fitted with
the chosen shrinkage. They also give the best single model. Both choices are looked up in the scores of the fold's kept
prompts. With d = y_chosen − y_best, prompt by prompt,

    gain  = mean over tasks of mean d        error = √(Σ_t s_t² / n_t) / tasks

as in evaluation. Where gain < −error, the best single model replaces routing: all prompts are expected to be alike.

Scores of answered requests, which `ir3de learn` adds, are of one model each. They count in μ as those of rows do, and
nowhere else: no embedding is kept of them, and δ predicts what the means of the rows alone leave over. With such
scores, the gain is measured task by task: the mean score of the model that the other folds choose for the task, minus
that of the best single model, on the fold's own scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.fitting.shrinkage import Cells, Evidence, add_traffic, cross_validate, solve_tasks, sum_cells, task_means
from ir3de.scorers.arithmetic import BLOCK_ROWS, Rows
from ir3de.scorers.expectation import FINE, SHARPNESS, Expectation, HeldOutGain, Shrinkage, Validation, weigh_tasks
from ir3de.scorers.table import Table, row_blocks
from ir3de.statistics.outcomes import FOLDS, LENGTH_PARTS, SCORE_UNIT, Outcomes, OutcomeSample, PromptKey

Floats = npt.NDArray[np.float64]

CONSTANT = Shrinkage(math.inf, math.inf)  # one expected score per model
MIN_COMPARED_SCORES = 2  # of both models in a task and fold
ORDERING_STRENGTH = 4_096.0  # instead of an infinite one, where prompts of a single task must be ordered


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Kept prompts: what a fit without their fold expects, the best single model of that fit, and their scores."""

    tasks: tuple[str, ...]  # of each prompt
    expected: Floats  # (prompts, models)
    best: tuple[int, ...]
    scores: Floats  # (prompts, models), nan where there is none


def expect_held_out(outcomes: Outcomes, shrinkage: Shrinkage) -> HeldOut | None:
    """Expected scores of the kept prompts, each from the other folds; None where there is nothing to hold out."""
    if outcomes.sample is None:
        return None
    tasks: list[str] = []
    best: list[int] = []
    expected, scores = [], []
    for part, train in _split(outcomes):
        keys = [key for key, prompt in outcomes.sample.prompts.items() if prompt.fold == part]
        found, single = _expect(outcomes, shrinkage, train, keys, _list_others(part))
        expected.append(found)
        scores.append(_look_up(outcomes.sample, keys, outcomes.models))
        tasks += [task for _, task in keys]
        best += [single] * len(keys)
    if not tasks:
        return None
    return HeldOut(tuple(tasks), np.concatenate(expected), tuple(best), np.concatenate(scores))


def measure_gaps(outcomes: Outcomes, shrinkage: Shrinkage, strong: int, weak: int) -> Floats | None:
    """How far strong is expected above weak on each kept prompt by the rows of the other folds; None without a sample.

    A fit of fewer rows has other means and is shrunk more. So the gaps of held-out prompts are moved and scaled like
    the gaps of that fit's own prompts, which get their mean and deviation in the whole fit.
    """
    if (sample := outcomes.sample) is None:
        return None
    outcomes, keys = outcomes.shared(), list(sample.prompts)
    folds = np.array([prompt.fold for prompt in sample.prompts.values()])

    def gaps(train: Cells, parts: Sequence[int]) -> Floats:
        expected = _expect(outcomes, shrinkage, train, keys, parts)[0]
        return np.asarray(expected[:, strong] - expected[:, weak])

    whole = gaps(sum_cells(outcomes, range(FOLDS)), range(FOLDS))
    held = whole + 0.0
    for part, train in _split(outcomes):
        found = gaps(train, _list_others(part))
        own = found[folds != part]
        scale = whole.std() / own.std() if own.std() > 0 else 1.0
        held[folds == part] = whole.mean() + scale * (found[folds == part] - own.mean())
    return held


def _split(outcomes: Outcomes) -> Iterator[tuple[int, Cells]]:
    """Each fold with kept prompts, and the sums of the others where there are any."""
    assert outcomes.sample is not None
    for part in sorted({prompt.fold for prompt in outcomes.sample.prompts.values()}):
        if train := sum_cells(outcomes, _list_others(part)):
            yield part, train


def _list_others(part: int) -> list[int]:
    return [other for other in range(FOLDS) if other != part]


def _expect(
    outcomes: Outcomes, shrinkage: Shrinkage, train: Cells, keys: list[PromptKey], parts: Sequence[int]
) -> tuple[Floats, int]:
    """Expected scores (prompts, models) from sums of these folds, and the best single model; tasks may be missing."""
    assert outcomes.sample is not None
    models, has_length = len(outcomes.models), outcomes.has_length
    seen = sorted({task for task, _ in train})
    every = {key: cell for key, cell in add_traffic(train, outcomes, parts).items() if key[0] in seen}
    scored = {(seen.index(task), model): cell for (task, model), cell in every.items()}
    train = {(seen.index(task), model): cell for (task, model), cell in train.items()}
    means = task_means(scored, len(seen), models, shrinkage.pull)
    vectors = np.array([outcomes.sample.prompts[key].vector for key in keys]) * outcomes.unit
    rows = np.column_stack([vectors, np.ones(len(keys))])
    plain = np.delete(rows, -2, axis=1) if has_length else rows
    shares = weigh_tasks(plain @ solve_tasks(train, len(seen), has_length))
    own = task_means(train, len(seen), models, shrinkage.pull)
    weights = Evidence(train, own, has_length).weights(shrinkage.strength, shrinkage.length)
    best = int(task_means(scored, len(seen), models, math.inf)[0].argmax())
    return np.asarray((shares @ means + rows @ weights).round(FINE)), best


def _look_up(sample: OutcomeSample, keys: list[PromptKey], models: tuple[str, ...]) -> Floats:
    """Mean scores (prompts, models); nan where there is none."""
    found = np.full((len(keys), len(models)), np.nan)
    for column, model in enumerate(models):
        own = sample.scores[model]
        for row, key in enumerate(keys):
            if key in own:
                count, total = own[key]
                found[row, column] = total * SCORE_UNIT / count
    return found


def measure_gain(held: HeldOut) -> HeldOutGain | None:
    """What routing gains over the best single model; None where no task has two prompts with both scores."""
    prompts = np.arange(len(held.tasks))
    differences = held.scores[prompts, held.expected.argmax(axis=1)] - held.scores[prompts, list(held.best)]
    tasks = np.array(held.tasks)
    found = [differences[(tasks == task) & ~np.isnan(differences)] for task in sorted(set(held.tasks))]
    parts = [part for part in found if len(part) > 1]
    if not parts:
        return None
    mean = float(np.mean([part.mean() for part in parts]))
    error = float(np.sqrt(sum(part.var(ddof=1) / len(part) for part in parts))) / len(parts)
    return HeldOutGain(mean, error, sum(map(len, parts)))


def measure_task_gain(outcomes: Outcomes, pull: float) -> HeldOutGain | None:
    """The same where most prompts have the score of one model: the means of two models are compared, task by task.

    None where no fold and task has enough scores of both models.
    """
    tasks, models = len(outcomes.tasks), len(outcomes.models)
    found: dict[int, list[tuple[float, float]]] = {}  # of each task: differences, with their squared errors
    scores = 0
    for part in range(FOLDS):
        train, held = (
            add_traffic(sum_cells(outcomes, parts), outcomes, parts) for parts in (_list_others(part), [part])
        )
        if not train:
            continue
        chosen = task_means(train, tasks, models, pull).argmax(axis=1).tolist()
        best = int(task_means(train, tasks, models, math.inf)[0].argmax())
        for task, model in enumerate(chosen):
            pair = [held[task, one] for one in (model, best) if (task, one) in held]
            if len(pair) == 2 and min(one.rows for one in pair) >= MIN_COMPARED_SCORES:
                first, second = (one.total / one.rows for one in pair)
                errors = [(one.squares / one.rows - (one.total / one.rows) ** 2) / (one.rows - 1) for one in pair]
                found.setdefault(task, []).append((first - second, sum(errors) if model != best else 0.0))
                scores += sum(one.rows for one in pair)
    if not found:
        return None
    mean = float(np.mean([np.mean([one for one, _ in own]) for own in found.values()]))
    squared = sum(sum(error for _, error in own) / len(own) ** 2 for own in found.values())
    return HeldOutGain(mean, math.sqrt(max(0.0, squared)) / len(found), scores)


def guard_shrinkage(
    outcomes: Outcomes, chosen: Shrinkage, tried: Validation, *, guard: bool
) -> tuple[Shrinkage, Validation]:
    """The shrinkage, or an infinite one where routing is worse than the best single model; and the measurement.

    Without the guard, prompts always differ, at least by their tasks, so that they can be ordered.
    """
    if len(outcomes.models) < 2:
        return chosen, tried
    if not guard and len(outcomes.tasks) == 1 and math.isinf(chosen.strength):
        chosen = replace(chosen, strength=ORDERING_STRENGTH)
    if outcomes.sample is None and not outcomes.traffic:
        return chosen, replace(tried, reason="an earlier version counted these outcomes and kept no prompts to compare")
    if outcomes.traffic:
        gain = measure_task_gain(outcomes, chosen.pull)
    else:
        held = expect_held_out(outcomes, chosen)
        gain = None if held is None else measure_gain(held)
    if gain is None:
        return chosen, replace(tried, reason="there are too few prompts to hold any out")
    if guard and gain.is_loss:
        below = f"it scored {-gain.mean:.4f} ± {gain.error:.4f} below the best single model"
        return CONSTANT, replace(tried, gain=gain, reason=f"{below} on {gain.prompts:,} held-out prompts")
    return chosen, replace(tried, gain=gain)


LARGEST = 2.0**9  # of a model's score in the table, well below where scores are cut


@dataclass(frozen=True, eq=False)
class Quality:
    """Expected quality of every model, from the mean of a prompt's rows of `scores` alone."""

    models: tuple[str, ...]
    scores: npt.NDArray[np.float32]  # (V, tasks + models)  task scores, then δ
    expectation: Expectation
    tried: Validation

    def build_table(self) -> Table:
        """Scores (V, tasks + models); the vote is the best model for the token alone, the entropy that of its tasks."""
        scores, tasks = self.scores, len(self.expectation.tasks)
        vote = np.empty(len(scores), np.uint16)
        for block in row_blocks(scores.shape):
            vote[block] = self.expectation.alone(scores[block]).argmax(axis=1)
        by_task = Table.compile(np.float32(SHARPNESS) * scores[:, :tasks])
        return replace(by_task, scores=scores, vote=vote)


def fit_quality(
    outcomes: Outcomes, embeddings: Rows, shrinkage: Shrinkage | None = None, *, guard: bool = True
) -> Quality:
    """The closed-form fit. The shrinkage is cross-validated unless given.

    With `guard`, it is infinite where routing is worse than the best single model.
    """
    if not outcomes.cells:
        raise InputError("no outcomes to learn from: give at least one row with a score")
    outcomes = outcomes.shared()
    if shrinkage:
        chosen, tried = shrinkage, Validation()
    else:
        chosen, tried = guard_shrinkage(outcomes, *cross_validate(outcomes), guard=guard)
    if chosen.length and not outcomes.has_length:
        raise InputError("these outcomes were counted without the lengths of prompts: use Shrinkage(…, length=0)")
    tasks, models = len(outcomes.tasks), len(outcomes.models)
    cells = sum_cells(outcomes, range(FOLDS))
    means = task_means(add_traffic(cells, outcomes, range(FOLDS)), tasks, models, chosen.pull)
    own = task_means(cells, tasks, models, chosen.pull)
    weights = Evidence(cells, own, outcomes.has_length).weights(chosen.strength, chosen.length)
    slopes, typical = None, 0.0
    if outcomes.has_length:
        slope, weights = weights[-2], np.delete(weights, -2, axis=0)
        if chosen.length:
            mean = float(sum(cell.vector[-2] for cell in cells.values()) / sum(cell.rows for cell in cells.values()))
            weights[-1] += slope * mean  # so that the table is that of a prompt of usual length
            log_unit = next(iter(outcomes.cells.values())).prompts.unit * LENGTH_PARTS
            slopes, typical = slope * log_unit, mean / log_unit
    W = np.hstack([solve_tasks(cells, tasks, outcomes.has_length), weights])
    scores = _scores(W.astype(np.float32), embeddings)
    largest = float(np.abs(scores[:, tasks:]).max(initial=0.0))  # divided by a power of two, so that none is cut
    unit = max(1.0, float(2.0 ** np.ceil(np.log2(largest / LARGEST)))) if largest else 1.0
    scores[:, tasks:] /= np.float32(unit)
    expectation = Expectation(outcomes.tasks, means, chosen, unit, slopes, typical)
    return Quality(outcomes.models, scores, expectation, tried)


def _scores(W: npt.NDArray[np.float32], embeddings: Rows) -> npt.NDArray[np.float32]:
    """ẼW: (V, columns), of a large E some rows at a time."""
    h, block = embeddings.shape[1], len(embeddings) if isinstance(embeddings, np.ndarray) else BLOCK_ROWS
    parts = [embeddings[begin : begin + block] @ W[:h] for begin in range(0, len(embeddings), max(1, block))]
    return np.asarray(np.concatenate(parts) + W[h])
