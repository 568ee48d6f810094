"""Counts one shard, wherever it runs: reads its records, counts its texts, collects what is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

from ir3de.corpora import texts_in
from ir3de.embedding import Embedding
from ir3de.engines.shards import Shard
from ir3de.errors import InputError
from ir3de.statistics.counting import Recipe, count, split_chunks
from ir3de.statistics.domain import Statistics

MAX_EXAMPLES = 5  # of records that were skipped


@dataclass(frozen=True)
class Job:
    """How shards are read and counted; `skip_bad`: so many broken records of the whole domain may be skipped."""

    recipe: Recipe
    field: str | None = None
    whole_files: bool = False
    skip_bad: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.skip_bad, int) or self.skip_bad < 0:
            raise InputError(f"skip_bad must be a whole number, 0 or more, found {self.skip_bad!r}")


@dataclass(frozen=True)
class ShardCount:
    """What became of a shard: all that goes back from where it was counted."""

    index: int
    statistics: Statistics
    records: int  # that were read, the skipped among them; blank ones are none
    skipped: int
    examples: tuple[str, ...]  # what was wrong with the first few of those
    bytes: int
    seconds: float


class BadRecords:
    """Counts the records that are skipped, until there are more than may be."""

    def __init__(self, limit: int, skipped: int = 0, examples: Sequence[str] = ()) -> None:
        self.limit, self.skipped = limit, skipped
        self.examples = list(examples)

    def add(self, skipped: int, examples: Sequence[str]) -> None:
        self.skipped += skipped
        self.examples += examples[: MAX_EXAMPLES - len(self.examples)]
        if self.skipped > self.limit:
            shown = "; ".join(self.examples)
            raise InputError(
                f"{self.skipped:,} records cannot be read, and no more than {self.limit:,} may be skipped (skip_bad=…, "
                f"on the command line --skip-bad): repair them, or allow more. The first: {shown}"
            )

    def add_error(self, error: InputError) -> None:
        self.add(1, (str(error),))


def count_shard(
    shard: Shard, job: Job, embedding: Embedding, on_bytes: Callable[[int], None] | None = None
) -> ShardCount:
    """Count one shard in this thread; of its texts no more than one chunk is in memory."""
    begun = perf_counter()
    bad = BadRecords(job.skip_bad)
    total = count([], embedding, job.recipe)
    for chunk in read_chunks(shard, job, bad, on_bytes):
        total += count(chunk, embedding, job.recipe)
    return make_shard_count(shard, total, bad, perf_counter() - begun)


def make_shard_count(shard: Shard, total: Statistics, bad: BadRecords, seconds: float) -> ShardCount:
    records = total.prompts + bad.skipped
    return ShardCount(shard.index, total, records, bad.skipped, tuple(bad.examples), shard.bytes, seconds)


def read_chunks(
    shard: Shard, job: Job, bad: BadRecords, on_bytes: Callable[[int], None] | None = None
) -> Iterator[list[str]]:
    """The shard's texts, a few megabytes at a time; a file that changes meanwhile is refused."""
    return split_chunks(_texts(shard, job, bad, on_bytes))


def _texts(shard: Shard, job: Job, bad: BadRecords, on_bytes: Callable[[int], None] | None) -> Iterator[str]:
    on_damage = bad.add_error if job.skip_bad else None
    for piece in shard.pieces:
        piece.check()
        yield from texts_in(
            piece.source, field=job.field, whole_files=job.whole_files, on_bytes=on_bytes, on_damage=on_damage
        )
        piece.check()
