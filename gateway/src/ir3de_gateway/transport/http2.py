"""A connection with HTTP/2, on h2: many calls at once. Experts with `http2: true` use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, StreamReset, WindowUpdated
from h2.exceptions import H2Error, ProtocolError
from h2.settings import SettingCodes

from ir3de_gateway.transport import ConnectionClosedError, InvalidResponseError, RequestBody
from ir3de_gateway.transport.http1 import (
    MAX_BUFFERED_BYTES,
    MAX_HEAD_BYTES,
    MAX_STATUS,
    BufferedAnswer,
    Http1Connection,
)

CONNECTION_WINDOW_BYTES = 1 << 24  # large: each stream has its own window against unread data
_GOAWAY = 0x07
_FRAME_HEAD_BYTES = 9
_UNSENT = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))  # RFC 9113


class RefusedError(ConnectionClosedError):
    """The server did not process this request: it may be sent again."""


class Http2Connection(asyncio.Protocol):
    """One connection with many streams."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.loop = asyncio.get_running_loop()
        self.idle_since = self.loop.time()
        self.streams: dict[int, Http2Answer] = {}
        self._is_closing = False  # the server accepts no more requests here
        self._has_served = False
        self._unacknowledged = 0
        self._incomplete = b""  # the beginning of a frame
        # h2 validates what the server sends. Our own headers come from an HTTP/1.1 parser, which has validated them
        self._h2 = H2Connection(
            H2Configuration(client_side=True, header_encoding=None, validate_outbound_headers=False)
        )

    @property
    def is_usable(self) -> bool:
        """Whether it can take another request."""
        if self._is_closing or self.transport.is_closing():
            return False
        return len(self.streams) < int(self._h2.remote_settings.max_concurrent_streams)

    @property
    def is_idle(self) -> bool:
        return not self.streams

    @property
    def is_kept(self) -> bool:
        """Whether it has served before and is idle now."""
        return self._has_served and not self.streams

    async def send(
        self, authority: str, path: str, head: bytes, body: RequestBody, deadline: float, method: str = "POST"
    ) -> Http2Answer:
        """Send a request and wait for the head of its answer."""
        number = self._h2.get_next_available_stream_id()
        answer = self.streams[number] = Http2Answer(self, number)
        try:
            self._h2.send_headers(number, _list_headers(method, authority, path, head, len(body)), end_stream=not body)
            self.flush()
            await self._send_body(answer, body, deadline)
            await answer.wait_for_head(deadline)
        except BaseException as error:
            answer.close()
            if isinstance(error, H2Error):
                raise ConnectionClosedError(str(error)) from error
            raise
        return answer

    async def _send_body(self, answer: Http2Answer, body: RequestBody, deadline: float) -> None:
        rest = memoryview(body)
        while rest and not answer.has_ended:  # a server may answer before it has read everything
            window = min(self._h2.local_flow_control_window(answer.number), self._h2.max_outbound_frame_size)
            if window <= 0:
                await answer.wait(deadline)
                continue
            piece, rest = rest[:window], rest[window:]
            self._h2.send_data(answer.number, piece.tobytes(), end_stream=not rest)
            self.flush()

    def flush(self) -> None:
        if data := self._h2.data_to_send():
            self.transport.write(data)

    def acknowledge(self, number: int, size: int) -> None:
        """Let the server send as many more bytes of a stream as were read."""
        if not self._is_open(number):
            return
        self._h2.increment_flow_control_window(size, number)
        self.flush()

    def end(self, answer: Http2Answer) -> None:
        """Drop a stream; reset it if it is not complete."""
        if self.streams.pop(answer.number, None) is None:
            return
        if not answer.has_ended and self._is_open(answer.number):
            self._h2.reset_stream(answer.number, ErrorCodes.CANCEL)
            self.flush()
        self.idle_since, self._has_served = self.loop.time(), True
        if self._is_closing and not self.streams:
            self.transport.close()

    def _is_open(self, number: int) -> bool:
        if self.transport.is_closing():
            return False
        stream = self._h2.streams.get(number)
        return stream is not None and stream.open

    # asyncio's callbacks ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._h2.local_settings[SettingCodes.ENABLE_PUSH] = 0
        self._h2.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = MAX_BUFFERED_BYTES
        self._h2.local_settings[SettingCodes.MAX_HEADER_LIST_SIZE] = MAX_HEAD_BYTES
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(CONNECTION_WINDOW_BYTES)
        self.flush()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._h2.receive_data(self._take_out_goaway(data)):
                self._handle(event)
            self.flush()
        except H2Error as error:
            self._fail_all(InvalidResponseError(f"HTTP/2: {error}"))
            self.transport.abort()

    def _take_out_goaway(self, data: bytes) -> bytes:
        """The complete frames of the data without GOAWAY: h2 would end the connection, though streams may continue."""
        data, start, kept = self._incomplete + data, 0, []
        while len(data) - start >= _FRAME_HEAD_BYTES:
            end = start + _FRAME_HEAD_BYTES + int.from_bytes(data[start : start + 3])
            if end - start > _FRAME_HEAD_BYTES + self._h2.max_inbound_frame_size:
                raise ProtocolError("a frame is too large")
            if end > len(data):
                break
            frame = data[start:end]
            if frame[3] == _GOAWAY:
                self._stop_sending(int.from_bytes(frame[9:13]) & 0x7FFFFFFF)
            else:
                kept.append(frame)
            start = end
        self._incomplete = data[start:]
        return b"".join(kept)

    def _stop_sending(self, last: int) -> None:
        """The server accepts no more streams here, and did not process those after the last one."""
        self._is_closing = True
        for number, answer in list(self.streams.items()):
            if number > last:
                answer.fail(RefusedError("the server closes the connection"))
        if not self.streams:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail_all(ConnectionClosedError("the connection was closed"))

    def _fail_all(self, error: OSError) -> None:
        for answer in list(self.streams.values()):
            answer.fail(error)

    def _handle(self, event: Event) -> None:
        if isinstance(event, WindowUpdated) and not event.stream_id:
            for waiting in self.streams.values():
                waiting.wake()
            return
        if isinstance(event, DataReceived):
            self._unacknowledged += event.flow_controlled_length or 0
            if self._unacknowledged > CONNECTION_WINDOW_BYTES // 2:
                self._h2.increment_flow_control_window(self._unacknowledged)
                self._unacknowledged = 0
        answer = self.streams.get(getattr(event, "stream_id", None) or 0)
        if answer is not None:
            answer.handle(event)


class Http2Answer(BufferedAnswer):
    """The answer on one stream."""

    __slots__ = ("_connection", "number")

    def __init__(self, connection: Http2Connection, number: int) -> None:
        super().__init__()
        self._connection, self.number = connection, number
        self._paused = True  # by flow control, which counts padding, too

    @property
    def has_ended(self) -> bool:
        return self._ended

    def _resume(self, size: int) -> None:
        if not self._ended:
            self._connection.acknowledge(self.number, size)

    def close(self) -> None:
        self._cancel_timer()
        self._connection.end(self)

    def handle(self, event: Event) -> None:
        """Apply an event of this stream."""
        if isinstance(event, ResponseReceived):
            pairs = [(bytes(name), bytes(value)) for name, value in event.headers or ()]
            status = int(dict(pairs)[b":status"])
            if status > MAX_STATUS:
                self.fail(InvalidResponseError(f"there is no status {status}"))
                return
            self.status = status
            self.headers = [pair for pair in pairs if not pair[0].startswith(b":")]
        elif isinstance(event, DataReceived):
            if event.data:
                self._pieces.append(event.data)
            self._size += event.flow_controlled_length or 0
        elif isinstance(event, StreamEnded):
            self._ended = True
        elif isinstance(event, StreamReset):
            is_refused = event.error_code == ErrorCodes.REFUSED_STREAM
            self.fail(RefusedError("refused") if is_refused else ConnectionClosedError("the stream was reset"))
        self.wake()


class NegotiatedConnection(asyncio.Protocol):
    """Becomes a connection with HTTP/2 or HTTP/1.1, as the server chose in the TLS handshake."""

    chosen: Http1Connection | Http2Connection

    def __init__(self, done: Callable[[Http1Connection, bool], None]) -> None:
        self._done, self._early = done, bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tls: Any = transport.get_extra_info("ssl_object")
        is_http2 = tls is not None and tls.selected_alpn_protocol() == "h2"
        self.chosen = Http2Connection() if is_http2 else Http1Connection(self._done)
        transport.set_protocol(self.chosen)
        self.chosen.connection_made(transport)
        if self._early:
            self.chosen.data_received(bytes(self._early))

    def data_received(self, data: bytes) -> None:
        self._early += data  # through a proxy, it may arrive before `connection_made`


def _list_headers(method: str, authority: str, path: str, head: bytes, length: int) -> list[tuple[bytes, bytes]]:
    pairs = [(name, value) for line in head.splitlines() for name, _, value in [line.partition(b": ")]]
    first = [(b":method", method.encode()), (b":scheme", b"https"), (b":authority", authority.encode())]
    kept = [pair for pair in pairs if pair[0] not in _UNSENT]
    return [*first, (b":path", path.encode()), *kept, (b"content-length", str(length).encode())]
