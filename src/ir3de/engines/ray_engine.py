"""The engine of a Ray cluster, and the counting of a Ray dataset.

A shard is a task of Ray's: a worker reads and counts it, and gives the statistics back. Ray repeats the tasks of a
worker that dies.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ir3de.embedding import Embedding
from ir3de.engines import ray_tasks
from ir3de.engines.ray_cluster import connect, import_ray
from ir3de.engines.ray_worker import Setup
from ir3de.engines.shards import Job, Piece, Shard, ShardCount
from ir3de.errors import EngineError, InputError
from ir3de.files.package import VERSION
from ir3de.files.streams import OnBytes
from ir3de.statistics.counting import Recipe, count, count_without_rare_tokens
from ir3de.statistics.domain import Statistics

if TYPE_CHECKING:
    import ray.data

CPUS = 1  # of a task: Ray then has BLAS use one thread


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
        self, shards: Sequence[Shard], job: Job, embedding: Embedding, on_bytes: OnBytes = None
    ) -> Iterator[ShardCount]:
        """The shards' counts as workers give them back, each once."""
        if any(shard.is_stdin for shard in shards):
            raise InputError("standard input cannot be read by a cluster: name files, or use the engine local")
        ray = connect(self.address, self.workers, self.runtime_env)
        # tasks are repeated without a limit, as those of datasets are: a worker ends what has been begun too often
        task = ray.remote(num_cpus=CPUS, max_retries=-1)(ray_tasks.run)
        work = _work(ray, "shard", job, embedding)
        left = iter(shards)
        pending: list[Any] = []
        with _translate_errors():
            try:
                while True:
                    # twice as many as are counted at a time: no worker waits, few results are in Ray's store, and a
                    # cluster that can grow does so
                    at_once = self.workers or 2 * int(ray.cluster_resources().get("CPU", 1))
                    more = islice(left, max(0, at_once - len(pending)))
                    pending += [task.remote(pickle.dumps(_make_absolute(shard)), work) for shard in more]
                    if not pending:
                        return
                    (ready,), pending = ray.wait(pending)
                    done: ShardCount = _open_outcome(ray.get(ready))
                    if on_bytes is not None:
                        on_bytes(done.bytes)
                    yield done
            finally:
                for one in pending:
                    ray.cancel(one)


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
        outcomes = dataset.map_batches(
            partial(ray_tasks.run_batch, work=_work(ray, "rows", Job(recipe, column), embedding)),
            batch_size=None,
            batch_format="pyarrow",
            zero_copy_batch=True,
            compute=ray.data.TaskPoolStrategy(workers),
            num_cpus=CPUS,
        )
        outcomes.context.enable_progress_bars = False
        total = count([], embedding, recipe)
        with _translate_errors():
            for table in outcomes.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
                for outcome in table["outcome"]:
                    total += _open_outcome(outcome.as_py())
        return total

    return count_without_rare_tokens(count_once, recipe or Recipe())


def _work(ray: ModuleType, function: str, job: Job, embedding: Embedding) -> ray_tasks.Work:
    ray.cloudpickle.register_pickle_by_value(ray_tasks)
    return ray_tasks.Work(function, VERSION, ray.put(Setup.of(job, embedding).packed()))


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn the errors that Ray cannot recover from into an `EngineError`."""
    from ray.exceptions import RayError

    try:
        yield
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
