"""Shards: what is counted in one go, wherever it runs, and is in a checkpoint whole or not at all.

Files of lines are cut at bytes, and a line belongs to the stretch that has its first byte; Parquet files are cut
between row groups; other large files (compressed, CSV, JSON, whole texts) stay whole. Small files are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from time import perf_counter

from ir3de.corpora import Source, expand, texts_in
from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de.files.formats import row_group_bytes
from ir3de.files.streams import STDIN, State
from ir3de.statistics.counting import Recipe, count, split_chunks
from ir3de.statistics.domain import Statistics


@dataclass(frozen=True)
class Files:
    """A domain's texts by where they lie: files, folders, patterns, addresses such as s3://bucket/folder, or `-`.

    `field` names the field (or `a.b` path) that holds the text; `whole_files` makes each plain-text file one text.

    >>> Files("cases/*.jsonl", field="body").paths
    ('cases/*.jsonl',)
    >>> Files(["cases/", "statutes.parquet"]).paths
    ('cases/', 'statutes.parquet')
    """

    paths: tuple[str, ...]
    field: str | None = None
    whole_files: bool = False

    def __init__(
        self, paths: str | Path | Iterable[str | Path], field: str | None = None, whole_files: bool = False
    ) -> None:
        named = (paths,) if isinstance(paths, (str, Path)) else tuple(paths)
        if not named or not all(isinstance(path, (str, Path)) for path in named):
            raise InputError(f"Files takes the names of files, at least one, found {paths!r:.60}")
        object.__setattr__(self, "paths", tuple(map(str, named)))
        object.__setattr__(self, "field", field)
        object.__setattr__(self, "whole_files", whole_files)


SHARD_BYTES = 16 << 20
MAX_PIECES = 4_096  # in a shard, so that a million empty files are not one
MAX_EXAMPLES = 5  # of records that were skipped

_LINES = frozenset({".jsonl", ".ndjson"})
_TEXTS = frozenset({".txt", ".text", ".md"})  # lines as well, unless each file is one text


@dataclass(frozen=True)
class Piece:
    """A file or a stretch of one, as it was when the job was planned."""

    source: Source
    state: State  # of the whole file
    bytes: int  # on disk, that are this piece's

    def check(self) -> None:
        """Reject a file that changed since the plan was made."""
        found = self.source.state()
        if found != self.state:
            raise InputError(
                f"{self.source.name}: the file has changed since the job was planned: it was "
                f"{_describe_state(self.state)}, and is {_describe_state(found)}. Begin again once nothing writes to "
                "it, without the old checkpoint if there is one"
            )


@dataclass(frozen=True)
class Shard:
    """Pieces that are counted in one go; `index` is the shard's place in the plan."""

    index: int
    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.pieces)

    @property
    def is_stdin(self) -> bool:
        """Whether it is standard input, which no other process can read."""
        return any(piece.source.path is None for piece in self.pieces)


def plan(files: Files, *, shard_bytes: int = SHARD_BYTES) -> list[Shard]:
    """Cut and join the named files into shards; always the same for the same files."""
    if shard_bytes < 1:
        raise InputError(f"shard_bytes must be at least 1, found {shard_bytes}")
    shards: list[Shard] = []
    together: list[Piece] = []
    gathered = 0
    for piece in _pieces(files, shard_bytes):
        if together and (gathered + piece.bytes > shard_bytes or len(together) == MAX_PIECES):
            shards.append(Shard(len(shards), tuple(together)))
            together, gathered = [], 0
        together.append(piece)
        gathered += piece.bytes
    return [*shards, Shard(len(shards), tuple(together))]


def _pieces(files: Files, shard_bytes: int) -> Iterator[Piece]:
    for source in expand(files.paths):
        state = source.state()
        lines = source.kind in _LINES or (source.kind in _TEXTS and not files.whole_files)
        if source.kind == STDIN or state.size <= shard_bytes or (source.codec and lines):
            yield Piece(source, state, state.size)
        elif lines:
            for begin in range(0, state.size, shard_bytes):
                end = min(begin + shard_bytes, state.size)
                yield Piece(replace(source, begin=begin, end=end), state, end - begin)
        elif source.kind == ".parquet":
            yield from _row_groups(source, state, shard_bytes)
        else:
            yield Piece(source, state, state.size)


def _row_groups(source: Source, state: State, shard_bytes: int) -> Iterator[Piece]:
    begin = gathered = 0
    sizes = row_group_bytes(source)
    for group, size in enumerate(sizes):
        if group > begin and gathered + size > shard_bytes:
            yield Piece(replace(source, begin=begin, end=group), state, gathered)
            begin, gathered = group, 0
        gathered += size
    yield Piece(replace(source, begin=begin, end=len(sizes)), state, gathered)


def _describe_state(state: State) -> str:
    when = "" if state.modified is None else f", last written {datetime.fromtimestamp(state.modified):%F %T.%f}"
    return f"{state.size:,} bytes{when}"


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
    """The result of counting a shard."""

    index: int
    statistics: Statistics
    records: int  # that were read, skipped ones included; blank ones do not count
    skipped: int
    examples: tuple[str, ...]  # what was wrong with the first few of those
    bytes: int
    seconds: float


class BadRecords:
    """Counts the records that are skipped, up to the limit."""

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
    """The shard's texts, a few megabytes at a time; rejects a file that changes meanwhile."""

    def read_texts() -> Iterator[str]:
        on_damage = bad.add_error if job.skip_bad else None
        for piece in shard.pieces:
            piece.check()
            yield from texts_in(
                piece.source, field=job.field, whole_files=job.whole_files, on_bytes=on_bytes, on_damage=on_damage
            )
            piece.check()

    return split_chunks(read_texts())
