"""The catalogue of published results: what makes each file of results/, what it measures, and whether that has changed.

A result records a digest of every source it measures and of its data. It is stale once one of them has changed.
"""

from ir3de_lab.catalogue.entries import Benchmark, Published, benchmarks, published
from ir3de_lab.catalogue.staleness import (
    FRESH,
    KEPT,
    MEASURES,
    STALE,
    UNKNOWN,
    Standing,
    describe,
    find_standings,
    judge,
)

__all__ = [
    "FRESH",
    "KEPT",
    "MEASURES",
    "STALE",
    "UNKNOWN",
    "Benchmark",
    "Published",
    "Standing",
    "benchmarks",
    "describe",
    "find_standings",
    "judge",
    "published",
]
