"""uvicorn's HTTP/1.1, with limits on time and size of request heads, and errors as OpenAI's API has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ir3de.gateway.api_errors import ApiError
from ir3de.gateway.requests.client import CONNECTION_EXTENSION

MAX_HEAD_BYTES = 65_536  # of request line and headers; nginx and others stop at 32 kB


class HeadTooLargeError(Exception):
    """The request line and headers are too long."""


class HeadBufferingTransport:
    """A transport that sends an answer's head with the first piece of its body: one system call, one packet."""

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 1"):  # not 100 Continue
            self._head = data
            self._loop.call_soon(self._flush)  # the body may come much later
            return
        self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class LimitedHttpProtocol(HttpToolsProtocol):
    """Closes connections whose request heads do not arrive in time, or do not end.

    One timer runs while a head is awaited; a head that comes in one piece, as almost all do, costs none.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.header_seconds: float = getattr(self.config, "header_seconds", 10.0)  # set by `build_uvicorn_config`
        self._in_head = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._error: ApiError | None = None
        self._disconnect_callbacks: set[Callable[[], None]] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = HeadBufferingTransport(transport, self.loop)  # type: ignore[assignment]
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)
        for callback in tuple(self._disconnect_callbacks):
            callback()

    def data_received(self, data: bytes) -> None:
        if not self._is_answering:  # what came before this head, of a refused body, does not count
            self._head_bytes = len(data) + (self._head_bytes if self._in_head else 0)
        super().data_received(data)
        if self._is_answering:
            self._stop_head_timer()
        elif not self.transport.is_closing():
            self._start_head_timer()
            if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
                self._error = _build_head_too_large()
                self.send_400_response("")

    @property
    def _is_answering(self) -> bool:
        """Whether a request's head has come, and its answer is not complete."""
        return not self._in_head and self.cycle is not None and not self.cycle.response_complete

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self._head_bytes > MAX_HEAD_BYTES and self._head_size() > MAX_HEAD_BYTES:
            self._error = _build_head_too_large()
            raise HeadTooLargeError  # the parser stops, and `send_400_response` is called
        self._in_head, self._head_bytes = False, 0
        self.scope["extensions"] = {CONNECTION_EXTENSION: self}  # type: ignore[dict-item]
        super().on_headers_complete()

    # what `requests/client` calls ------------------------------------------------------------------------------------

    def is_body_complete(self) -> bool:
        """Whether the whole request has arrived; it may be False a moment too long."""
        return not self.cycle.more_body

    def add_disconnect_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the client disconnects."""
        self._disconnect_callbacks.add(callback)

    def remove_disconnect_callback(self, callback: Callable[[], None]) -> None:
        self._disconnect_callbacks.discard(callback)

    def send_400_response(self, msg: str) -> None:
        """Answer a head that cannot be used, and close."""
        if self.transport.is_closing():
            return
        problem = self._error or ApiError(400, "this is not an HTTP/1.1 request", code="invalid_http")
        body = problem.body()
        headers = b"".join(b"%b: %b\r\n" % header for header in self.server_state.default_headers)
        self.transport.write(
            b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n%b\r\n%b"
            % (STATUS_LINE[problem.status], len(body), headers, body)
        )
        self.transport.close()

    def _head_size(self) -> int:
        """The size of the head alone, which may have arrived together with the body."""
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.header_seconds, self._on_head_timeout)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_head_timeout(self) -> None:
        self._head_timer = None
        if self._is_answering or self.transport.is_closing():
            return
        if self._in_head:
            self._error = ApiError(408, f"the request's headers did not arrive within {self.header_seconds:g} s")
            self.send_400_response("")
        else:
            self.transport.close()


def _build_head_too_large() -> ApiError:
    return ApiError(
        431, f"request line and headers may have {MAX_HEAD_BYTES:,} bytes together: send fewer or shorter ones"
    )
