"""`Engine`: anything that counts shards; `Counting`: the options that choose and control one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, runtime_checkable

from ir3de.errors import InputError

if TYPE_CHECKING:  # a process that only routes does not import what counting needs
    from ir3de.embedding import Embedding
    from ir3de.engines.shards import Job, Shard, ShardCount

ENGINES = {"local": ("ir3de.engines.local", "LocalEngine"), "ray": ("ir3de.engines.ray_engine", "RayEngine")}


@runtime_checkable
class Engine(Protocol):
    """Counts shards, each exactly once."""

    def count(
        self, shards: Sequence[Shard], job: Job, embedding: Embedding, on_bytes: Callable[[int], None] | None = None
    ) -> Iterator[ShardCount]:
        """The shards' counts, in any order, each as soon as it is there, with few in flight.

        `on_bytes` is called with numbers of bytes, as they are read or once per shard, in the thread that iterates.
        """
        ...


class Counting(TypedDict, total=False):
    """The options of `collect_files` that `Router.fit`, `add` and `merge` take as well."""

    engine: Engine | str
    workers: int | None
    address: str | None
    checkpoint: str | Path | None
    skip_bad: int


_KEPT_ASIDE = "keep prompts aside first: train, test = ir3de.corpora.split_held_out(data, 0.2, label=…)"
_MEANT = {  # what people try, and what there is for it
    **dict.fromkeys(("holdout", "held_out", "test_size", "validation_split"), _KEPT_ASIDE),
    **dict.fromkeys(("cv", "n_splits"), "ir3de.evaluation.prove(data, label=…, folds=5) cross-validates"),
}


def check_counting(counting: Mapping[str, object]) -> None:
    """Reject options that counting does not have."""
    unknown = next((name for name in counting if name not in Counting.__annotations__), None)
    if unknown is not None:
        advice = _MEANT.get(unknown, f"of texts in files it takes {', '.join(Counting.__annotations__)}, too")
        raise TypeError(f"unexpected argument '{unknown}': {advice}")


def engine_for(engine: Engine | str = "local", *, workers: int | None = None, address: str | None = None) -> Engine:
    """The engine of that name, or the one that is given."""
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise InputError(f"workers must be a whole number, at least 1, found {workers!r}")
    if not isinstance(engine, str):
        if not isinstance(engine, Engine):
            raise InputError(f"engine must be one of {', '.join(ENGINES)}, or an Engine, found {engine!r:.60}")
        return engine
    if engine not in ENGINES:
        raise InputError(f"unknown engine '{engine}': use one of {', '.join(ENGINES)}")
    if address is not None and engine != "ray":
        raise InputError(f"an address is the engine ray's, and the engine is {engine}: leave one of them out")
    module, name = ENGINES[engine]
    options: dict[str, Any] = {"address": address} if engine == "ray" else {}
    made = getattr(import_module(module), name)(workers=workers, **options)
    assert isinstance(made, Engine)
    return made
