"""One domain's additive statistics: integers with + and −, exact in any order.

Two sums over its prompts summarise a domain. Both are integers. So neither shards nor owners nor their order change a
bit, and subtraction leaves exactly what was there before:

* the **token histogram** n_c ∈ N^V, all that a token-level fit needs, because A = Ẽᵀ diag(n) Ẽ;
* the **prompt sums** Σ 1, Σ x̄ and Σ x̄x̄ᵀ over windows of prompts, x̄ the mean embedding of a window in
  fixed point (integers times `unit`), all that a prompt-level fit needs; and counts of neighbouring tokens.

A sample of the prompts may come with them. It is not part of the sums: equality ignores it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de import kernel
from ir3de.errors import InputError, MismatchError, name_embedding
from ir3de.statistics.compact import (
    ArrayFields,
    Integers,
    SparseCounts,
    WindowRows,
    freeze,
    read_only,
    triangle_size,
    unpack_triangle,
)
from ir3de.statistics.sample import Sample

Ids = npt.NDArray[np.unsignedinteger]

MAX_COUNT = 1 << 53  # of one token: beyond it a float64 is no longer exact
MAX_SUM = (1 << 62) - 1  # two sums of this size still add up in 64 bits
BUCKETS = 1 << 16  # of pairs of neighbouring tokens
FEW_TOKENS = 512  # up to here a hash takes as long as its numpy calls take to begin

# arrays of no dimension, because numpy makes one of every scalar in every call
_LEFT, _RIGHT, _MIX = (np.array(factor, np.uint32) for factor in (0x9E3779B1, 0x85EBCA77, 0x2C1B3C6D))
_15, _16 = np.array(15, np.uint32), np.array(16, np.uint32)
_LEFT_AND_RIGHT, _UINT32 = np.array([_LEFT, _RIGHT]), np.dtype(np.uint32)
_multiply, _shift, _xor = np.multiply, np.right_shift, np.bitwise_xor


def pair_buckets(ids: Ids) -> npt.NDArray[np.uint16]:
    """The bucket of each token and its right neighbour: one fewer than there are tokens.

    Pairs add a little word order to a bag of tokens. Counts of buckets add up like counts of tokens, and a score per
    bucket is looked up like a score per token.

    >>> pair_buckets(np.array([3, 5, 3, 5], np.uint32))
    array([ 9512, 33268,  9512], dtype=uint16)
    """
    return hash_pairs(ids).astype(np.uint16)


def hash_pairs(ids: Ids) -> npt.NDArray[np.uint32]:
    """The same buckets in 32 bits, as routing looks them up: without another conversion."""
    tokens = ids if ids.dtype is _UINT32 else ids.astype(np.uint32, copy=False)
    # left · LEFT + right · RIGHT wraps around, which is what a hash wants
    if 1 < len(tokens) <= FEW_TOKENS:
        hashed = np.correlate(tokens, _LEFT_AND_RIGHT)  # one call instead of five
    else:
        hashed = tokens[:-1] * _LEFT
        hashed += tokens[1:] * _RIGHT
    _xor(hashed, _shift(hashed, _15), hashed)
    _multiply(hashed, _MIX, hashed)
    return _shift(hashed, _16, hashed)


def count_pairs(flat: Ids, starts: Integers, lengths: Integers) -> Integers:
    """How often each bucket occurs in prompts whose ids lie end to end; no pair spans two prompts: (BUCKETS,)."""
    if kernel.native is not None:
        counts = np.zeros(BUCKETS, np.int64)
        places = (np.ascontiguousarray(part, np.int64) for part in (starts, lengths))
        kernel.native.count_pairs(np.ascontiguousarray(flat, np.uint32), *places, counts)
        return counts
    within = within_prompts(len(flat), starts, lengths)
    return np.bincount(pair_buckets(flat)[within], minlength=BUCKETS).astype(np.int64, copy=False)


def within_prompts(tokens: int, starts: Integers, lengths: Integers) -> npt.NDArray[np.bool_]:
    """Which neighbours, of prompts end to end, belong to one prompt."""
    within = np.ones(max(0, tokens - 1), bool)
    last = (starts + lengths - 1)[lengths > 0]
    within[last[last < tokens - 1]] = False
    return within


@dataclass(frozen=True, eq=False)
class PromptSums(ArrayFields):
    """Σ 1, Σ x̄ and Σ x̄x̄ᵀ over a domain's windows, in integers.

    With subsampling of 1 window in `s`, a window counts `s` times in `windows` and in the sums. That is an unbiased
    estimate of the whole, and still adds up with any other.
    """

    window: int  # tokens a window aims at; shorter prompts are one window
    unit: float  # real value of the integer 1, a power of two
    windows: int
    vector: Integers  # (h,)  Σ x̄ / unit
    gram: Integers  # (h(h+1)/2,)  upper triangle of Σ x̄x̄ᵀ / unit², row by row
    # (BUCKETS,)  how often each bucket of neighbouring tokens occurred
    pairs: Integers | None = field(default_factory=lambda: None)

    def __post_init__(self) -> None:
        given = vars(self)
        for name in ("gram", "pairs"):
            self.keep_compact(name, given[name] if isinstance(given[name], (WindowRows, SparseCounts)) else None)
        for name in ("vector", "gram", "pairs"):
            if given.get(name) is not None:
                given[name] = read_only(given[name])
        self._check({name: given[name] for name in ("vector", "gram", "pairs") if given.get(name) is not None})
        if given.get("pairs") is not None:
            self.keep_compact("pairs", SparseCounts.of(given["pairs"]))

    def _check(self, given: Mapping[str, Integers]) -> None:
        """Check arrays as they were given; a compact form was checked when it was made."""
        pairs, gram = given.get("pairs"), given.get("gram")
        if pairs is not None and pairs.shape != (BUCKETS,):
            raise InputError(f"prompt sums count pairs in {BUCKETS:,} buckets, found {pairs.size:,}")
        if gram is not None and gram.shape != (size := triangle_size(self.width),):
            raise InputError(f"prompt sums of width {self.width} need {size} Gram entries, found {gram.size}")
        none = np.zeros(0, np.int64)
        diagonal = none if gram is None else gram[np.cumsum(np.r_[0, np.arange(self.width, 1, -1)])]
        if self.windows < 0 or (diagonal < 0).any() or (pairs is not None and (pairs < 0).any()):
            raise InputError("prompt sums fell below zero: what was subtracted was never added")
        if any(max(int(part.max(initial=0)), -int(part.min(initial=0))) > MAX_SUM for part in given.values()):
            raise InputError("prompt sums overflow: they are beyond 2⁶². Collect fewer texts, or a histogram only")

    @property
    def width(self) -> int:
        return int(self.vector.size)

    def full_gram(self) -> npt.NDArray[np.float64]:
        """Σ x̄x̄ᵀ as the symmetric (h, h) matrix of real values."""
        return unpack_triangle(self.gram * self.unit**2, self.width)

    def __add__(self, other: PromptSums) -> PromptSums:
        return self.combine(other, +1)

    def __sub__(self, other: PromptSums) -> PromptSums:
        return self.combine(other, -1)

    def combine(self, other: PromptSums, sign: int) -> PromptSums:
        """The sum for a `sign` of +1, the difference for −1."""
        if (self.window, self.unit) != (other.window, other.unit):
            raise MismatchError(
                f"prompt sums over windows of {self.window} tokens in units of {self.unit} cannot be combined with "
                f"windows of {other.window} in units of {other.unit}: collect both the same way"
            )
        if (self.pairs is None) != (other.pairs is None):
            raise MismatchError("sums with and without counts of pairs cannot be combined: collect both the same way")
        return PromptSums(
            self.window,
            self.unit,
            self.windows + sign * other.windows,
            freeze(self.vector + sign * other.vector),
            self._combine_grams(other, sign),
            None if self.pairs is None or other.pairs is None else freeze(self.pairs + sign * other.pairs),
        )

    def _combine_grams(self, other: PromptSums, sign: int) -> Any:
        own, theirs = self.find_compact("gram"), other.find_compact("gram")
        if sign > 0 and own and theirs and WindowRows.fits(len(own.times) + len(theirs.times), self.width):
            return own + theirs
        return freeze(self.gram + sign * other.gram)

    def pairs_at_least(self, count: int) -> PromptSums:
        """The same sums, without the buckets of pairs that occurred less often."""
        return self if self.pairs is None else replace(self, pairs=keep_at_least(self.pairs, count))


@dataclass(frozen=True, eq=False)
class Statistics(ArrayFields):
    """What a router needs to know of one domain. Statistics add, subtract and compare like numbers.

    >>> import ir3de
    >>> monday, tuesday = ir3de.collect(["2 + 2 = 4"]), ir3de.collect(["E = mc²"])
    >>> monday + tuesday == ir3de.collect(["E = mc²", "2 + 2 = 4"])
    True
    >>> monday + tuesday - tuesday == monday
    True
    """

    fingerprint: str  # of the embedding whose tokens these are
    prompts: int
    histogram: Integers  # (V,)  n_c: how often each token occurred
    sums: PromptSums | None = None  # None when only the histogram was collected
    sample: Sample | None = field(default=None, compare=False)  # None when no prompts were kept
    embedding_version: int | None = field(default=None, compare=False)  # of the default embedding; None for any other
    derived: dict[str, Any] = field(default_factory=dict, init=False, compare=False)  # a cache, not pickled

    def __post_init__(self) -> None:
        given = vars(self)["histogram"]
        if isinstance(given, SparseCounts):  # checked when it was made
            self.keep_compact("histogram", given)
            return
        object.__setattr__(self, "histogram", read_only(self.histogram))
        if not np.issubdtype(self.histogram.dtype, np.integer):
            raise InputError(f"a histogram counts in whole numbers, found {self.histogram.dtype}")
        if self.prompts < 0 or (self.histogram < 0).any():
            raise InputError("statistics fell below zero: what was subtracted was never added")
        if (most := int(self.histogram.max(initial=0))) > MAX_COUNT:
            raise InputError(f"counts overflow: a token occurs {most:,} times, and at most {MAX_COUNT:,} are exact")
        self.keep_compact("histogram", SparseCounts.of(self.histogram))

    @cached_property
    def tokens(self) -> int:
        return int(self.histogram.sum())

    def __add__(self, other: Statistics) -> Statistics:
        return self._combine(other, +1)

    def __radd__(self, other: Any) -> Statistics:
        return self if other == 0 else NotImplemented  # so that sum() works

    def __sub__(self, other: Statistics) -> Statistics:
        return self._combine(other, -1)

    def _combine(self, other: Statistics, sign: int) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        if self.fingerprint != other.fingerprint or self.histogram.shape != other.histogram.shape:
            raise MismatchError(describe_other_embedding("statistics", self, other))
        if (self.sums is None) != (other.sums is None):
            raise MismatchError(
                "statistics with prompt sums cannot be combined with a histogram alone: "
                "collect both the same way, or drop the sums with .histogram_only()"
            )
        return Statistics(
            self.fingerprint,
            self.prompts + sign * other.prompts,
            freeze(self.histogram + sign * other.histogram),
            None if self.sums is None or other.sums is None else self.sums.combine(other.sums, sign),
            self._combine_samples(other, sign),
            self.embedding_version,
        )

    def _combine_samples(self, other: Statistics, sign: int) -> Sample | None:
        own, theirs = self.sample, other.sample
        if sign < 0 and theirs is None and other.prompts:
            return None  # it is unknown which prompts were the other's
        if own is None or theirs is None:
            return theirs if own is None and sign > 0 else own
        return own + theirs if sign > 0 else own.without(theirs)

    def without_sample(self) -> Statistics:
        """The same statistics without any prompt: what may leave the machine."""
        return self._share_derived(replace(self, sample=None))

    def keep_first(self, prompts: int) -> Statistics:
        """The same statistics, of whose sample the first prompts are kept."""
        kept = None if self.sample is None else self.sample.take(np.arange(min(prompts, len(self.sample))))
        return self._share_derived(replace(self, sample=kept))

    def histogram_only(self) -> Statistics:
        """The same statistics without the prompt sums."""
        return self._share_derived(replace(self, sums=None))

    def restrict_to(self, seen: npt.NDArray[np.intp]) -> Statistics:
        """The same statistics for a vocabulary of these tokens. No other token may occur."""
        sparse: SparseCounts | None = self.find_compact("histogram")
        histogram: Any = freeze(self.histogram[seen]) if sparse is None else sparse.restrict_to(seen)
        return self._share_derived(replace(self, histogram=histogram))

    def mark_tokens(self, seen: npt.NDArray[np.bool_]) -> None:
        """Mark the tokens that occur: (V,)."""
        sparse: SparseCounts | None = self.find_compact("histogram")
        seen[self.histogram > 0 if sparse is None else sparse.places] = True

    def _share_derived(self, other: Statistics) -> Statistics:
        object.__setattr__(other, "derived", self.derived)
        return other

    def at_least(self, count: int) -> Statistics:
        """The histogram of the tokens that occurred at least `count` times.

        Prompt sums and sample are dropped, because they hold rare tokens too; `collect(..., min_count=)` can keep sums.
        A token that is rare in two statistics may be common in their sum: drop rare tokens last.
        """
        if check_threshold(count) == 1:
            return self
        return replace(self, histogram=keep_at_least(self.histogram, count), sums=None, sample=None)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content: equal statistics have equal digests, wherever and in whatever order made."""
        sha, arrays = hashlib.sha256(f"{self.fingerprint} {self.prompts} {self.histogram.size}".encode()), []
        sha.update(np.ascontiguousarray(self.histogram, "<i8").data)
        if (sums := self.sums) is not None:
            sha.update(f"{sums.window} {sums.unit!r} {sums.windows} {sums.width}".encode())
            arrays = [sums.vector, sums.gram, *(() if sums.pairs is None else (sums.pairs,))]
        for array in arrays:
            sha.update(np.ascontiguousarray(array, "<i8").data)
        return sha.hexdigest()

    def __repr__(self) -> str:
        windows = "" if self.sums is None else f", {self.sums.windows:,} windows"
        sample = "" if self.sample is None else f", a sample of {len(self.sample):,}"
        counted = f"{self.prompts:,} prompts, {self.tokens:,} tokens{windows}{sample}"
        return f"Statistics({counted}, embedding {self.fingerprint[:12]})"


def find_tokens(domains: Sequence[Statistics]) -> npt.NDArray[np.intp]:
    """The tokens that occur in any of these domains."""
    seen = np.zeros(len(domains[0].histogram), bool)
    for domain in domains:
        domain.mark_tokens(seen)
    return np.flatnonzero(seen)


def describe_other_embedding(what: str, one: Any, other: Any) -> str:
    """The error that two of a kind, with `fingerprint` and `embedding_version`, are of different embeddings."""
    names = [name_embedding(part.fingerprint, part.embedding_version) for part in (one, other)]
    return f"{what} of {names[0]} cannot be combined with those of {names[1]}: collect both with the same embedding"


def keep_at_least(counts: Integers, least: int) -> Integers:
    """The counts with those below `least` set to zero."""
    return freeze(np.where(counts >= least, counts, 0))


def check_threshold(count: object) -> int:
    """Raise an error unless `min_count` is a positive integer."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InputError(f"min_count must be a whole number, at least 1 (which keeps all tokens), found {count!r}")
    return count
