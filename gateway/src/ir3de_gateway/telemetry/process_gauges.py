"""What the gateway's processes take, under the names that Prometheus' own clients use."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from time import process_time, time

from ir3de_gateway.telemetry.counts import Counts

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_MEGABYTE = 1 << 20
_STARTED = time()  # this module is loaded when the process starts


class ProcessGauges:
    """Gauges of one worker; Prometheus sees those of all workers together.

    Numbers are rounded, so that a worker which does nothing has nothing new to tell the others.
    """

    def __init__(self, counts: Counts) -> None:
        self._started = counts.add_gauge(
            "process_start_time_seconds", "When the youngest worker started, since 1970.", adds_up=False
        )
        self._memory = counts.add_gauge("process_resident_memory_bytes", "Resident memory of all workers.")
        self._files = counts.add_gauge("process_open_fds", "Open files of all workers.")
        self._max_files = counts.add_gauge("process_max_fds", "Files that all workers may open.")
        self._cpu = counts.add_counter("process_cpu_seconds", "CPU time of all workers.")
        self._seen_cpu = 0.0
        self._started[()] = round(_STARTED, 3)

    def refresh(self) -> None:
        """Look again."""
        self._memory[()] = _read_memory() // _MEGABYTE * _MEGABYTE
        with suppress(OSError):  # no /proc
            self._files[()] = Path("/proc/self/fd").stat().st_size  # their number, in Linux from 6.2 on: free
        if resource is not None:
            self._max_files[()] = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        now = round(process_time(), 1)
        self._cpu[()] += now - self._seen_cpu
        self._seen_cpu = now


def _read_memory() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # no /proc: the largest it ever was is better than nothing
        if resource is None:
            return 0
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
