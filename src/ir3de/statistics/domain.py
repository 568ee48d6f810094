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
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError, MismatchError, name_embedding
from ir3de.statistics.integers import Integers, freeze, keep_at_least, little_endian, read_only
from ir3de.statistics.prompt_sums import PromptSums
from ir3de.statistics.sample import Sample

MAX_COUNT = 1 << 53  # of one token: beyond it a float64 is no longer exact


@dataclass(frozen=True, eq=False)
class Statistics:
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
    sample: Sample | None = None  # None when no prompts were kept
    embedding_version: int | None = None  # of the default embedding; None for any other
    derived: dict[str, Any] = field(default_factory=dict, init=False)  # a cache of what follows from the counts

    def __post_init__(self) -> None:
        object.__setattr__(self, "histogram", read_only(self.histogram))
        if not np.issubdtype(self.histogram.dtype, np.integer):
            raise InputError(f"a histogram counts in whole numbers, found {self.histogram.dtype}")
        if self.prompts < 0 or (self.histogram < 0).any():
            raise InputError("statistics fell below zero: what was subtracted was never added")
        if self.histogram.max(initial=0) > MAX_COUNT:
            raise InputError(
                f"counts overflow: one token occurs {int(self.histogram.max()):,} times, and at most {MAX_COUNT:,} can "
                "be counted exactly"
            )

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
            raise MismatchError(
                f"statistics of {name_embedding(self.fingerprint, self.embedding_version)} cannot be combined with "
                f"those of {name_embedding(other.fingerprint, other.embedding_version)}: collect both with the same "
                "embedding"
            )
        if (self.sums is None) != (other.sums is None):
            raise MismatchError(
                "statistics with prompt sums cannot be combined with a histogram alone: "
                "collect both the same way, or drop the sums with .histogram_only()"
            )
        sums = None if self.sums is None or other.sums is None else self.sums.combine(other.sums, sign)
        return Statistics(
            self.fingerprint,
            self.prompts + sign * other.prompts,
            freeze(self.histogram + sign * other.histogram),
            sums,
            self._join_samples(other) if sign > 0 else self._subtract_samples(other),
            self.embedding_version,
        )

    def _join_samples(self, other: Statistics) -> Sample | None:
        if self.sample is None or other.sample is None:
            return self.sample if other.sample is None else other.sample
        return self.sample + other.sample

    def _subtract_samples(self, other: Statistics) -> Sample | None:
        if self.sample is None or (other.sample is None and other.prompts):
            return None  # it is unknown which prompts were the other's
        return self.sample if other.sample is None else self.sample.without(other.sample)

    def without_sample(self) -> Statistics:
        """The same statistics without any prompt: what may leave the machine."""
        return self._share_derived(replace(self, sample=None))

    def histogram_only(self) -> Statistics:
        """The same statistics without the prompt sums."""
        return self._share_derived(replace(self, sums=None))

    def restrict_to(self, seen: npt.NDArray[np.intp]) -> Statistics:
        """The same statistics for a vocabulary of these tokens. No other token may occur."""
        return self._share_derived(replace(self, histogram=freeze(self.histogram[seen])))

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
        sha = hashlib.sha256(f"{self.fingerprint} {self.prompts} {self.histogram.size}".encode())
        sha.update(little_endian(self.histogram))
        if self.sums is not None:
            sums = self.sums
            sha.update(f"{sums.window} {sums.unit!r} {sums.windows} {sums.width}".encode())
            sha.update(little_endian(sums.vector))
            sha.update(little_endian(sums.gram))
            if sums.pairs is not None:
                sha.update(little_endian(sums.pairs))
        return sha.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Statistics) and (
            (self.fingerprint, self.prompts) == (other.fingerprint, other.prompts)
            and np.array_equal(self.histogram, other.histogram)
            and self.sums == other.sums
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.fingerprint, self.prompts, self.histogram, self.sums, self.sample, self.embedding_version)
        return Statistics, parts  # without the cache; the arrays are read-only again

    def __repr__(self) -> str:
        windows = "" if self.sums is None else f", {self.sums.windows:,} windows"
        sample = "" if self.sample is None else f", a sample of {len(self.sample):,}"
        counted = f"{self.prompts:,} prompts, {self.tokens:,} tokens{windows}{sample}"
        return f"Statistics({counted}, embedding {self.fingerprint[:12]})"


def check_threshold(count: object) -> int:
    """Refuse a `min_count` that is not a positive integer."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InputError(f"min_count must be a whole number, at least 1 (which keeps all tokens), found {count!r}")
    return count
