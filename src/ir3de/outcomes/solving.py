"""Sums of outcomes to task means, task scores and weights, in closed form; quality.py has the formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de.outcomes.expectation import Floats
from ir3de.outcomes.sums import SCORE_UNIT, Outcomes, OutcomeSums

TASK_STRENGTH = 8.0  # of the ridge over tasks, in rows, as in PromptRidge
LEAST_VARIANCE = 1e-9  # of ℓ, beside its squared mean: what is below is rounding


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


def task_means(cells: Cells, tasks: int, models: int, pull: float) -> Floats:
    """μ (tasks, models): a model's mean on a task, as if it had `pull` more rows there of what is expected elsewhere.

    Expected is the task's mean over the models that have it plus how far the model lies above such means on its tasks.
    With an infinite pull, tasks are all alike: each has the mean over the tasks in place of its own.
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
        penalty += TASK_STRENGTH / max(cell.rows for cell in mine)
    A, B = (_drop_length(A), np.delete(B, -2, axis=0)) if has_length else (A, B)
    penalty *= _energy(A) / tasks
    return np.asarray(np.linalg.solve(A + penalty * np.eye(len(A)), B))


def _drop_length(A: Floats) -> Floats:
    return np.delete(np.delete(A, -2, axis=0), -2, axis=1)


def _energy(A: Floats) -> float:
    """The mean of the diagonal without the constant's."""
    return float(np.trace(A[:-1, :-1]) / (len(A) - 1)) or 1.0


class Evidence:
    """Ridge of what the task means leave over on x̃, ready for any strength: models on the same rows share the work."""

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


def _real(parts: list[OutcomeSums], grams: dict[tuple[int, ...], Floats]) -> Sums:
    """Integers added up first, so that nothing depends on the order."""
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
    return Sums(
        sum(part.rows for part in parts),
        total,
        sum(part.squares for part in parts) * SCORE_UNIT**2,
        gram[h],
        gram,
        np.append(products, total),
    )
