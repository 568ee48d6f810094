"""Multinomial logistic regression of domains on token embeddings: the paper's alternative to ridge, from counts alone.

There is no closed form, but the loss is convex. All tokens of one id share a row, so a pass over the data is a pass
over at most V rows, weighted by their counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.scorers import Rows, current, select_rows
from ir3de.statistics import Statistics

Floats = npt.NDArray[np.float64]

BLOCK_ROWS = 4_096  # of E in one product
CACHED_ROWS = 128  # of E converted to float64 at a time: they stay in the cache

TOLERANCE = 1e-5  # of √(∇ᵀM⁻¹∇), see `minimise`: the mean loss per token is then exact to about 1e-10
MAX_STEPS = 1_000  # 50 to 150 are usual
MEMORY_STEPS = 30  # past steps that L-BFGS uses
SLOPE_SHARE = 0.1  # a step ends where the slope along it has fallen to this share of its start
MAX_STEP_TRIALS = 50  # of the length of one step; one or two are usual


@dataclass(frozen=True)
class CrossEntropy:
    """Logistic regression of domains on token embeddings: S = Ẽ W, where W minimises

    −Σ_v Σ_c w_c n_vc log softmax(Ẽ_v W)_c + λ/2 ‖W‖².

    `strength` is λ, `bias` appends a constant column to E, and `balanced` gives every domain the same weight whatever
    its size (w_c = 1 / tokens(c); λ is then per domain), all as in `TokenRidge`. Scores are log-probabilities up to a
    constant per token, so the mean over a prompt adds up evidence.

    >>> CrossEntropy()
    CrossEntropy(strength=0.1, bias=True, balanced=True)
    """

    strength: float = 0.1
    bias: bool = True
    balanced: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.strength, (int, float)) or not 0 < self.strength < float("inf"):
            raise InputError(f"strength (λ) must be a positive number, found {self.strength!r}: try 0.01")

    def scores(self, domains: Sequence[Statistics], embeddings: Rows) -> Floats:
        weights = [1.0 / max(1, domain.tokens) if self.balanced else 1.0 for domain in domains]
        penalty = self.strength * (sum(weights) if self.balanced else 1.0)
        counts = np.stack([w * domain.histogram for w, domain in zip(weights, domains, strict=True)])
        seen = np.flatnonzero(counts.any(axis=0))
        total = float(counts.sum()) or 1.0  # the loss is a mean over tokens, so the tolerance is per token
        rows = embeddings if len(seen) == len(embeddings) else select_rows(embeddings, seen)
        W = minimise(Loss(rows, counts[:, seen] / total, penalty / total, self.bias))
        return current().apply(W, embeddings)


@dataclass(frozen=True, eq=False)
class Loss:
    """The weighted cross-entropy of the rows [x, 1], and its derivatives. Values per row have the shape (C, rows)."""

    rows: Rows
    counts: Floats  # (C, rows)  w_c n_vc
    penalty: float
    bias: bool

    @property
    def width(self) -> int:
        return int(self.rows.shape[1]) + self.bias

    def project(self, W: Floats) -> Floats:
        """Z = (Ẽ W)ᵀ."""
        return np.ascontiguousarray(current().apply(W, self.rows).T)

    def gradient(self, W: Floats, p: Floats) -> Floats:
        """Ẽᵀ(n p − n_c) + λW."""
        h = self.rows.shape[1]
        residual = self.counts.sum(axis=0) * p - self.counts
        G = np.zeros((len(p), self.width))
        block = np.empty((min(CACHED_ROWS, len(self.rows)), h))  # rows in float64 stay in the cache
        for begin in range(0, len(self.rows), CACHED_ROWS):
            rows = self.rows[begin : begin + CACHED_ROWS]
            np.copyto(block[: len(rows)], rows)
            G[:, :h] += residual[:, begin : begin + CACHED_ROWS] @ block[: len(rows)]
        G[:, h:] = residual.sum(axis=1)[:, None]
        return G.T + self.penalty * W

    def curvature(self) -> Floats:
        """M = Ẽᵀ diag(n / C) Ẽ + λI: the Hessian at W = 0, the same for every expert."""
        h, M = self.rows.shape[1], np.zeros((self.width, self.width))
        root = np.sqrt(self.counts.sum(axis=0) / len(self.counts))[:, None]
        for begin in range(0, len(self.rows), BLOCK_ROWS):
            part = root[begin : begin + BLOCK_ROWS]
            Y = np.hstack([self.rows[begin : begin + BLOCK_ROWS] * part, part])[:, : self.width]
            M += Y.T @ Y
        floor = 1e-12 * np.trace(M) / max(1, h)  # M only guides the steps, so it may be inexact, but not singular
        M[np.diag_indices(self.width)] += max(self.penalty, floor)
        return M


def minimise(loss: Loss) -> Floats:
    """The W of least loss, by L-BFGS: (h [+ 1], C).

    M, the Hessian at W = 0, is the preconditioner (Böhning's form: one factor serves all experts and steps). It ends
    where √(∇ᵀM⁻¹∇) is small.
    """
    W, Z = np.zeros((loss.width, len(loss.counts))), np.zeros(loss.counts.shape)
    gradient = loss.gradient(W, softmax(Z))
    if not gradient.any():  # one expert, or equal domains
        return W
    root = np.linalg.inv(np.linalg.cholesky(loss.curvature()))
    past: deque[tuple[Floats, Floats, float]] = deque(maxlen=MEMORY_STEPS)
    for _ in range(MAX_STEPS):
        if np.linalg.norm(root @ gradient) <= TOLERANCE:
            return W
        step = find_direction(gradient, past, root)
        dZ = loss.project(step)
        t, p = find_step_length(loss, W, Z, step, dZ, SLOPE_SHARE * abs(float(np.vdot(gradient, step))))
        before, step = gradient, t * step
        W, Z = W + step, Z + t * dZ
        gradient = loss.gradient(W, p)
        change = gradient - before
        if (along := float(np.vdot(step, change))) > 0:
            past.append((step, change, along))
    raise InputError(
        f"cross-entropy did not converge in {MAX_STEPS:,} steps with λ = {loss.penalty:.1e} per token: "
        "use a larger strength, or TokenRidge"
    )


def find_direction(gradient: Floats, past: Sequence[tuple[Floats, Floats, float]], root: Floats) -> Floats:
    """−H∇, where H is L-BFGS's estimate of the inverse Hessian: M⁻¹, corrected by the past steps."""
    q, shares = gradient.copy(), []
    for step, change, along in reversed(past):
        share = float(np.vdot(step, q)) / along
        shares.append(share)
        q -= share * change
    q = root.T @ (root @ q)
    for (step, change, along), share in zip(past, reversed(shares), strict=True):
        q += (share - float(np.vdot(change, q)) / along) * step
    return -q


def find_step_length(loss: Loss, W: Floats, Z: Floats, step: Floats, dZ: Floats, enough: float) -> tuple[float, Floats]:
    """How far to go along a step until the slope is at most `enough`, and the probabilities there.

    Z + t dZ needs no pass over the rows, so the slope is cheap. It only rises with t: this is Newton's method on the
    slope, kept within a bracket.
    """
    n = loss.counts.sum(axis=0)
    pull, bend = loss.penalty * float(np.vdot(W, step)), loss.penalty * float(np.vdot(step, step))
    pull -= float(np.vdot(loss.counts, dZ))
    t, low, high = 1.0, 0.0, float("inf")
    for _ in range(MAX_STEP_TRIALS):
        p = softmax(Z + t * dZ)
        mean = (p * dZ).sum(axis=0)
        slope = float(n @ mean) + pull + t * bend
        if abs(slope) <= enough:
            break
        low, high = (t, high) if slope < 0 else (low, t)
        rise = float(n @ ((p * dZ * dZ).sum(axis=0) - mean * mean)) + bend
        t = t - slope / rise if rise > 0 else float("inf")
        if not low < t < high:
            t = (low + high) / 2 if high < float("inf") else 2 * low
    return t, p


def softmax(Z: Floats) -> Floats:
    """Softmax over the experts, the first axis."""
    p = np.exp(Z - Z.max(axis=0))
    p /= p.sum(axis=0)
    return np.asarray(p, np.float64)
