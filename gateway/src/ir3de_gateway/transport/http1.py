"""A connection with HTTP/1.1, on httptools: one call at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httptools

from ir3de_gateway.transport import ConnectionClosedError, InvalidResponseError, RequestBody

MAX_BUFFERED_BYTES = 1 << 18  # beyond this, reading from the expert pauses
MAX_STATUS = 599
MAX_HEAD_BYTES = 1 << 16  # of an answer
MAX_JOINED_BYTES = 1 << 16  # larger bodies are written separately: joining them to their head would copy them
SLICE_BYTES = 1 << 18  # written at a time: asyncio copies what the socket does not accept at once


class BufferedAnswer:
    """An answer as it arrives: pieces that wait to be read, and a reader that waits for them."""

    __slots__ = (
        "_ended", "_error", "_paused", "_pieces", "_size", "_timer", "_waiter", "_waits_until", "headers", "loop",
        "resends", "status",
    )  # fmt: skip

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waits_until = 0.0
        self._reset()

    def _reset(self) -> None:
        self.status = self.resends = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self._size = 0  # of what was not read yet
        self._ended = False
        self._paused = False  # nothing more arrives until the pieces are read
        self._error: OSError | None = None

    async def wait_for_head(self, deadline: float) -> None:
        """Wait for the head of the answer."""
        while not self.status:
            await self.wait(deadline)

    async def read(self, deadline: float) -> bytes:
        """The next bytes of the body; none at its end."""
        pieces = self._pieces
        while not pieces:
            if self._ended and self._error is None:
                return b""
            await self.wait(deadline)
        found = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        size, self._size = self._size, 0
        if self._paused:
            self._resume(size)
        return found

    def _resume(self, size: int) -> None:
        """Pieces of this size were read: more may arrive."""
        raise NotImplementedError

    async def wait(self, deadline: float) -> None:
        """Wait for an event. One timer serves many waits: it is set again when it expires too early."""
        if self._error is not None:
            raise self._error
        self._waits_until = deadline
        if self._timer is None or self._timer.when() > deadline:
            self._set_timer(deadline)
        self._waiter = self.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """An event has happened."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, deadline: float) -> None:
        self._cancel_timer()
        self._timer = self.loop.call_at(deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self.loop.time() >= self._waits_until:
            self._waiter.set_exception(TimeoutError())
        else:
            self._set_timer(self._waits_until)

    def fail(self, error: OSError) -> None:
        """The rest of the answer will not arrive."""
        if self._error is None and not self._ended:
            self._error = error
        self.wake()


class Http1Connection(BufferedAnswer, asyncio.Protocol):
    """One connection, and the answer to the call that it carries.

    `done` is called when an answer is closed, with whether the connection can be reused.
    """

    __slots__ = (
        "_done", "_has_length", "_head_size", "_is_full", "_is_open", "_is_persistent", "_parser", "_unsent",
        "idle_since", "transport",
    )  # fmt: skip

    def __init__(self, done: Callable[[Http1Connection, bool], None]) -> None:
        super().__init__()
        self.transport: Any = None
        self.idle_since = 0.0
        self._done = done
        self._parser = httptools.HttpResponseParser(self)
        self._unsent: memoryview | None = None  # of a large body
        self._is_full = False  # the socket accepts no more for now

    def _reset(self) -> None:
        super()._reset()
        self._head_size = 0
        self._is_persistent = False
        self._is_open = True  # the answer was not closed
        self._has_length = True  # otherwise the end of the connection is the end of the answer

    def write(self, head: bytes, body: RequestBody = b"") -> None:
        """Send a request."""
        self._reset()
        if len(body) > MAX_JOINED_BYTES:
            self.transport.write(head)
            self._unsent = memoryview(body)
            self._write_slices()
        else:
            self.transport.write(head + body[:])

    def _write_slices(self) -> None:
        while self._unsent is not None and not self._is_full:
            self.transport.write(self._unsent[:SLICE_BYTES])
            self._unsent = self._unsent[SLICE_BYTES:] or None

    def _resume(self, size: int) -> None:
        self._paused = False
        self.transport.resume_reading()

    def close(self) -> None:
        """End the exchange. The connection stays open if it can be reused."""
        if not self._is_open:
            return
        self._is_open, is_reusable = False, self.is_reusable
        self._cancel_timer()
        if not is_reusable:
            self.transport.abort()
        self._done(self, is_reusable)

    def abort(self) -> None:
        """Close the connection at once."""
        self._cancel_timer()
        self.transport.abort()

    @property
    def has_received_data(self) -> bool:
        """Whether any byte has arrived."""
        return self._head_size > 0 or self.status > 0

    @property
    def is_reusable(self) -> bool:
        """Whether the exchange is complete, to the last byte, and another one may follow."""
        unread = self._pieces or self._paused  # unread data would become part of the next answer
        if not self._ended or not self._is_persistent or unread or self._error is not None:
            return False
        if self.transport.is_closing():
            return False
        # the expert may have answered early, without reading the rest
        return self._unsent is None and not self.transport.get_write_buffer_size()

    def _reject(self, problem: str) -> None:
        self.transport.abort()
        self.fail(InvalidResponseError(problem))

    # asyncio's callbacks ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._ended:
            self._reject("data after the end of the answer")
            return
        if not self.status:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._reject(str(error))
            return
        if not self.status and self._head_size > MAX_HEAD_BYTES:
            self._reject("the headers are too long")

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._write_slices()

    def connection_lost(self, error: Exception | None) -> None:
        self._unsent = None
        if self.status and not self._has_length and error is None:
            self._ended = True  # the normal end of such an answer
        self.fail(ConnectionClosedError("the connection was closed"))

    # httptools' callbacks ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._ended:  # a second answer to one request: do not reuse this connection
            self._is_persistent = False
            raise InvalidResponseError("data after the end of the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # trailers are ignored: they may be endless
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # 100 Continue and the like come before the answer
            self.headers.clear()
            return
        if status > MAX_STATUS:
            raise InvalidResponseError(f"there is no status {status}")
        self.status = status
        self._has_length = status in (204, 304) or any(
            name in (b"content-length", b"transfer-encoding") for name, _ in self.headers
        )
        self.wake()

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > MAX_BUFFERED_BYTES and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self.wake()

    def on_message_complete(self) -> None:
        if self.status:
            self._is_persistent, self._ended = self._parser.should_keep_alive(), True
            self.wake()
