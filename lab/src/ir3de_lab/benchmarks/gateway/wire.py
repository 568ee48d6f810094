"""What the stand-in upstream and the load generator have in common: a loop that keeps time, a client that asks."""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import httptools

T = TypeVar("T")
MARK = b"tok0"  # the first token of every answer of the upstream
ROUTE_HEADER = b"x-ir3de-route-us"


class PreciseSelector(selectors.DefaultSelector):
    """Wakes up to the microsecond: epoll alone rounds up to the next millisecond."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0 and hasattr(self, "fileno"):
            select.select([self.fileno()], [], [], timeout)  # an epoll descriptor is readable when one of its own is
            timeout = 0
        found: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
        return found


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end in a loop that keeps time."""
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(PreciseSelector())) as runner:
        return runner.run(main)


def request_bytes(path: str, body: bytes, host: str = "127.0.0.1", key: str = "") -> bytes:
    """A request as it goes over the wire, with a client key if there is one."""
    head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    authorization = f"authorization: Bearer {key}\r\n" if key else ""
    return f"{head}{authorization}\r\n".encode() + body


@dataclass(slots=True)
class Answer:
    """What came back, and when; `end` is 0 until it is over, `complete` whether all of it came."""

    status: int = 0
    first: float = 0.0  # when the first token came
    end: float = 0.0
    complete: bool = False
    route_us: float | None = None
    body: bytearray = field(default_factory=bytearray)


class Client(asyncio.Protocol):
    """A keep-alive connection that asks one thing at a time and tells when the answer is over."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._done: Callable[[Client, Answer], None] | None = None
        self.answer = Answer()
        self.surplus = 0  # bytes that nobody asked for

    @classmethod
    async def connect(cls, port: int) -> Client:
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: cls(loop.time), "127.0.0.1", port)
        return client

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, request: bytes, done: Callable[[Client, Answer], None]) -> None:
        """Send the request; `done` is called once, also when the connection breaks."""
        self.answer, self._done = Answer(), done
        if not self.open:
            self._finish(complete=False)
        elif self._transport is not None:
            self._transport.write(request)

    def leave(self) -> None:
        """Go away in the middle."""
        self._done = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._finish(complete=False)

    def data_received(self, data: bytes) -> None:
        if self._done is None:
            self.surplus += len(data)
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self._transport is not None:
                self._transport.abort()
            self._finish(complete=False)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == ROUTE_HEADER:
            self.answer.route_us = float(value)

    def on_headers_complete(self) -> None:
        if self._done is not None:
            self.answer.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if self._done is None:  # an answer was over before this came
            self.surplus += len(data)
            return
        answer = self.answer
        answer.body += data
        if not answer.first and MARK in answer.body:
            answer.first = self._clock()

    def on_message_complete(self) -> None:
        keep = self._parser.should_keep_alive()
        self._finish(complete=True)
        if not keep and self._transport is not None:
            self._transport.close()

    def _finish(self, *, complete: bool) -> None:
        done, self._done = self._done, None
        if done is not None:
            self.answer.end, self.answer.complete = self._clock(), complete
            done(self, self.answer)
