"""Blend, the closed form: ridge, posterior and pairs of tokens in one score; and the posterior alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.scorers.arithmetic import BLOCK_ROWS, current, select_rows
from ir3de.scorers.registry import Embeddings, Floats, check_strength
from ir3de.scorers.ridge import PromptRidge, TokenRidge, is_part, remembers_grams
from ir3de.statistics.compact import Integers
from ir3de.statistics.defaults import PROMPT_STRENGTH
from ir3de.statistics.domain import BUCKETS, Statistics, find_tokens

MIN_PRIOR = 1e-100  # keeps the logarithm finite where a sharp prior rounds to 0


@dataclass(frozen=True)
class Posterior:
    """p(c|v) ∝ ñ_vc + m·q(c|v), score = log p: naive Bayes where there is data, embeddings where there is none.

    ñ are the counts with every domain scaled to the same size. The prior q = softmax(sharpness · prompt ridge)
    weighs as much as `weight` tokens (m). `strength` is the strength of that ridge.
    """

    weight: float = 1.0
    sharpness: float = 2.0
    strength: float = PROMPT_STRENGTH

    def __post_init__(self) -> None:
        for value in (self.weight, self.sharpness, self.strength):
            check_strength(value)

    def scores(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        ridge = PromptRidge(self.strength).scores(domains, embeddings)
        return self.score_counts(balance_counts([domain.histogram for domain in domains]), ridge)

    def score_counts(self, counts: Floats, ridge: npt.NDArray[np.floating]) -> Floats:
        """The scores from the balanced counts ñ and the scores of the prompt ridge."""
        q = ridge.astype(np.float64)  # q = softmax(sharpness · ridge), in place: the table is large
        q -= ridge.max(axis=1, keepdims=True)
        q *= self.sharpness
        np.exp(q, out=q)
        q /= q.sum(axis=1, keepdims=True)
        np.maximum(q, MIN_PRIOR, out=q)
        q *= self.weight
        return log_evidence(counts, q)


def balance_counts(counts: Sequence[Integers]) -> Floats:
    """Scale every domain's counts to the same size, the harmonic mean of the sizes: (V, C).

    It is close to the smallest size, so that counts weigh no more than the smallest domain justifies.
    """
    sizes = np.array([int(count.sum()) for count in counts], np.float64)
    return balance(np.stack(counts, axis=1).astype(np.float64), sizes)


def balance(counts: Floats, sizes: Floats) -> Floats:
    """The same for counts in columns (V, C), which are changed in place, of domains of these sizes."""
    sizes = np.maximum(sizes, 1.0)
    counts *= len(sizes) / (1.0 / sizes).sum() / sizes
    return counts


def log_evidence(counts: Floats, prior: Floats | float) -> Floats:
    """log(ñ + prior) minus its mean over the experts."""
    S = counts + prior
    np.log(S, out=S)
    S -= S.mean(axis=1, keepdims=True)
    return S


PAIR_PRIOR = 1.0  # as if each pair had occurred once more for every expert
ROUNDING = 1e-6  # smaller scores, relative to the largest, are rounding errors, also in float32
MAX_TOKEN_WEIGHT = 2.0
MIN_TOKEN_WEIGHT = 0.1  # a smaller weight is not worth the solve


@dataclass(frozen=True)
class Blend:
    """S = R/|R| + posterior · P/|P| + few/n · T/|T|, and for neighbouring tokens pairs · Q/|Q|.

    R is the prompt ridge, P the posterior, T the token ridge, Q = log(ñ + 1) from the counts of pairs. |·| is the size
    of the scores over the training tokens, so the weights are the shares of the parts. The ridge generalises; the
    posterior knows the words. The token ridge takes every token as an example. That is better while domains have few
    windows (n is their harmonic mean). Its weight is at most 2, and falls with n. Pairs add a little word order. With
    `pairs` 0, a route depends only on the bag of tokens.

    >>> import ir3de
    >>> from ir3de.corpora import examples
    >>> router = ir3de.Router.fit(examples.prompts(), scorer=Blend())
    >>> router.scorer
    Blend(posterior=0.5, pairs=0.0, few=50.0, strength=8.0, prior=1.0)
    """

    posterior: float = 0.5
    pairs: float = 0.0
    few: float = 50.0  # windows of a domain at which the token ridge weighs as much as the prompt ridge
    strength: float = PROMPT_STRENGTH  # of the prompt ridge
    prior: float = 1.0  # weight of the posterior's prior, in tokens

    def __post_init__(self) -> None:
        for name in ("posterior", "pairs", "few"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not (math.isfinite(value) and value >= 0):
                raise InputError(f"'{name}' of a blend must be a number, at least 0, found {value!r}")
        check_strength(self.strength)
        check_strength(self.prior)

    def scores(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        return np.asarray(self.combine(BlendParts(domains, embeddings, np.float64)), np.float64)

    def combine(self, parts: BlendParts) -> npt.NDArray[np.floating]:
        """S (V, C) from parts that are computed once for several blends.

        For a token that never occurred, the posterior is its prior: P = sharpness · R, apart from a constant. So there
        S = Ẽ W for one W, and only the tokens that occurred need more than that.
        """
        W, more = self._sum_up(parts)
        found = current().apply(W.astype(parts.dtype), parts.embeddings)
        found[parts.seen] += more
        return found

    def combine_seen(self, parts: BlendParts) -> npt.NDArray[np.floating]:
        """The same for the tokens that occurred alone."""
        W, more = self._sum_up(parts)
        return current().apply(W.astype(parts.dtype), parts.rows) + more

    def _sum_up(self, parts: BlendParts) -> tuple[Floats, Floats]:
        """W of all tokens, and what is added for those that occurred."""
        ridge, posterior = parts.ridge(self.strength), parts.posterior(self.prior, self.strength)
        weight = self.posterior * posterior.factor
        W = (ridge.factor + weight * Posterior.sharpness) * ridge.weights
        if share := token_weight(parts.domains, self.few):
            W += share * parts.token_ridge.factor * parts.token_ridge.weights
        more = posterior.scores - Posterior.sharpness * ridge.scores
        more *= weight
        return W, more

    def needs_grams(self, domains: Sequence[Statistics]) -> bool:
        return token_weight(domains, self.few) > 0

    def pair_scores(self, domains: Sequence[Statistics]) -> Floats | None:
        """The scores of the buckets of neighbouring tokens, (BUCKETS, C); None when they have no weight."""
        return None if self.pairs == 0 else self.pairs * score_pairs(domains)


@dataclass(frozen=True, eq=False)
class BlendPart:
    """One part of a blend: its size, and what its scores are computed from."""

    size: float  # |·|; 0 where the scores differ only by rounding
    weights: Floats  # (h + 1, C)  the W of a ridge, centred over the experts
    scores: Floats  # (tokens, C)  centred scores of the tokens that occurred

    @property
    def factor(self) -> float:
        """Scales the scores to unit size."""
        return find_factor(self.size)


def find_factor(size: float) -> float:
    """Scales scores to unit size; 0 where they differ only by rounding, so that noise is not scaled up."""
    return 1.0 / size if size else 0.0


_NONE = np.zeros((0, 0))


class BlendParts:
    """The parts of blends of some domains, each computed on first use.

    Products with the embedding are computed in the precision `dtype`. A table has float32.
    """

    def __init__(
        self, domains: Sequence[Statistics], embeddings: Embeddings, dtype: type[np.floating] = np.float32
    ) -> None:
        self.embeddings, self.dtype = embeddings, dtype
        self.seen = np.arange(embeddings.shape[0]) if any(map(is_part, domains)) else find_tokens(domains)
        self.rows = select_rows(embeddings, self.seen)
        self.domains = [domain.restrict_to(self.seen) for domain in domains]
        self.counts = balance_counts([domain.histogram for domain in self.domains])
        self.frequency = self.counts.sum(axis=1)
        self._ridge: dict[float, BlendPart] = {}
        self._posterior: dict[tuple[float, float], BlendPart] = {}

    def ridge(self, strength: float) -> BlendPart:
        if strength not in self._ridge:
            W = PromptRidge(strength).weights(self.domains)
            scores = np.asarray(current().apply(W.astype(self.dtype), self.rows), np.float64)
            largest = np.abs(scores).max(initial=0.0)
            scores -= scores.mean(axis=1, keepdims=True)
            self._ridge[strength] = BlendPart(measure_size(scores, self.frequency, largest), _centre(W), scores)
        return self._ridge[strength]

    def posterior(self, prior: float, strength: float) -> BlendPart:
        if (prior, strength) not in self._posterior:
            scores = Posterior(prior, strength=strength).score_counts(self.counts, self.ridge(strength).scores)
            # logarithms: a difference of less than a millionth is a rounding error, however small all of them are
            size = measure_size(scores, self.frequency, np.abs(scores).max(initial=1.0))
            self._posterior[prior, strength] = BlendPart(size, _NONE, scores)
        return self._posterior[prior, strength]

    @cached_property
    def token_ridge(self) -> BlendPart:
        A, sums = self.token_system
        W = self.solve_tokens(sums * self._token_weights)
        # Tokens are weighted by their frequency in A, so Σ_v f_v Σ_c (x̃ w_c)² = Σ_c w_cᵀ A w_c. No scores are needed.
        size, largest = (math.sqrt(max(0.0, float(np.sum(V * (A @ V))) / len(self.domains))) for V in (_centre(W), W))
        return BlendPart(size if size > ROUNDING * largest else 0.0, _centre(W), _NONE)

    @cached_property
    def token_system(self) -> tuple[Floats, Floats]:
        """A of the token ridge, and each domain's Ẽᵀ n_c: (h + 1, h + 1) and (h + 1, C)."""
        is_narrow = not remembers_grams(self.rows.shape[1])
        if self.dtype == np.float32 and is_narrow and current().name == "numpy":
            return self._multiply_tokens()
        A, B = TokenRidge().system(self.domains, self._token_weights.tolist(), self.rows)
        return A, B / self._token_weights

    def _multiply_tokens(self) -> tuple[Floats, Floats]:
        """The same in float32, a block of rows at a time."""
        rows, h, counts = self.rows, self.rows.shape[1], np.stack([domain.histogram for domain in self.domains], axis=1)
        n = counts @ self._token_weights
        A, sums = np.zeros((h + 1, h + 1)), np.zeros((h + 1, counts.shape[1]))
        for begin in range(0, len(rows), BLOCK_ROWS):
            block = slice(begin, begin + BLOCK_ROWS)
            X = rows[block]
            Y = X * np.sqrt(n[block, None]).astype(np.float32)
            A[:h, :h] += Y.T @ Y
            sums[:h] += X.T @ counts[block].astype(np.float32)
            A[:h, h] += Y.T @ np.sqrt(n[block]).astype(np.float32)
        A[h, :h] = A[:h, h]
        A[h, h], sums[h] = n.sum(), counts.sum(axis=0)
        return A, sums

    def solve_tokens(self, B: Floats) -> Floats:
        """(A + λI)⁻¹B with the A of the token ridge."""
        A, _ = self.token_system
        return current().solve(A.copy(), B, TokenRidge.strength * float(self._token_weights.sum()))

    @property
    def _token_weights(self) -> Floats:
        return np.array([1.0 / max(1, domain.tokens) for domain in self.domains])

    @cached_property
    def pairs(self) -> BlendPart:
        """Q for the pairs that occurred."""
        counts = balance(self.pair_counts.copy(), self.pair_counts.sum(axis=0))
        scores = log_evidence(counts, PAIR_PRIOR)
        return BlendPart(measure_size(scores, counts.sum(axis=1), np.abs(scores).max(initial=0.0)), _NONE, scores)

    @cached_property
    def pair_counts(self) -> Floats:
        """How often each pair that occurred did so for each expert: (pairs, C)."""
        return np.stack([pairs[self._pairs_seen] for pairs in require_pairs(self.domains)], axis=1).astype(np.float64)

    @cached_property
    def pair_places(self) -> npt.NDArray[np.intp]:
        """The row in `pair_counts` of each bucket that occurred."""
        places = np.zeros(BUCKETS, np.intp)
        places[self._pairs_seen] = np.arange(len(self._pairs_seen))
        return places

    @cached_property
    def _pairs_seen(self) -> npt.NDArray[np.intp]:
        return np.flatnonzero(np.any([pairs > 0 for pairs in require_pairs(self.domains)], axis=0))


def _centre(W: Floats) -> Floats:
    return np.asarray(W - W.mean(axis=1, keepdims=True))


def token_weight(domains: Sequence[Statistics], few: float) -> float:
    """The weight of the token ridge in a blend: few/n, at most 2, and 0 where that is small."""
    windows = [domain.sums.windows for domain in domains if domain.sums is not None]
    return weigh_token_ridge(np.array(windows, np.float64), few)


def weigh_token_ridge(windows: Floats, few: float) -> float:
    """The same from the number of each domain's windows."""
    weight = min(MAX_TOKEN_WEIGHT, few * float(np.mean(1.0 / np.maximum(1.0, windows))))
    return weight if weight >= MIN_TOKEN_WEIGHT else 0.0


def require_pairs(domains: Sequence[Statistics]) -> list[Integers]:
    """Each domain's counts of pairs. Raises an error for a domain without them."""
    pairs = [domain.sums.pairs for domain in domains if domain.sums is not None and domain.sums.pairs is not None]
    if len(pairs) < len(domains):
        raise InputError("pairs of tokens are counted with prompt sums, and a domain has none: use prompt_sums=True")
    return pairs


def score_pairs(domains: Sequence[Statistics]) -> Floats:
    """Q/|Q|: (BUCKETS, C)."""
    counts = balance_counts(require_pairs(domains))
    return scale_to_unit(log_evidence(counts, PAIR_PRIOR), counts)


def scale_to_unit(scores: npt.NDArray[np.floating], counts: Floats) -> Floats:
    """Scores minus their mean over the experts, with Σ_v f_v Σ_c S_vc² = 1, where f is a token's training frequency.

    Scores that differ only by rounding, as for equal domains, become zeros: noise is not scaled up.
    """
    centred = scores - scores.mean(axis=1, keepdims=True)
    size = measure_size(centred, counts.sum(axis=1), float(np.abs(scores).max(initial=0.0)))
    if not size:
        return np.zeros(scores.shape)
    centred /= size
    return np.asarray(centred, np.float64)


def measure_size(centred: npt.NDArray[np.floating], frequency: Floats, largest: float) -> float:
    """√(Σ_v f_v Σ_c S_vc²) for centred scores; 0 if that is a rounding error of the `largest` score."""
    squares = np.einsum("vc,vc->v", centred, centred)
    size = math.sqrt(float(frequency @ squares) / max(float(frequency.sum()), 1.0))
    return size if size > ROUNDING * largest else 0.0
