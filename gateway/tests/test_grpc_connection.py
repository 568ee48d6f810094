"""The connection that serves Envoy's calls: with gRPC's own client, and with frames that no client should send."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, Event, RemoteSettingsChanged, TrailersReceived
from hypothesis import given
from hypothesis import strategies as st

from ir3de.errors import InputError
from ir3de_gateway.integrations import http2_frames as http2
from ir3de_gateway.integrations.grpc_connection import MAX_STREAMS, WINDOW_BYTES, GrpcConnection

PATIENCE_S = 30
MOST_BYTES = 3_000_000
ECHO = "/test.Service/Echo"


class Echo:
    """Answers each message with itself, twice if it begins with `twice`; `fail` is an error, `slow` waits."""

    ended = 0

    async def take(self, message: bytes) -> Sequence[bytes]:
        if message == b"fail":
            raise ValueError("as asked")
        if message.startswith(b"slow"):
            await asyncio.sleep(0.05)
        return [message, message] if message.startswith(b"twice") else [message]

    def end(self) -> None:
        Echo.ended += 1


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a server in a thread."""
    loop, started, ports, connections = asyncio.new_event_loop(), threading.Event(), list[int](), set[GrpcConnection]()

    async def run() -> None:
        methods: dict[bytes, Callable[[], Echo]] = {ECHO.encode(): Echo}
        server = await loop.create_server(lambda: GrpcConnection(methods, MOST_BYTES, connections), "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        started.set()
        async with server:
            await stop.wait()
        for connection in list(connections):
            connection.abort()
        while connections:  # until all of them are closed
            await asyncio.sleep(0.01)

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    assert started.wait(PATIENCE_S)
    yield ports[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


# with gRPC's own client ----------------------------------------------------------------------------------------------


@pytest.mark.clients
class TestClient:
    @pytest.fixture
    def call(self, port: int) -> Iterator[Callable[..., list[bytes]]]:
        grpc = pytest.importorskip("grpc")
        options = [("grpc.max_receive_message_length", 10_000_000)]
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:

            def call(*messages: bytes, path: str = ECHO, **settings: object) -> list[bytes]:
                return list(channel.stream_stream(path)(iter(messages), timeout=PATIENCE_S, **settings))

            yield call

    def test_messages_are_answered_in_their_order(self, call: Callable[..., list[bytes]]) -> None:
        assert call(b"one", b"slow", b"twice", b"") == [b"one", b"slow", b"twice", b"twice", b""]
        assert call() == []

    def test_messages_of_many_frames_pass_through_the_windows(self, call: Callable[..., list[bytes]]) -> None:
        messages = [bytes([place]) * 2_900_000 for place in range(4)]
        assert call(*messages) == messages

    def test_many_calls_at_once(self, call: Callable[..., list[bytes]]) -> None:
        with ThreadPoolExecutor(32) as pool:
            found = list(pool.map(lambda place: call(b"slow %d" % place, b"%d" % place), range(300)))
        assert found == [[b"slow %d" % place, b"%d" % place] for place in range(300)]

    @pytest.mark.parametrize(
        ("messages", "options", "status"),
        [
            ([b"fail"], {}, "INTERNAL"),
            ([b"x" * (MOST_BYTES + 1)], {}, "RESOURCE_EXHAUSTED"),
            ([b"x"], {"path": "/test.Service/Other"}, "UNIMPLEMENTED"),
            ([b"x" * 1_000], {"compression": 2}, "UNIMPLEMENTED"),
        ],
    )
    def test_what_fails_has_its_status(
        self, call: Callable[..., list[bytes]], messages: list[bytes], options: dict[str, object], status: str
    ) -> None:
        import grpc

        if "compression" in options:
            options = {"compression": grpc.Compression.Gzip}
        with pytest.raises(grpc.RpcError) as caught:
            call(*messages, **options)
        assert caught.value.code().name == status
        assert call(b"the next one") == [b"the next one"]

    def test_a_call_that_is_cancelled_ends_here(self, port: int) -> None:
        grpc = pytest.importorskip("grpc")
        before = Echo.ended
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            silent = threading.Event()
            running = channel.stream_stream(ECHO)(_wait_after(b"one", silent))
            assert next(running) == b"one"
            running.cancel()
            silent.set()
            assert list(channel.stream_stream(ECHO)(iter([b"two"]), timeout=PATIENCE_S)) == [b"two"]
        _wait_until(lambda: Echo.ended >= before + 2)


def _wait_after(message: bytes, event: threading.Event) -> Iterator[bytes]:
    yield message
    event.wait(PATIENCE_S)


def _wait_until(holds: Callable[[], bool]) -> None:
    gate = threading.Event()
    for _ in range(200):
        if holds():
            return
        gate.wait(0.05)
    raise AssertionError("it did not happen")


# frame by frame ------------------------------------------------------------------------------------------------------


class Peer:
    """A client that writes its own frames, and reads with h2."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.h2 = H2Connection()
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def write(self, kind: int, flags: int, number: int, content: bytes) -> None:
        self.flush()
        size = len(content)
        self.socket.sendall(http2.FRAME.pack(size >> 8, size & 0xFF, kind, flags, number) + content)

    def begin(self, number: int = 1, path: str = ECHO) -> None:
        head = [(":method", "POST"), (":path", path), (":scheme", "http"), (":authority", "x"), ("te", "trailers")]
        self.h2.send_headers(number, head)
        self.flush()

    def read_until(self, kind: type[Event]) -> list[Event]:
        """All events until one of that kind, or until the server closes."""
        found: list[Event] = []
        while not any(isinstance(one, kind | TrailersReceived) for one in found):
            if not (data := self.socket.recv(65_536)):
                break
            found += self.h2.receive_data(data)
            with suppress(ConnectionError):  # the server may have closed
                self.flush()
        return found

    def read_data(self) -> bytes:
        return b"".join(one.data for one in self.read_until(DataReceived) if isinstance(one, DataReceived))


@pytest.fixture
def peer(port: int) -> Iterator[Peer]:
    found = Peer(port)
    with closing(found.socket):
        yield found


def pack(message: bytes) -> bytes:
    return struct.pack(">BI", 0, len(message)) + message


def test_settings_name_what_may_be_sent(peer: Peer) -> None:
    peer.read_until(RemoteSettingsChanged)
    assert peer.h2.remote_settings.max_concurrent_streams == MAX_STREAMS
    assert peer.h2.remote_settings.initial_window_size == WINDOW_BYTES


def test_a_message_may_come_byte_by_byte(peer: Peer) -> None:
    peer.begin()
    for byte in pack(b"hello"):
        peer.write(http2.DATA, 0, 1, bytes([byte]))
    assert b"".join(one.data for one in peer.read_until(DataReceived) if isinstance(one, DataReceived)) == pack(
        b"hello"
    )


def test_padding_is_no_part_of_a_message(peer: Peer) -> None:
    peer.begin()
    peer.write(http2.DATA, http2.PADDED, 1, b"\x03" + pack(b"hello") + b"\0\0\0")
    assert b"".join(one.data for one in peer.read_until(DataReceived) if isinstance(one, DataReceived)) == pack(
        b"hello"
    )


def test_answers_wait_for_the_window_of_the_client(peer: Peer) -> None:
    """The client takes 65,535 bytes, and then more once it has read them."""
    peer.begin()
    message = pack(b"x" * 200_000)
    for start in range(0, len(message), 16_384):
        peer.write(http2.DATA, 0, 1, message[start : start + 16_384])
    peer.write(http2.DATA, http2.END_STREAM, 1, b"")
    received, trailers = 0, []
    while not trailers:
        for one in peer.read_until(DataReceived):
            if isinstance(one, DataReceived):
                received += len(one.data)
                peer.h2.acknowledge_received_data(len(one.data), 1)
            elif isinstance(one, TrailersReceived):
                trailers = [tuple(header) for header in one.headers]
        peer.flush()
    assert received == len(message)
    assert trailers == [(b"grpc-status", b"0")]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ((http2.DATA, 0, 7, b"x"), http2.PROTOCOL_ERROR),  # of a stream that has not begun
        ((http2.DATA, http2.PADDED, 1, b"\x09x"), http2.PROTOCOL_ERROR),
        ((http2.HEADERS, http2.END_HEADERS, 2, b"\x82"), http2.PROTOCOL_ERROR),  # an even number
        ((http2.HEADERS, http2.END_HEADERS, 3, b"\xff\xff\xff\xff\xff"), http2.COMPRESSION_ERROR),
        ((http2.CONTINUATION, 0, 1, b"\x82"), http2.PROTOCOL_ERROR),
        ((http2.SETTINGS, 0, 0, b"12345"), http2.FRAME_SIZE_ERROR),
        ((http2.SETTINGS, 0, 0, struct.pack(">HI", http2.WINDOW_SETTING, 2**31)), http2.FLOW_ERROR),
        ((http2.PING, 0, 0, b"1234"), http2.FRAME_SIZE_ERROR),
        ((http2.WINDOW_UPDATE, 0, 0, struct.pack(">I", 0)), http2.PROTOCOL_ERROR),
        ((http2.WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**31 - 1)), http2.FLOW_ERROR),
        ((http2.WINDOW_UPDATE, 0, 1, struct.pack(">I", 2**31 - 1)), http2.FLOW_ERROR),
        ((http2.WINDOW_UPDATE, 0, 0, b"1"), http2.FRAME_SIZE_ERROR),
        ((http2.PUSH_PROMISE, 0, 1, b"1234"), http2.PROTOCOL_ERROR),
        ((http2.DATA, 0, 1, bytes(20_000)), http2.FRAME_SIZE_ERROR),
    ],
)
def test_a_forbidden_frame_ends_the_connection_and_no_other(
    peer: Peer, port: int, frame: tuple[int, int, int, bytes], code: int
) -> None:
    peer.begin()
    peer.write(*frame)
    ended = [one for one in peer.read_until(ConnectionTerminated) if isinstance(one, ConnectionTerminated)]
    assert ended[0].error_code == code
    with closing((other := Peer(port)).socket):
        other.begin()
        other.write(http2.DATA, 0, 1, pack(b"still here"))
        assert any(isinstance(one, DataReceived) for one in other.read_until(DataReceived))


def test_headers_that_never_end_are_refused(peer: Peer) -> None:
    peer.write(http2.HEADERS, 0, 1, b"\x82" * 100)
    for _ in range(5):
        peer.write(http2.CONTINUATION, 0, 1, b"\x82" * 16_000)
    ended = [one for one in peer.read_until(ConnectionTerminated) if isinstance(one, ConnectionTerminated)]
    assert ended[0].error_code == http2.CALM


def test_frames_of_a_call_that_has_ended_are_ignored(peer: Peer) -> None:
    peer.begin(path="/unknown")
    peer.write(http2.DATA, 0, 1, pack(b"late"))
    peer.write(http2.WINDOW_UPDATE, 0, 1, struct.pack(">I", 100))
    peer.write(http2.RST_STREAM, 0, 1, struct.pack(">I", 8))
    peer.begin(3)
    peer.write(http2.DATA, 0, 3, pack(b"hello"))
    got = b""
    while pack(b"hello") not in got:
        data = peer.socket.recv(65_536)
        assert data, "the server has closed the connection"
        got += data


def test_what_does_not_speak_http2_is_closed(port: int) -> None:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        while connection.recv(65_536):
            pass


@given(st.binary(max_size=300))
def test_no_bytes_stop_the_server(content: bytes) -> None:
    """Whatever follows the preface: the connection lives on, or ends with an error of HTTP/2."""
    written = bytearray()

    class Transport:
        def write(self, data: bytes) -> None:
            written.extend(data)

        def is_closing(self) -> bool:
            return False

        def close(self) -> None: ...
        def pause_reading(self) -> None: ...
        def resume_reading(self) -> None: ...

    async def feed() -> None:
        connection = GrpcConnection({ECHO.encode(): Echo}, MOST_BYTES, set())
        connection.connection_made(Transport())
        connection.data_received(http2.PREFACE + content)
        await asyncio.sleep(0)
        connection.connection_lost(None)

    asyncio.run(feed())
    assert written


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nonsense", "not an address and a port"),
        ("127.0.0.1:http", "not an address and a port"),
        ("127.0.0.1:99999", "not an address and a port"),
        ("192.0.2.1:9002", "cannot listen on 192.0.2.1:9002"),
        ("unix:/no/such/folder/socket", "cannot listen on unix:/no/such/folder/socket"),
    ],
)
def test_an_address_that_cannot_be_used_is_named(address: str, said: str) -> None:
    pytest.importorskip("google.protobuf")
    from ir3de_gateway.integrations.ext_proc_server import listen

    with pytest.raises(InputError, match=said):
        asyncio.run(listen(address, lambda: GrpcConnection({}, 1, set())))
