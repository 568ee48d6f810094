"""Fit a second opinion: the head, the weights of the sum, the certainty below which the encoder is asked.

Everything is learnt on prompts that were held out, both of the table and of the head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev

import numpy as np
import numpy.typing as npt

from ir3de import policies
from ir3de.embedding import Embedding
from ir3de.fitting.calibration import OUT_OF_DOMAIN_DEVIATIONS, OUT_OF_DOMAIN_SHARE, HeldOut
from ir3de.fitting.encoded_prompts import EncodedPrompts
from ir3de.fitting.encoder_head import FittedHead, fit_head
from ir3de.fitting.membership import UNKNOWN_SHARE, fit_weights
from ir3de.fitting.membership_examples import GROUP_KIND, WORDY_KIND, Examples, make_examples
from ir3de.policies import Membership
from ir3de.routing.rules import DecisionRules
from ir3de.routing.second_opinion import (
    MIN_PROBABILITY,
    HeldOutGain,
    OpinionMembership,
    SecondOpinion,
    Vectors,
    clip_odds,
    find_certainty,
    measure_cosines,
    quantise,
    round_weights,
    to_units,
)
from ir3de.statistics.domain import Statistics

MAX_CENTROIDS = 16  # of an expert
MIN_CENTROID_PROMPTS = 2  # of a centroid, on average
CENTROID_STEPS = 10
MAX_LOGITS = 1 << 24  # prompts times experts that the head is fitted to
PRIOR_PROMPTS = 20.0  # the weight of equal trust in table and head, which few prompts leave as it is
MIN_ASKED = 100  # prompts that the weights are learnt from, where there are so many
DOUBTED_SHARE = 0.1  # of unusual prompts of the experts, by the table: only such prompts can be out of domain
MAX_STEPS = 100
PRECISION = 1e-8
MEMBERSHIP_PRIOR = (0.0, 0.5, 1.0, 0.25)  # bias, and weights of the table, the nearest centroid and the head

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def fit_opinion(
    encoded: EncodedPrompts,
    domains: Mapping[str, Statistics],
    embedding: Embedding,
    background: Statistics | None,
    rules: DecisionRules,
    held: HeldOut | None,
) -> SecondOpinion:
    """The second opinion of a router with these rules; `held` is the table's evidence for held-out prompts."""
    known = encoded.vectors()
    vectors = [known[name] for name in domains]
    head, starts = _fit_head(vectors)
    centroids = [find_centroids(own) for own in vectors]
    opinion = SecondOpinion(
        encoded.encoder,
        encoded.share,
        math.inf,  # where nothing can be held out, the encoder is always asked
        1.0,
        1.0,
        round_weights(head.W),
        np.concatenate(centroids),
    )
    prompts = None if held is None else _HeldOutPrompts.join(held, rules, head, starts)
    if prompts is None:
        return opinion
    opinion = _weigh(opinion, prompts)
    if rules.membership is None:
        return opinion
    nearest = _NearestCentroids(vectors, centroids)
    examples = _Examples(rules.membership, head, starts, nearest, encoded.background())
    shown = make_examples(list(domains.values()), embedding, background)
    doubt = _find_doubt(shown, rules.membership)
    fitted = _fit_membership(opinion, [examples.make(one) for one in shown], prompts, nearest, doubt)
    return replace(opinion, membership=fitted)


def _fit_head(vectors: Sequence[Vectors]) -> tuple[FittedHead, Indices]:
    """The head, fitted to the first prompts of each expert, and where each expert's begin and the last one's end."""
    each = max(1, MAX_LOGITS // len(vectors) ** 2)
    first = [own[:each] for own in vectors]
    sizes = [len(own) for own in first]
    experts = np.repeat(np.arange(len(vectors)), sizes)
    return fit_head(to_units(np.concatenate(first)), experts, len(vectors)), np.cumsum([0, *sizes])


def _find_rows(head: FittedHead, starts: Indices, experts: Indices, places: Indices) -> Indices:
    """The rows of prompts in `head.held_out`; −1 for those that the head did not hold out."""
    rows = starts[experts] + places
    there = rows < starts[experts + 1]
    there[there] = np.isfinite(head.held_out[rows[there], 0])
    return np.where(there, rows, -1)


@dataclass(frozen=True, eq=False)
class _HeldOutPrompts:
    """Prompts as table and head judge them, each by a fit that did not see them."""

    experts: Indices  # (n,)
    places: Indices  # (n,)
    in_domain: Floats  # (n,)  the table's log-odds
    confidence: Floats  # (n,)  the table's
    table: Floats  # (n, C)  log-probabilities
    head: Floats  # (n, C)

    @classmethod
    def join(cls, held: HeldOut, rules: DecisionRules, head: FittedHead, starts: Indices) -> _HeldOutPrompts | None:
        rows = _find_rows(head, starts, held.experts, held.places)
        kept = rows >= 0
        if not kept.any():
            return None
        decisions = held.decide(rules)
        values = np.array([one._find_values() for one in decisions])
        shares = np.array([one._find_share() for one in decisions])
        return cls(
            held.experts[kept],
            held.places[kept],
            np.array([one._in_domain for one in decisions])[kept],
            (values.max(axis=1) * shares)[kept],
            np.log(np.maximum(values, MIN_PROBABILITY))[kept],
            head.held_out[rows[kept]],
        )

    @property
    def weights(self) -> Floats:
        """Every expert has the same total weight, and Σ = 1."""
        sizes = np.bincount(self.experts)
        return np.asarray(1.0 / sizes[self.experts] / (sizes > 0).sum())


def _weigh(opinion: SecondOpinion, prompts: _HeldOutPrompts) -> SecondOpinion:
    """The certainty below which the share of the prompts lies, and the weights of the sum, learnt on these prompts."""
    n, order = len(prompts.experts), np.sort(prompts.confidence)
    count = math.ceil(opinion.share * n)
    certainty = float(order[count]) if count < n else math.inf
    learnt = prompts.confidence < (certainty if count >= MIN_ASKED else order[min(n, MIN_ASKED) - 1 :][0] + 1e-9)
    w = prompts.weights
    a, b = _fit_sum(prompts.table[learnt], prompts.head[learnt], prompts.experts[learnt], w[learnt] / w[learnt].sum())
    asked = prompts.confidence < certainty
    both = np.where(asked[:, None], a * prompts.table + b * prompts.head, prompts.table)
    table, consulted = (float(w @ (found.argmax(axis=1) == prompts.experts)) for found in (prompts.table, both))
    gain = HeldOutGain(n, float(asked.mean()), table, consulted)
    return replace(opinion, certainty=certainty, table_weight=a, head_weight=b, gain=gain)


def _fit_sum(table: Floats, head: Floats, experts: Indices, weights: Floats) -> tuple[float, float]:
    """a and b, at least 0, of least log loss of softmax(a · table + b · head), drawn to 1: Newton's method."""
    X, rows = np.stack((table, head)), np.arange(len(experts))
    own, penalty = X[:, rows, experts], PRIOR_PROMPTS / len(experts)
    free = np.ones(2, bool)

    def measure(b: Floats) -> tuple[float, Floats]:
        z = np.tensordot(b, X, 1)
        z -= z.max(axis=1, keepdims=True)
        logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        return float(-weights @ logs[rows, experts] + 0.5 * penalty * ((b - 1.0) ** 2).sum()), np.exp(logs)

    while True:
        b = np.where(free, 1.0, 0.0)
        loss, p = measure(b)
        for _ in range(MAX_STEPS):
            mean = (p * X).sum(axis=2)
            slope = (mean - own) @ weights + penalty * (b - 1.0)
            curvature = np.einsum("inc,jnc,nc->ij", X, X, p * weights[:, None]) - (mean * weights) @ mean.T
            curvature[np.diag_indices(2)] += penalty
            step = np.zeros(2)
            step[free] = np.linalg.solve(curvature[np.ix_(free, free)], slope[free])
            next_loss, p = measure(b - step)
            while next_loss > loss and np.abs(step).max() > PRECISION:
                step /= 2.0  # Newton's step may lead too far
                next_loss, p = measure(b - step)
            b, loss = b - step, next_loss
            if np.abs(step).max() <= PRECISION:
                break
        if (b >= 0).all():
            return float(b[0]), float(b[1])
        free &= b >= 0


# --- out of domain, where the encoder was asked


def find_centroids(vectors: Vectors) -> Vectors:
    """The centroids of an expert's prompts, by k-means with cosines. All sums are of whole numbers."""
    count = max(1, min(MAX_CENTROIDS, len(vectors) // MIN_CENTROID_PROMPTS))
    centroids = vectors[np.linspace(0, len(vectors) - 1, count).astype(np.intp)]
    for _ in range(CENTROID_STEPS):
        nearest = measure_cosines(vectors, centroids).argmax(axis=1)
        sums = (nearest == np.arange(count)[:, None]).astype(np.float64) @ vectors.astype(np.float64)
        there = np.abs(sums).max(axis=1) > 0
        made = centroids.copy()
        made[there] = quantise(sums[there])
        if np.array_equal(made, centroids):
            break
        centroids = made
    return centroids


class _NearestCentroids:
    """Cosines to the nearest centroid. A prompt is compared with centroids that were made without it."""

    def __init__(self, vectors: Sequence[Vectors], centroids: Sequence[Vectors]) -> None:
        self.vectors, self.centroids = vectors, centroids
        # a prompt at an even place is compared with the centroids of those at odd places, and the other way round
        pairs = [(own[1::2], own[::2]) for own in vectors]
        self.halves = [[find_centroids(half) if len(half) else half for half in pair] for pair in pairs]

    def measure(self, experts: Indices, places: Indices, known: Indices) -> Floats:
        """Of prompts, each in its expert's sample, to the centroids of the known experts."""
        found = np.empty(len(experts))
        for expert in np.unique(experts).tolist():
            others = [self.centroids[c] for c in known.tolist() if c != expert]
            for side in (0, 1):
                rows = np.flatnonzero((experts == expert) & (places % 2 == side))
                own = [self.halves[expert][side]] if expert in known else []
                if len(rows):
                    found[rows] = self.compare(self.vectors[expert][places[rows]], [*others, *own])
        return found

    def compare(self, vectors: Vectors, centroids: Sequence[Vectors]) -> Floats:
        return np.asarray(measure_cosines(vectors, np.concatenate(centroids)).max(axis=1, initial=-1.0))


@dataclass(frozen=True, eq=False)
class _Examples:
    """Known and unknown prompts as `OpinionMembership` weighs them."""

    member: Membership
    head: FittedHead
    starts: Indices
    nearest: _NearestCentroids
    background: Vectors

    def make(self, table: Examples) -> Examples:
        """The encoder's features beside the table's, for the whole prompts of a set of examples."""
        n, far = len(table.experts), table.experts == len(self.nearest.vectors)
        weights = np.array(self.member.weights)
        odds = np.clip(self.member.bias + table.features[:n] @ weights, policies.MIN_CERTAINTY, policies.MAX_CERTAINTY)
        logits, nearest = np.full((n, len(table.known)), np.nan), np.empty(n)
        rows = _find_rows(self.head, self.starts, table.experts[~far], table.places[~far])
        logits[~far] = np.where(rows[:, None] >= 0, self.head.held_out[rows][:, table.known], np.nan)
        nearest[~far] = self.nearest.measure(table.experts[~far], table.places[~far], table.known)
        there = self.background[table.places[far]]
        logits[far] = self.head.predict(to_units(there))[:, table.known]
        nearest[far] = self.nearest.compare(there, [self.nearest.centroids[c] for c in table.known.tolist()])
        kept = np.isfinite(logits[:, 0])
        certainty = [find_certainty(row) for row in logits[kept].tolist()]
        features = np.stack((odds[kept], nearest[kept], certainty), axis=1)
        share = table.weights[:n][kept]
        return replace(table, features=features, is_known=table.is_known[:n][kept], weights=share / share.sum())


def _find_doubt(examples: Sequence[Examples], member: Membership) -> float:
    """The table's log-odds below which `DOUBTED_SHARE` of each kind of unusual examples lies, or less."""
    found = [policies.MAX_CERTAINTY]
    for kind in (WORDY_KIND, GROUP_KIND):
        chosen = [one.features[one.kinds == kind] for one in examples]
        if features := [some for some in chosen if len(some)]:
            odds = member.bias + np.concatenate(features) @ np.array(member.weights)
            found.append(float(np.quantile(odds, DOUBTED_SHARE, method="lower")))
    return min(found)


def _fit_membership(
    opinion: SecondOpinion,
    examples: Sequence[Examples],
    prompts: _HeldOutPrompts,
    nearest: _NearestCentroids,
    doubt: float,
) -> OpinionMembership | None:
    """The weights come from experts left out and from the background, `lowest` from the router's own prompts."""
    known = [one.features[one.is_known, 1] for one in examples]
    if not examples or not sum(map(len, known)):
        return None
    cosines = np.concatenate(known)
    mean, spread = float(cosines.mean()), float(cosines.std()) or 1.0
    scaled = [replace(one, features=(one.features - (0.0, mean, 0.0)) / (1.0, spread, 1.0)) for one in examples]
    bias, table, near, certainty = fit_weights(scaled, MEMBERSHIP_PRIOR)
    shift = math.log((1 - UNKNOWN_SHARE) / UNKNOWN_SHARE)
    made = OpinionMembership(
        bias - near * mean / spread + shift, table, near / spread, certainty, policies.TOO_FEW_PROMPTS, doubt
    )
    n, asked = len(prompts.experts), np.flatnonzero(prompts.confidence < opinion.certainty)
    every = np.arange(len(nearest.vectors))
    cosine = nearest.measure(prompts.experts[asked], prompts.places[asked], every).tolist()
    parts = zip(prompts.in_domain[asked].tolist(), cosine, prompts.head[asked].tolist(), strict=True)
    odds = sorted(made.find_log_odds(clip_odds(one), near, find_certainty(row)) for one, near, row in parts)
    if not odds:
        return made
    if k := int(OUT_OF_DOMAIN_SHARE * (n + 1)):
        return replace(made, lowest=min(shift, odds[min(k, len(odds)) - 1]))
    # too few to measure that share: below all of them, and far below their mean
    return replace(made, lowest=min(odds[0], fmean(odds) - OUT_OF_DOMAIN_DEVIATIONS * pstdev(odds), shift))
