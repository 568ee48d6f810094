"""What a discriminative fit knows of each sampled prompt: its tokens, its pairs of neighbours, its mean embedding.

Every feature of a prompt of n tokens is a sum over its tokens, or pairs, divided by √n. So a weight per feature is a
score per token or pair, and the fit compiles to the same table as any other. √n keeps long and short prompts at about
the same size; when routing it divides all experts' scores alike, so it does not change which is best.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ir3de.scorers.arithmetic import Rows
from ir3de.scorers.solver import DenseInverse, Preconditioner
from ir3de.scorers.sparse import Indices, Numbers, SparseMatrix
from ir3de.statistics.domain import BUCKETS, pair_buckets, within_prompts
from ir3de.statistics.sample import Sample, positions

MAX_TOKENS = 3_000_000  # of all whole prompts
MAX_NUMBERS = 1 << 27  # tokens of prompts and parts, times experts: a pass takes time in proportion
MIN_PROMPTS = 8  # of an expert, even where that exceeds the limits
LONGEST = 512  # tokens of a prompt that are read
# A fit that only sees whole prompts relies on few words of each. Halves make it rely on more of them, which carries
# over to prompts from other sources. Beginnings stand for short prompts to experts that long documents describe.
MIN_HALVED = 16  # tokens of a prompt that is also read in two halves
SHORT = 32  # tokens of the beginning,
MIN_SHORTENED = 48  # and of a prompt whose beginning is also read
MIN_PAIR_PROMPTS = 2  # a pair of one prompt alone does not help with others
BLOCK_ROWS = 4_096  # of the embedding at a time
TAUGHT_WEIGHT = 0.5  # of a prompt that a teacher labelled: what people labelled counts as 1


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts end to end, each with its expert. None is empty."""

    ids: npt.NDArray[np.uint32]  # (Σ lengths,)
    lengths: Indices  # (n,)
    experts: Indices  # (n,)
    places: Indices  # (n,)  of the prompt that it is the whole or a part of, in its expert's sample
    trust: Numbers | None = None  # (n,)  how much each counts; None for 1

    @classmethod
    def gather(cls, samples: Sequence[Sample]) -> Prompts:
        """Every expert's prompts, as many as the limits allow, and parts of them, if there is room for those too."""
        parts = []
        for expert, sample in enumerate(_limit_samples(samples)):
            first, kept = sample.starts, np.minimum(sample.kept, LONGEST)
            room = MAX_NUMBERS // len(samples) ** 2 - int(kept.sum())
            whole = np.cumsum(np.where(kept >= MIN_HALVED, kept, 0) + np.where(kept >= MIN_SHORTENED, SHORT, 0)) > room
            halved = np.flatnonzero((kept >= MIN_HALVED) & ~whole)
            shortened = np.flatnonzero((kept >= MIN_SHORTENED) & ~whole)
            half = kept[halved] // 2
            places = np.concatenate([np.arange(len(sample)), halved, halved, shortened])
            starts = np.concatenate([first, first[halved], first[halved] + half, first[shortened]])
            lengths = np.concatenate([kept, half, kept[halved] - half, np.full(len(shortened), SHORT)])
            trust = np.where(sample.is_taught, TAUGHT_WEIGHT, np.float32(1.0))[places]
            own = sample.ids[positions(starts, lengths)], lengths, np.full(len(places), expert), places
            parts.append((*own, trust.astype(np.float32)))
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Indices:
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def rows(self) -> Indices:
        """The prompt of each token."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def digest(self) -> bytes:
        """The same for the same prompts of the same experts."""
        sha = hashlib.sha256()
        for part in (self.ids, self.lengths, self.experts, self.places, self.trust):
            sha.update(b"" if part is None else part.tobytes())
        return sha.digest()

    def count(self, vocabulary: int, pairs: bool) -> Counts:
        """How often each prompt has each token and bucket of pairs, without pairs of one prompt alone."""
        width = vocabulary + BUCKETS
        keys = self.rows * width + self.ids
        if pairs:
            within = within_prompts(len(self.ids), self.starts, self.lengths)
            buckets = pair_buckets(self.ids)[within].astype(np.int64)
            keys = np.concatenate([keys, self.rows[:-1][within] * width + vocabulary + buckets])
        keys.sort()
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.diff(first, append=len(keys)).astype(np.float32)
        rows, values = np.divmod(keys[first], width)
        frequency = np.bincount(values, minlength=width)
        kept = frequency >= np.where(np.arange(width) < vocabulary, 1, MIN_PAIR_PROMPTS)
        number, chosen = np.cumsum(kept) - 1, kept[values]
        found = np.flatnonzero(kept)
        tokens = int(np.searchsorted(found, vocabulary))
        starts = np.append(0, np.cumsum(np.bincount(rows[chosen], minlength=len(self))))
        matrix = SparseMatrix(starts, number[values[chosen]], counts[chosen], len(found))
        return Counts(matrix, found[:tokens], found[tokens:] - vocabulary, frequency[found])


class Counts(NamedTuple):
    """How often each prompt has each feature."""

    matrix: SparseMatrix  # (n, tokens + pairs)
    tokens: Indices  # the token of each of the first columns
    buckets: Indices  # the bucket of each of the other columns
    frequency: Indices  # (tokens + pairs,)  how many prompts have each

    def weigh(self, pairs: float) -> npt.NDArray[np.float64]:
        """log((1 + n)/(1 + df)) + 1: rare features weigh more, as in tf-idf. Pairs weigh `pairs` times as much."""
        weights = np.log((1.0 + len(self.matrix)) / (1.0 + self.frequency)) + 1.0
        weights[len(self.tokens) :] *= pairs
        return np.asarray(weights)


@dataclass(frozen=True, eq=False)
class Features:
    """The features of prompts: sparse ones for tokens and pairs, dense ones for the mean embedding.

    The dense features of a prompt are sums over its tokens, too. So a product with them is a product with `vectors`,
    then one with the columns of the tokens. They are computed for the Hessian alone.
    """

    sparse: SparseMatrix  # (n, tokens + pairs)
    vectors: Numbers  # (tokens, h)  what one unit of a token's column adds to the dense features
    dense: Numbers  # (n, h)
    experts: Indices  # (n,)
    places: Indices  # (n,)
    tokens: Indices  # the token of each of the first columns
    buckets: Indices  # the bucket of each of the other columns
    weights: Numbers  # (tokens + pairs,)  what each column was multiplied by
    centre: Numbers  # (h,)  of the mean embeddings
    scale: float  # what centred embeddings were multiplied by
    trust: Numbers | None = None  # (n,)  how much each prompt counts; None for 1

    @classmethod
    def build(cls, prompts: Prompts, embeddings: Rows, *, means: float, pairs: float) -> Features:
        """`means` and `pairs` are the weights of the dense features and of the pairs; tokens have the weight 1."""
        found = prompts.count(embeddings.shape[0], pairs > 0)
        counts, weights, root = found.matrix, found.weigh(pairs).astype(np.float32), np.sqrt(prompts.lengths)
        entries = np.repeat(1.0 / root, np.diff(counts.starts)).astype(np.float32)
        sparse = replace(counts, values=counts.values * weights[counts.columns] * entries)
        vectors = np.array(embeddings[found.tokens], np.float32)
        shares = np.bincount(counts.columns, counts.values * entries**2, minlength=counts.width)[: len(vectors)]
        centre = (shares / len(prompts)).astype(np.float32) @ vectors
        vectors -= centre
        vectors /= weights[: len(vectors), None]
        dense = sparse.first_columns(len(vectors)).multiply(vectors)
        squares = np.einsum("nh,nh->n", dense, dense) / prompts.lengths
        size = float(np.sqrt(squares.mean() / embeddings.shape[1])) or 1.0
        scale = means / (size * float(np.sqrt(embeddings.shape[1])))
        vectors *= np.float32(scale)
        dense *= np.float32(scale)
        known = found.tokens, found.buckets, weights, centre, scale, prompts.trust
        return cls(sparse, vectors, dense, prompts.experts, prompts.places, *known)

    def __len__(self) -> int:
        return len(self.experts)

    @property
    def width(self) -> int:
        return self.sparse.width + int(self.vectors.shape[1])

    def project(self, W: Numbers, room: Numbers | None = None) -> Numbers:
        """X W: (n, C). `room` has the shape of W, and is overwritten."""
        tokens, split = len(self.vectors), self.sparse.width
        table = (np.empty_like(W) if room is None else room)[:split]
        np.matmul(self.vectors, W[split:], out=table[:tokens])
        table[:tokens] += W[:tokens]
        table[tokens:] = W[tokens:split]
        return self.sparse.multiply(table)

    def gather(self, R: Numbers, out: Numbers) -> Numbers:
        """XᵀR: (features, C), written into `out`."""
        split = self.sparse.width
        self.sparse.multiply_transposed(R, out=out[:split])
        np.matmul(self.vectors.T, out[: len(self.vectors)], out=out[split:])
        return out

    def precondition(self, weights: Numbers, penalty: float) -> Preconditioner:
        """M⁻¹ of the Hessian: exact for the dense features, the diagonal alone for the sparse ones."""
        diagonal = (1.0 / (penalty + self.sparse.sum_squares(weights))).astype(np.float32)[:, None]
        inverse = DenseInverse.build(self.dense * np.sqrt(weights)[:, None], penalty)
        split = len(diagonal)

        def multiply(q: Numbers, out: Numbers) -> Numbers:
            np.multiply(q[:split], diagonal, out=out[:split])
            out[split:] = inverse.multiply(q[split:])
            return out

        return multiply

    def take(self, chosen: Indices) -> Features:
        """The features of some prompts."""
        parts = {name: getattr(self, name)[chosen] for name in ("dense", "experts", "places")}
        parts |= {} if self.trust is None else {"trust": self.trust[chosen]}
        return replace(self, sparse=self.sparse.take(chosen), **parts)

    def score_tokens(self, W: Numbers, embeddings: Rows, places: Indices | None = None) -> Numbers:
        """What each token adds to the scores of the experts: (V, C).

        Where `embeddings` are only some rows, `places` is the row of each token, −1 if it has none.
        """
        dense = W[self.sparse.width :] * np.float32(self.scale)
        scores = np.empty((embeddings.shape[0], W.shape[1]), np.float32)
        for begin in range(0, len(scores), BLOCK_ROWS):
            part = slice(begin, begin + BLOCK_ROWS)
            np.dot(embeddings[part], dense, out=scores[part])
        scores -= self.centre @ dense
        known = len(self.tokens)
        rows = self.tokens if places is None else places[self.tokens]
        there = rows >= 0
        scores[rows[there]] += (W[:known] * self.weights[:known, None])[there]
        return scores

    def score_pairs(self, W: Numbers) -> Numbers | None:
        """What each bucket of pairs adds: (BUCKETS, C)."""
        if not len(self.buckets):
            return None
        known = slice(len(self.tokens), self.sparse.width)
        scores = np.zeros((BUCKETS, W.shape[1]), np.float32)
        scores[self.buckets] = W[known] * self.weights[known, None]
        return scores


def _limit_samples(samples: Sequence[Sample]) -> list[Sample]:
    """As many of each expert's first prompts as the limits allow. A sample is in the order of hashes."""
    each = min(MAX_TOKENS, MAX_NUMBERS // len(samples)) // len(samples)
    limited = []
    for sample in samples:
        used = np.cumsum(np.minimum(sample.kept, LONGEST))
        most = max(MIN_PROMPTS, int(np.searchsorted(used, each, "right")))
        limited.append(sample.take(np.arange(min(most, len(sample)))))
    return limited
