"""`Engine`: whatever counts shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from ir3de.embedding import Embedding
from ir3de.engines.jobs import Job, ShardCount
from ir3de.engines.shards import Shard
from ir3de.errors import InputError

ENGINES = {"local": ("ir3de.engines.local", "LocalEngine"), "ray": ("ir3de.engines.ray_engine", "RayEngine")}


@runtime_checkable
class Engine(Protocol):
    """Counts shards, each exactly once."""

    def count(
        self, shards: Sequence[Shard], job: Job, embedding: Embedding, on_bytes: Callable[[int], None] | None = None
    ) -> Iterator[ShardCount]:
        """The shards' counts, in any order, each as soon as it is there, with few in flight.

        `on_bytes` hears of bytes as they are read, or of a shard's when it is done; in the thread that iterates.
        """
        ...


def engine_for(engine: Engine | str = "local", *, workers: int | None = None, address: str | None = None) -> Engine:
    """The engine of that name, or the one that is given."""
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise InputError(f"workers must be a whole number, at least 1, found {workers!r}")
    if not isinstance(engine, str):
        if not isinstance(engine, Engine):
            raise InputError(f"engine must be one of {', '.join(ENGINES)}, or an Engine, found {engine!r:.60}")
        return engine
    if engine not in ENGINES:
        raise InputError(f"there is no engine '{engine}': use one of {', '.join(ENGINES)}")
    if address is not None and engine != "ray":
        raise InputError(f"an address is the engine ray's, and the engine is {engine}: leave one of them out")
    module, name = ENGINES[engine]
    options: dict[str, Any] = {"address": address} if engine == "ray" else {}
    made = getattr(import_module(module), name)(workers=workers, **options)
    assert isinstance(made, Engine)
    return made
