"""Multinomial logistic regression: the minimum of a convex loss, found by preconditioned L-BFGS."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.scorers.arithmetic import report_fit, softmax
from ir3de.scorers.sparse import Indices, Numbers

# of √(∇ᵀM⁻¹∇), as a share of its value at the start: more steps hardly change the held-out accuracy
TOLERANCE = 0.02
TRIAL_TOLERANCE = 0.05  # where fits are only compared
NOTHING = 1e-4  # of the same at the start, where it is about 1: what is left are rounding errors
MAX_STEPS = 100  # 10 to 15 are usual
MEMORY_STEPS = 6  # past steps that L-BFGS uses
SLOPE_SHARE = 0.3  # a step ends where the slope along it has fallen to this share of its start
MAX_STEP_TRIALS = 20  # of the length of one step; one or two are usual

Preconditioner: TypeAlias = Callable[[Numbers, Numbers], Numbers]  # M⁻¹q, written into the second array


class ConvergenceError(InputError):
    """The discriminative fit did not converge."""


class Design(Protocol):
    """The features X of some rows, each of which belongs to an expert."""

    @property
    def experts(self) -> Indices: ...

    @property
    def width(self) -> int:
        """The number of features."""

    def __len__(self) -> int: ...

    def project(self, W: Numbers, room: Numbers | None = None) -> Numbers:
        """X W: (n, C). `room` has the shape of W, and may be overwritten."""

    def gather(self, R: Numbers, out: Numbers) -> Numbers:
        """XᵀR: (features, C), written into `out`."""

    def precondition(self, weights: Numbers, penalty: float) -> Preconditioner:
        """M⁻¹ for M near Xᵀ diag(weights) X + penalty · I."""


class TrustedDesign(Design, Protocol):
    @property
    def trust(self) -> Numbers | None:
        """How much each row counts; None for 1."""


def fit_logistic(features: TrustedDesign, experts: int, strength: float, tolerance: float = TOLERANCE) -> Numbers:
    """W (features, C) of least Σ_i w_i (log Σ_c exp z_ic − z_i,y(i)) + λ/2n ‖W‖², with Z = X W.

    The weights w_i give every expert the same share. λ is `strength`: it acts like that many more prompts.
    """
    n = len(features)
    trust = np.ones(n) if features.trust is None else features.trust.astype(np.float64)
    sizes = np.bincount(features.experts, weights=trust, minlength=experts)
    weights = (trust / (sizes[features.experts] * (sizes > 0).sum())).astype(np.float32)
    W = minimise(features, experts, weights, strength / n, tolerance)
    if W is None:
        raise ConvergenceError(
            f"the discriminative fit of {n:,} prompts did not converge in {MAX_STEPS} steps with strength "
            f"{strength:g}: use a larger strength, or Blend, which is solved in closed form"
        )
    return W


def minimise(design: Design, experts: int, weights: Numbers, penalty: float, tolerance: float) -> Numbers | None:
    """W of least Σ_i w_i (log Σ_c exp z_ic − z_i,y(i)) + penalty/2 ‖W‖²; None if L-BFGS does not converge.

    Its preconditioner M is near the Hessian at W = 0.
    """
    problem = _Problem(design, weights, np.float32(penalty))
    precondition = design.precondition(weights / np.float32(experts), penalty)
    W, Z = np.zeros((design.width, experts), np.float32), np.zeros((len(design), experts), np.float32)
    # Memory is taken once: fresh pages cost as much as a pass over them.
    room, gradient, q, after, q_after = (np.empty_like(W) for _ in range(5))
    problem.find_gradient(W, np.full(Z.shape, 1.0 / experts, np.float32), gradient, room)
    precondition(gradient, q)
    start = max(0.0, _dot(gradient, q)) ** 0.5
    report = report_fit()
    if start <= NOTHING:  # one expert, or prompts that all experts share
        report(1.0)
        return W
    history = History(gradient.size)
    for _ in range(MAX_STEPS):
        step = history.find_direction(gradient, q, room)
        slope, dZ = _dot(gradient, step), design.project(step, room)
        t, p = problem.find_step_length(W, Z, step, dZ, SLOPE_SHARE * abs(slope))
        step *= np.float32(t)
        dZ *= np.float32(t)
        W += step
        Z += dZ
        problem.find_gradient(W, p, after, room)
        precondition(after, q_after)
        size = max(0.0, _dot(after, q_after)) ** 0.5
        if not np.isfinite(size):
            break
        if size <= tolerance * start:
            report(1.0)
            return W
        report(min(0.99, math.log(max(1.0, start / size)) / -math.log(tolerance)) if tolerance > 0 else 0.0)
        history.add(step, np.subtract(after, gradient, out=room), q, q_after)
        gradient, after, q, q_after = after, gradient, q_after, q
    return None


@dataclass(frozen=True, eq=False)
class DenseInverse:
    """M⁻¹ for M = AᵀA + λI. With fewer rows than columns it is (I − Aᵀ(AAᵀ + λI)⁻¹A)/λ, from a smaller inverse."""

    left: npt.NDArray[np.floating]  # (h, h): M⁻¹; or (h, n): Aᵀ
    right: npt.NDArray[np.float64] | None = None  # (n, h): (AAᵀ + λI)⁻¹A
    penalty: float = 1.0

    @classmethod
    def build(cls, rows: Numbers, penalty: float) -> DenseInverse:
        n, h = rows.shape
        # With few rows all is twice as wide: rounding errors, divided by a small λ, would outweigh the rest.
        wide = rows.astype(np.float64) if n < h else rows
        M = (wide @ wide.T if n < h else rows.T @ rows).astype(np.float64)
        M[np.diag_indices(len(M))] += penalty
        inverse = np.linalg.inv(M)
        return cls(wide.T, inverse @ wide, penalty) if n < h else cls(inverse.astype(np.float32))

    def multiply(self, q: Numbers) -> Numbers:
        if self.right is None:
            return np.asarray(self.left @ q, np.float32)
        wide = q.astype(np.float64)
        return ((wide - self.left @ (self.right @ wide)) / self.penalty).astype(np.float32)


@dataclass(frozen=True, eq=False)
class _Problem:
    design: Design
    weights: Numbers  # (n,)  w_i
    penalty: np.float32

    def find_gradient(self, W: Numbers, p: Numbers, out: Numbers, room: Numbers) -> None:
        """Xᵀ diag(w)(p − y) + penalty · W, written into `out`. The probabilities p and `room` are overwritten."""
        p[np.arange(len(p)), self.design.experts] -= 1.0
        p *= self.weights[:, None]
        self.design.gather(p, out)
        out += np.multiply(W, self.penalty, out=room)

    def find_step_length(
        self, W: Numbers, Z: Numbers, step: Numbers, dZ: Numbers, enough: float
    ) -> tuple[float, Numbers]:
        """How far to go along a step until the slope is at most `enough`, and the probabilities there.

        Z + t dZ needs no pass over the features, so the slope is cheap. It only rises with t: this is Newton's method
        on the slope, kept within a bracket.
        """
        w, bend = self.weights, float(self.penalty) * _dot(step, step)
        pull = float(self.penalty) * _dot(W, step) - float(w @ dZ[np.arange(len(dZ)), self.design.experts])
        t, low, high = 1.0, 0.0, float("inf")
        for _ in range(MAX_STEP_TRIALS):
            p = softmax(Z + np.float32(t) * dZ)
            mean = np.einsum("ic,ic->i", p, dZ)
            slope = float(w @ mean) + pull + t * bend
            if abs(slope) <= enough:
                break
            low, high = (t, high) if slope < 0 else (low, t)
            rise = float(w @ (np.einsum("ic,ic,ic->i", p, dZ, dZ) - mean * mean)) + bend
            t = t - slope / rise if rise > 0 else float("inf")
            if not low < t < high:
                t = (low + high) / 2 if high < float("inf") else 2 * low
        return t, p


class History:
    """The past steps s and changes of the gradient y. They turn M⁻¹ into L-BFGS's estimate of the inverse Hessian.

    H = γM⁻¹ + [S, γM⁻¹Y] K [S, γM⁻¹Y]ᵀ with a small matrix K (the compact form of Byrd, Nocedal and Schnabel). It needs
    few products with all past steps at once, where the usual recursion needs one pass for each.
    """

    def __init__(self, size: int) -> None:
        self._rows = np.empty((2 * MEMORY_STEPS, size), np.float32)  # s and M⁻¹y of each step, by turns
        self._SY = np.zeros((MEMORY_STEPS, MEMORY_STEPS))  # sᵢᵀyⱼ
        self._YP = np.zeros((MEMORY_STEPS, MEMORY_STEPS))  # yᵢᵀM⁻¹yⱼ
        self._order: list[int] = []  # the places of the steps, the oldest first

    def add(self, step: Numbers, y: Numbers, q: Numbers, q_after: Numbers) -> None:
        """Add a step, in the place of the oldest if there are many; `q` is M⁻¹∇. One without curvature is left out.

        The products with y are not differences of those with gradients: in float32, little would be left of them.
        """
        if _dot(step, y) <= 0 or _dot(q_after, y) <= _dot(q, y):
            return
        place = self._order.pop(0) if len(self._order) == MEMORY_STEPS else len(self._order)
        s, p = self._rows[2 * place : 2 * place + 2].reshape(2, *step.shape)
        s[:] = step
        np.subtract(q_after, q, out=p)
        self._order.append(place)
        k = len(self._order)
        products = (self._rows[: 2 * k] @ y.ravel()).astype(np.float64)
        self._SY[:k, place], self._YP[:k, place], self._YP[place, :k] = products[::2], products[1::2], products[1::2]

    def find_direction(self, gradient: Numbers, q: Numbers, room: Numbers) -> Numbers:
        """−H∇, where q is M⁻¹∇. `room` is overwritten."""
        if not self._order:
            return -q
        order, rows = np.array(self._order), self._rows[: 2 * len(self._order)]
        now, last = (rows @ gradient.ravel()).astype(np.float64), order[-1]
        scale = self._SY[last, last] / self._YP[last, last]  # γ
        R = np.triu(self._SY[np.ix_(order, order)])
        Sg = np.linalg.solve(R, now[2 * order])  # R⁻¹Sᵀ∇
        middle = np.diag(np.diag(R)) + scale * self._YP[np.ix_(order, order)]
        weights = np.zeros(len(rows), np.float32)
        weights[2 * order] = np.linalg.solve(R.T, scale * now[2 * order + 1] - middle @ Sg)
        weights[2 * order + 1] = scale * Sg
        found = (weights @ rows).reshape(gradient.shape)
        found -= np.multiply(q, np.float32(scale), out=room)
        return np.asarray(found)


def _dot(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    return float(np.vdot(a, b))
