"""A linear head on the vectors of a sentence encoder: logistic regression on few or many labelled prompts."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.fitting.calibration import Scored, fit_calibration
from ir3de.scorers.solver import TRIAL_TOLERANCE, DenseInverse, Preconditioner, fit_logistic

STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
START = 2  # which strength is tried first, and taken where no prompt can be held out
MAX_FOLDS = 8
MIN_FOLDS = 4  # with many prompts
ENOUGH_PROMPTS = 2_000  # from so many on, few folds give nearly the same fit

Numbers = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FittedHead:
    """The weights W (width + 1, C) of a head, the bias last, and predictions for prompts that it did not see."""

    W: Numbers
    strength: float
    held_out: Floats  # (n, C)  log-probabilities from fits without the prompt; NaN for an expert's only prompt

    def predict(self, vectors: npt.NDArray[np.floating]) -> Floats:
        """The log-probabilities of the experts: (n, C)."""
        return predict(self.W, vectors)


def predict(W: Numbers, vectors: npt.NDArray[np.floating]) -> Floats:
    """The log-probabilities of the experts by a head: (n, C). The rows do not depend on each other."""
    return _normalise(np.einsum("nh,hc->nc", vectors.astype(np.float64), W[:-1].astype(np.float64)) + W[-1])


def _normalise(z: Floats) -> Floats:
    z = z - z.max(axis=1, keepdims=True)
    return np.asarray(z - np.log(np.exp(z).sum(axis=1, keepdims=True)))


def fit_head(vectors: npt.NDArray[np.floating], experts: Indices, count: int) -> FittedHead:
    """Fit a head to unit vectors (n, width) and the expert of each, 0 to `count` − 1. All experts weigh the same.

    The strength is the one of least log loss in cross-validation, after all logits were multiplied by the best factor:
    a strong penalty makes a head too modest, which a factor repairs. Equal vectors of an expert are held out together,
    and every expert keeps a prompt in each fold. The order of the prompts does not matter.
    """
    vectors, experts = np.ascontiguousarray(vectors, np.float32), np.asarray(experts, np.int64)
    _check(vectors, experts, count)
    order, folds = _deal(vectors, experts)
    problem = _HeadProblem(vectors[order], experts[order], count, folds)
    strength = problem.choose_strength()
    scale, _ = problem.measure(strength)
    held_out = np.empty((len(order), count))
    held_out[order] = _normalise(scale * problem.hold_out(strength))
    return FittedHead(problem.fit(strength) * np.float32(scale), strength, held_out)


def _check(vectors: Numbers, experts: Indices, count: int) -> None:
    if vectors.ndim != 2 or len(vectors) != len(experts):
        raise InputError(f"a head is fitted to one vector a prompt, found {vectors.shape} for {len(experts)} prompts")
    if not np.isfinite(vectors).all():
        raise InputError("a head is fitted to finite vectors, found NaN or infinity: encode the prompts again")
    if bare := np.flatnonzero(np.bincount(experts, minlength=count) == 0).tolist():
        raise InputError(
            f"{len(bare)} of {count} experts have no prompt for the encoder's head, the first is {bare[0]}"
        )


def _deal(vectors: Numbers, experts: Indices) -> tuple[Indices, Indices]:
    """An order that depends on the prompts alone, and in it the fold of each prompt; −1 where it is never held out."""
    rows = [row.tobytes() for row in vectors]
    keys = [(expert, zlib.crc32(row), row) for expert, row in zip(experts.tolist(), rows, strict=True)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    rank, ranks = -1, np.empty(len(order), np.int64)
    for place, index in enumerate(order):
        before = keys[order[place - 1]] if place else None
        if before is None or before[0] != keys[index][0]:
            rank = 0
        elif before != keys[index]:
            rank += 1
        ranks[place] = rank
    sorted_experts = experts[order]
    different = np.zeros(int(experts.max()) + 1, np.int64)
    np.maximum.at(different, sorted_experts, ranks + 1)
    folds = MIN_FOLDS if len(order) >= ENOUGH_PROMPTS else min(MAX_FOLDS, max(2, int(different.max())))
    return np.array(order), np.where(different[sorted_experts] > 1, ranks % folds, -1)


class _HeadProblem:
    """Fits to prompts in a fixed order, whole and without a fold."""

    def __init__(self, vectors: Numbers, experts: Indices, count: int, folds: Indices) -> None:
        self.experts, self.count, self.folds = experts, count, folds
        self.centre = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        centred = vectors - self.centre
        size = float(np.sqrt((centred.astype(np.float64) ** 2).sum(axis=1).mean())) or 1.0
        self.scale = np.float32(1.0 / size)
        self.dense = np.column_stack((centred * self.scale, np.ones(len(vectors), np.float32)))
        self._held: dict[float, Floats] = {}

    def choose_strength(self) -> float:
        """The strength of least log loss on held-out prompts. The loss has one minimum, so the search goes downhill."""
        losses = lru_cache(lambda place: self.measure(STRENGTHS[place])[1])
        place = START
        for step in (-1, 1):
            while 0 <= place + step < len(STRENGTHS) and losses(place + step) < losses(place):
                place += step
            if place != START:
                break
        return STRENGTHS[place]

    def hold_out(self, strength: float) -> Floats:
        """The log-probabilities of each prompt by a fit without its fold."""
        if strength not in self._held:
            made = np.full((len(self.experts), self.count), np.nan)
            for fold in np.unique(self.folds[self.folds >= 0]).tolist():
                held = self.folds == fold
                W = self._solve(np.flatnonzero(~held), strength)
                made[held] = predict(W, self.dense[held, :-1])
            self._held[strength] = made
        return self._held[strength]

    def fit(self, strength: float) -> Numbers:
        """W for vectors as the encoder gives them."""
        W = self._solve(np.arange(len(self.experts)), strength)
        W[:-1] *= self.scale
        W[-1] -= self.centre @ W[:-1]
        return W

    def measure(self, strength: float) -> tuple[float, float]:
        """The factor of the logits that gives the least log loss on held-out prompts, and that loss."""
        held = np.flatnonzero(self.folds >= 0)
        if not len(held) or self.count < 2:
            return 1.0, 0.0
        once = np.ones(len(held), np.int64)
        calibration, loss = fit_calibration(Scored(self.hold_out(strength)[held], once, self.experts[held]))
        return calibration.scale, loss

    def _solve(self, chosen: Indices, strength: float) -> Numbers:
        W = fit_logistic(_Vectors(self.dense[chosen], self.experts[chosen]), self.count, strength, TRIAL_TOLERANCE)
        W -= W.mean(axis=1, keepdims=True)
        return W


@dataclass(frozen=True, eq=False)
class _Vectors:
    """Prompts whose features are their vectors."""

    dense: Numbers
    experts: Indices
    trust: None = None

    def __len__(self) -> int:
        return len(self.dense)

    @property
    def width(self) -> int:
        return int(self.dense.shape[1])

    def project(self, W: Numbers, room: Numbers | None = None) -> Numbers:
        return self.dense @ W

    def gather(self, R: Numbers, out: Numbers) -> Numbers:
        return np.matmul(self.dense.T, R, out=out)

    def precondition(self, weights: Numbers, penalty: float) -> Preconditioner:
        inverse = DenseInverse.build(self.dense * np.sqrt(weights)[:, None], penalty)

        def multiply(q: Numbers, out: Numbers) -> Numbers:
            out[:] = inverse.multiply(q)
            return out

        return multiply
