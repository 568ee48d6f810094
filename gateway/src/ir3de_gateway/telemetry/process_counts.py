"""Counts of this process that no request owns: connections and log lines. Metrics read them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ProcessCounts:
    """Plain numbers; each is written by one thread."""

    connections_open: int = 0
    connections_closed_idle: int = 0  # closed to make room for new ones
    connections_refused: int = 0  # because all others were busy
    log_lines_dropped: int = 0


PROCESS_COUNTS = ProcessCounts()
