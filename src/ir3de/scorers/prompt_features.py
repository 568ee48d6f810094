"""What a discriminative fit knows of each sampled prompt: its tokens, its pairs of neighbours, its mean embedding.

Every feature of a prompt of n tokens is a sum over its tokens, or pairs, divided by √n. So a weight per feature is a
score per token or pair, and the fit compiles to the same table as any other. √n keeps long and short prompts at about
the same size; when routing it divides all experts' scores alike, so it does not change which is best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ir3de.scorers.arithmetic import Rows
from ir3de.statistics.domain import BUCKETS, pair_buckets, within_prompts
from ir3de.statistics.sample import Sample, positions

Numbers = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

GATHERED_NUMBERS = 1 << 17  # of the dense matrix at a time: they stay in the cache


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """Entries sorted by row, then by column."""

    starts: Indices  # (n + 1,)  where each row's entries begin, and where the last row's end
    columns: Indices  # (entries,)
    values: Numbers  # (entries,)
    width: int

    @classmethod
    def build(
        cls, rows: Indices, columns: Indices, values: npt.NDArray[np.floating], shape: tuple[int, int]
    ) -> SparseMatrix:
        """From entries in any order. No two may be at the same place."""
        order = _sort(columns, shape[1])
        order = order[_sort(rows[order], shape[0])]
        starts = np.append(0, np.cumsum(np.bincount(rows, minlength=shape[0])))
        return cls(starts, columns[order], values[order].astype(np.float32), shape[1])

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def transposed(self) -> SparseMatrix:
        rows = np.repeat(np.arange(len(self)), np.diff(self.starts))
        order = _sort(self.columns, self.width)
        starts = np.append(0, np.cumsum(np.bincount(self.columns, minlength=self.width)))
        return SparseMatrix(starts, rows[order], self.values[order], len(self))

    def take(self, rows: Indices) -> SparseMatrix:
        """Some of the rows, in this order."""
        lengths = np.diff(self.starts)[rows]
        ends = np.cumsum(lengths)
        entries = np.repeat(self.starts[rows] - (ends - lengths), lengths) + np.arange(int(lengths.sum()))
        return SparseMatrix(np.append(0, ends), self.columns[entries], self.values[entries], self.width)

    def sum_squares(self, weights: Numbers) -> npt.NDArray[np.float64]:
        """Σ_i w_i x_ij² of each column j."""
        squares = self.values.astype(np.float64) ** 2 * np.repeat(weights, np.diff(self.starts))
        return np.bincount(self.columns, squares, minlength=self.width).astype(np.float64, copy=False)

    def multiply(self, dense: Numbers) -> Numbers:
        """X W: (n, C)."""
        product = np.zeros((len(self), dense.shape[1]), np.float32)
        for rows, columns, values in self._groups:
            step = max(1, GATHERED_NUMBERS // (columns.shape[1] * dense.shape[1]))
            for begin in range(0, len(rows), step):
                part = slice(begin, begin + step)
                product[rows[part]] = np.matmul(values[part], dense.take(columns[part], axis=0))[:, 0]
        return product

    @cached_property
    def _groups(self) -> tuple[tuple[Indices, Indices, Numbers], ...]:
        """Rows of about the same length: their indices, and their columns and values, padded with zeros."""
        return tuple(self._group())

    def _group(self) -> Iterator[tuple[Indices, Indices, Numbers]]:
        lengths = np.diff(self.starts)
        padded = _round_up(lengths)
        for length in np.unique(padded[lengths > 0]).tolist():
            rows = np.flatnonzero(padded == length)
            places = np.arange(length)
            within = places < lengths[rows, None]
            entries = np.where(within, self.starts[rows, None] + places, 0)
            yield rows, self.columns[entries], np.where(within, self.values[entries], np.float32(0.0))[:, None, :]


def _round_up(lengths: Indices) -> Indices:
    """To 1, 2, 3, 4, 6, 8, 12, 16, 24, …: few different lengths, and little padding."""
    power = 1 << np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    return np.where((lengths > 2) & (lengths <= 3 * power // 4), 3 * power // 4, power)


def _sort(numbers: Indices, below: int) -> Indices:
    """The stable order of whole numbers from 0. numpy sorts 16 bits in linear time, so it gets 16 at a time."""
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    if below > 1 << 16:
        order = order[np.argsort((numbers[order] >> 16).astype(np.uint16), kind="stable")]
    return order


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

    def count_tokens(self) -> Counts:
        """How often each prompt has each token."""
        return Counts.of(self.rows, self.ids.astype(np.int64), 1)

    def count_pairs(self) -> Counts:
        """How often each prompt has each bucket of pairs, without those of one prompt alone."""
        within = within_prompts(len(self.ids), self.starts, self.lengths)
        buckets = pair_buckets(self.ids)[within].astype(np.int64)
        return Counts.of(self.rows[:-1][within], buckets, MIN_PAIR_PROMPTS)


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each prompt has each feature, and which token or bucket each feature is."""

    rows: Indices  # (entries,)
    columns: Indices  # (entries,)
    counts: npt.NDArray[np.float64]  # (entries,)
    found: Indices  # (p,)  the token or bucket of each column

    @classmethod
    def of(cls, rows: Indices, values: Indices, fewest: int) -> Counts:
        """From the row and the value of every occurrence. Values in fewer than `fewest` rows are left out."""
        found, columns = np.unique(values, return_inverse=True)
        keys, counts = np.unique(rows * len(found) + columns, return_counts=True)
        rows, columns = np.divmod(keys, max(1, len(found)))
        kept = np.bincount(columns, minlength=len(found)) >= fewest
        number, chosen = np.cumsum(kept) - 1, kept[columns]
        return cls(rows[chosen], number[columns[chosen]], counts[chosen].astype(np.float64), found[kept])

    def weigh(self, prompts: int) -> npt.NDArray[np.float64]:
        """log((1 + n)/(1 + df)) + 1: rare features weigh more, as in tf-idf."""
        frequency = np.bincount(self.columns, minlength=len(self.found))
        return np.asarray(np.log((1.0 + prompts) / (1.0 + frequency)) + 1.0)


@dataclass(frozen=True, eq=False)
class Features:
    """The features of prompts: sparse ones for tokens and pairs, dense ones for the mean embedding."""

    sparse: SparseMatrix  # (n, tokens + pairs)
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
        n, root = len(prompts), np.sqrt(prompts.lengths)
        tokens = prompts.count_tokens()
        blocks = [(tokens, tokens.weigh(n))]
        if pairs > 0:
            found = prompts.count_pairs()
            blocks.append((found, pairs * found.weigh(n)))
        rows = np.concatenate([block.rows for block, _ in blocks])
        offsets = [0, len(tokens.found)]
        columns = np.concatenate([block.columns + offset for (block, _), offset in zip(blocks, offsets, strict=False)])
        weights = np.concatenate([weight for _, weight in blocks])
        counts = np.concatenate([block.counts for block, _ in blocks])
        sparse = SparseMatrix.build(rows, columns, counts * weights[columns] / root[rows], (n, len(weights)))
        mean = _mean_embeddings(tokens, prompts, embeddings)
        centre = mean.mean(axis=0)
        mean -= centre
        size = float(np.sqrt(np.mean(mean.astype(np.float64) ** 2))) or 1.0
        scale = means / (size * float(np.sqrt(embeddings.shape[1])))
        mean *= (scale * root)[:, None].astype(np.float32)
        buckets, scaled = blocks[1][0].found if pairs > 0 else np.zeros(0, np.int64), weights.astype(np.float32)
        known = (tokens.found, buckets, scaled, centre, scale)
        return cls(sparse, mean, prompts.experts, prompts.places, *known, prompts.trust)

    def __len__(self) -> int:
        return len(self.experts)

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


def _mean_embeddings(tokens: Counts, prompts: Prompts, embeddings: Rows) -> Numbers:
    """(n, h)."""
    shares = tokens.counts / prompts.lengths[tokens.rows]
    matrix = SparseMatrix.build(tokens.rows, tokens.columns, shares, (len(prompts), len(tokens.found)))
    return matrix.multiply(np.asarray(embeddings[tokens.found], np.float32))


def _limit_samples(samples: Sequence[Sample]) -> list[Sample]:
    """As many of each expert's first prompts as the limits allow. A sample is in the order of hashes."""
    each = min(MAX_TOKENS, MAX_NUMBERS // len(samples)) // len(samples)
    limited = []
    for sample in samples:
        used = np.cumsum(np.minimum(sample.kept, LONGEST))
        most = max(MIN_PROMPTS, int(np.searchsorted(used, each, "right")))
        limited.append(sample.take(np.arange(min(most, len(sample)))))
    return limited
