"""How long engines take for the same files, with what they spend on starting told apart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from ir3de.counting import Recipe
from ir3de.embeddings import Embedding
from ir3de.engines import Engine, Files, Job, plan
from ir3de.engines.pool import Pool
from ir3de.engines.ray_engine import RayEngine
from ir3de.engines.shards import SHARD_BYTES, Shard
from ir3de.errors import EngineError
from ir3de.statistics import Statistics


@dataclass(frozen=True)
class EngineTime:
    """Seconds of one engine: until its workers were ready, and for the files once they were."""

    start_up: float
    seconds: float
    bytes: int

    @property
    def megabytes_per_second(self) -> float:
        return self.bytes / 1e6 / self.seconds


def pool_and_ray(
    files: Files, *, workers: int, recipe: Recipe, rounds: int = 1, shard_bytes: int = SHARD_BYTES
) -> list[tuple[EngineTime, EngineTime]]:
    """The process pool and a Ray cluster of as many workers, on the same files, by turns; refused if bits differ."""
    embedding, job = Embedding.default(), Job(recipe, files.field, files.whole_files)
    shards = plan(files, shard_bytes=shard_bytes)
    ray, start_up = RayEngine(workers=workers), _warm(RayEngine(workers=workers), job, embedding, workers)
    times = []
    for _ in range(rounds):
        pool = Pool(workers)
        in_pool, of_pool = _timed(pool, shards, job, embedding)
        in_ray, of_ray = _timed(ray, shards, job, embedding)
        if of_pool != of_ray:
            raise EngineError("the process pool and the Ray cluster counted the same files to different statistics")
        size = sum(shard.bytes for shard in shards)
        times.append((EngineTime(pool.start_up, in_pool - pool.start_up, size), EngineTime(start_up, in_ray, size)))
    return times


def _warm(engine: RayEngine, job: Job, embedding: Embedding, workers: int) -> float:
    """Start a cluster and its workers; the seconds until each has counted something."""
    begun = perf_counter()
    with TemporaryDirectory() as folder:
        path = Path(folder, "warm.txt")
        path.write_text("Is every worker there?\n" * 1_000 * workers)
        list(engine.count(plan(Files(path), shard_bytes=4_000), job, embedding))
    return perf_counter() - begun


def _timed(engine: Engine, shards: list[Shard], job: Job, embedding: Embedding) -> tuple[float, Statistics]:
    begun = perf_counter()
    counts = engine.count(shards, job, embedding)
    total = next(iter(counts)).statistics
    for done in counts:
        total += done.statistics
    return perf_counter() - begun, total
