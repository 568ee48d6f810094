"""Stands between a client's socket and uvicorn: only complete, bounded and plain HTTP/1.1 requests pass.

uvicorn's protocol is used unchanged, through asyncio's interface of transports and protocols. A usual request that
arrives in one piece passes unchanged. Any other is parsed here and rewritten: its request line, its headers without
those of the connection, and its body. uvicorn never gets endless heads, trailers, `Upgrade` or two `Host` headers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import httptools
import uvicorn

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.serving.connections import (
    CONNECTION_HEADERS,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    ConnectionLimit,
    HeadBufferingTransport,
    build_answer,
    build_head_too_large,
    build_invalid_request,
    close_when_idle,
    has_unread_data,
    is_plain_request,
    join_head,
)
from ir3de_gateway.stages.accept import CURRENT_CONNECTION

MAX_PIPELINED = 32  # requests that a client may send before the first of them is answered
HEADER_TIMEOUT_S = 10.0
REJECTION_LINGER_S = 1.0  # that a rejected connection stays open, so that the client can read the error


class RejectedRequestError(Exception):
    """Raised in a callback of the parser, which then stops."""


class RequestFilter(asyncio.Protocol):
    """The protocol of one client's connection, given to uvicorn as `http=`."""

    header_seconds = HEADER_TIMEOUT_S
    connections = ConnectionLimit(1_000_000)

    def __init__(self, **uvicorn_arguments: Any) -> None:
        self._uvicorn = uvicorn_arguments
        self._inner: asyncio.Protocol | None = None  # uvicorn's protocol; None if the connection was rejected
        # created when it is needed: most connections need none
        self._parser: httptools.HttpRequestParser = None  # type: ignore[assignment]
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._in_head = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._is_chunked = False
        self._has_body = False  # the data being parsed has a part of a body
        self._bodyless_bytes = 0  # trailers and chunk extensions
        self._body_pieces: list[bytes] = []  # of a chunked body
        self._is_body_complete = True
        self._output: list[bytes] = []  # for uvicorn
        self._unanswered = 0
        self._problem: ApiError | None = None  # raised in a callback of the parser
        self._is_failed = False  # nothing more is read
        self._is_ending = False  # the next request is the last one
        self._disconnect_callbacks: list[Callable[[], None]] = []

    # called by the socket --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = cast(asyncio.Transport, transport)
        if not self.connections.admit(self):  # every place has a client with a request in flight
            self._is_failed = True
            if self.connections.is_far_exceeded:
                self._socket.abort()
            else:
                self._reject(ApiError(503, "too many clients are connected: try again later", retry_after=1))
            return
        self._transport = HeadBufferingTransport(self._socket, self._loop)
        self._transport.linger = self._linger
        self._inner = _get_uvicorn_protocol()(**self._uvicorn)
        self._uvicorn.clear()
        self._inner.connection_made(self._transport)  # type: ignore[arg-type]
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.remove(self)
        self._stop_head_timer()
        if self._inner is not None:
            self._transport.linger = None  # which refers to this object
            self._inner.connection_lost(exc)
        for callback in tuple(self._disconnect_callbacks):
            callback()

    def data_received(self, data: bytes) -> None:
        if self._is_failed:
            return
        is_between_requests = self._is_body_complete and not self._in_head and not self._is_ending
        if is_between_requests and self._unanswered < MAX_PIPELINED and is_plain_request(data):
            self._begin_request()
            self._forward(data)
        else:
            self._rewrite(data)
        if self._unanswered > 1 and not self._socket.is_closing():  # the next request waits for the answer to the first
            self._socket.pause_reading()
        if self._unanswered:
            self._stop_head_timer()
        elif not self._is_failed:
            self._start_head_timer()

    def eof_received(self) -> bool | None:
        return None if self._inner is None else self._inner.eof_received()

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    # called by the parser --------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._url, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it is a trailer
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._parser.should_upgrade():  # see `_parse`
            return
        self._output.append(self._build_head())
        self._is_body_complete, self._bodyless_bytes = False, 0
        self._begin_request()

    def on_body(self, body: bytes) -> None:
        self._has_body = True
        (self._body_pieces if self._is_chunked else self._output).append(body)

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        if self._is_chunked:
            self._end_chunk()
            self._output.append(b"0\r\n\r\n")
        self._is_body_complete = True

    # called by the application ---------------------------------------------------------------------------------------

    def is_body_complete(self) -> bool:
        """Whether the whole request has arrived; it may be False a moment too long."""
        return self._is_body_complete

    def add_disconnect_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the client disconnects, which is noticed only while the socket is read."""
        self._disconnect_callbacks.append(callback)
        if self._unanswered == 1:  # uvicorn pauses in a large body, and may not resume after its end
            self._socket.resume_reading()

    def remove_disconnect_callback(self, callback: Callable[[], None]) -> None:
        if callback in self._disconnect_callbacks:
            self._disconnect_callbacks.remove(callback)

    def end_request(self) -> None:
        """A request has been answered."""
        self._unanswered -= 1
        if self._unanswered == 1 and not self._socket.is_closing():
            self._socket.resume_reading()
        if self._unanswered == 0 and not self._socket.is_closing():
            if self._is_failed:
                self._close()
                return
            self.connections.set_idle(self)
            if self._in_head:
                self._start_head_timer()

    # called by the connection limit ---------------------------------------------------------------------------------

    def close_idle(self) -> bool:
        """Close the idle connection: another client needs its place at once.

        Returns False, and leaves it open, if its client has just sent a request.
        """
        if has_unread_data(self._socket):
            return False
        self._socket.abort()
        return True

    # -----------------------------------------------------------------------------------------------------------------

    def _linger(self) -> None:
        """Close a connection that its client may reuse, after answering a request that is already on its way."""
        if not self._is_ending:
            self._is_ending = True
            close_when_idle(self._socket, lambda: self._in_head or self._unanswered > 0, self._close)

    def _close(self) -> None:
        """Close now, without answering more requests."""
        self._transport.linger = None
        self._transport.close()

    def _begin_request(self) -> None:
        self._unanswered += 1
        if self._unanswered == 1:
            self.connections.set_busy(self)
            self._transport.has_begun = False

    def _rewrite(self, data: bytes) -> None:
        """Parse the data, and forward the requests in it to uvicorn, or answer with an error."""
        was_in_head, self._has_body = self._in_head, False
        was_in_body = not was_in_head and not self._is_body_complete
        if self._parser is None:
            self._parser = _create_parser(self)
        try:
            self._parse(data)
            problem = self._find_endless_part(len(data), was_in_head=was_in_head, was_in_body=was_in_body)
        except httptools.HttpParserError:
            problem = self._problem or build_invalid_request()
        if self._body_pieces:
            self._end_chunk()
        if self._output:
            output, self._output = b"".join(self._output), []
            self._forward(output)
        if problem is not None:
            self._fail(problem)

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # a server may stay with HTTP/1.1: the rest is this request's body
                if self._parser.get_method() == b"CONNECT":
                    self._problem = ApiError(405, "CONNECT is not possible here: this is not a proxy")
                    raise httptools.HttpParserError from None
                self._headers = [pair for pair in self._headers if pair[0].lower() != b"upgrade"]
                again = join_head(self._request_line(), self._headers)
                self._parser = _create_parser(self)
                self._parser.feed_data(again)
                data = data[upgrade.args[0] :]

    def _build_head(self) -> bytes:
        """The request line and headers for uvicorn, or an error."""
        hosts, self._is_chunked = 0, False
        headers = []
        for pair in self._headers:
            name = pair[0].lower()
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding":
                self._is_chunked = True
                if pair[1].lower() != b"chunked":
                    message = "the only supported transfer-encoding is chunked"
                    raise self._reject_head(501, message, "unsupported_transfer_encoding")
            elif name in CONNECTION_HEADERS:
                continue
            headers.append(pair)
        if self._is_ending:
            headers.append((b"connection", b"close"))  # uvicorn repeats it in its answer, and closes
        if hosts != 1 and (hosts or self._parser.get_http_version() != "1.0"):
            raise self._reject_head(400, f"a request needs one Host header, this one has {hosts}", "invalid_host")
        if self._unanswered >= MAX_PIPELINED:
            raise self._reject_head(429, f"there may be {MAX_PIPELINED} unanswered requests on a connection")
        if not self._url.startswith(b"/"):  # an absolute URL, as for a proxy
            url = httptools.parse_url(self._url)
            self._url = (url.path or b"/") + (b"?" + url.query if url.query else b"")
        head = join_head(self._request_line(), headers)
        if len(head) > MAX_HEAD_BYTES or len(self._headers) > MAX_HEADERS:
            self._problem = build_head_too_large()
            raise RejectedRequestError
        return head

    def _request_line(self) -> bytes:
        parser = self._parser
        return b"%b %b HTTP/%b\r\n" % (parser.get_method(), self._url, parser.get_http_version().encode())

    def _reject_head(self, status: int, message: str, code: str = "") -> Exception:
        self._problem = ApiError(status, message, code)
        return RejectedRequestError()

    def _find_endless_part(self, size: int, *, was_in_head: bool, was_in_body: bool) -> ApiError | None:
        """An error if a head, or what surrounds a body, is too large. Complete parts are not checked."""
        if self._in_head:
            is_all_head = was_in_head or not (was_in_body or self._output)
            self._head_bytes += size if is_all_head else 0
            return build_head_too_large() if self._head_bytes > MAX_HEAD_BYTES else None
        if was_in_body and not self._is_body_complete:
            self._bodyless_bytes = 0 if self._has_body else self._bodyless_bytes + size
            if self._bodyless_bytes > MAX_HEAD_BYTES:
                return ApiError(431, f"trailers and chunk extensions may have {MAX_HEAD_BYTES:,} bytes: send fewer")
        return None

    def _end_chunk(self) -> None:
        """Combine what the client has sent so far into one chunk for uvicorn."""
        body = b"".join(self._body_pieces)
        self._body_pieces.clear()
        if body:
            self._output.append(b"%x\r\n%b\r\n" % (len(body), body))

    def _forward(self, data: bytes) -> None:
        """Forward the data to uvicorn. An immediate answer is its rejection of a request."""
        assert self._inner is not None
        self._transport.holds_answers = True
        token = CURRENT_CONNECTION.set(self)  # uvicorn starts a task for the request, which inherits the value
        try:
            self._inner.data_received(data)
        finally:
            CURRENT_CONNECTION.reset(token)
            self._transport.holds_answers = False
        if self._transport.held:
            self._transport.held = False
            self._unanswered -= 1
            self._fail(build_invalid_request())

    def _fail(self, problem: ApiError) -> None:
        """Answer an invalid request, and close; earlier requests are answered first."""
        self._is_failed = True
        self._stop_head_timer()
        if self._socket.is_closing():
            return
        is_own_body = self._unanswered == 1 and not self._is_body_complete and not self._transport.has_begun
        if self._unanswered == 0 or is_own_body:
            self._reject(problem)
        # else `end_request` closes

    def _reject(self, problem: ApiError) -> None:
        """Answer, and close a moment later: closing at once would discard the answer if the client still sends."""
        self._socket.pause_reading()
        self._socket.write(build_answer(problem))
        if self._socket.can_write_eof():
            self._socket.write_eof()
        if self._inner is not None:  # the application may still answer a request whose body was cut off
            self._transport.holds_answers = True
        self._loop.call_later(REJECTION_LINGER_S, self._socket.abort)

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self._loop.call_later(self.header_seconds, self._on_head_timeout)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_head_timeout(self) -> None:
        self._head_timer = None
        if self._unanswered or self._socket.is_closing():
            return
        if self._in_head:
            self._fail(ApiError(408, f"the request's headers did not arrive within {self.header_seconds:g} s"))
        else:
            self._linger()


def build_request_filter(header_seconds: float, connections: int) -> type[RequestFilter]:
    """The protocol for all connections of a server, with their limits."""
    limits = {"header_seconds": header_seconds, "connections": ConnectionLimit(connections)}
    return type("LimitedRequestFilter", (RequestFilter,), limits)


@cache
def _get_uvicorn_protocol() -> Callable[..., asyncio.Protocol]:
    """uvicorn's own protocol, as it chooses it for this setting."""
    settings = uvicorn.Config(_no_application, http="httptools", ws="none", log_config=None, proxy_headers=False)
    settings.load()
    return settings.http_protocol_class


async def _no_application(scope: Any, receive: Any, send: Any) -> None:
    """An application that is never called."""


def _create_parser(callbacks: RequestFilter) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(callbacks)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # drops what follows `connection: close`
    return parser
