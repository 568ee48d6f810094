"""A bounded sample of a domain's prompts, kept as token ids: what tuning and calibration are measured on.

Which prompts are in it depends on their content alone: those whose hash comes first, as many as the bounds allow. So
the sample of two shards is the sample of both together, in whatever order they come. Token ids are readable text to
anyone who has the tokenizer; whoever must not give prompts away keeps no sample.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError

MOST_PROMPTS = 1_024
MOST_COPIES = 16  # of one prompt: a log of few texts, often repeated, is still sampled in its breadth
MOST_TOKENS = 1 << 19  # of all prompts together but the last, which may go beyond
LONGEST = 1 << 13  # tokens kept of one prompt

_SPREAD, _STEP = np.uint64(0x9E3779B1), np.uint64(0xC2B2AE3D27D4EB4F)


def text_hash(text: str) -> int:
    """32 bits that depend on the text alone: what a prompt is drawn, parted and folded by, on every machine alike.

    >>> text_hash("What is 2 + 2?")
    4100265294
    """
    return zlib.crc32(text.encode("utf-8", "replace"))


@dataclass(frozen=True, eq=False)
class Sample:
    """Prompts as token ids, end to end, in the order of their hashes."""

    hashes: npt.NDArray[np.uint32]  # (n,)  of the texts
    every: npt.NDArray[np.int64]  # (n,)  1 window in so many of the prompt entered the prompt sums
    lengths: npt.NDArray[np.int64]  # (n,)  tokens of the prompt as it was counted
    kept: npt.NDArray[np.int64]  # (n,)  of which these, the first, are here
    ids: npt.NDArray[np.uint32]  # (Σ kept,)

    def __post_init__(self) -> None:
        whole = len(self.hashes) == len(self.every) == len(self.lengths) == len(self.kept)
        if not whole or self.ids.size != self.kept.sum():
            raise InputError(f"a sample of {len(self.hashes):,} prompts does not fit its {self.ids.size:,} token ids")
        if (self.every < 1).any() or (self.kept < 1).any() or (self.kept > self.lengths).any():
            raise InputError("a sample keeps at least one token of a prompt, and no more than the prompt has")

    @classmethod
    def draw(
        cls,
        hashes: npt.NDArray[np.uint32],
        flat: npt.NDArray[np.unsignedinteger],
        starts: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        every: int,
    ) -> Sample:
        """The sample of prompts whose ids lie end to end; prompts without a token are never in it."""
        said = np.flatnonzero(lengths)
        if len(said) > 2 * MOST_PROMPTS:  # most prompts cannot get in: do not carry their ids about
            key = _keys(hashes[said])
            different = np.unique(key)
            said = said[key <= different[min(MOST_PROMPTS, len(different) - 1)]]
        kept = np.minimum(lengths[said], LONGEST)
        ids = flat[_positions(starts[said], kept)].astype(np.uint32)
        drawn = cls(hashes[said], np.full(len(said), every, np.int64), lengths[said], kept, ids)
        return drawn._bounded()

    @classmethod
    def empty(cls) -> Sample:
        """No prompt at all."""
        none = np.zeros(0, np.int64)
        return cls(none.astype(np.uint32), none, none, none, none.astype(np.uint32))

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where each prompt begins in `ids`."""
        return np.cumsum(self.kept) - self.kept

    def take(self, chosen: npt.NDArray[np.integer]) -> Sample:
        """These prompts, in this order."""
        kept = self.kept[chosen]
        ids = self.ids[_positions(self.starts[chosen], kept)]
        return Sample(self.hashes[chosen], self.every[chosen], self.lengths[chosen], kept, ids)

    def first(self, tokens: int) -> Sample:
        """The same prompts, each cut to its first tokens."""
        kept = np.minimum(self.kept, tokens)
        return Sample(self.hashes, self.every, self.lengths, kept, self.ids[_positions(self.starts, kept)])

    def __add__(self, other: Sample) -> Sample:
        return _joined([self, other])

    @classmethod
    def together(cls, samples: Iterable[Sample]) -> Sample:
        """The sum of all of them, several at a time."""
        gathered = [cls.empty()]
        for sample in samples:
            gathered.append(sample)
            if sum(len(one.ids) for one in gathered) > 2 * MOST_TOKENS or len(gathered) > 64:
                gathered = [_joined(gathered)]
        return _joined(gathered)

    def without(self, other: Sample) -> Sample:
        """The prompts that are not in the other sample; of equal ones, as many as it does not have."""
        gone = Counter(other._contents())
        left = []
        for index, content in enumerate(self._contents()):
            if gone[content]:
                gone[content] -= 1
            else:
                left.append(index)
        return self.take(np.array(left, np.int64))

    def _contents(self) -> list[tuple[int, ...]]:
        """What tells one prompt from another."""
        parts = (self.hashes, self.lengths, self.every, self._mixed)
        return list(zip(*(part.tolist() for part in parts), strict=True))

    def _bounded(self) -> Sample:
        """In order of the hashes, as many as the bounds allow.

        A prompt is in when those before it leave room, so that one that is out keeps all after it out as well: or two
        samples together would hold prompts that the sample of both does not.
        """
        keys = _keys(self.hashes)
        order = np.lexsort((self._mixed, self.every, self.lengths, keys))
        order = order[self._copies(order) < MOST_COPIES]
        before = np.cumsum(self.kept[order]) - self.kept[order]
        return self.take(order[before < MOST_TOKENS][:MOST_PROMPTS])

    def _copies(self, order: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """How many prompts of the same content come before each, in this order."""
        contents = np.stack([part[order].astype(np.uint64) for part in (self.hashes, self.lengths, self._mixed)])
        place = np.arange(len(order))
        first = np.any(contents[:, 1:] != contents[:, :-1], axis=0)
        begins = np.maximum.accumulate(np.where(np.r_[True, first][: len(order)], place, 0)) if len(order) else place
        return place - begins

    @cached_property
    def _mixed(self) -> npt.NDArray[np.uint64]:
        """A hash of each prompt's ids: two texts of one hash are still in an order of their own."""
        place = np.arange(len(self.ids)) - np.repeat(self.starts, self.kept)
        mixed = (self.ids + np.uint64(1)) * (place.astype(np.uint64) * _SPREAD + _STEP)  # wraps around
        return np.add.reduceat(mixed, self.starts) if len(self) else mixed

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        sha = hashlib.sha256(f"{len(self)}".encode())
        for values in (self.hashes, self.every, self.lengths, self.kept, self.ids):
            sha.update(values.astype("<i8").tobytes())
        return sha.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sample) and self.digest == other.digest

    __hash__ = None  # type: ignore[assignment]


def _joined(samples: Sequence[Sample]) -> Sample:
    """As many of their prompts as the bounds allow."""
    columns = ("hashes", "every", "lengths", "kept", "ids")
    return Sample(*(np.concatenate([getattr(sample, name) for sample in samples]) for name in columns))._bounded()


def _keys(hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The hashes in another order than their own, which decides already which windows are drawn."""
    return (hashes.astype(np.uint64) * _SPREAD).astype(np.uint32)


def _positions(starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Every position of the stretches that begin at `starts`, one after the other."""
    total = int(lengths.sum())
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(total)
