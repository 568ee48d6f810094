"""A domain's files counted in this process, by several processes, or on a cluster: the same bits from each.

    domains      what a caller names           -> `Files`
    shards       `Files`                       -> `Shard`s: what is counted in one go
    jobs         a `Shard`                     -> a `ShardCount`, wherever it runs
    engine       many `Shard`s                 -> their `ShardCount`s, in any order
    checkpoints  the sum so far, and of what   -> a file to go on from
    collecting   all of that, put together

Names are imported when first used: whoever only routes does not pay for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ir3de.engines.collecting import Collected, collect_files
    from ir3de.engines.domains import Counting, Files
    from ir3de.engines.engine import Engine, engine_for
    from ir3de.engines.jobs import Job, ShardCount, count_shard
    from ir3de.engines.portable_embedding import EmbeddingParts
    from ir3de.engines.shards import Piece, Shard, plan

__all__ = [
    "Collected",
    "Counting",
    "EmbeddingParts",
    "Engine",
    "Files",
    "Job",
    "Piece",
    "Shard",
    "ShardCount",
    "collect_files",
    "count_shard",
    "engine_for",
    "plan",
]

_MODULES = {
    "collecting": ("Collected", "collect_files"),
    "domains": ("Counting", "Files"),
    "engine": ("Engine", "engine_for"),
    "jobs": ("Job", "ShardCount", "count_shard"),
    "shards": ("Piece", "Shard", "plan"),
    "travelling": ("EmbeddingParts",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'ir3de.engines' has no attribute {name!r}")
    return getattr(import_module(f"ir3de.engines.{_MODULE_OF[name]}"), name)
