"""The code that is sent to a Ray cluster, so that a worker without IR3DE, or with another version, can report it.

`ray_engine` has this module pickled by value, so nothing here may import IR3DE but inside of what runs on a worker;
what IR3DE does there is in `ray_worker`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, NamedTuple

MAX_TASK_ITEMS = 8  # Ray Data takes a fifth of a second to give a worker its next task
MAX_TASKS = 1_024  # Ray Data spends a millisecond on each before it begins; larger jobs have larger tasks


class Work(NamedTuple):
    """What is done with every batch: the function of `ray_worker`, IR3DE's version, and the `Setup` in Ray's store."""

    function: str
    version: str
    setup: Any
    workers: int | None  # at once; None for as many as the cluster has room for


def make_dataset(items: list[bytes], workers: int | None) -> Any:
    """A dataset of opaque items, a block a task, whose every outcome is given back at once."""
    import pyarrow
    import ray.data

    slots = min(workers or 1_024, max(1, int(ray.cluster_resources().get("CPU", 1))))
    dataset = ray.data.from_arrow([pyarrow.table({"item": block}) for block in blocks(items, slots)])
    dataset.context.target_max_block_size = 1  # byte: nothing is kept back to be sent with the next
    return dataset


def blocks(items: list[bytes], slots: int) -> Iterator[list[bytes]]:
    """The items in blocks, which get smaller towards the end, so that all workers have work until it is over."""
    most = max(MAX_TASK_ITEMS, len(items) // MAX_TASKS)
    begin = 0
    while begin < len(items):
        end = begin + min(most, max(1, (len(items) - begin) // (2 * slots)))
        yield items[begin:end]
        begin = end


def stream_outcomes(dataset: Any, work: Work, batch_size: int | None) -> Generator[bytes, None, None]:
    """The outcome of every batch, in any order, each as soon as it is ready; Ray waits while none is taken."""
    import ray.data

    outcomes = dataset.map_batches(
        partial(run_batch, work=work),
        batch_size=batch_size,
        batch_format="pyarrow",
        zero_copy_batch=True,
        compute=ray.data.TaskPoolStrategy(work.workers),
        num_cpus=1,  # for which Ray has BLAS use one thread
    )
    outcomes.context.enable_progress_bars = False
    for table in outcomes.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
        yield from (outcome.as_py() for outcome in table["outcome"])


def run_batch(batch: Any, *, work: Work) -> Any:
    """Run one batch on a worker. The outcome of IR3DE's function is one row."""
    import pickle
    import platform

    import pyarrow
    import ray

    node = f"{ray.util.get_node_ip_address()} ({platform.node()})"
    try:
        from ir3de.engines import ray_worker
        from ir3de.files.package import VERSION
    except ImportError as error:
        outcome = pickle.dumps(("unfit", f"cannot import IR3DE ({error})", node))
    else:
        if work.version == VERSION:
            outcome = ray_worker.run_task(work.function, batch, work.setup, node)
        else:
            outcome = pickle.dumps(("unfit", f"has IR3DE {VERSION}", node))
    return pyarrow.table({"outcome": pyarrow.array([outcome], pyarrow.large_binary())})


def make_driver() -> Callable[[list[bytes], Work], Any]:
    """Starts an actor that has the work done from within the cluster: Ray Data does not run behind `ray://`."""
    import ray

    class Driver:
        def __init__(self, items: list[bytes], work: Work) -> None:
            self.outcomes = stream_outcomes(make_dataset(items, work.workers), work, batch_size=1)

        def next(self) -> bytes | None:
            return next(self.outcomes, None)

    start: Callable[[list[bytes], Work], Any] = ray.remote(num_cpus=0)(Driver).remote
    return start
