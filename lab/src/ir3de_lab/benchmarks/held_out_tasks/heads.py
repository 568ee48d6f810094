"""What can stand on an encoder's vectors and expect scores of models, at every setting of its grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import numpy.typing as npt

from ir3de_lab.benchmarks.held_out_tasks.sets import Floats
from ir3de_lab.rivals.interface import needed

Vectors = npt.NDArray[np.float32]
Setting = tuple[float, ...]
Head = Callable[[Vectors, Floats, Vectors], Floats]  # known vectors, their scores, asked vectors -> (n, models)

NEIGHBOURS = (5, 10, 20, 40, 80, 160)
STRENGTHS = tuple(10.0**power for power in range(-2, 5))
PENALTIES = tuple(10.0**power for power in range(-5, 0))  # of the mean loss
UNITS = (32,)
MOST_STEPS = 100  # of L-BFGS
PURPOSE = "Expecting scores from an encoder's vectors"


def list_heads() -> dict[str, Mapping[Setting, Head]]:
    """The rivals, each with the settings that are tried."""
    return {
        "kNN": {(k,): partial(expect_by_neighbours, k) for k in NEIGHBOURS},
        "ridge": {(strength,): partial(expect_by_ridge, strength) for strength in STRENGTHS},
        "logistic regression": {(penalty,): partial(expect_by_network, 0, penalty) for penalty in PENALTIES},
        "MLP": {(units, p): partial(expect_by_network, units, p) for units in UNITS for p in PENALTIES[1:]},
    }


def expect_by_neighbours(k: int, known: Vectors, scores: Floats, asked: Vectors) -> Floats:
    """The mean score of the nearest prompts, by the cosine."""
    k = min(k, len(known))
    alike = asked @ known.T
    near = np.argpartition(-alike, k - 1, axis=1)[:, :k]
    return np.asarray(scores[near].mean(axis=1))


def expect_by_ridge(strength: float, known: Vectors, scores: Floats, asked: Vectors) -> Floats:
    """A ridge with an intercept."""
    linear = needed("sklearn.linear_model", extra="", purpose=PURPOSE)
    known, asked = _scale(known, asked)
    model = linear.Ridge(strength).fit(known.astype(np.float64), scores)
    return np.asarray(model.predict(asked.astype(np.float64)))


def expect_by_network(units: int, penalty: float, known: Vectors, scores: Floats, asked: Vectors) -> Floats:
    """One sigmoid a model, on a hidden layer of ReLUs or, with no units, on the vectors: logistic regression.

    The targets are scores from 0 to 1, and the loss is the mean cross-entropy with a quadratic penalty.
    """
    optimize = needed("scipy.optimize", extra="", purpose=PURPOSE)
    known, asked = _scale(known, asked)
    targets = scores.astype(np.float32)
    shapes = _list_shapes(known.shape[1], units, scores.shape[1])
    rng = np.random.default_rng(0)
    start = np.concatenate([(rng.normal(size=s) / np.sqrt(s[0]) if units else np.zeros(s)).ravel() for s in shapes])
    found = optimize.minimize(
        partial(_measure_loss, shapes, penalty, known, targets),
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MOST_STEPS},
    )
    return np.asarray(_forward(_split(found.x, shapes), asked)[-1], np.float64)


def _scale(known: Vectors, asked: Vectors) -> tuple[Vectors, Vectors]:
    """Centred on the known ones, with entries of about one."""
    centre, factor = known.mean(axis=0), np.float32(np.sqrt(known.shape[1]))
    return (known - centre) * factor, (asked - centre) * factor


def _list_shapes(width: int, units: int, models: int) -> list[tuple[int, int]]:
    """Of the layers; the last row of each is its intercept."""
    return [(width + 1, units), (units + 1, models)] if units else [(width + 1, models)]


def _split(flat: Floats, shapes: list[tuple[int, int]]) -> list[Vectors]:
    ends = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
    return [part.reshape(s).astype(np.float32) for part, s in zip(np.split(flat, ends), shapes, strict=True)]


def _forward(layers: list[Vectors], given: Vectors) -> list[Vectors]:
    """What goes into each layer, and what comes out of the last."""
    passed = [given]
    for place, layer in enumerate(layers):
        made = passed[-1] @ layer[:-1] + layer[-1]
        is_last = place + 1 == len(layers)
        passed.append(1 / (1 + np.exp(-np.clip(made, -30, 30))) if is_last else np.maximum(made, 0))
    return passed


def _measure_loss(
    shapes: list[tuple[int, int]], penalty: float, given: Vectors, targets: Vectors, flat: Floats
) -> tuple[float, Floats]:
    """The loss and its gradient."""
    layers = _split(flat, shapes)
    passed = _forward(layers, given)
    found = np.clip(passed[-1], 1e-7, 1 - 1e-7).astype(np.float64)
    loss = -float((targets * np.log(found) + (1 - targets) * np.log(1 - found)).mean())
    back = (passed[-1] - targets) / np.float32(targets.size)
    gradients: list[Floats] = []
    for place in range(len(layers) - 1, -1, -1):
        weights = layers[place][:-1]
        loss += 0.5 * penalty * float((weights.astype(np.float64) ** 2).sum()) / targets.shape[1]
        own = passed[place].T @ back + np.float32(penalty / targets.shape[1]) * weights
        gradients.insert(0, np.vstack([own, back.sum(axis=0)]).astype(np.float64).ravel())
        back = (back @ weights.T) * (passed[place] > 0)
    return loss, np.concatenate(gradients)
