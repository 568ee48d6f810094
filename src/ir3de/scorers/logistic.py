"""The discriminative scorer: logistic regression on prompts, added to the closed form.

The loss is convex, its features are shared by all experts, and prompts come in the order of their hashes. So the result
depends on the kept prompts alone, to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.scorers.blend import Blend, BlendParts, measure_size
from ir3de.scorers.prompt_features import Features, Prompts
from ir3de.scorers.registry import Embeddings, Floats, check_strength
from ir3de.scorers.solver import TOLERANCE, TRIAL_TOLERANCE, fit_logistic
from ir3de.scorers.sparse import Indices, Numbers
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
_last_fit: ContextVar[dict[Any, FittedLogistic] | None] = ContextVar("last fit", default=None)


@contextmanager
def sharing_fits() -> Iterator[None]:
    """In this context a discriminative fit of the same prompts as the one before it is that one."""
    token = _last_fit.set({})
    try:
        yield
    finally:
        _last_fit.reset(token)


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
        alone, known = replace(scorer, closed=0.0), _last_fit.get()
        if alone not in self._fitted:
            key = None if known is None else (alone, id(self.embeddings), self.prompts.digest)
            if known is not None and key in known:
                self._fitted[alone] = self._scale(known[key].features, known[key].W)
            else:
                self._fitted[alone] = self._fit(self.features(scorer.means, scorer.pairs), scorer, TOLERANCE)
            if known is not None:
                known.clear()
                known[key] = self._fitted[alone]
        return self._fitted[alone]

    def fit_without(self, scorer: Logistic, held: npt.NDArray[np.bool_]) -> FittedLogistic:
        """Fit to the prompts that are not held out: `held` is (C, places in a sample)."""
        features = self.features(scorer.means, scorer.pairs)
        kept = np.flatnonzero(~held[features.experts, features.places])
        return self._fit(features.take(kept), scorer, TRIAL_TOLERANCE)

    def _fit(self, features: Features, scorer: Logistic, tolerance: float) -> FittedLogistic:
        W = fit_logistic(features, len(self.domains), scorer.strength, tolerance)
        W -= W.mean(axis=1, keepdims=True)
        return self._scale(features, W)

    def _scale(self, features: Features, W: Numbers) -> FittedLogistic:
        L = features.score_tokens(W, self.blend.rows, self.places)
        size = measure_size(L.astype(np.float64), self.blend.frequency, float(np.abs(L).max(initial=0.0)))
        return FittedLogistic(features, W * np.float32(1.0 / size if size else 0.0))

    @cached_property
    def places(self) -> Indices:
        """The row of each token among those that occurred."""
        places = np.full(self.embeddings.shape[0], -1)
        places[self.blend.seen] = np.arange(len(self.blend.seen))
        return places
