"""The discriminative scorer: logistic regression on prompts, added to the closed form.

The loss is convex, its features are shared by all experts, and prompts come in the order of their hashes. So the result
depends on the kept prompts alone, to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.scorers.arithmetic import softmax
from ir3de.scorers.blend import Blend, BlendParts, measure_size
from ir3de.scorers.prompt_features import Features, Indices, Numbers, Prompts
from ir3de.scorers.registry import Embeddings, Floats, check_strength
from ir3de.statistics.domain import Statistics

# Chosen on held-out training prompts. With few prompts a fit needs more penalty, and embeddings must count for more
# than words, most of which occur once.
BASE_STRENGTH = 5.0  # with many prompts
PROMPTS_OF_TWICE_STRENGTH = 8.0  # prompts of an expert where the strength is twice as large
MEANS_AT_ONE_PROMPT = 12.0  # falls with the root of their number
MIN_MEANS, MAX_MEANS = 1.5, 3.0
TOKENS_PER_CLOSED = 1_000.0  # kept tokens of an expert for each unit of weight: before, the closed form is noise
MIN_CLOSED, MAX_CLOSED = 0.1, 3.0


@dataclass(frozen=True)
class Logistic:
    """S = L/|L| + closed · B/|B|: logistic regression on the sampled prompts, and the closed form `Blend`.

    L = [tokens, pairs, mean embedding] W, where W minimises the cross-entropy of the experts over the prompts that were
    kept, plus λ/2n ‖W‖². `strength` is λ; `pairs` and `means` are the weights of these features relative to the tokens.
    |·| is the size of the scores over the training tokens, as in `Blend`. `closed` is the weight of the closed form:
    with 0, this is the discriminative fit alone. It needs a sample of every expert's prompts.

    >>> import ir3de
    >>> from ir3de.corpora import examples
    >>> router = ir3de.Router.fit(examples.prompts(), scorer=Logistic())
    >>> router.scorer
    Logistic(strength=5.0, means=2.0, pairs=1.0, closed=3.0)
    """

    strength: float = 5.0
    means: float = 2.0
    pairs: float = 1.0
    closed: float = 3.0

    def __post_init__(self) -> None:
        check_strength(self.strength)
        for name in ("means", "pairs", "closed"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not (math.isfinite(value) and value >= 0):
                raise InputError(f"'{name}' of a logistic scorer must be a number, at least 0, found {value!r}")

    @classmethod
    def for_prompts(cls, domains: Sequence[Statistics]) -> Logistic:
        """The parameters for as many prompts and tokens as these domains have kept, as harmonic means."""
        samples = [domain.sample for domain in domains if domain.sample is not None]
        n = len(samples) / sum(1.0 / max(1, len(sample)) for sample in samples)
        tokens = len(samples) / sum(1.0 / max(1, len(sample.ids)) for sample in samples)
        strength = BASE_STRENGTH * (1.0 + PROMPTS_OF_TWICE_STRENGTH / n)
        means = min(MAX_MEANS, max(MIN_MEANS, MEANS_AT_ONE_PROMPT / math.sqrt(n)))
        closed = min(MAX_CLOSED, max(MIN_CLOSED, tokens / TOKENS_PER_CLOSED))
        # two digits: a few prompts more or less should not change the parameters
        return cls(float(f"{strength:.2g}"), float(f"{means:.2g}"), closed=float(f"{closed:.2g}"))

    def scores(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        return self.score_tables(domains, embeddings)[0].astype(np.float64)

    def score_tables(
        self, domains: Sequence[Statistics], embeddings: Embeddings, parts: LogisticParts | None = None
    ) -> tuple[Numbers, Numbers | None]:
        """S (V, C) and the scores of the buckets of pairs, unless `pairs` is 0. `parts` are used if they are known."""
        parts = parts or LogisticParts(domains, embeddings)
        fitted = parts.fit(self)
        S, Q = fitted.score_tokens(embeddings), fitted.score_pairs()
        if self.closed:
            share = np.float32(self.closed / (parts.closed_size or 1.0))
            S += share * CLOSED.combine(parts.blend).astype(np.float32)
        return S, Q


CLOSED = Blend()


@dataclass(frozen=True, eq=False)
class FittedLogistic:
    """The weights of a logistic regression, scaled so that its scores over the training tokens have unit size."""

    features: Features
    W: Numbers  # (features, C)

    def score_tokens(self, embeddings: Embeddings, places: Indices | None = None) -> Numbers:
        """L/|L|: (V, C), or of some rows alone, as in `Features.score_tokens`."""
        return self.features.score_tokens(self.W, embeddings, places)

    def score_pairs(self) -> Numbers | None:
        return self.features.score_pairs(self.W)


class LogisticParts:
    """What logistic fits of some domains share: prompts, features, and the parts of the closed form."""

    def __init__(self, domains: Sequence[Statistics], embeddings: Embeddings, blend: BlendParts | None = None) -> None:
        if bare := sum(domain.sample is None for domain in domains):
            raise InputError(
                f"logistic regression is fitted to kept prompts, and {bare} of {len(domains)} experts have none: give "
                "texts, collect with keep_sample=True, or use another scorer: Blend (--scorer blend) in a fit, "
                'scorer="choose" (--scorer choose) in a change'
            )
        self.domains, self.embeddings = domains, embeddings
        self.blend = blend or BlendParts(domains, embeddings)
        self._features: dict[tuple[float, float], Features] = {}
        self._fitted: dict[Logistic, FittedLogistic] = {}

    @cached_property
    def prompts(self) -> Prompts:
        return Prompts.gather([domain.sample for domain in self.domains if domain.sample is not None])

    def features(self, means: float, pairs: float) -> Features:
        if (means, pairs) not in self._features:
            self._features[means, pairs] = Features.build(self.prompts, self.embeddings, means=means, pairs=pairs)
        return self._features[means, pairs]

    @cached_property
    def closed_size(self) -> float:
        """|B| of the default blend."""
        S = CLOSED.combine_seen(self.blend)
        return measure_size(S, self.blend.frequency, float(np.abs(S).max(initial=0.0)))

    def fit(self, scorer: Logistic) -> FittedLogistic:
        """Fit to all prompts, once."""
        alone = replace(scorer, closed=0.0)
        if alone not in self._fitted:
            self._fitted[alone] = self._fit(self.features(scorer.means, scorer.pairs), scorer, TOLERANCE)
        return self._fitted[alone]

    def fit_without(self, scorer: Logistic, held: npt.NDArray[np.bool_]) -> FittedLogistic:
        """Fit to the prompts that are not held out: `held` is (C, places in a sample)."""
        features = self.features(scorer.means, scorer.pairs)
        kept = np.flatnonzero(~held[features.experts, features.places])
        return self._fit(features.take(kept), scorer, TRIAL_TOLERANCE)

    def _fit(self, features: Features, scorer: Logistic, tolerance: float) -> FittedLogistic:
        W = fit_logistic(features, len(self.domains), scorer.strength, tolerance)
        W -= W.mean(axis=1, keepdims=True)
        L = features.score_tokens(W, self.blend.rows, self.places)
        size = measure_size(L.astype(np.float64), self.blend.frequency, float(np.abs(L).max(initial=0.0)))
        return FittedLogistic(features, W * np.float32(1.0 / size if size else 0.0))

    @cached_property
    def places(self) -> Indices:
        """The row of each token among those that occurred."""
        places = np.full(self.embeddings.shape[0], -1)
        places[self.blend.seen] = np.arange(len(self.blend.seen))
        return places


# of √(∇ᵀM⁻¹∇), as a share of its value at the start: more steps hardly change the held-out accuracy
TOLERANCE = 0.02
TRIAL_TOLERANCE = 0.05  # where fits are only compared
NOTHING = 1e-4  # of the same at the start, where it is about 1: what is left are rounding errors
MAX_STEPS = 100  # 10 to 15 are usual
MEMORY_STEPS = 6  # past steps that L-BFGS uses
SLOPE_SHARE = 0.3  # a step ends where the slope along it has fallen to this share of its start
MAX_STEP_TRIALS = 20  # of the length of one step; one or two are usual


class ConvergenceError(InputError):
    """The discriminative fit did not converge."""


def fit_logistic(features: Features, experts: int, strength: float, tolerance: float = TOLERANCE) -> Numbers:
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
    history = History(gradient.size, problem.precondition)
    for _ in range(MAX_STEPS):
        step = history.find_direction(gradient)
        dZ = problem.project(step)
        t, p = problem.find_step_length(W, Z, step, dZ, SLOPE_SHARE * abs(_dot(gradient, step)))
        before, step = gradient, step * np.float32(t)
        W, Z = W + step, Z + np.float32(t) * dZ
        gradient = problem.gradient(W, p)
        size = problem.measure(gradient)
        if not np.isfinite(size):
            break
        if size <= tolerance * start:
            return W
        history.add(step, gradient - before)
    raise ConvergenceError(
        f"the discriminative fit of {len(features):,} prompts did not converge in {MAX_STEPS} steps with strength "
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
        trust = np.ones(n) if features.trust is None else features.trust.astype(np.float64)
        sizes = np.bincount(features.experts, weights=trust, minlength=experts)
        weights = (trust / (sizes[features.experts] * (sizes > 0).sum())).astype(np.float32)
        penalty = strength / n
        diagonal = (1.0 / (penalty + features.sparse.sum_squares(weights) / experts)).astype(np.float32)
        rows = features.dense * np.sqrt(weights / np.float32(experts))[:, None]
        inverse = DenseInverse.build(rows, penalty)
        return cls(features, weights, np.float32(penalty), diagonal[:, None], inverse)

    @property
    def width(self) -> int:
        return self.features.sparse.width + int(self.features.dense.shape[1])

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
        return float(np.sqrt(max(0.0, _dot(gradient, self.precondition(gradient)))))

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


class History:
    """The past steps s and changes of the gradient y. They turn M⁻¹ into L-BFGS's estimate of the inverse Hessian.

    H = γM⁻¹ + [S, γM⁻¹Y] K [S, γM⁻¹Y]ᵀ with a small matrix K (the compact form of Byrd, Nocedal and Schnabel). It needs
    four products with all past steps at once, where the usual recursion needs one pass for each.
    """

    def __init__(self, size: int, precondition: Callable[[Numbers], Numbers]) -> None:
        self._precondition = precondition
        self._S = np.zeros((MEMORY_STEPS, size), np.float32)
        self._P = np.zeros((MEMORY_STEPS, size), np.float32)  # M⁻¹y
        self._SY = np.zeros((MEMORY_STEPS, MEMORY_STEPS))  # sᵢᵀyⱼ
        self._YP = np.zeros((MEMORY_STEPS, MEMORY_STEPS))  # yᵢᵀM⁻¹yⱼ
        self._order: list[int] = []  # rows of the above, the oldest step first

    def add(self, step: Numbers, change: Numbers) -> None:
        """Add a step, in the place of the oldest if there are many. Steps without curvature are left out."""
        if _dot(step, change) <= 0:
            return
        row = self._order.pop(0) if len(self._order) == MEMORY_STEPS else len(self._order)
        self._S[row], self._P[row] = step.ravel(), self._precondition(change).ravel()
        flat = change.ravel()
        self._SY[:, row], self._YP[row] = self._S @ flat, self._P @ flat
        self._YP[:, row] = self._YP[row]
        for other in self._order:  # sᵢ of an earlier step with this y is above; this s with earlier y is not needed
            self._SY[row, other] = 0.0
        self._order.append(row)

    def find_direction(self, gradient: Numbers) -> Numbers:
        """−H∇."""
        q = self._precondition(gradient)
        if not self._order:
            return -q
        order = np.array(self._order)
        last, flat = order[-1], gradient.ravel()
        scale = self._SY[last, last] / self._YP[last, last]  # γ
        R = np.triu(self._SY[np.ix_(order, order)])
        Sg = np.linalg.solve(R, (self._S @ flat)[order].astype(np.float64))  # R⁻¹Sᵀ∇
        middle = np.diag(np.diag(R)) + scale * self._YP[np.ix_(order, order)]
        first = np.linalg.solve(R.T, middle @ Sg - scale * (self._P @ flat)[order])
        weights = np.zeros((2, MEMORY_STEPS), np.float32)
        weights[0, order], weights[1, order] = first, -scale * Sg
        found = np.float32(scale) * q.ravel()
        found += weights[0] @ self._S
        found += weights[1] @ self._P
        return -found.reshape(gradient.shape)


def _dot(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    return float(np.vdot(a, b))
