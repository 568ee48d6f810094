"""How long engines take for the same files, with what they spend on starting told apart."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from ir3de.embedding import Embedding
from ir3de.engines import Engine, Files, Job, Shard, plan
from ir3de.statistics import Statistics

TINY = b"Is every worker there?\n"


@dataclass(frozen=True)
class Run:
    """One job's seconds: of the same engine for a job that is next to nothing, and for the files."""

    start_up: float
    whole: float
    processor: float  # of this process and those it waited for, which a cluster's are not
    bytes: int
    total: Statistics


@dataclass
class Runs:
    """The same job, round by round."""

    rounds: list[Run] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        """What the files took once everything was started, which takes what it usually takes."""
        start_up = median(run.start_up for run in self.rounds)
        return [run.whole - start_up for run in self.rounds]

    @property
    def rates(self) -> list[float]:
        """Megabytes a second."""
        return [run.bytes / 1e6 / seconds for run, seconds in zip(self.rounds, self.seconds, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        return {
            "megabytes": self.rounds[0].bytes / 1e6,
            "mb_per_s": self.rates,
            "seconds": self.seconds,
            "with_start_up_s": [run.whole for run in self.rounds],
            "start_up_s": [run.start_up for run in self.rounds],
            "processor_s": [run.processor for run in self.rounds],
        }


def timed(engine: Engine, shards: Sequence[Shard], job: Job, embedding: Embedding, *, workers: int) -> Run:
    """A job on these files, and before it one that has a line for every worker and begins and ends in the same way."""
    with a_line_each(workers) as tiny:
        start_up, _ = counted(engine, tiny, job, embedding)
    begun = os.times()
    whole, total = counted(engine, shards, job, embedding)
    processor = sum(os.times()[:4]) - sum(begun[:4])
    return Run(start_up, whole, processor, sum(shard.bytes for shard in shards), total)


@contextmanager
def a_line_each(workers: int) -> Iterator[list[Shard]]:
    """As many shards as there are workers, a line in each."""
    with TemporaryDirectory(prefix="ir3de-") as folder:
        for worker in range(workers):
            Path(folder, f"{worker}.txt").write_bytes(TINY)
        yield plan(Files(folder), shard_bytes=len(TINY))


def counted(engine: Engine, shards: Sequence[Shard], job: Job, embedding: Embedding) -> tuple[float, Statistics]:
    """The seconds of a job from its beginning to its end, and what it found."""
    begun = perf_counter()
    total = reduce(add, (done.statistics for done in engine.count(shards, job, embedding)))
    return perf_counter() - begun, total
