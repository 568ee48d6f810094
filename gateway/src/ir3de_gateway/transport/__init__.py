"""Sends requests to experts: a transport has one method, `send`. `pool.HttpTransport` implements it.

pool         connections by destination, kept for the next call
connecting   opens them: names, addresses, proxies, TLS
http1        a connection with HTTP/1.1
http2        a connection with HTTP/2
decoding     decompresses answers
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Literal, Protocol

from ir3de_gateway.config.experts import TlsFiles

RequestBody = bytes | memoryview  # a memoryview: of a large file, which is not held in memory

KEEP_ALIVE_S = 4.0  # many servers close idle connections after 5 seconds
_OUT_OF_RESOURCES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class InvalidResponseError(OSError):
    """The expert sent something that is not an HTTP response."""


class ConnectionClosedError(OSError):
    """The connection ended before the answer did."""


class UnreachableError(OSError):
    """No connection could be opened; `stage` is where it failed."""

    def __init__(self, message: str, stage: Literal["name", "connect", "tls", "proxy", "time"] = "connect") -> None:
        super().__init__(message)
        self.stage = stage


class OutOfResourcesError(OSError):
    """The gateway's own machine has no file descriptors or memory left for a connection."""


class NoConnectionError(OSError):
    """All connections that the expert may have are in use, and none became free in time."""


@dataclass(frozen=True)
class Destination:
    """Where an expert is, and how to connect to it. Calls to equal destinations share connections."""

    base_url: str
    keep_alive: float = KEEP_ALIVE_S  # seconds that an idle connection stays open
    http2: bool = False  # offered to https:// servers; those without it get HTTP/1.1
    tls: TlsFiles | None = None
    max_connections: int | None = None  # with HTTP/1.1, of this process


@dataclass(slots=True)
class UpstreamCall:
    """A request to an expert. Deadlines are times of the event loop."""

    destination: Destination
    path: str  # below the base URL, with the query
    head: bytes  # lines such as b"accept: */*\\r\\n", with names in lower case; without host and content-length
    body: RequestBody
    connect_seconds: float  # to open a connection
    deadline: float  # of the answer's head
    may_resend: bool = True  # whether to send it again if a reused connection closes at once
    is_repeatable: bool = True  # if not, it avoids connections that may close soon
    method: str = "POST"


class UpstreamAnswer(Protocol):
    """The answer to a call, as it arrives. It must be closed."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Names are in lower case. Trailers are not included."""

    @property
    def resends(self) -> int:
        """How often the call was sent again."""

    async def read(self, deadline: float) -> bytes:
        """The next piece of the body; empty at its end.

        Raises `ConnectionClosedError` if the body is cut off, and `TimeoutError` at the deadline.
        """

    def close(self) -> None:
        """Keep the connection for the next call if the answer is complete; close it otherwise."""


class Transport(Protocol):
    """Sends calls to experts."""

    async def send(self, call: UpstreamCall) -> UpstreamAnswer:
        """Send a call and wait for the head of its answer. The body is released after that.

        Raises one of the errors above, or `TimeoutError` at the deadline.
        """


def is_out_of_resources(error: BaseException | None) -> bool:
    """Whether this error, or one that caused it, is a lack of resources of the gateway's own machine."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _OUT_OF_RESOURCES:
            return True
        error = error.__cause__ or error.__context__
    return False
