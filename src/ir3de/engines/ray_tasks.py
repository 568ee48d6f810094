"""The code that is sent to a Ray cluster, so that a worker without IR3DE, or with another version, can report it.

`ray_engine` has this module pickled by value, so nothing here may import IR3DE but inside of what runs on a worker;
what IR3DE does there is in `ray_worker`.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Work(NamedTuple):
    """What is done with every item: the function of `ray_worker`, IR3DE's version, and the `Setup` in Ray's store."""

    function: str
    version: str
    setup: Any


def run(item: Any, work: Work) -> bytes:
    """Have IR3DE work on one item, on a worker; its outcome, pickled."""
    import pickle
    import platform

    import ray

    node = f"{ray.util.get_node_ip_address()} ({platform.node()})"
    try:
        from ir3de.engines import ray_worker
        from ir3de.files.package import VERSION
    except ImportError as error:
        return pickle.dumps(("unfit", f"cannot import IR3DE ({error})", node))
    if work.version != VERSION:
        return pickle.dumps(("unfit", f"has IR3DE {VERSION}", node))
    return ray_worker.run_task(work.function, item, work.setup, node)


def run_batch(batch: Any, *, work: Work) -> Any:
    """The same for a batch of a Ray dataset. The outcome is one row."""
    import pyarrow

    return pyarrow.table({"outcome": pyarrow.array([run(batch, work)], pyarrow.large_binary())})
