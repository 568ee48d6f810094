"""How many clients may be connected to a worker, and which of them makes room for the next."""

from __future__ import annotations

from typing import Protocol

from ir3de_gateway.telemetry.counts import PROCESS_COUNTS

MAX_DESCRIPTORS = 1_000_000  # some systems allow a billion
RESERVED_DESCRIPTORS = 64  # files, logs, event loop, sockets to collectors
MAX_REFUSED_OPEN = 16  # refused clients that are being told so
MIN_CONNECTIONS = 8
MAX_BACKLOG = 2_048
MAX_BURST = 96  # connections that the system has accepted and that are looked at only afterwards


class Closable(Protocol):
    def close_idle(self) -> None: ...


class ConnectionLimit:
    """The open connections of a worker. A new one may take the place of the one that has been idle the longest."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open = 0
        self._idle: dict[Closable, None] = {}  # the longest idle first

    def admit(self, connection: Closable) -> bool:
        """Count a new connection, and say whether it may stay."""
        self._open += 1
        PROCESS_COUNTS.connections_open += 1
        if self._open > self.limit:
            if not self._idle:
                PROCESS_COUNTS.connections_refused += 1
                return False
            PROCESS_COUNTS.connections_closed_idle += 1
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.close_idle()
        self._idle[connection] = None
        return True

    @property
    def is_far_exceeded(self) -> bool:
        """Whether even the refused clients are too many to be told why."""
        return self._open > self.limit + MAX_REFUSED_OPEN

    def set_busy(self, connection: Closable) -> None:
        self._idle.pop(connection, None)

    def set_idle(self, connection: Closable) -> None:
        self._idle[connection] = None

    def remove(self, connection: Closable) -> None:
        """The connection was closed."""
        self._open -= 1
        PROCESS_COUNTS.connections_open -= 1
        self._idle.pop(connection, None)


def raise_descriptor_limit() -> int:
    """Raise the process's limit of open files as far as it is allowed to. Returns the limit."""
    try:
        import resource
    except ImportError:  # Windows
        return MAX_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS refuses more than OPEN_MAX
        return soft
    return wanted


def choose_backlog(descriptors: int) -> int:
    """How many connections the system accepts on its own: they all may arrive at once, before any can be refused."""
    return max(8, min(MAX_BACKLOG, descriptors // 8))


def choose_connection_limit(descriptors: int) -> int:
    """As many connections as the descriptors suffice for: a client's request may need another one, to its expert.

    >>> choose_connection_limit(256), choose_connection_limit(65_536)
    (72, 32680)
    """
    burst = min(choose_backlog(descriptors), MAX_BURST)
    free = descriptors - RESERVED_DESCRIPTORS - MAX_REFUSED_OPEN - burst
    return max(MIN_CONNECTIONS, free // 2)
