"""Outcomes to expected quality: per-task means, moved by what the prompt itself says, in closed form.

    q_m(x̄, ℓ) = Σ_t p_t(x̄) · μ_tm + δ_m(x̄) + γ_m·(ℓ − ℓ̄),    p = softmax(SHARPNESS · task scores of x̄)

μ_tm is model m's mean score on task t, shrunk towards what its other tasks and the other models say; the task scores
are a prompt ridge over tasks; δ_m and γ_m are a ridge of what μ leaves over on x̄ and on ℓ, the logarithm of the
prompt's length, less their mean over the models: the prompt moves models against each other, and how hard it is for all
of them is left to the task. How far all of this is trusted is chosen by cross-validation, which needs the sums and no
rows, and doubt goes to the more cautious. Task scores and δ are linear in x̄, so they compile to a table of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.outcomes.cross_validation import cross_validate
from ir3de.outcomes.expectation import Expectation, Shrinkage, Validation
from ir3de.outcomes.guard import guard_shrinkage
from ir3de.outcomes.solving import Cells, Evidence, solve_tasks, sum_cells, task_means
from ir3de.outcomes.sums import FOLDS, LENGTH_PARTS, Outcomes
from ir3de.scorers.arithmetic import BLOCK_ROWS, Rows

LARGEST = 2.0**9  # of a model's score in the table, well below where scores are cut


@dataclass(frozen=True, eq=False)
class Quality:
    """Expected quality of every model, from the mean of a prompt's rows of `scores` alone."""

    models: tuple[str, ...]
    scores: npt.NDArray[np.float32]  # (V, tasks + models)  task scores, then δ
    expectation: Expectation
    tried: Validation


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
    means = task_means(cells, tasks, models, chosen.pull)
    weights = Evidence(cells, means, outcomes.has_length).weights(chosen.strength, chosen.length)
    slopes, typical = None, 0.0
    if outcomes.has_length:
        slope, weights = weights[-2], np.delete(weights, -2, axis=0)
        if chosen.length:
            mean = _mean_length(cells)
            weights[-1] += slope * mean  # so that the table is that of a prompt of usual length
            log_unit = next(iter(outcomes.cells.values())).prompts.unit * LENGTH_PARTS
            slopes, typical = slope * log_unit, mean / log_unit
    W = np.hstack([solve_tasks(cells, tasks, outcomes.has_length), weights])
    scores = _scores(W.astype(np.float32), embeddings)
    unit = _unit(scores[:, tasks:])
    scores[:, tasks:] /= np.float32(unit)
    expectation = Expectation(outcomes.tasks, means, chosen, unit, slopes, typical)
    return Quality(outcomes.models, scores, expectation, tried)


def _mean_length(cells: Cells) -> float:
    """The mean of ℓ over all scores."""
    rows = sum(cell.rows for cell in cells.values())
    return float(sum(cell.vector[-2] for cell in cells.values()) / rows)


def _scores(W: npt.NDArray[np.float32], embeddings: Rows) -> npt.NDArray[np.float32]:
    """ẼW: (V, columns), of a large E some rows at a time."""
    h, block = embeddings.shape[1], len(embeddings) if isinstance(embeddings, np.ndarray) else BLOCK_ROWS
    parts = [embeddings[begin : begin + block] @ W[:h] for begin in range(0, len(embeddings), max(1, block))]
    return np.asarray(np.concatenate(parts) + W[h])


def _unit(scores: npt.NDArray[np.float32]) -> float:
    """The power of two, at least 1, that models' scores are divided by so that none is cut."""
    largest = float(np.abs(scores).max(initial=0.0))
    return max(1.0, float(2.0 ** np.ceil(np.log2(largest / LARGEST)))) if largest else 1.0
