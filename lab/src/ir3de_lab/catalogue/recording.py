"""What the running command records in its result: what it measures, on which data, and how long it took."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from ir3de_lab.catalogue.entries import benchmarks
from ir3de_lab.catalogue.staleness import MEASURES, describe

STARTED = time.monotonic()  # this module is imported with the commands, so about when the process began


def record(benchmark: str | None = None) -> dict[str, Any]:
    """The fields that say what a result depends on; without a name, the benchmark is that of the running command."""
    context = click.get_current_context(silent=True)
    name = benchmark or (context.info_name if context is not None else None)
    if name is None or name not in benchmarks():
        return {}
    data = context.params.get("data") if context is not None else None
    found = describe(benchmarks()[name], data if isinstance(data, Path) else None)
    return {MEASURES: {**found, "seconds": round(time.monotonic() - STARTED, 1)}}
