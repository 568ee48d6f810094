"""`collect_files`: a domain's files to its statistics, by any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ir3de.counting import Recipe, count
from ir3de.embeddings import Embedding
from ir3de.engines.domains import Files
from ir3de.engines.engine import Engine, engine_for
from ir3de.engines.jobs import BadRecords, Job, ShardCount
from ir3de.engines.shards import SHARD_BYTES, plan
from ir3de.statistics import Statistics


@dataclass(frozen=True)
class Collected:
    """A domain's statistics, and what it took to get them."""

    statistics: Statistics
    records: int  # that were read, the skipped among them
    skipped: int  # records that could not be read
    examples: tuple[str, ...]  # what was wrong with the first few of those
    shards: int
    resumed: int  # shards that a checkpoint had already
    bytes: int  # on disk


def collect_files(
    files: Files | str | Path | Iterable[str | Path],
    *,
    engine: Engine | str = "local",
    workers: int | None = None,
    address: str | None = None,
    checkpoint: str | Path | None = None,
    skip_bad: int = 0,
    embedding: Embedding | None = None,
    recipe: Recipe | None = None,
    name: str = "texts",
    shard_bytes: int = SHARD_BYTES,
    on_bytes: Callable[[int], None] | None = None,
    on_shard: Callable[[ShardCount], None] | None = None,
) -> Collected:
    """Count a domain's files: the same bits from every engine, with any number of workers, in shards of any size."""
    files = files if isinstance(files, Files) else Files(files)
    chosen, embedding = engine_for(engine, workers=workers, address=address), embedding or Embedding.default()
    job = Job(recipe or Recipe(), files.field, files.whole_files, skip_bad)
    shards = plan(files, shard_bytes=shard_bytes)
    total, records, read, bad = count([], embedding, job.recipe), 0, 0, BadRecords(skip_bad)
    for done in chosen.count(shards, job, embedding, on_bytes):
        total += done.statistics
        records, read = records + done.records, read + done.bytes
        bad.add(done.skipped, done.examples)
        if on_shard is not None:
            on_shard(done)
    return Collected(total, records, bad.skipped, tuple(bad.examples), len(shards), 0, read)
