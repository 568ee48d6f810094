"""Connections of clients: how many there may be, how their answers are written, and how they are closed.

Also here: which requests uvicorn may get unparsed, and the responses to what is not a valid request.
"""

from __future__ import annotations

import asyncio
import re
import select
from collections.abc import Callable, Iterable
from email.utils import formatdate
from http import HTTPStatus
from itertools import islice
from typing import Any, Protocol

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.telemetry.counts import PROCESS_COUNTS

MAX_DESCRIPTORS = 1_000_000  # some systems allow a billion
RESERVED_DESCRIPTORS = 64  # files, logs, event loop, sockets to collectors
MAX_REJECTED_OPEN = 16  # rejected clients that are still reading their response
MAX_LOOKS = 16  # at idle connections, for one without a request that has just arrived
MIN_CONNECTIONS = 8
MAX_BACKLOG = 2_048
MAX_BURST = 96  # connections that the system has accepted before the limit applies to them
MAX_HEAD_BYTES = 65_536  # of request line and headers; nginx and others stop at 32 kB
MAX_HEADERS = 256
CLOSE_TIMEOUT_S = 30.0  # for a client to read the rest of its answer
LAST_REQUEST_S = 0.25  # for requests that are on their way when a connection is about to close

# headers that only concern this connection, except `connection` itself: see the module `headers`
CONNECTION_HEADERS = frozenset((b"upgrade", b"http2-settings", b"keep-alive", b"proxy-connection", b"te", b"trailer"))

# the limit --------------------------------------------------------------------------------------------------------


class Closable(Protocol):
    def close_idle(self) -> bool: ...


class ConnectionLimit:
    """The open connections of a worker. A new one may replace the one that has been idle the longest."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open = 0
        self._idle: dict[Closable, None] = {}  # the longest idle first

    def admit(self, connection: Closable) -> bool:
        """Count a new connection, and return whether it may stay."""
        self._open += 1
        PROCESS_COUNTS.connections_open += 1
        if self._open > self.limit:
            closed = next((one for one in islice(self._idle, MAX_LOOKS) if one.close_idle()), None)
            if closed is None:
                PROCESS_COUNTS.connections_refused += 1
                return False
            PROCESS_COUNTS.connections_closed_idle += 1
            del self._idle[closed]
        self._idle[connection] = None
        return True

    @property
    def is_far_exceeded(self) -> bool:
        """Whether there are too many clients even to send each rejected one a response."""
        return self._open > self.limit + MAX_REJECTED_OPEN

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
    """Raise the process's limit of open files as far as permitted. Returns the limit."""
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
    except (OSError, ValueError):  # macOS rejects more than OPEN_MAX
        return soft
    return wanted


def choose_backlog(descriptors: int) -> int:
    """How many connections the system accepts on its own: they all may arrive at once, before any can be rejected."""
    return max(8, min(MAX_BACKLOG, descriptors // 8))


def choose_connection_limit(descriptors: int) -> int:
    """As many connections as the descriptors suffice for: a client's request may need another one, to its expert.

    >>> choose_connection_limit(256), choose_connection_limit(65_536)
    (72, 32680)
    """
    burst = min(choose_backlog(descriptors), MAX_BURST)
    free = descriptors - RESERVED_DESCRIPTORS - MAX_REJECTED_OPEN - burst
    return max(MIN_CONNECTIONS, free // 2)


# writing and closing ----------------------------------------------------------------------------------------------


class HeadBufferingTransport:
    """A transport that sends an answer's head with the first piece of its body: one system call, one packet."""

    __slots__ = ("_head", "_is_close_announced", "_loop", "_transport", "has_begun", "held", "holds_answers", "linger")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head = b""
        self.has_begun = False  # an answer has
        self.holds_answers = False  # answers are dropped, and `held` is set
        self.held = False
        self._is_close_announced = False  # by the head of the last answer
        self.linger: Callable[[], None] | None = None  # called instead of a close that the client cannot expect

    def write(self, data: bytes) -> None:
        if self.holds_answers:
            self.held = True
            return
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 1"):  # not 100 Continue
            self._head, self.has_begun = data, True
            self._is_close_announced = b"\r\nconnection: close\r\n" in data
            self._loop.call_soon(self._flush)  # the body may follow much later
            return
        self._transport.write(data)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        self.write(b"".join(pieces))

    def close(self) -> None:
        """Called by uvicorn. Closes at once if the last answer announced it; otherwise calls `linger`."""
        if not self.holds_answers:
            self._flush()
            if self.linger is not None and not self._is_close_announced:
                self.linger()
                return
            self._transport.close()
            if self._transport.get_write_buffer_size():  # it stays open until the client has read that
                self._loop.call_later(CLOSE_TIMEOUT_S, self._transport.abort)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def close_when_idle(transport: asyncio.Transport, is_busy: Callable[[], bool], close: Callable[[], None]) -> None:
    """Call `close` after a moment, once no request is arriving or being answered.

    A client may send a request on an idle connection just as the server stops or the connection expires. If it closed
    at once, the request would be reset, and the client could not know whether it was processed.
    """

    def check() -> None:
        if transport.is_closing():
            return
        if is_busy() or has_unread_data(transport):
            loop.call_later(LAST_REQUEST_S, check)
        else:
            close()

    loop = asyncio.get_running_loop()
    loop.call_later(LAST_REQUEST_S, check)


def has_unread_data(transport: asyncio.Transport) -> bool:
    """Whether data has arrived that the event loop has not read yet."""
    if not hasattr(select, "poll"):  # Windows
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


# requests that need no parsing ------------------------------------------------------------------------------------

_match_request_line = re.compile(rb"(?!CONNECT )[A-Z]+ /[!-~]* HTTP/1\.1\r\n").match
# the host, a length, and the start of every unusual header
_find_notable = re.compile(
    rb"\n(host:|content-length:[ \t]*[0-9]{1,18}[ \t]*\r|content-length|transfer-encoding|[ \t]|%b)"
    % b"|".join(sorted(CONNECTION_HEADERS))
).findall


def is_plain_request(data: bytes) -> bool:
    """Whether the data is one whole HTTP/1.1 request with one host, of usual size, without headers of the connection.

    >>> is_plain_request(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
    True
    >>> is_plain_request(b"GET / HTTP/1.1\\r\\nHost: a\\r\\nUpgrade: h2c\\r\\n\\r\\n")
    False
    """
    end = data.find(b"\r\n\r\n")
    if not 0 < end < MAX_HEAD_BYTES or _match_request_line(data) is None:
        return False
    head = data[: end + 2].lower()
    notable = _find_notable(head)
    if head.count(b"\n") > MAX_HEADERS:
        return False
    if notable == [b"host:"]:
        return len(data) == end + 4
    if len(notable) != 2 or b"host:" not in notable:
        return False
    length = notable[1] if notable[0] == b"host:" else notable[0]
    return length.endswith(b"\r") and len(data) == end + 4 + int(length[15:])


# responses to invalid requests ------------------------------------------------------------------------------------


def join_head(request_line: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    return b"%b%b\r\n" % (request_line, b"".join([b"%b: %b\r\n" % pair for pair in headers]))


def build_answer(problem: ApiError) -> bytes:
    """The error as a whole HTTP response, in the format of OpenAI's API."""
    body = problem.body()
    status = HTTPStatus(problem.status)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
        (b"date", formatdate(usegmt=True).encode()),
        *problem.header_list(),
    ]
    return join_head(f"HTTP/1.1 {status} {status.phrase}\r\n".encode(), headers) + body


def build_invalid_request() -> ApiError:
    return ApiError(400, "this is not an HTTP/1.1 request", code="invalid_http")


def build_head_too_large() -> ApiError:
    message = f"request line and headers may have {MAX_HEAD_BYTES:,} bytes together, in {MAX_HEADERS} headers"
    return ApiError(431, f"{message}: send fewer or shorter ones")
