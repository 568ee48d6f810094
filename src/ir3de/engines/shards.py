"""Shards: what is counted in one go, wherever it runs, and is in a checkpoint whole or not at all.

Files of lines are cut at bytes, and a line belongs to where its first byte lies; Parquet files are cut between row
groups; whatever else is large (compressed, CSV, JSON, whole texts) stays whole. Small files are put together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from ir3de.corpora import Source, expand
from ir3de.corpora.streams import STDIN, State
from ir3de.corpora.tables import row_group_bytes
from ir3de.engines.domains import Files
from ir3de.errors import InputError

SHARD_BYTES = 16 << 20
MAX_PIECES = 4_096  # in a shard, so that a million empty files are not one

_LINES = frozenset({".jsonl", ".ndjson"})
_TEXTS = frozenset({".txt", ".text", ".md"})  # lines as well, unless each file is one text


@dataclass(frozen=True)
class Piece:
    """A file or a stretch of one, as it was when the job was planned."""

    source: Source
    state: State  # of the whole file
    bytes: int  # on disk, that are this piece's

    def check(self) -> None:
        """Refuse a file that is not the one that was planned with."""
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
    """Every file that is named, cut and put together into shards; always the same for the same files."""
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
