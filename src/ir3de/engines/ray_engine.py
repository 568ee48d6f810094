"""The engine of a Ray cluster, and the counting of a Ray dataset.

Ray Data hands shards to workers, a shard a task; each worker reads and counts its shard and gives the statistics
back. Ray repeats the tasks of a worker that dies, and a shard's count is taken once.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ir3de.embedding import Embedding
from ir3de.engines import ray_tasks
from ir3de.engines.ray_cluster import connect, import_ray, is_client
from ir3de.engines.ray_worker import Setup
from ir3de.engines.shards import Job, Piece, Shard, ShardCount
from ir3de.errors import EngineError, InputError
from ir3de.files.package import VERSION
from ir3de.statistics.counting import Recipe, count, count_without_rare_tokens
from ir3de.statistics.domain import Statistics

if TYPE_CHECKING:
    import ray.data

Outcomes = Generator[bytes, None, None]


class RayEngine:
    """A Ray cluster: by its address (`HOST:PORT`, `ray://HOST:PORT`, `auto`), or one of this machine's cores.

    Where Ray is initialised already, that cluster is used. `workers` bounds how many shards are counted at once;
    `runtime_env` is Ray's, for a cluster whose machines lack IR3DE. The connection stays until `ray.shutdown()` or the
    end of the process.
    """

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        runtime_env: dict[str, Any] | None = None,
    ) -> None:
        self.address, self.workers, self.runtime_env = address, workers, runtime_env
        import_ray()

    def count(
        self, shards: Sequence[Shard], job: Job, embedding: Embedding, on_bytes: Callable[[int], None] | None = None
    ) -> Iterator[ShardCount]:
        """The shards' counts as workers give them back, each once."""
        if any(shard.is_stdin for shard in shards):
            raise InputError("standard input cannot be read by a cluster: name files, or use the engine local")
        if not shards:
            return
        ray = connect(self.address, self.workers, self.runtime_env)
        at_once = None if self.workers is None else min(self.workers, len(shards))
        work = _work(ray, "shard", job, embedding, at_once)
        left = {shard.index for shard in shards}
        with closing(_outcomes(ray, [pickle.dumps(_make_absolute(shard)) for shard in shards], work)) as outcomes:
            for outcome in outcomes:
                done: ShardCount = _open_outcome(outcome)
                if done.index not in left:  # a task that was repeated although it had ended
                    continue
                left.remove(done.index)
                if on_bytes is not None:
                    on_bytes(done.bytes)
                yield done


def collect_dataset(
    dataset: ray.data.Dataset,
    *,
    column: str | None = "text",
    embedding: Embedding | None = None,
    recipe: Recipe | None = None,
    workers: int | None = None,
) -> Statistics:
    """Count the texts of a Ray dataset, whatever it was read from, where its blocks are.

    `column` names the column (or `a.b` path) that holds the text; None looks for the usual ones. Rows without a text
    are left out, as they are of files. The statistics are those of `ir3de.collect` of the same texts; the dataset is
    run once, or twice for a recipe with `min_count`.
    """
    ray = import_ray()
    if not isinstance(dataset, ray.data.Dataset):
        raise InputError(f"collect_dataset takes a ray.data.Dataset, found {type(dataset).__name__}")
    embedding = embedding or Embedding.default()

    def count_once(recipe: Recipe) -> Statistics:
        work = _work(ray, "rows", Job(recipe, column), embedding, workers)
        total = count([], embedding, recipe)
        with closing(ray_tasks.stream_outcomes(dataset, work, batch_size=None)) as outcomes:
            for outcome in outcomes:
                total += _open_outcome(outcome)
        return total

    return count_without_rare_tokens(count_once, recipe or Recipe())


def _work(ray: ModuleType, function: str, job: Job, embedding: Embedding, workers: int | None) -> ray_tasks.Work:
    ray.cloudpickle.register_pickle_by_value(ray_tasks)
    return ray_tasks.Work(function, VERSION, ray.put(Setup.of(job, embedding).packed()), workers)


def _outcomes(ray: ModuleType, items: list[bytes], work: ray_tasks.Work) -> Outcomes:
    if not is_client(ray):
        yield from _translate_errors(
            ray_tasks.stream_outcomes(ray_tasks.make_dataset(items, work.workers), work, batch_size=1)
        )
        return
    driver = ray_tasks.make_driver()(items, work)
    try:
        yield from _translate_errors(iter(lambda: ray.get(driver.next.remote()), None))
    finally:
        ray.kill(driver)


def _translate_errors(outcomes: Iterator[bytes]) -> Outcomes:
    """Turn the errors that Ray cannot recover from into an `EngineError`."""
    from ray.exceptions import RayError

    try:
        yield from outcomes
    except RayError as error:
        first = next(iter(str(error).strip().splitlines()), "")
        raise EngineError(f"the Ray cluster gave up ({type(error).__name__}): {first}") from error


def _open_outcome(outcome: bytes) -> Any:
    """What a worker gave back; its error is raised as the one that it was there."""
    kind, value, node = pickle.loads(outcome)
    if kind == "result":
        return value
    if kind == "unfit":
        raise EngineError(
            f"the node {node} {value}, and this machine has IR3DE {VERSION}: install the same on every node, "
            "or have Ray do so (runtime_env=…)"
        )
    error_class, message = value
    error = error_class.__new__(error_class, message)
    error.args = (message,)  # not by calling it: some make their message of other arguments
    raise error


def _make_absolute(shard: Shard) -> Shard:
    """The shard by absolute paths: a worker's working directory is another."""

    def placed(piece: Piece) -> Piece:
        path = piece.source.path
        return replace(piece, source=replace(piece.source, path=path.absolute())) if isinstance(path, Path) else piece

    return replace(shard, pieces=tuple(map(placed, shard.pieces)))
