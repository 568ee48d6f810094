"""Multinomial logistic regression of experts on prompts: the discriminative fit, compiled to the same tables.

The loss is convex, its features are shared by all experts, and prompts come in the order of their hashes. So the result
depends on the kept prompts alone, to the bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.scorers.prompt_features import Features
from ir3de.scorers.sparse_matrix import Numbers

TOLERANCE = 0.02  # of √(∇ᵀM⁻¹∇), as a share of its value at the start: more steps do not change the held-out accuracy
NOTHING = 1e-4  # of the same at the start, where it is about 1: what is left are rounding errors
MAX_STEPS = 100  # 10 to 15 are usual
MEMORY_STEPS = 6  # past steps that L-BFGS uses
SLOPE_SHARE = 0.3  # a step ends where the slope along it has fallen to this share of its start
MAX_STEP_TRIALS = 20  # of the length of one step; one or two are usual


class ConvergenceError(InputError):
    """The discriminative fit found no minimum."""


def fit_logistic(features: Features, experts: int, strength: float) -> Numbers:
    """W (features, C) of least Σ_i w_i (log Σ_c exp z_ic − z_i,y(i)) + λ/2n ‖W‖², with Z = X W.

    The weights w_i give every expert the same share. λ is `strength`: it acts like that many more prompts. The
    minimum is found by L-BFGS. Its preconditioner M is the Hessian at W = 0: exact for the dense features, the
    diagonal alone for the sparse ones.
    """
    problem = _Problem.build(features, experts, strength)
    W, Z = np.zeros((problem.width, experts), np.float32), np.zeros((len(features), experts), np.float32)
    gradient = problem.gradient(W, softmax(Z))
    start = problem.measure(gradient)
    if start <= NOTHING:  # one expert, or prompts that all experts share
        return W
    past: deque[tuple[Numbers, Numbers, float]] = deque(maxlen=MEMORY_STEPS)
    for _ in range(MAX_STEPS):
        step = find_direction(gradient, past, problem.precondition)
        dZ = problem.project(step)
        t, p = problem.find_step_length(W, Z, step, dZ, SLOPE_SHARE * abs(_dot(gradient, step)))
        before, step = gradient, step * np.float32(t)
        W, Z = W + step, Z + np.float32(t) * dZ
        gradient = problem.gradient(W, p)
        size = problem.measure(gradient)
        if not np.isfinite(size):
            break
        if size <= TOLERANCE * start:
            return W
        change = gradient - before
        if (along := _dot(step, change)) > 0:
            past.append((step, change, along))
    raise ConvergenceError(
        f"the discriminative fit of {len(features):,} prompts found no minimum in {MAX_STEPS} steps with strength "
        f"{strength:g}: use a larger strength, or Blend, which is solved in closed form"
    )


@dataclass(frozen=True, eq=False)
class DenseInverse:
    """M⁻¹ for M = AᵀA + λI. With fewer rows than columns it is (I − Aᵀ(AAᵀ + λI)⁻¹A)/λ, from a smaller inverse."""

    left: Numbers  # (h, h): M⁻¹; or (h, n): Aᵀ
    right: Numbers | None = None  # (n, h): (AAᵀ + λI)⁻¹A
    penalty: float = 1.0

    @classmethod
    def build(cls, rows: Numbers, penalty: float) -> DenseInverse:
        n, h = rows.shape
        M = (rows @ rows.T if n < h else rows.T @ rows).astype(np.float64)
        M[np.diag_indices(len(M))] += penalty
        inverse = np.linalg.inv(M).astype(np.float32)
        return cls(rows.T, inverse @ rows, penalty) if n < h else cls(inverse)

    def multiply(self, q: Numbers) -> Numbers:
        return self.left @ q if self.right is None else (q - self.left @ (self.right @ q)) / np.float32(self.penalty)


@dataclass(frozen=True, eq=False)
class _Problem:
    features: Features
    weights: Numbers  # (n,)  w_i
    penalty: np.float32  # λ/n
    diagonal: Numbers  # (sparse features, 1)  of M⁻¹
    inverse: DenseInverse  # M⁻¹ of the dense features

    @classmethod
    def build(cls, features: Features, experts: int, strength: float) -> _Problem:
        n = len(features)
        sizes = np.bincount(features.experts, minlength=experts)
        weights = (1.0 / (sizes[features.experts] * (sizes > 0).sum())).astype(np.float32)
        penalty = strength / n
        diagonal = 1.0 / (penalty + features.sparse.sum_squares(weights) / experts)
        rows = features.dense * np.sqrt(weights / np.float32(experts))[:, None]
        return cls(
            features,
            weights,
            np.float32(penalty),
            diagonal.astype(np.float32)[:, None],
            DenseInverse.build(rows, penalty),
        )

    @property
    def width(self) -> int:
        return self.features.sparse.width + self.features.dense.shape[1]

    def project(self, W: Numbers) -> Numbers:
        """Z = X W."""
        split = self.features.sparse.width
        return self.features.sparse.multiply(W[:split]) + self.features.dense @ W[split:]

    def gradient(self, W: Numbers, p: Numbers) -> Numbers:
        """Xᵀ diag(w)(p − y) + λ/n W."""
        residual = p.copy()
        residual[np.arange(len(p)), self.features.experts] -= 1.0
        residual *= self.weights[:, None]
        found = np.concatenate([self.features.sparse.transposed.multiply(residual), self.features.dense.T @ residual])
        found += self.penalty * W
        return found

    def precondition(self, q: Numbers) -> Numbers:
        """M⁻¹q."""
        split = len(self.diagonal)
        return np.concatenate([q[:split] * self.diagonal, self.inverse.multiply(q[split:])])

    def measure(self, gradient: Numbers) -> float:
        return float(np.sqrt(_dot(gradient, self.precondition(gradient))))

    def find_step_length(
        self, W: Numbers, Z: Numbers, step: Numbers, dZ: Numbers, enough: float
    ) -> tuple[float, Numbers]:
        """How far to go along a step until the slope is at most `enough`, and the probabilities there.

        Z + t dZ needs no pass over the features, so the slope is cheap. It only rises with t: this is Newton's method
        on the slope, kept within a bracket.
        """
        w, bend = self.weights, float(self.penalty) * _dot(step, step)
        pull = float(self.penalty) * _dot(W, step) - float(w @ dZ[np.arange(len(dZ)), self.features.experts])
        t, low, high = 1.0, 0.0, float("inf")
        for _ in range(MAX_STEP_TRIALS):
            p = softmax(Z + np.float32(t) * dZ)
            along = p * dZ
            mean = along.sum(axis=1)
            slope = float(w @ mean) + pull + t * bend
            if abs(slope) <= enough:
                break
            low, high = (t, high) if slope < 0 else (low, t)
            rise = float(w @ (np.einsum("ic,ic->i", along, dZ) - mean * mean)) + bend
            t = t - slope / rise if rise > 0 else float("inf")
            if not low < t < high:
                t = (low + high) / 2 if high < float("inf") else 2 * low
        return t, p


def find_direction(
    gradient: Numbers, past: Sequence[tuple[Numbers, Numbers, float]], precondition: Callable[[Numbers], Numbers]
) -> Numbers:
    """−H∇, where H is L-BFGS's estimate of the inverse Hessian: M⁻¹, scaled and corrected by the past steps."""
    q, shares = gradient.copy(), []
    for step, change, along in reversed(past):
        share = _dot(step, q) / along
        shares.append(share)
        q -= np.float32(share) * change
    q = precondition(q)
    if past:
        _, change, along = past[-1]
        q *= np.float32(along / _dot(change, precondition(change)))
    for (step, change, along), share in zip(past, reversed(shares), strict=True):
        q += np.float32(share - _dot(change, q) / along) * step
    return -q


def softmax(Z: Numbers) -> Numbers:
    """Softmax over the experts, the last axis."""
    p = np.exp(Z - Z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p


def _dot(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    return float(np.vdot(a, b))
