"""What the running command records in its result: what it measures, on which data, and how long it took."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

import click

from ir3de_lab.catalogue.entries import benchmarks
from ir3de_lab.catalogue.sources import find_last_change
from ir3de_lab.catalogue.staleness import MEASURES, TOOK, describe

STARTED, STARTED_AT = time.monotonic(), time.time()  # the commands import this module, so about when the process began


def record(benchmark: str | None = None) -> dict[str, Any]:
    """The fields that say what a result depends on; without a name, the benchmark is that of the running command.

    There are none if a source was written meanwhile: its digest would be that of another code than the one that ran.
    """
    context = click.get_current_context(silent=True)
    name = benchmark or (context.info_name if context is not None else None)
    if name is None or name not in benchmarks():
        return {}
    changed = [source for source in benchmarks()[name].sources if find_last_change(source) > STARTED_AT]
    if changed:
        click.echo(
            f"warning: {', '.join(changed)} changed while this ran, so the result does not say what it measured",
            err=True,
        )
        return {}
    data = context.params.get("data") if context is not None else None
    found = describe(benchmarks()[name], data if isinstance(data, Path) else None)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return {MEASURES: {**found, "machine": machine, TOOK: round(time.monotonic() - STARTED, 1)}}
