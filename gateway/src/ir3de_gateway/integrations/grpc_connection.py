"""A server's end of a gRPC connection, without encryption: frames of HTTP/2, flow control, and messages.

It serves the external processor of Envoy, which sends a few short messages of each request: a request costs what its
frames cost. With Envoy on two busy cores, grpcio's asyncio server took 900 µs of processor time for a call that does
nothing, and a server on h2 350 µs. Header compression is hpack's. RFC 9113 describes the frames, and gRPC's
PROTOCOL-HTTP2.md the messages in them.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Any

from hpack import Decoder
from hpack.exceptions import HPACKError

from ir3de_gateway.integrations import http2_frames as http2
from ir3de_gateway.integrations.grpc_call import Call, Methods

MAX_STREAMS = 4_000
MAX_HEAD_BYTES = 64_000
MAX_PATHS = 100  # that are kept with their headers: a peer may send many
MAX_WAITING_BYTES = 1 << 24  # of messages that wait for their turn; then nothing more is read
WINDOW_BYTES = 1 << 20  # that a peer may send of a stream before we have read it
CONNECTION_WINDOW_BYTES = 1 << 24
OK, EXHAUSTED, UNIMPLEMENTED, INTERNAL = 0, 8, 12, 13  # statuses of gRPC

_LENGTH = struct.Struct(">BI")  # of a message: whether it is compressed, and its bytes
# literals without an index, so that they need no table: ":status: 200" and "content-type: application/grpc"
_HEAD = b"\x88\x0f\x10\x10application/grpc"

_log = logging.getLogger("ir3de.gateway")


class GrpcConnection(asyncio.Protocol):
    """One connection with many calls."""

    def __init__(self, methods: Methods, message_bytes: int, connections: set[GrpcConnection]) -> None:
        self._methods, self._message_bytes, self._connections = methods, message_bytes, connections
        self._transport: Any = None
        self._received = bytearray()
        self._has_preface = self._is_closing = False
        self._decoder = Decoder(MAX_HEAD_BYTES)
        self._paths: dict[bytes, bytes] = {}  # of blocks of headers that refer to the table alone
        self._block: tuple[int, int, bytearray] | None = None  # stream, flags, headers that go on in the next frame
        self._calls: dict[int, Call] = {}
        self._last = 0  # the number of the last stream
        self._window, self._stream_window, self._frame_bytes = (
            http2.FIRST_WINDOW_BYTES,
            http2.FIRST_WINDOW_BYTES,
            http2.FRAME_BYTES,
        )
        self._unread = self._waiting_bytes = 0
        self._to_send = bytearray()
        self.is_idle = asyncio.Event()
        self.is_idle.set()

    # asyncio's callbacks ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._connections.add(self)
        wanted = (
            (http2.MAX_STREAMS_SETTING, MAX_STREAMS),
            (http2.WINDOW_SETTING, WINDOW_BYTES),
            (http2.LIST_SETTING, MAX_HEAD_BYTES),
        )
        self._put(http2.SETTINGS, 0, 0, b"".join(struct.pack(">HI", *one) for one in wanted))
        self._put(http2.WINDOW_UPDATE, 0, 0, struct.pack(">I", CONNECTION_WINDOW_BYTES - http2.FIRST_WINDOW_BYTES))
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self._is_closing and not self._calls:
            return
        self._received += data
        try:
            self._read_frames()
        except http2.PeerError as error:
            self._fail(error)
        self._flush()

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._read_on()

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        for call in list(self._calls.values()):
            self._drop(call)

    # frames -----------------------------------------------------------------------------------------------------------

    def _read_frames(self) -> None:
        received, place = self._received, 0
        if not self._has_preface:
            if not http2.PREFACE.startswith(received[: len(http2.PREFACE)]):
                raise http2.PeerError(http2.PROTOCOL_ERROR, "it does not begin as a connection of HTTP/2 does")
            if len(received) < len(http2.PREFACE):
                return
            self._has_preface, place = True, len(http2.PREFACE)
        while len(received) - place >= http2.FRAME.size:
            high, low, kind, flags, number = http2.FRAME.unpack_from(received, place)
            size = high << 8 | low
            if size > http2.FRAME_BYTES:
                raise http2.PeerError(http2.FRAME_SIZE_ERROR, f"a frame has {size:,} bytes")
            if len(received) - place < http2.FRAME.size + size:
                break
            first = place + http2.FRAME.size
            place = first + size
            self._take(kind, flags, number & http2.LARGEST_WINDOW_BYTES, bytes(received[first:place]))
        del received[:place]

    def _take(self, kind: int, flags: int, number: int, content: bytes) -> None:
        if self._block is not None and kind != http2.CONTINUATION:
            raise http2.PeerError(http2.PROTOCOL_ERROR, "headers are interrupted by another frame")
        if kind == http2.DATA:
            self._take_data(number, flags, content)
        elif kind == http2.HEADERS:
            block = http2.unpad(flags, content)
            block = block[5:] if flags & http2.HAS_PRIORITY else block
            self._take_block(number, flags, bytearray(block))
        elif kind == http2.CONTINUATION:
            if self._block is None or self._block[0] != number:
                raise http2.PeerError(http2.PROTOCOL_ERROR, "headers go on that have not begun")
            self._take_block(number, flags | self._block[1], self._block[2] + content)
        elif kind == http2.WINDOW_UPDATE:
            self._widen(number, http2.read_window(content))
        elif kind == http2.SETTINGS:
            self._take_settings(flags, content)
        elif kind == http2.PING:
            if len(content) != 8:
                raise http2.PeerError(http2.FRAME_SIZE_ERROR, "a ping has not eight bytes")
            if not flags & http2.ACK:
                self._put(http2.PING, http2.ACK, 0, content)
        elif kind == http2.RST_STREAM:
            if (call := self._calls.get(number)) is not None:
                self._drop(call)
        elif kind == http2.PUSH_PROMISE:
            raise http2.PeerError(http2.PROTOCOL_ERROR, "a client may not push")
        elif kind == http2.GOAWAY:
            self._is_closing = True
            self._close_if_done()

    def _take_settings(self, flags: int, content: bytes) -> None:
        if flags & http2.ACK:
            return
        if len(content) % 6:
            raise http2.PeerError(http2.FRAME_SIZE_ERROR, "settings are not whole")
        for name, value in struct.iter_unpack(">HI", content):
            if name == http2.WINDOW_SETTING:
                if value > http2.LARGEST_WINDOW_BYTES:
                    raise http2.PeerError(http2.FLOW_ERROR, "a window is too large")
                for call in self._calls.values():
                    call.window += value - self._stream_window
                self._stream_window = value
            elif name == http2.FRAME_SETTING:
                self._frame_bytes = min(max(value, http2.FRAME_BYTES), 1 << 20)
        self._put(http2.SETTINGS, http2.ACK, 0, b"")
        self._send_waiting()

    def _widen(self, number: int, more: int) -> None:
        if not more:
            raise http2.PeerError(http2.PROTOCOL_ERROR, "a window grows by nothing")
        call = self._calls.get(number)
        if number == 0:
            self._window += more
        elif call is not None:
            call.window += more
        if max(self._window, 0 if call is None else call.window) > http2.LARGEST_WINDOW_BYTES:
            raise http2.PeerError(http2.FLOW_ERROR, "a window is too large")
        self._send_waiting()

    # calls ------------------------------------------------------------------------------------------------------------

    def _take_block(self, number: int, flags: int, block: bytearray) -> None:
        if len(block) > MAX_HEAD_BYTES:
            raise http2.PeerError(http2.CALM, "headers are too long")
        if not flags & http2.END_HEADERS:
            self._block = number, flags & http2.END_STREAM, block
            return
        self._block = None
        path = self._find_path(bytes(block))
        if (call := self._calls.get(number)) is not None:  # trailers
            self._end_input(call)
            return
        if not number % 2:
            raise http2.PeerError(http2.PROTOCOL_ERROR, f"{number} is not a stream of a client")
        if number <= self._last:  # of a call that has ended here
            return
        self._last = number
        if self._is_closing or len(self._calls) >= MAX_STREAMS:
            self._put(http2.RST_STREAM, 0, number, struct.pack(">I", http2.REFUSED_STREAM))
            return
        create = self._methods.get(path)
        if create is None:
            self._put(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, number, _HEAD + _build_status(UNIMPLEMENTED))
            return
        call = self._calls[number] = Call(number, create(), self._stream_window)
        self.is_idle.clear()
        if flags & http2.END_STREAM:
            self._end_input(call)

    def _find_path(self, block: bytes) -> bytes:
        """The path of a call. Blocks that only refer to the table are decoded once, until the table changes."""
        if (found := self._paths.get(block)) is not None:
            return found
        try:
            headers = self._decoder.decode(block, raw=True)
        except HPACKError as error:
            raise http2.PeerError(http2.COMPRESSION_ERROR, f"headers cannot be read: {error}") from error
        path = next((bytes(value) for name, value, *_ in headers if name == b":path"), b"")
        is_kept = all(0x80 < byte < 0xFF for byte in block)  # each byte is a place in the table
        if not is_kept or len(self._paths) >= MAX_PATHS:
            self._paths.clear()
        if is_kept:
            self._paths[block] = path
        return path

    def _take_data(self, number: int, flags: int, content: bytes) -> None:
        self._unread += len(content)
        if self._unread > CONNECTION_WINDOW_BYTES // 2:
            self._put(http2.WINDOW_UPDATE, 0, 0, struct.pack(">I", self._unread))
            self._unread = 0
        call = self._calls.get(number)
        if call is None or call.status is not None:
            if number > self._last:
                raise http2.PeerError(http2.PROTOCOL_ERROR, f"data of stream {number}, which has not begun")
            return
        call.unread += len(content)
        if call.unread > WINDOW_BYTES // 2:
            self._put(http2.WINDOW_UPDATE, 0, number, struct.pack(">I", call.unread))
            call.unread = 0
        call.partial += http2.unpad(flags, content)
        self._read_messages(call)
        if flags & http2.END_STREAM:
            self._end_input(call)

    def _read_messages(self, call: Call) -> None:
        partial = call.partial
        while len(partial) >= _LENGTH.size:
            is_compressed, size = _LENGTH.unpack_from(partial)
            if is_compressed or size > self._message_bytes:
                self._end(call, UNIMPLEMENTED if is_compressed else EXHAUSTED)
                return
            if len(partial) < _LENGTH.size + size:
                return
            call.waiting.append(bytes(partial[_LENGTH.size : _LENGTH.size + size]))
            del partial[: _LENGTH.size + size]
            self._waiting_bytes += size
            if self._waiting_bytes > MAX_WAITING_BYTES:
                self._transport.pause_reading()
            if call.task is None:
                call.task = asyncio.get_running_loop().create_task(self._answer(call))

    async def _answer(self, call: Call) -> None:
        """Answer the messages of a call that wait, in their order."""
        status = OK
        try:
            while call.waiting:
                message = call.waiting.popleft()
                self._waiting_bytes -= len(message)
                for answer in await call.handler.take(message):
                    call.unsent += _LENGTH.pack(0, len(answer)) + answer
                self._send(call)
                self._flush()
        except Exception:
            _log.exception("a message could not be answered")
            status = INTERNAL
        call.task = None
        self._read_on()
        if call.is_all_in or status != OK:
            self._end(call, status)
            self._flush()

    def _end_input(self, call: Call) -> None:
        call.is_all_in = True
        if call.task is None:
            self._end(call, OK)

    def _end(self, call: Call, status: int) -> None:
        """End a call once its answers are sent."""
        if call.status is None:
            call.status = status
            self._send(call)

    def _drop(self, call: Call) -> None:
        """Forget a call, whose client wants nothing more of it."""
        self._calls.pop(call.number, None)
        if call.task is not None:
            call.task.cancel()
        self._waiting_bytes -= sum(map(len, call.waiting))
        call.waiting.clear()
        call.handler.end()
        self._close_if_done()

    def _close_if_done(self) -> None:
        if not self._calls:
            self.is_idle.set()
            if self._is_closing:
                self._flush()
                self._transport.close()

    # sending ----------------------------------------------------------------------------------------------------------

    def _send_waiting(self) -> None:
        for call in [one for one in self._calls.values() if one.unsent or one.status is not None]:
            self._send(call)

    def _send(self, call: Call) -> None:
        """Send as much of a call's answers as the windows allow, and then its status."""
        if call.number not in self._calls:
            return
        if not call.has_begun and (call.unsent or call.status is not None):
            call.has_begun = True
            self._put(http2.HEADERS, http2.END_HEADERS, call.number, _HEAD)
        while call.unsent and (room := min(call.window, self._window, self._frame_bytes)) > 0:
            piece = bytes(call.unsent[:room])
            del call.unsent[:room]
            call.window -= len(piece)
            self._window -= len(piece)
            self._put(http2.DATA, 0, call.number, piece)
        if call.status is not None and not call.unsent:
            self._put(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, call.number, _build_status(call.status))
            if not call.is_all_in:
                self._put(http2.RST_STREAM, 0, call.number, struct.pack(">I", http2.NO_ERROR))
            self._drop(call)

    def _put(self, kind: int, flags: int, number: int, content: bytes) -> None:
        self._to_send += http2.FRAME.pack(len(content) >> 8, len(content) & 0xFF, kind, flags, number) + content

    def _flush(self) -> None:
        if self._to_send and not self._transport.is_closing():
            self._transport.write(bytes(self._to_send))
        self._to_send.clear()

    def _read_on(self) -> None:
        if self._waiting_bytes <= MAX_WAITING_BYTES and not self._transport.is_closing():
            self._transport.resume_reading()

    # the end ----------------------------------------------------------------------------------------------------------

    def _fail(self, error: http2.PeerError) -> None:
        _log.warning("a connection of gRPC was closed: %s", error)
        self._put(http2.GOAWAY, 0, 0, struct.pack(">II", self._last, error.code))
        self._flush()
        self._transport.close()

    def leave(self) -> None:
        """Take no more calls, and close when those that are open have ended."""
        self._is_closing = True
        self._put(http2.GOAWAY, 0, 0, struct.pack(">II", self._last, http2.NO_ERROR))
        self._flush()
        self._close_if_done()

    def abort(self) -> None:
        self._transport.abort()


def _build_status(status: int) -> bytes:
    """The header `grpc-status`, as a literal without an index."""
    value = b"%d" % status
    return b"\x00\x0bgrpc-status" + bytes([len(value)]) + value
