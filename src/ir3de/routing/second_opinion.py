"""The second opinion: a linear head on a sentence encoder's vectors, and when and how much it counts.

Vectors are whole numbers from −127 to 127, and the weights of the head are multiples of `WEIGHT_UNIT`. So sums over a
vector are exact in float64, in every order: the same vector gives the same bits in every batch and on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import ArtifactError
from ir3de.policies import MAX_CERTAINTY, MIN_CERTAINTY

LEVELS = 127  # the largest number in a vector
WEIGHT_UNIT = 2.0**-12
MAX_WEIGHT = 2.0**11  # so that a weight has at most 24 bits
MAX_EXACT = 1 << 24  # float32 holds whole numbers below it exactly
MIN_PROBABILITY = 1e-12  # whose logarithm is finite

Vectors = npt.NDArray[np.int8]  # (n, width)
Floats = npt.NDArray[np.float64]


def quantise(vectors: npt.NDArray[np.floating]) -> Vectors:
    """Vectors as whole numbers. Only their directions are kept."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    return np.asarray(np.rint(vectors * (LEVELS / largest)), np.int8)


def to_units(vectors: Vectors) -> Floats:
    """Vectors of unit length in the same directions."""
    wide = vectors.astype(np.float64)
    return np.asarray(wide / np.sqrt((wide * wide).sum(axis=1, keepdims=True)))


def measure_cosines(vectors: Vectors, others: Vectors) -> Floats:
    """The cosine between each vector and each of the others: (n, m)."""
    one, other = vectors.astype(np.float64), others.astype(np.float64)
    lengths = np.sqrt((one * one).sum(axis=1)), np.sqrt((other * other).sum(axis=1))
    return np.asarray(one @ other.T / (lengths[0][:, None] * lengths[1]))


def round_weights(W: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """The weights of a head as multiples of `WEIGHT_UNIT`."""
    rounded = np.rint(np.clip(W, -MAX_WEIGHT, MAX_WEIGHT) / WEIGHT_UNIT) * WEIGHT_UNIT
    return np.asarray(rounded, np.float32)


@dataclass(frozen=True)
class EncoderName:
    """Which encoder made the vectors. The digest covers its weights, tokenizer, pooling and prompt."""

    name: str
    digest: str
    width: int


@dataclass(frozen=True)
class OpinionMembership:
    """How probable it is that a prompt is in domain, where the encoder was asked.

    σ(bias + table · t + nearest · s + certainty · c): t are the table's log-odds, s is the cosine to the nearest
    centroid of any expert, c are the head's log-odds of its best expert. Prompts below `lowest` are out of domain, if
    the table doubts them, too: t is below `doubt`. Phrases around a prompt turn its vector away from the centroids, and
    hardly change what the table thinks of it.
    """

    bias: float
    table: float
    nearest: float
    certainty: float
    lowest: float
    doubt: float = MAX_CERTAINTY

    def judge(self, table: float, nearest: float, certainty: float) -> float:
        """The log-odds, not below `lowest` where the table has no doubt."""
        odds = self.find_log_odds(table, nearest, certainty)
        return odds if table < self.doubt else max(odds, self.lowest)

    def find_log_odds(self, table: float, nearest: float, certainty: float) -> float:
        return self.bias + self.table * clip_odds(table) + self.nearest * nearest + self.certainty * certainty


def clip_odds(odds: float) -> float:
    """The table's log-odds, within limits: beyond them, more certainty adds nothing."""
    return max(MIN_CERTAINTY, min(MAX_CERTAINTY, odds))


@dataclass(frozen=True)
class HeldOutGain:
    """What the encoder adds on held-out prompts of the experts: accuracies as means over the experts."""

    prompts: int
    asked: float  # the share of the prompts
    table: float
    consulted: float


@dataclass(frozen=True, eq=False)
class SecondOpinion:
    """What a router knows of its encoder: the head, and when and how much it counts.

    A prompt is shown to the encoder where the table's confidence lies below `certainty`. Then the logarithm of the
    probability of each expert is `table_weight` · log p + `head_weight` · z, up to a constant, with p the table's
    probability and z the head's.
    """

    encoder: EncoderName
    share: float  # of held-out prompts that are below the certainty, as it was asked for
    certainty: float
    table_weight: float
    head_weight: float
    head: npt.NDArray[np.float32] = field(repr=False)  # (width + 1, C)  the bias is last
    centroids: Vectors = field(repr=False)  # (centroids of all experts, width)
    membership: OpinionMembership | None = None
    gain: HeldOutGain | None = None

    def __post_init__(self) -> None:
        if self.head.shape[0] != self.encoder.width + 1 or self.centroids.shape[1] != self.encoder.width:
            raise ArtifactError(
                f"the head of a router is for vectors of {self.head.shape[0] - 1} numbers, its encoder "
                f"'{self.encoder.name}' gives {self.encoder.width}: fit the router again"
            )

    def score(self, vectors: Vectors) -> Floats:
        """The head's logits of the experts: (n, C)."""
        wide = vectors.astype(np.float64)
        sums = wide @ self._wide_head  # exact
        return np.asarray(sums / np.sqrt((wide * wide).sum(axis=1, keepdims=True)) + self.head[-1])

    def find_nearest(self, vectors: Vectors) -> Floats:
        """The cosine to the nearest centroid: (n,)."""
        wide = vectors.astype(self._wide_centroids.dtype)
        sums = (wide @ self._wide_centroids).astype(np.float64)  # whole numbers, exact
        nearest = (sums / self._centroid_lengths).max(axis=1)
        return np.asarray(nearest / np.sqrt((wide * wide).sum(axis=1, dtype=np.float64)))

    @cached_property
    def _wide_head(self) -> Floats:
        return self.head[:-1].astype(np.float64)

    @cached_property
    def _wide_centroids(self) -> npt.NDArray[np.floating]:
        is_exact = LEVELS * LEVELS * self.encoder.width < MAX_EXACT
        return np.ascontiguousarray(self.centroids.T, np.float32 if is_exact else np.float64)

    @cached_property
    def _centroid_lengths(self) -> Floats:
        wide = self.centroids.astype(np.float64)
        return np.asarray(np.sqrt((wide * wide).sum(axis=1)))

    def __getstate__(self) -> dict[str, Any]:
        return {part.name: getattr(self, part.name) for part in fields(self)}  # without what was computed from them

    def combine(self, probabilities: list[float], logits: list[float]) -> list[float]:
        """The logarithms of the experts' probabilities, up to a constant."""
        a, b, log = self.table_weight, self.head_weight, math.log
        both = zip(probabilities, logits, strict=True)
        return [a * log(p if p > MIN_PROBABILITY else MIN_PROBABILITY) + b * z for p, z in both]

    def find_in_domain(self, table: float, nearest: float, logits: list[float]) -> float:
        """The log-odds that a prompt is in domain; infinite where that was not learnt."""
        if self.membership is None or table == math.inf:
            return math.inf
        return self.membership.judge(table, nearest, find_certainty(logits))

    def describe(self) -> dict[str, Any]:
        """Everything but the arrays, ready for JSON."""
        return {
            "encoder": asdict(self.encoder),
            "share": self.share,
            "certainty": None if math.isinf(self.certainty) else self.certainty,
            "table_weight": self.table_weight,
            "head_weight": self.head_weight,
            "membership": None if self.membership is None else asdict(self.membership),
            "gain": None if self.gain is None else asdict(self.gain),
        }

    @classmethod
    def restore(cls, described: Mapping[str, Any], tensors: Mapping[str, npt.NDArray[Any]]) -> SecondOpinion:
        """From what `describe` gave, and the arrays."""
        certainty, member, gain = described["certainty"], described["membership"], described["gain"]
        return cls(
            EncoderName(**described["encoder"]),
            described["share"],
            math.inf if certainty is None else certainty,
            described["table_weight"],
            described["head_weight"],
            tensors["head"],
            tensors["centroids"],
            None if member is None else OpinionMembership(**member),
            None if gain is None else HeldOutGain(**gain),
        )

    @property
    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        return {"head": self.head, "centroids": self.centroids}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SecondOpinion) or self.describe() != other.describe():
            return False
        return all(np.array_equal(mine, other.tensors[name]) for name, mine in self.tensors.items())

    __hash__ = None  # type: ignore[assignment]


def find_certainty(logits: list[float]) -> float:
    """The log-odds of the best expert, within limits."""
    best = max(logits)
    others = math.fsum(math.exp(z - best) for z in logits) - 1.0
    return clip_odds(-math.log(others)) if others > 0 else MAX_CERTAINTY
