"""A domain's files counted in this process, by several processes, or on a cluster: the same bits from each.

domains      what a caller names           -> `Files`
shards       `Files`                       -> `Shard`s: what is counted in one go
jobs         a `Shard`                     -> a `ShardCount`, wherever it runs
engine       many `Shard`s                 -> their `ShardCount`s, in any order
checkpoints  the sum so far, and of what   -> a file to go on from
collecting   all of that, put together
"""

from ir3de.engines.collecting import Collected, collect_files
from ir3de.engines.domains import Files
from ir3de.engines.engine import Engine, engine_for
from ir3de.engines.jobs import Job, ShardCount, count_shard
from ir3de.engines.shards import Piece, Shard, plan
from ir3de.engines.travelling import EmbeddingParts

__all__ = [
    "Collected",
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
