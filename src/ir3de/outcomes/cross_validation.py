"""Choose how far outcomes are trusted, by cross-validation over the folds of the sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ir3de.outcomes.expectation import Floats, Shrinkage, Validation
from ir3de.outcomes.solving import Cells, Evidence, sum_cells, task_means
from ir3de.outcomes.sums import FOLDS, Outcomes

PULLS = (256.0, 64.0, 16.0, 4.0, 1.0)  # the most cautious first
STRENGTHS = (float("inf"), 65_536.0, 16_384.0, 4_096.0, 1_024.0, 256.0, 64.0, 16.0)
LENGTH = 0.1  # variance of ℓ beside the sum of those of x̄, where the length is heard

Errors = Sequence[Sequence[float]]  # a row for each fold, a column for each candidate


def cross_validate(outcomes: Outcomes) -> tuple[Shrinkage, Validation]:
    """The shrinkage with the least squared error on rows held out, each task weighing the same; and what was tried."""
    tasks, models = len(outcomes.tasks), len(outcomes.models)
    folds = [
        (held, train)
        for part in range(FOLDS)
        if (held := sum_cells(outcomes, [part]))
        and (train := sum_cells(outcomes, [other for other in range(FOLDS) if other != part]))
    ]
    rows = {key: sum(held[key].rows for held, _ in folds if key in held) for held, _ in folds for key in held}
    pulls, strengths, systems = [], [], []
    for held, train in folds:
        pulls.append([_error(held, rows, task_means(train, tasks, models, pull), None) for pull in PULLS])
    pull = most_cautious(PULLS, pulls)
    for held, train in folds:
        means = task_means(train, tasks, models, pull)
        evidence = Evidence(train, means, outcomes.has_length)
        strengths.append([_error(held, rows, means, evidence.weights(strength)) for strength in STRENGTHS])
        systems.append((held, means, evidence))
    chosen = Shrinkage(pull, most_cautious(STRENGTHS, strengths))
    lengths: list[list[float]] = []
    if outcomes.has_length and len(folds) > 1:
        # an infinite strength hears no length either, so that it is chosen anew
        finite = STRENGTHS[1:] if chosen.strength == float("inf") else (chosen.strength,)
        errors = [[_error(h, rows, means, e.weights(x, LENGTH)) for x in finite] for h, means, e in systems]
        chosen, lengths = _compare_length(chosen, strengths, finite, errors)
    tried = Validation(
        _mean_errors(PULLS, pulls, len(rows)),
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
    """Each candidate with its error a score; nothing where there was nothing to compare."""
    if len(errors) < 2:
        return ()
    return tuple(zip(candidates, (np.sum(errors, axis=0) / cells).tolist(), strict=True))


def most_cautious(candidates: Sequence[float], errors: Errors) -> float:
    """The first candidate, the most cautious, that the best one beats by no more than a standard error.

    `errors` has a row for each fold; the standard error is that of their differences from fold to fold.
    """
    if len(errors) < 2:  # nothing to compare with
        return candidates[0]
    table = np.array(errors)
    excess = table - table[:, [int(table.sum(axis=0).argmin())]]
    allowed = excess.std(axis=0, ddof=1) / np.sqrt(len(table))
    return candidates[int(np.argmax(excess.mean(axis=0) <= allowed + 1e-12))]


def _error(held: Cells, rows: dict[tuple[int, int], int], means: Floats, weights: Floats | None) -> float:
    """Σ (y − μ − δ)² over held-out rows, each cell divided by all rows it has in the folds."""
    error = 0.0
    for (t, m), cell in held.items():
        mu = means[t, m]
        squared = cell.squares - 2 * mu * cell.total + cell.rows * mu * mu
        if weights is not None:
            w = weights[:, m]
            squared += float(w @ (cell.gram @ w) - 2 * w @ (cell.products - mu * cell.vector))
        error += squared / rows[t, m]
    return error
