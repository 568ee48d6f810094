"""A bounded sample of a domain's prompts, kept as token ids. Tuning and calibration are measured on it.

The sample depends only on the prompts' content: it holds those whose hashes come first, as many as the bounds allow.
So the samples of two shards add up to the sample of both together, in any order. Anyone who has the tokenizer can read
token ids as text. Keep no sample if the prompts must stay private.

A prompt may have a source, such as a data set or a customer. The sample holds a hash of the source's name, which does
not influence which prompts are sampled. Prompts that a teacher labelled have a source of their own kind, and come after
those that people labelled: they are the first to be left out, and none of them is ever held out.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError

MAX_PROMPTS = 1_024
MAX_COPIES = 16  # of one prompt, so that a log that repeats few texts still gives a broad sample
MAX_TOKENS = 1 << 20  # of all prompts; only the last prompt may exceed it
MAX_PROMPT_TOKENS = 1 << 13  # kept of one prompt
# Sources from here on are those of prompts that a teacher labelled. The last byte is how far the certainty of a fit
# that was measured with these labels can be trusted: the teacher knew the prompts that are held out.
TAUGHT = 0xFFFFFF00
FULL_TRUST = 0xFF

COLUMNS = ("hashes", "every", "lengths", "kept", "ids", "sources")

Hashes = npt.NDArray[np.uint32]
Counts = npt.NDArray[np.int64]
Ids = npt.NDArray[np.unsignedinteger]

_SPREAD, _STEP = np.uint64(0x9E3779B1), np.uint64(0xC2B2AE3D27D4EB4F)


def hash_text(text: str) -> int:
    """32 bits that depend on the text alone. They decide how prompts are drawn and split, on every machine alike.

    >>> hash_text("What is 2 + 2?")
    4100265294
    """
    return zlib.crc32(text.encode("utf-8", "replace"))


@dataclass(frozen=True, eq=False)
class Sample:
    """Prompts as token ids, end to end, in the order of their hashes."""

    hashes: Hashes  # (n,)  of the texts
    every: Counts  # (n,)  1 window in `every` of the prompt entered the prompt sums
    lengths: Counts  # (n,)  tokens of the prompt that were counted
    kept: Counts  # (n,)  how many of them, the first ones, are in `ids`
    ids: npt.NDArray[np.uint32]  # (Σ kept,)
    sources: Hashes  # (n,)  hash of the name of the source that the prompt came from, 0 without one; see `TAUGHT`

    def __post_init__(self) -> None:
        columns = (self.hashes, self.every, self.lengths, self.kept, self.sources)
        if len({len(column) for column in columns}) > 1 or self.ids.size != self.kept.sum():
            raise InputError(f"a sample of {len(self.hashes):,} prompts does not fit its {self.ids.size:,} token ids")
        if (self.every < 1).any() or (self.kept < 1).any() or (self.kept > self.lengths).any():
            raise InputError("a sample keeps at least one token of a prompt, and no more than the prompt has")

    @classmethod
    def draw(
        cls, hashes: Hashes, flat: Ids, starts: Counts, lengths: Counts, every: int, sources: Hashes | None = None
    ) -> Sample:
        """Draw the sample of prompts whose ids lie end to end. Prompts without a token are never in it."""
        sources = np.zeros(len(hashes), np.uint32) if sources is None else sources
        drawn = np.flatnonzero(lengths)
        if len(drawn) > 2 * MAX_PROMPTS:  # drop most prompts that cannot get in before their ids are copied
            key = _sort_keys(hashes[drawn], sources[drawn])
            different = np.unique(key)
            drawn = drawn[key <= different[min(MAX_PROMPTS, len(different) - 1)]]
        kept = np.minimum(lengths[drawn], MAX_PROMPT_TOKENS)
        ids = flat[positions(starts[drawn], kept)].astype(np.uint32)
        each = np.full(len(drawn), every, np.int64)
        return cls(hashes[drawn], each, lengths[drawn], kept, ids, sources[drawn])._trim()

    @classmethod
    def empty(cls) -> Sample:
        """A sample without any prompt."""
        none, nothing = np.zeros(0, np.int64), np.zeros(0, np.uint32)
        return cls(nothing, none, none, none, nothing, nothing)

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def starts(self) -> Counts:
        """Where each prompt begins in `ids`."""
        return np.cumsum(self.kept) - self.kept

    def split(self) -> list[npt.NDArray[np.uint32]]:
        """The ids of each prompt."""
        return np.split(self.ids, self.starts[1:])

    def count_sources(self) -> int:
        """How many sources the prompts came from, as far as they are known."""
        return len(np.unique(self.sources[(self.sources > 0) & ~self.is_taught]))

    @cached_property
    def is_taught(self) -> npt.NDArray[np.bool_]:
        """Which prompts a teacher labelled."""
        return self.sources >= TAUGHT

    @property
    def labelled(self) -> int:
        """How many prompts people labelled. They are the first."""
        return len(self) - int(self.is_taught.sum())

    @property
    def is_full(self) -> bool:
        """Whether further prompts may have been left out."""
        return len(self) >= MAX_PROMPTS or len(self.ids) >= MAX_TOKENS

    def would_hold(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which prompts would be in the sample, had they been counted. An empty sample would hold none."""
        if not len(self):
            return np.zeros(len(hashes), bool)
        if not self.is_full:
            return np.ones(len(hashes), bool)
        return np.asarray(_sort_keys(hashes, hashes * 0) < _sort_keys(self.hashes[-1:], self.sources[-1:]))

    def take(self, chosen: npt.NDArray[np.integer]) -> Sample:
        """These prompts, in this order."""
        kept = self.kept[chosen]
        ids = self.ids[positions(self.starts[chosen], kept)]
        return Sample(self.hashes[chosen], self.every[chosen], self.lengths[chosen], kept, ids, self.sources[chosen])

    def truncate(self, tokens: int) -> Sample:
        """The same prompts, each cut to its first tokens."""
        kept = np.minimum(self.kept, tokens)
        return replace(self, kept=kept, ids=self.ids[positions(self.starts, kept)])

    def __add__(self, other: Sample) -> Sample:
        return _join([self, other])

    @classmethod
    def join(cls, samples: Iterable[Sample]) -> Sample:
        """The sum of samples, several at a time, so that memory stays bounded."""
        gathered = [cls.empty()]
        for sample in samples:
            gathered.append(sample)
            if sum(len(one.ids) for one in gathered) > 2 * MAX_TOKENS or len(gathered) > 64:
                gathered = [_join(gathered)]
        return _join(gathered)

    def without(self, other: Sample) -> Sample:
        """Take the other sample's prompts out, each as often as it occurs there.

        Where the same prompt came from several sources, the copy of the right source goes. If there is none, another
        copy goes, because the statistics no longer count it.
        """
        own, gone = self._identities(), Counter(other._identities())
        left = [index for index, one in enumerate(own) if not _take_one(gone, one)]
        rest: Counter[tuple[int, ...]] = Counter()
        for (*content, _), times in gone.items():
            rest[tuple(content)] += times
        left = [index for index in left if not _take_one(rest, own[index][:-1])]
        return self.take(np.array(left, np.int64))

    def _identities(self) -> list[tuple[int, ...]]:
        """One tuple per prompt, its source last. Equal prompts have equal tuples."""
        parts = (self.hashes, self.lengths, self.every, self._id_hashes, self.sources)
        return list(zip(*(part.tolist() for part in parts), strict=True))

    def _trim(self) -> Sample:
        """Sort by hash, those that people labelled first, and keep as many prompts as the bounds allow.

        The first prompt that does not fit ends the sample, even if later ones would fit. Otherwise the sum of two
        samples could hold prompts that the sample of all texts does not.
        """
        keys = _sort_keys(self.hashes, self.sources)
        order = np.lexsort((self.sources, self._id_hashes, self.every, self.lengths, keys))
        order = order[self._count_copies(order) < MAX_COPIES]
        before = np.cumsum(self.kept[order]) - self.kept[order]
        return self.take(order[before < MAX_TOKENS][:MAX_PROMPTS])

    def _count_copies(self, order: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """How many prompts of the same content come before each, in this order."""
        contents = np.stack([part[order].astype(np.uint64) for part in (self.hashes, self.lengths, self._id_hashes)])
        place = np.arange(len(order))
        first = np.any(contents[:, 1:] != contents[:, :-1], axis=0)
        begins = np.maximum.accumulate(np.where(np.r_[True, first][: len(order)], place, 0)) if len(order) else place
        return place - begins

    @cached_property
    def _id_hashes(self) -> npt.NDArray[np.uint64]:
        """A hash of each prompt's ids, which orders prompts whose texts have the same hash."""
        place = np.arange(len(self.ids)) - np.repeat(self.starts, self.kept)
        mixed = (self.ids + np.uint64(1)) * (place.astype(np.uint64) * _SPREAD + _STEP)  # wraps around
        return np.add.reduceat(mixed, self.starts) if len(self) else mixed

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content. Sources are in it only where there are any."""
        return self._hash_columns(*COLUMNS) if self.sources.any() else self.digest_without_sources

    @cached_property
    def digest_without_sources(self) -> str:
        """SHA-256 of the prompts alone."""
        return self._hash_columns(*COLUMNS[:-1])

    def _hash_columns(self, *names: str) -> str:
        sha = hashlib.sha256(f"{len(self)}".encode())
        for name in names:
            sha.update(getattr(self, name).astype("<i8").tobytes())
        return sha.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sample) and self.digest == other.digest

    __hash__ = None  # type: ignore[assignment]


def _join(samples: Sequence[Sample]) -> Sample:
    """All their prompts, as many as the bounds allow."""
    return Sample(*(np.concatenate([getattr(sample, name) for sample in samples]) for name in COLUMNS))._trim()


def _take_one(counts: Counter[tuple[int, ...]], one: tuple[int, ...]) -> bool:
    """Whether it was still counted. If so, it is counted once less."""
    found = counts[one] > 0
    counts[one] -= found
    return found


def _sort_keys(hashes: Hashes, sources: Hashes) -> npt.NDArray[np.uint64]:
    """Keys in another order than the hashes, because the hashes already decide which windows are drawn."""
    mixed = (hashes.astype(np.uint64) * _SPREAD).astype(np.uint32).astype(np.uint64)
    return mixed | ((sources >= TAUGHT).astype(np.uint64) << np.uint64(32))


def positions(starts: Counts, lengths: Counts) -> Counts:
    """Every position of the stretches that begin at `starts`, one after the other."""
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))
