"""A server that stops: requests on kept connections are answered, and then their connections are closed."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from ir3de_gateway.serving import connections
from ir3de_gateway.serving.request_filter import RequestFilter
from ir3de_gateway.stages.accept import CURRENT_CONNECTION
from raw_sockets import eventually

REQUEST = b"POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
LARGE_BYTES = 64_000_000  # more than the buffers of both sockets
LET_GO = threading.Event()  # ends what is slow


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answers at once, or with more than a socket holds, or with a stream that ends when it is let go."""
    while (await receive()).get("more_body"):
        pass
    is_stream = scope["path"] == "/stream"
    body = bytes(LARGE_BYTES) if scope["path"] == "/large" else b"ok"
    length = [] if is_stream else [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    if is_stream:
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await asyncio.to_thread(LET_GO.wait, 60)
    await send({"type": "http.response.body", "body": body})
    connection = CURRENT_CONNECTION.get()
    assert connection is not None
    connection.end_request()  # as the gateway does


class Serving:
    """A server in a thread, on a socket of its own."""

    def __init__(self) -> None:
        settings = uvicorn.Config(application, port=0, http=RequestFilter, lifespan="off", log_config=None, ws="none")
        self.server = uvicorn.Server(settings)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        assert eventually(lambda: self.server.started)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self.loop = self.server.servers[0].get_loop()

    def dial(self, path: bytes = b"/v1/x", until: bytes = b"ok") -> socket.socket:
        """A connection on which one request was answered, at least in part."""
        line = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        line.sendall(REQUEST.replace(b"/v1/x", path))
        found = b""
        while until not in found:
            found += line.recv(65_536)
        assert b"connection: close" not in found
        return line

    def stop_after(self, send: Callable[[], None]) -> None:
        """Stop when this was sent and the server has not read it yet: nothing runs on the event loop meanwhile."""
        blocked, was_sent = threading.Event(), threading.Event()

        def stop() -> None:
            blocked.set()
            was_sent.wait(60)
            self.server.should_exit = True
            for connection in list(self.server.server_state.connections):  # as uvicorn does a moment later
                connection.shutdown()

        self.loop.call_soon_threadsafe(stop)
        assert blocked.wait(60)
        send()
        was_sent.set()


@pytest.fixture
def serving() -> Iterator[Serving]:
    LET_GO.clear()
    found = Serving()
    yield found
    LET_GO.set()
    found.server.should_exit = True
    found.thread.join(60)
    assert not found.thread.is_alive()


@contextmanager
def closing(lines: list[socket.socket]) -> Iterator[None]:
    try:
        yield
    finally:
        for line in lines:
            line.close()


def read_all(line: socket.socket) -> bytes:
    """Everything until the other side closes; a reset is an error."""
    found = b""
    while more := line.recv(65_536):
        found += more
    return found


def test_requests_on_kept_connections_are_answered_and_then_closed(serving: Serving) -> None:
    lines = [serving.dial() for _ in range(12)]
    with closing(lines):
        serving.stop_after(lambda: [line.sendall(REQUEST) for line in lines] and None)
        for line in lines:
            found = read_all(line)
            assert found.startswith(b"HTTP/1.1 200") and found.endswith(b"ok")
            assert found.count(b"connection: close") == 1


def test_a_request_whose_head_comes_in_two_parts_is_answered_too(serving: Serving) -> None:
    with closing([line := serving.dial()]):
        serving.stop_after(lambda: line.sendall(REQUEST[:20]))
        line.sendall(REQUEST[20:])
        found = read_all(line)
        assert found.startswith(b"HTTP/1.1 200") and b"connection: close" in found


def test_a_request_behind_a_stream_that_had_begun_is_answered(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream's head was sent when nobody knew of the stop, so its client may send another request."""
    monkeypatch.setattr(connections, "LAST_REQUEST_S", 60.0)  # however slow this machine is
    with closing([line := serving.dial(b"/stream", until=b"a\r\n")]):
        serving.stop_after(lambda: None)
        LET_GO.set()
        found = b""
        while not found.endswith(b"0\r\n\r\n"):
            found += line.recv(65_536)
        line.sendall(REQUEST)
        found = read_all(line)
        assert found.startswith(b"HTTP/1.1 200") and b"connection: close" in found


def test_connections_without_a_request_do_not_hold_up_the_stop(serving: Serving) -> None:
    with closing([serving.dial() for _ in range(3)]) as _, closing([line := serving.dial()]):
        serving.stop_after(lambda: None)
        assert read_all(line) == b""
        serving.thread.join(60)
        assert not serving.thread.is_alive()


def test_a_client_that_does_not_read_its_answer_is_disconnected(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CLOSE_TIMEOUT_S", 0.01)
    with closing([serving.dial(b"/large", until=b"HTTP/1.1 200 OK")]):
        serving.stop_after(lambda: None)
        assert eventually(lambda: not serving.server.server_state.connections)
