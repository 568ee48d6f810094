"""The engine of this machine: this process with its threads, or several processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter

from ir3de.embedding import Embedding
from ir3de.engines.pool import Pool
from ir3de.engines.shards import BadRecords, Job, Shard, ShardCount, make_shard_count, read_chunks
from ir3de.files.atomic import count_cores
from ir3de.statistics.counting import count
from ir3de.statistics.domain import Statistics

SMALL_JOB_BYTES = 64 << 20  # on disk: below, starting processes takes longer than it saves


class LocalEngine:
    """This process for small jobs, and for others one process per core, or `workers` processes."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers

    def count(
        self, shards: Sequence[Shard], job: Job, embedding: Embedding, on_bytes: Callable[[int], None] | None = None
    ) -> Iterator[ShardCount]:
        usual = 1 if sum(shard.bytes for shard in shards) < SMALL_JOB_BYTES else count_cores()
        workers = min(self.workers or usual, len(shards))
        is_alone = workers <= 1 or any(shard.is_stdin for shard in shards)
        return (InProcess() if is_alone else Pool(workers)).count(shards, job, embedding, on_bytes)


class InProcess:
    """One thread reads, and one thread per core counts."""

    def count(
        self, shards: Sequence[Shard], job: Job, embedding: Embedding, on_bytes: Callable[[int], None] | None = None
    ) -> Iterator[ShardCount]:
        threads = count_cores()
        pending: deque[tuple[_OpenShard, Future[Statistics]]] = deque()
        with ThreadPoolExecutor(threads, thread_name_prefix="ir3de-count") as pool:
            for shard in shards:
                reading = _OpenShard(shard, job, embedding)
                for chunk in read_chunks(shard, job, reading.bad, on_bytes):
                    if len(pending) > threads:  # read ahead no further than the cores can follow
                        yield from _add_oldest(pending)
                    reading.left += 1
                    pending.append((reading, pool.submit(count, chunk, embedding, job.recipe)))
                yield from reading.finish_one()  # the reading itself
            while pending:
                yield from _add_oldest(pending)


class _OpenShard:
    """A shard that is partly counted."""

    def __init__(self, shard: Shard, job: Job, embedding: Embedding) -> None:
        self.shard, self.bad, self.begun = shard, BadRecords(job.skip_bad), perf_counter()
        self.left = 1  # chunks to be counted, and one for the reading
        self.total = count([], embedding, job.recipe)

    def finish_one(self) -> Iterator[ShardCount]:
        """Mark one of them as done; the last one gives the shard's count."""
        self.left -= 1
        if self.left == 0:
            yield make_shard_count(self.shard, self.total, self.bad, perf_counter() - self.begun)


def _add_oldest(pending: deque[tuple[_OpenShard, Future[Statistics]]]) -> Iterator[ShardCount]:
    reading, future = pending.popleft()
    reading.total += future.result()
    yield from reading.finish_one()
