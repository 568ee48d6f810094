"""Counting the files of a domain in this process, in several processes, or on a cluster: the same bits from each.

domains      what a caller names           -> `Files`
shards       `Files`                       -> `Shard`s: what is counted in one go
jobs         a `Shard`                     -> a `ShardCount`, wherever it runs
engine       many `Shard`s                 -> their `ShardCount`s, in any order
checkpoints  the sum so far, and of what   -> a file to go on from
collecting   all of that, put together
"""

from typing import TYPE_CHECKING

from ir3de.storage.lazy_exports import export_lazily

if TYPE_CHECKING:
    from ir3de.engines.collecting import Collected, collect_files
    from ir3de.engines.domains import Files
    from ir3de.engines.engine import Counting, Engine, engine_for
    from ir3de.engines.jobs import Job, ShardCount, count_shard
    from ir3de.engines.pool import Pool
    from ir3de.engines.ray_engine import RayEngine, collect_dataset
    from ir3de.engines.shards import Piece, Shard, plan
else:
    __getattr__, __dir__ = export_lazily(
        __name__,
        {
            "collecting": "Collected collect_files",
            "domains": "Files",
            "engine": "Counting Engine engine_for",
            "jobs": "Job ShardCount count_shard",
            "pool": "Pool",
            "ray_engine": "RayEngine collect_dataset",
            "shards": "Piece Shard plan",
        },
    )

__all__ = [
    "Collected",
    "Counting",
    "Engine",
    "Files",
    "Job",
    "Piece",
    "Pool",
    "RayEngine",
    "Shard",
    "ShardCount",
    "collect_dataset",
    "collect_files",
    "count_shard",
    "engine_for",
    "plan",
]
