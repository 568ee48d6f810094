"""The closed form of outcome routers (quality.py has the formula), and its shrinkage by cross-validation.

The shrinkage is how far outcomes are trusted. Cross-validation over the folds of the sums needs no rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ir3de.scorers.expectation import Floats, Shrinkage, Validation
from ir3de.statistics.defaults import PROMPT_STRENGTH
from ir3de.statistics.outcomes import FOLDS, SCORE_UNIT, Outcomes, OutcomeSums, ScoreCount

LEAST_VARIANCE = 1e-9  # of ℓ, relative to its squared mean: below are rounding errors


@dataclass(frozen=True, eq=False)
class Sums:
    """Real-valued sums of one model and task, x̃ being x̄, where it was counted ℓ, and the constant 1."""

    rows: int
    total: float  # Σ y
    squares: float  # Σ y²
    vector: Floats  # (h+1,)  Σ x̃
    gram: Floats  # (h+1, h+1)  Σ x̃x̃ᵀ
    products: Floats  # (h+1,)  Σ y·x̃


Cells = dict[tuple[int, int], Sums]  # by task and model


class Scored(Protocol):
    """What means need of a model's scores on a task."""

    @property
    def rows(self) -> int: ...
    @property
    def total(self) -> float: ...
    @property
    def squares(self) -> float: ...


@dataclass(frozen=True)
class ScoreSums:
    """The scores of a model on a task: those of rows, and those of answered requests."""

    rows: int
    total: float
    squares: float


ScoredCells = Mapping[tuple[int, int], Scored]  # by task and model


def task_means(cells: ScoredCells, tasks: int, models: int, pull: float) -> Floats:
    """μ (tasks, models): a model's mean on a task, with `pull` more rows of what is expected there.

    Expected is the task's mean over its models plus how far the model lies above such means on its own tasks. With an
    infinite pull, tasks are all alike: each has the mean over the tasks.
    """
    rows, totals = np.zeros((tasks, models)), np.zeros((tasks, models))
    for (t, m), cell in cells.items():
        rows[t, m], totals[t, m] = cell.rows, cell.total
    seen = rows > 0
    plain = totals / np.maximum(1, rows)
    of_task = _mean_where(plain, seen, axis=1)
    of_task[~seen.any(axis=1)] = _mean_where(plain, seen, axis=None)
    above = _mean_where(plain - of_task[:, None], seen, axis=0)
    if pull == float("inf"):
        return np.tile(of_task.mean() + above, (tasks, 1))
    expected = of_task[:, None] + above
    means: Floats = (totals + pull * expected) / (rows + pull)
    return means


def _mean_where(values: Floats, mask: npt.NDArray[np.bool_], axis: int | None) -> Floats:
    return np.asarray((values * mask).sum(axis=axis) / np.maximum(1, mask.sum(axis=axis)))


def solve_tasks(cells: Cells, tasks: int, has_length: bool) -> Floats:
    """Prompt ridge over tasks, (h+1, tasks), without lengths; a row counts once for each of its scores, so evenly."""
    width = len(next(iter(cells.values())).vector)
    A, B, penalty = np.zeros((width, width)), np.zeros((width, tasks)), 0.0
    for t in range(tasks):
        mine = [cell for (task, _), cell in cells.items() if task == t]
        scored = sum(cell.rows for cell in mine)
        A += sum(cell.gram for cell in mine) / scored
        B[:, t] = sum(cell.vector for cell in mine) / scored
        penalty += PROMPT_STRENGTH / max(cell.rows for cell in mine)
    A, B = (_drop_length(A), np.delete(B, -2, axis=0)) if has_length else (A, B)
    penalty *= _energy(A) / tasks
    return np.asarray(np.linalg.solve(A + penalty * np.eye(len(A)), B))


def _drop_length(A: Floats) -> Floats:
    return np.delete(np.delete(A, -2, axis=0), -2, axis=1)


def _energy(A: Floats) -> float:
    """The mean of the diagonal without the constant's."""
    return float(np.trace(A[:-1, :-1]) / (len(A) - 1)) or 1.0


class Evidence:
    """Ridge of the residuals of the task means on x̃, for any strength. Models on the same rows share the work."""

    def __init__(self, cells: Cells, means: Floats, has_length: bool) -> None:
        self._models = means.shape[1]
        self._width = len(next(iter(cells.values())).vector)
        self._has_length = has_length
        shared: dict[tuple[tuple[int, int], ...], list[int]] = {}
        for m in range(self._models):
            on = tuple((t, id(cell.gram)) for (t, model), cell in sorted(cells.items()) if model == m)
            if on:
                shared.setdefault(on, []).append(m)
        self._parts = [(models, *self._system(cells, means, models)) for models in shared.values()]

    def _system(self, cells: Cells, means: Floats, models: list[int]) -> tuple[Floats, Floats, float]:
        """A = Σ_t Σ x̃x̃ᵀ / n_t, B = Σ_t Σ (y − μ_t)·x̃ / n_t, and the penalty of strength 1."""
        A, B, penalty = np.zeros((self._width, self._width)), np.zeros((self._width, len(models))), 0.0
        tasks = [t for t, model in cells if model == models[0]]
        for t in tasks:
            first = cells[t, models[0]]
            A += first.gram / first.rows
            penalty += 1.0 / first.rows
            for column, m in enumerate(models):
                B[:, column] += (cells[t, m].products - means[t, m] * first.vector) / first.rows
        return A, B, penalty * _energy(_drop_length(A) if self._has_length else A) / len(tasks)

    def weights(self, strength: float, length: float = 0.0) -> Floats:
        """The weights of x̃, (width, models): each model's ridge less the mean over the models."""
        W = np.zeros((self._width, self._models))
        if strength == float("inf"):
            return W
        for models, A, B, penalty in self._parts:
            W[:, models] = self._solve(A, B, strength * penalty, length)
        return np.asarray(W - W.mean(axis=1, keepdims=True))

    def _solve(self, A: Floats, B: Floats, penalty: float, length: float) -> Floats:
        """W = (A + penalty·I)⁻¹B; ℓ is left out, or centred and brought to `length` times the variance of x̄."""
        if not self._has_length:
            return np.asarray(np.linalg.solve(A + penalty * np.eye(len(A)), B))
        mean = A[:, -1] / A[-1, -1]
        variances = np.maximum(0.0, np.diag(A) / A[-1, -1] - mean**2)
        if not length or variances[-2] < LEAST_VARIANCE * mean[-2] ** 2:  # or prompts are all of the same length
            B = np.delete(B, -2, axis=0)
            found = np.linalg.solve(_drop_length(A) + penalty * np.eye(len(A) - 1), B)
            return np.asarray(np.insert(found, -1, 0.0, axis=0))
        # in place of ℓ stands ℓ′ = scale · (ℓ − mean): one row of B, one row and column of A; and back in the weights
        A, B = A + 0.0, B + 0.0
        scale = np.sqrt(length * variances[:-2].sum() / variances[-2])
        for rows in (B, A, A.T):
            rows[-2] = scale * (rows[-2] - mean[-2] * rows[-1])
        found = np.linalg.solve(A + penalty * np.eye(len(A)), B)
        found[-2] *= scale
        found[-1] -= mean[-2] * found[-2]
        return np.asarray(found)


def sum_cells(outcomes: Outcomes, folds: Sequence[int] | range) -> Cells:
    """The sums of some folds together, real-valued."""
    chosen = set(folds)
    by_cell: dict[tuple[int, int], list[OutcomeSums]] = {}
    for (task, model, part), sums in sorted(outcomes.cells.items(), key=lambda item: item[0]):
        if part in chosen:
            key = outcomes.tasks.index(task), outcomes.models.index(model)
            by_cell.setdefault(key, []).append(sums)
    grams: dict[tuple[int, ...], Floats] = {}
    return {key: _real(parts, grams) for key, parts in by_cell.items()}


def add_traffic(cells: Cells, outcomes: Outcomes, folds: Sequence[int] | range) -> ScoredCells:
    """The cells together with the scores of answered requests in these folds: what means are computed from."""
    if not outcomes.traffic:
        return cells
    chosen, counts = set(folds), dict[tuple[int, int], ScoreCount]()
    for (task, model, part), count in outcomes.traffic.items():
        if part in chosen:
            key = outcomes.tasks.index(task), outcomes.models.index(model)
            counts[key] = counts.get(key, ScoreCount()) + count
    found: dict[tuple[int, int], Scored] = {**cells}
    for key, count in sorted(counts.items()):
        own = cells.get(key)
        real = ScoreSums(count.rows, count.total * SCORE_UNIT, count.squares * SCORE_UNIT**2)
        found[key] = real if own is None else ScoreSums(
            own.rows + real.rows, own.total + real.total, own.squares + real.squares
        )  # fmt: skip
    return found


def _real(parts: list[OutcomeSums], grams: dict[tuple[int, ...], Floats]) -> Sums:
    """Sums in real numbers. Integers are added first, so that nothing depends on the order."""
    name = tuple(id(part.prompts) for part in parts)
    unit, h = parts[0].prompts.unit, parts[0].prompts.width
    if name not in grams:
        prompts = parts[0].prompts
        for part in parts[1:]:
            prompts += part.prompts
        vector = np.append(prompts.vector * unit, prompts.windows)
        grams[name] = np.empty((h + 1, h + 1))
        grams[name][:h, :h] = prompts.full_gram()
        grams[name][h] = grams[name][:, h] = vector
    gram = grams[name]
    total = sum(part.total for part in parts) * SCORE_UNIT
    products = np.sum([part.products for part in parts], axis=0) * (SCORE_UNIT * unit)
    rows, squares = sum(part.rows for part in parts), sum(part.squares for part in parts) * SCORE_UNIT**2
    return Sums(rows, total, squares, gram[h], gram, np.append(products, total))


PULLS = (256.0, 64.0, 16.0, 4.0, 1.0)  # the most cautious first
STRENGTHS = (float("inf"), 65_536.0, 16_384.0, 4_096.0, 1_024.0, 256.0, 64.0, 16.0)
LENGTH = 0.1  # variance of ℓ relative to the sum of those of x̄, where the length is used

Errors: TypeAlias = Sequence[Sequence[float]]  # a row for each fold, a column for each candidate


def cross_validate(outcomes: Outcomes) -> tuple[Shrinkage, Validation]:
    """The shrinkage with the least squared error on rows held out, each task weighing the same; and what was tried."""
    tasks, models = len(outcomes.tasks), len(outcomes.models)
    folds, scored = [], []  # of rows; of rows and answered requests, from which the means are computed
    for part in range(FOLDS):
        others = [other for other in range(FOLDS) if other != part]
        held, train = sum_cells(outcomes, [part]), sum_cells(outcomes, others)
        if held and train:
            folds.append((held, train))
            scored.append((add_traffic(held, outcomes, [part]), add_traffic(train, outcomes, others)))
    rows, pulls, strengths, systems = _count_rows([held for held, _ in folds]), [], [], []
    every = _count_rows([held for held, _ in scored])
    for all_held, all_train in scored:
        pulls.append([_error_of_means(all_held, every, task_means(all_train, tasks, models, pull)) for pull in PULLS])
    pull = most_cautious(PULLS, pulls)
    for held, train in folds:
        means = task_means(train, tasks, models, pull)
        evidence = Evidence(train, means, outcomes.has_length)
        strengths.append([_error(held, rows, means, evidence.weights(strength)) for strength in STRENGTHS])
        systems.append((held, means, evidence))
    chosen = Shrinkage(pull, most_cautious(STRENGTHS, strengths))
    lengths: list[list[float]] = []
    if outcomes.has_length and len(folds) > 1:
        # an infinite strength ignores the length too, so it is chosen again
        finite = STRENGTHS[1:] if chosen.strength == float("inf") else (chosen.strength,)
        errors = [[_error(h, rows, means, e.weights(x, LENGTH)) for x in finite] for h, means, e in systems]
        chosen, lengths = _compare_length(chosen, strengths, finite, errors)
    tried = Validation(
        _mean_errors(PULLS, pulls, len(every)),
        _mean_errors(STRENGTHS, strengths, len(rows)),
        _mean_errors((0.0, LENGTH), lengths, len(rows)),
    )
    return chosen, tried


def _compare_length(
    plain: Shrinkage, without: Errors, candidates: tuple[float, ...], with_length: Errors
) -> tuple[Shrinkage, list[list[float]]]:
    """The shrinkage with the length if it has less error (one column needs no caution); and each fold's two errors."""
    strength = most_cautious(candidates, with_length)
    places = STRENGTHS.index(plain.strength), candidates.index(strength)
    lengths = [[one[places[0]], other[places[1]]] for one, other in zip(without, with_length, strict=True)]
    before, after = np.sum(lengths, axis=0).tolist()
    return (replace(plain, strength=strength, length=LENGTH) if after < before else plain), lengths


def _mean_errors(candidates: Sequence[float], errors: Errors, cells: int) -> tuple[tuple[float, float], ...]:
    """Each candidate with its error per score; empty if there is only one fold."""
    if len(errors) < 2:
        return ()
    return tuple(zip(candidates, (np.sum(errors, axis=0) / cells).tolist(), strict=True))


def most_cautious(candidates: Sequence[float], errors: Errors) -> float:
    """The first candidate, the most cautious, that the best one beats by no more than a standard error.

    `errors` has a row for each fold; the standard error is that of their differences from fold to fold.
    """
    if len(errors) < 2:
        return candidates[0]
    table = np.array(errors)
    excess = table - table[:, [int(table.sum(axis=0).argmin())]]
    allowed = excess.std(axis=0, ddof=1) / np.sqrt(len(table))
    return candidates[int(np.argmax(excess.mean(axis=0) <= allowed + 1e-12))]


def _count_rows(held: Sequence[ScoredCells]) -> dict[tuple[int, int], int]:
    """The rows of each cell in all folds together."""
    return {key: sum(one[key].rows for one in held if key in one) for cells in held for key in cells}


def _square(cell: Scored, mu: float) -> float:
    return cell.squares - 2 * mu * cell.total + cell.rows * mu * mu


def _error_of_means(held: ScoredCells, rows: Mapping[tuple[int, int], int], means: Floats) -> float:
    """Σ (y − μ)² over held-out scores, each cell divided by all scores it has in the folds."""
    return sum((_square(cell, means[key]) / rows[key] for key, cell in held.items()), 0.0)


def _error(held: Cells, rows: Mapping[tuple[int, int], int], means: Floats, weights: Floats) -> float:
    """Σ (y − μ − δ)² over held-out rows, each cell divided by all rows it has in the folds."""
    error = 0.0
    for (t, m), cell in held.items():
        mu, w = means[t, m], weights[:, m]
        squared = _square(cell, mu) + float(w @ (cell.gram @ w) - 2 * w @ (cell.products - mu * cell.vector))
        error += squared / rows[t, m]
    return error
