"""The engine of this machine: this process with its threads, or several processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter

from ir3de.embedding import Embedding
from ir3de.engines.jobs import BadRecords, Job, ShardCount, chunks, make_shard_count
from ir3de.engines.pool import Pool
from ir3de.engines.shards import Shard
from ir3de.statistics.counting import count
from ir3de.statistics.domain import Statistics
from ir3de.storage.cores import count_cores

SMALL_JOB_BYTES = 64 << 20  # bytes on disk, below which starting processes takes longer than it saves


class LocalEngine:
    """This process for small jobs, and for others a process a core, or as many as `workers` says."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers

    def count(
        self, shards: Sequence[Shard], job: Job, embedding: Embedding, on_bytes: Callable[[int], None] | None = None
    ) -> Iterator[ShardCount]:
        usual = 1 if sum(shard.bytes for shard in shards) < SMALL_JOB_BYTES else count_cores()
        workers = min(self.workers or usual, len(shards))
        if workers <= 1 or any(shard.is_stdin for shard in shards):
            return InProcess().count(shards, job, embedding, on_bytes)
        return Pool(workers).count(shards, job, embedding, on_bytes)


class InProcess:
    """One thread reads, and one a core counts."""

    def count(
        self, shards: Sequence[Shard], job: Job, embedding: Embedding, on_bytes: Callable[[int], None] | None = None
    ) -> Iterator[ShardCount]:
        threads = count_cores()
        pending: deque[tuple[_Open, Future[Statistics]]] = deque()
        with ThreadPoolExecutor(threads, thread_name_prefix="ir3de-count") as pool:
            for shard in shards:
                reading = _Open(shard, job, embedding)
                for chunk in chunks(shard, job, reading.bad, on_bytes):
                    if len(pending) > threads:  # read ahead no further than the cores can follow
                        yield from _taken(pending)
                    reading.left += 1
                    pending.append((reading, pool.submit(count, chunk, embedding, job.recipe)))
                reading.left -= 1  # all of it is read
                if reading.left == 0:
                    yield reading.count()
            while pending:
                yield from _taken(pending)


class _Open:
    """A shard of which some is counted."""

    def __init__(self, shard: Shard, job: Job, embedding: Embedding) -> None:
        self.shard, self.bad, self.begun = shard, BadRecords(job.skip_bad), perf_counter()
        self.left = 1  # chunks to be counted, and one for the reading
        self.total = count([], embedding, job.recipe)

    def count(self) -> ShardCount:
        return make_shard_count(self.shard, self.total, self.bad, perf_counter() - self.begun)


def _taken(pending: deque[tuple[_Open, Future[Statistics]]]) -> Iterator[ShardCount]:
    reading, future = pending.popleft()
    reading.total += future.result()
    reading.left -= 1
    if reading.left == 0:
        yield reading.count()
