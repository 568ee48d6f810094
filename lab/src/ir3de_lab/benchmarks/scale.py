"""Many machines and many owners: how counting grows with processes and on a cluster, and what it and its files take.

Each figure is taken in one run with what it is compared to, the two taking turns. What engines spend on starting is
measured by a job of a line for each worker, taken off, and told.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from random import Random

import numpy as np

from ir3de.embedding import Embedding
from ir3de.engines import Engine, Files, Job, Pool, plan
from ir3de.errors import EngineError
from ir3de.statistics import Recipe, Statistics, save_statistics
from ir3de_lab.benchmarks.engine_memory import peaks
from ir3de_lab.benchmarks.engine_times import Runs, a_line_each, counted, timed
from ir3de_lab.benchmarks.measurement import Figure, median_ratio
from ir3de_lab.benchmarks.owners import owners

WORKERS = 2
SHARD_BYTES = 16 << 20  # the engines' own default
USUAL = Recipe(subsample=16)  # what the command line takes for a corpus of more than 100 MB
RECIPES = {"usual": USUAL, "histogram only": replace(USUAL, prompt_sums=False)}
ONE_HAS = "one process counts every other shard, two count all"
LEAST_SHARDS = 32  # so that neither of two workers waits long for the other at the end
LONGER = 1_000  # times the corpus


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    gigabytes: float = 2.0
    contributions: int = 1_000
    rounds: int = 3
    files: int = 8
    ray: bool = True

    @property
    def shard_bytes(self) -> int:
        return min(SHARD_BYTES, max(1, int(self.gigabytes * 1e9) // LEAST_SHARDS))


QUICK = Size(gigabytes=0.05, contributions=40, rounds=1)


def parts(size: Size, texts: Sequence[str]) -> Iterator[tuple[str, Callable[[], list[Figure]]]]:
    """Each part's name and what measures it; the corpus is written when it is first needed, and then removed."""
    with tempfile.TemporaryDirectory(prefix="ir3de-") as folder:
        paths = cache(lambda: write_corpus(texts, Path(folder), size))
        yield "counting", lambda: counting(paths(), size)
        yield "memory", lambda: memory(paths(), size)
    yield "owners", lambda: owners(texts, size.contributions, rounds=size.rounds)


def write_corpus(texts: Sequence[str], folder: Path, size: Size) -> list[Path]:
    """So many gigabytes of the texts as JSON lines."""
    lines = _lines(texts)
    paths = [folder / f"{number}.jsonl" for number in range(size.files)]
    for path in paths:
        left = size.gigabytes * 1e9 / size.files
        with path.open("wb") as file:
            while left > 0:
                left -= file.write(next(lines))
    return paths


def _lines(texts: Sequence[str]) -> Iterator[bytes]:
    """The texts again and again, each time in another order, and after the first time cut in two and turned around."""
    for again in count():
        draw = Random(again)
        for text in draw.sample(texts, len(texts)):
            cut = text.find(" ", draw.randrange(len(text) + 1)) if again else -1
            turned = text if cut < 0 else f"{text[cut + 1 :]} {text[:cut]}"
            yield json.dumps({"text": turned}, ensure_ascii=False).encode() + b"\n"


# counting -------------------------------------------------------------------------------------------------------


def counting(
    paths: Sequence[Path],
    size: Size,
    embedding: Embedding | None = None,
    recipes: Mapping[str, Recipe] = RECIPES,
) -> list[Figure]:
    """One worker on every other shard, two on all, and Ray on all, by turns; and how large the result is."""
    embedding = embedding or Embedding.default()
    shards = plan(Files(paths), shard_bytes=size.shard_bytes)
    runs: defaultdict[str, Runs] = defaultdict(Runs)

    def run(name: str, engine: Engine, recipe: Recipe, workers: int) -> None:
        share = shards if workers > 1 else shards[::WORKERS]
        runs[name].rounds.append(timed(engine, share, Job(recipe), embedding, workers=workers))

    started: list[float] = []
    for _ in range(size.rounds):
        for name, recipe in recipes.items():
            run(f"one, {name}", Pool(1), recipe, 1)
            run(f"two, {name}", Pool(WORKERS), recipe, WORKERS)
        if size.ray and has_ray():
            with _cluster(embedding) as (engine, start_up):
                run("ray", engine, USUAL, WORKERS)
                started.append(start_up)
    totals = [done.total for name in ("two, usual", "ray") for done in runs[name].rounds]
    if any(total != totals[0] for total in totals):
        raise EngineError("engines counted the same files to different statistics")
    figures = [_scaling(runs[f"one, {name}"], runs[f"two, {name}"], name) for name in recipes]
    if started:
        figures.append(_beside_ray(runs["ray"], runs["two, usual"], started))
    return [*figures, *file_sizes(totals[0])]


@contextmanager
def _cluster(embedding: Embedding) -> Iterator[tuple[Engine, float]]:
    """A Ray cluster of this machine, and the seconds until its workers had counted a line.

    It ends with the round: even idle it takes some of what the others are measured on.
    """
    import ray

    from ir3de.engines import RayEngine

    theirs = ray.is_initialized()
    engine = RayEngine(workers=WORKERS)
    try:
        with a_line_each(4 * WORKERS) as lines:  # some for every worker, however they are handed out
            start_up, _ = counted(engine, lines, Job(USUAL), embedding)
        yield engine, start_up
    finally:
        if not theirs:
            ray.shutdown()


def has_ray() -> bool:
    """Whether the extra `ray` is installed."""
    return find_spec("ray") is not None and find_spec("pyarrow") is not None


def _scaling(one: Runs, two: Runs, recipe: str) -> Figure:
    ratio = median_ratio(two.rates, [WORKERS * rate for rate in one.rates])
    raw = {"shares": ONE_HAS, "one": one.to_dict(), "two": two.to_dict()}
    return Figure(f"counting on 2 processes / twice one ({recipe})", ratio, "×", 0.85, True, raw)


def _beside_ray(ray: Runs, pool: Runs, started: Sequence[float]) -> Figure:
    ratio = median_ratio(ray.seconds, pool.seconds)
    raw = {"ray": ray.to_dict(), "pool": pool.to_dict(), "cluster_start_up_s": started, "same_bits": True}
    return Figure("time of Ray / of the process pool, 2 workers", ratio, "×", 1.25, False, raw)


def file_sizes(total: Statistics) -> list[Figure]:
    """The file of the whole corpus, and of one so much longer that no count fits in 32 bits."""
    sums = total.sums
    assert sums is not None and sums.pairs is not None
    longer = replace(
        total, histogram=total.histogram * LONGER, sums=replace(sums, pairs=sums.pairs * LONGER)
    )  # the Gram matrix takes 64 bits a number in any case
    size, size_of_longer = (_file_bytes(one) for one in (total, longer))
    raw = {
        "prompts": total.prompts,
        "tokens": total.tokens,
        "different_tokens": int(np.count_nonzero(total.histogram)),
        "vocabulary": total.histogram.size,
        "largest_count": int(total.histogram.max()),
        "bytes": size,
        f"bytes_of_{LONGER}_times": size_of_longer,
        "digest": total.digest,
    }
    return [
        Figure("statistics file of the corpus", size / 1e6, "MB", 2.0, False, raw),
        Figure(f"statistics file of {LONGER:,} times the corpus", size_of_longer / 1e6, "MB", None, False, raw),
    ]


def _file_bytes(statistics: Statistics) -> int:
    with tempfile.TemporaryDirectory(prefix="ir3de-") as folder:
        return save_statistics(statistics, Path(folder, "corpus.stats")).stat().st_size


# memory ---------------------------------------------------------------------------------------------------------


def memory(paths: Sequence[Path], size: Size) -> list[Figure]:
    """Peak memory with a quarter of the corpus and with all of it, of the process that starts workers and of those."""
    options = {"workers": WORKERS, "subsample": USUAL.subsample, "shard_bytes": size.shard_bytes}
    quarter, whole = (peaks(some, **options) for some in (paths[: len(paths) // 4], paths))
    raw = {"quarter": quarter, "whole": whole}
    figures = []
    for name, key in (("the process that starts workers", "driver_mb"), ("the largest worker", "worker_mb")):
        if quarter[key] is not None and whole[key] is not None:
            ratio = whole[key] / quarter[key]
            figures.append(Figure(f"peak memory of {name}, all / a quarter", ratio, "×", 1.1, False, raw))
            figures.append(Figure(f"peak memory of {name}, all", whole[key], "MB", None, False, raw))
    return figures
