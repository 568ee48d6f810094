"""Counting the files of a domain in this process, in several processes, or on a cluster: the same bits from each.

shards       what a caller names -> `Files` -> `Shard`s, each counted in one go -> a `ShardCount`, wherever it runs
engine       many `Shard`s -> their `ShardCount`s, in any order: this process, `pool`, `ray_engine`
checkpoints  the sum so far, and of what -> a file to continue from
collecting   all of that, put together
"""

from typing import TYPE_CHECKING

from ir3de.files.package import export_lazily

if TYPE_CHECKING:
    from ir3de.engines.collecting import Collected, collect_files
    from ir3de.engines.engine import Counting, Engine, engine_for
    from ir3de.engines.pool import Pool
    from ir3de.engines.ray_engine import RayEngine, collect_dataset
    from ir3de.engines.shards import Files, Job, Piece, Shard, ShardCount, count_shard, plan
else:
    __getattr__, __dir__ = export_lazily(
        __name__,
        {
            "collecting": "Collected collect_files",
            "engine": "Counting Engine engine_for",
            "pool": "Pool",
            "ray_engine": "RayEngine collect_dataset",
            "shards": "Files Job Piece Shard ShardCount count_shard plan",
        },
    )

__all__ = [
    "Collected", "Counting", "Engine", "Files", "Job", "Piece", "Pool", "RayEngine", "Shard", "ShardCount",
    "collect_dataset", "collect_files", "count_shard", "engine_for", "plan",
]  # fmt: skip
