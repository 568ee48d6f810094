"""Connections to experts: kept, closed, secured, led through proxies; on real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ir3de.gateway.experts.http1 import MAX_BUFFERED_BYTES, MAX_HEAD_BYTES, SLICE_BYTES, Http1Connection
from ir3de.gateway.experts.http_transport import HttpTransport
from ir3de.gateway.experts.transport import (
    ConnectionClosedError,
    Destination,
    InvalidResponseError,
    UnreachableError,
    UpstreamCall,
)

TLS = Path(__file__).parent / "tls"
BODY = b'{"model": "m"}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

LOOP: dict[str, Any] = {"run": asyncio.run}
UNDER_WAY: list[asyncio.Task[None]] = []  # what servers are doing, so that a test ends after them

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True, params=["asyncio", "uvloop"])
def usual_environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxies, and each of the event loops."""
    LOOP["run"] = pytest.importorskip("uvloop").run if request.param == "uvloop" else asyncio.run
    for name in (
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)


@asynccontextmanager
async def listening(serve: Serve, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    async def noted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        UNDER_WAY.append(task)
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(noted, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def request_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or b"0")
    return head + await reader.readexactly(length)


def replies(*answers: bytes, seen: list[bytes] | None = None, close: bool = False) -> Serve:
    """A server that gives these answers one after the other, the last one again and again."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await request_of(reader)
                if seen is not None:
                    seen.append(request)
                writer.write(left.pop(0) if len(left) > 1 else left[0])
                await writer.drain()
                if close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass

    return serve


def never() -> float:
    """A deadline that no test reaches."""
    return asyncio.get_running_loop().time() + 60


def call_to(there: str | Destination, body: bytes = BODY, **more: Any) -> UpstreamCall:
    destination = Destination(there) if isinstance(there, str) else there
    given = {"connect_seconds": 60.0, "deadline": never(), **more}
    return UpstreamCall(destination, "chat/completions", b"x-request-id: 1\r\n", body, **given)


async def exchange(transport: HttpTransport, there: str | Destination, **more: Any) -> tuple[int, bytes]:
    answer = await transport.send(call_to(there, **more))
    body = b""
    try:
        while piece := await answer.read(never()):
            body += piece
    finally:
        answer.close()
    return answer.status, body


def run(work: Callable[[HttpTransport], Awaitable[None]]) -> None:
    async def main() -> None:
        pool = HttpTransport()
        try:
            await asyncio.wait_for(work(pool), 60)
        finally:
            pool.close()
            await asyncio.wait_for(asyncio.gather(*UNDER_WAY, return_exceptions=True), 60)
            UNDER_WAY.clear()

    LOOP["run"](main())


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (ANSWER, b"ok"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + ANSWER, b"ok"),
        (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + ANSWER, b"ok"),
    ],
)
def test_an_answer_that_ends_leaves_its_connection_for_the_next(answer: bytes, body: bytes) -> None:
    places = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        places.add(writer.get_extra_info("peername"))
        await replies(answer)(reader, writer)

    async def work(pool: HttpTransport) -> None:
        async with listening(serve) as port:
            for _ in range(3):
                _, got = await exchange(pool, f"http://127.0.0.1:{port}/v1")
                assert got == body
        assert len(places) == 1

    run(work)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\n\r\nok", ANSWER.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")]
)
def test_an_answer_that_ends_with_its_connection(answer: bytes) -> None:
    async def work(pool: HttpTransport) -> None:
        async with listening(replies(answer, close=True)) as port:
            for _ in range(2):
                assert await exchange(pool, f"http://127.0.0.1:{port}/v1") == (200, b"ok")

    run(work)


def test_a_kept_connection_that_was_closed_meanwhile_is_replaced() -> None:
    async def work(pool: HttpTransport) -> None:
        async with listening(replies(ANSWER, close=True)) as port:
            for _ in range(3):  # the answer says that the connection stays, and then it does not
                assert await exchange(pool, f"http://127.0.0.1:{port}/v1") == (200, b"ok")
                await asyncio.sleep(0)

    run(work)


class Clock:
    """An event loop whose time stands still but for what a test adds."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time()

    def time(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


class Resending:
    """A server whose first connection answers one request and then fails; later connections do as `later` says."""

    def __init__(self, last_words: bytes = b"", seconds: float = 0.0, later: bytes = ANSWER) -> None:
        self.last_words, self.seconds, self.later = last_words, seconds, later
        self.connections = 0
        self.requests: list[bytes] = []
        self.clock: Clock | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        is_first = self.connections == 1
        self.requests.append(await request_of(reader))
        writer.write(ANSWER if is_first else self.later)
        if is_first:
            self.requests.append(await request_of(reader))
            writer.write(self.last_words)
            assert self.clock is not None
            self.clock.now += self.seconds

    async def ask_twice(self, pool: HttpTransport, **more: Any) -> tuple[int, bytes]:
        """Two exchanges, the second of them on the connection that the first one left."""
        async with listening(self.serve) as port:
            base_url = f"http://127.0.0.1:{port}/v1"
            connection = await pool.send(call_to(base_url))
            assert isinstance(connection, Http1Connection)
            self.clock = Clock()
            connection.loop = self.clock  # type: ignore[assignment]
            assert await connection.read(never()) == b"ok"
            connection.close()
            return await exchange(pool, base_url, **more)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.0])
def test_a_request_on_a_connection_that_closes_at_once_is_sent_again_once(seconds: float) -> None:
    server = Resending(seconds=seconds)

    async def work(pool: HttpTransport) -> None:
        assert await server.ask_twice(pool) == (200, b"ok")
        assert (len(server.requests), server.connections) == (3, 2)
        assert len(set(server.requests)) == 1

    run(work)


@pytest.mark.parametrize(
    ("conduct", "error", "requests"),
    [
        ({"seconds": 1.01}, ConnectionClosedError, 2),  # it may have begun to answer: a POST could be done twice
        ({"last_words": b"HTTP/1.1 200 OK\r\n"}, ConnectionClosedError, 2),  # it has begun to answer
        ({"last_words": b"H"}, ConnectionClosedError, 2),
        ({"last_words": b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok"}, ConnectionClosedError, 2),
        ({"last_words": b"SSH-2.0-OpenSSH\r\n"}, InvalidResponseError, 2),
        ({"later": b""}, ConnectionClosedError, 3),  # the new connection fails too: it was no accident
    ],
)
def test_any_other_request_is_sent_once(conduct: dict[str, Any], error: type[OSError], requests: int) -> None:
    server = Resending(**conduct)

    async def work(pool: HttpTransport) -> None:
        with pytest.raises(error):
            await server.ask_twice(pool)
        assert (len(server.requests), server.connections) == (requests, requests - 1)

    run(work)


def test_an_answer_says_how_often_its_request_was_sent_again() -> None:
    server = Resending()

    async def resend(pool: HttpTransport) -> None:
        kept: list[int] = []
        send = pool.send

        async def noting(call: UpstreamCall) -> Any:
            answer = await send(call)
            kept.append(answer.resends)
            return answer

        pool.send = noting  # type: ignore[method-assign]
        await server.ask_twice(pool)
        assert kept == [0, 1]

    run(resend)


@pytest.mark.parametrize("more", [{"may_resend": False}, {"may_resend": False, "is_repeatable": False}])
def test_a_request_that_may_not_be_sent_again_is_not(more: dict[str, bool]) -> None:
    server = Resending()

    async def work(pool: HttpTransport) -> None:
        with pytest.raises(ConnectionClosedError):
            await server.ask_twice(pool, **more)
        assert (len(server.requests), server.connections) == (2, 1)

    run(work)


@pytest.mark.parametrize(
    ("idle_seconds", "is_repeatable", "connections"), [(60, True, 1), (120, True, 2), (40, False, 1), (60, False, 2)]
)
def test_what_may_not_be_sent_again_avoids_connections_that_may_close_soon(
    idle_seconds: float, is_repeatable: bool, connections: int
) -> None:
    places = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        places.add(writer)
        await replies(ANSWER)(reader, writer)

    async def work(pool: HttpTransport) -> None:
        async with listening(serve) as port:
            there = Destination(f"http://127.0.0.1:{port}/v1", keep_alive=100)
            answer = await pool.send(call_to(there))
            assert isinstance(answer, Http1Connection)
            assert await answer.read(never()) == b"ok"
            answer.close()
            answer.idle_since -= idle_seconds
            await exchange(pool, there, is_repeatable=is_repeatable)
        assert len(places) == connections

    run(work)


def test_a_request_on_a_new_connection_is_never_sent_again() -> None:
    seen: list[bytes] = []

    async def work(pool: HttpTransport) -> None:
        async with listening(replies(b"", seen=seen, close=True)) as port:
            with pytest.raises(ConnectionClosedError):
                await exchange(pool, f"http://127.0.0.1:{port}/v1")
        assert len(seen) == 1

    run(work)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", ConnectionClosedError),
        (b"HTTP/1.1 200 OK\r\ncontent-le", ConnectionClosedError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok", ConnectionClosedError),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n", ConnectionClosedError),
        (b"SSH-2.0-OpenSSH\r\n", InvalidResponseError),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * (MAX_HEAD_BYTES + 1), InvalidResponseError),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nok\r\n", InvalidResponseError),
    ],
)
def test_what_is_no_answer_is_an_error(answer: bytes, error: type[OSError]) -> None:
    async def work(pool: HttpTransport) -> None:
        async with listening(replies(answer, close=True)) as port:
            with pytest.raises(error):
                await exchange(pool, f"http://127.0.0.1:{port}/v1")

    run(work)


def test_words_that_nobody_asked_for_end_a_connection() -> None:
    async def work(pool: HttpTransport) -> None:
        async with listening(replies(ANSWER + ANSWER, ANSWER)) as port:
            assert await exchange(pool, f"http://127.0.0.1:{port}/v1") == (200, b"ok")
            assert await exchange(pool, f"http://127.0.0.1:{port}/v1") == (200, b"ok")

    run(work)


def test_an_answer_that_comes_before_the_request_has_gone_is_the_last_of_its_connection() -> None:
    """Nobody knows whether the rest of the request will be read, and the next one would wait behind it."""
    places = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        places.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        while len(places) < 2:  # reads nothing meanwhile
            await asyncio.sleep(0.01)

    async def work(pool: HttpTransport) -> None:
        async with listening(serve) as port:
            base_url = f"http://127.0.0.1:{port}/v1"
            for body in (b"x" * (32 << 20), BODY):
                answer = await pool.send(call_to(base_url, body))
                assert await answer.read(never()) == b"ok"
                answer.close()
        assert len(places) == 2

    run(work)


def test_what_comes_after_a_body_is_no_part_of_the_head() -> None:
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nset-this: x\r\n\r\n"

    async def work(pool: HttpTransport) -> None:
        async with listening(replies(answer)) as port:
            base_url = f"http://127.0.0.1:{port}/v1"
            connection = await pool.send(call_to(base_url))
            assert isinstance(connection, Http1Connection)
            assert (await connection.read(never()), await connection.read(never())) == (b"ok", b"")
            assert connection.headers == [(b"transfer-encoding", b"chunked")]
            assert connection.is_reusable
            connection.close()

    run(work)


def test_nobody_there() -> None:
    async def work(pool: HttpTransport) -> None:
        async with listening(replies(ANSWER)) as port:
            pass
        for address in (f"http://127.0.0.1:{port}/v1", "http://no.such.host.invalid/v1", f"http://{'x' * 70}/v1"):
            with pytest.raises(UnreachableError):
                await exchange(pool, address)

    run(work)


def test_a_connection_that_does_not_come_about_is_not_waited_for_long() -> None:
    async def work(pool: HttpTransport) -> None:
        with socket.socket() as full, ExitStack() as callers:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            for _ in range(4):  # more than may wait to be let in
                caller = callers.enter_context(socket.socket())
                caller.setblocking(False)
                with suppress(BlockingIOError):
                    caller.connect(full.getsockname())
            base_url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
            with pytest.raises(UnreachableError) as found:
                await pool.send(call_to(base_url, connect_seconds=0.2))
            assert found.value.stage == "time"

    run(work)


def test_an_expert_that_is_faster_than_the_client_has_to_wait() -> None:
    large = b"x" * (8 << 20)

    async def work(pool: HttpTransport) -> None:
        whole = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(large) + large
        async with listening(replies(whole)) as port:
            base_url = f"http://127.0.0.1:{port}/v1"
            answer = await pool.send(call_to(base_url))
            await asyncio.sleep(0.05)
            body, most = b"", 0
            while piece := await answer.read(never()):
                body, most = body + piece, max(most, len(piece))
            answer.close()
            assert body == large
            assert most < 4 * MAX_BUFFERED_BYTES

    run(work)


def test_idle_connections_are_closed_when_the_destination_says() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await replies(ANSWER)(reader, writer)
        gone.set()

    async def work(pool: HttpTransport) -> None:
        async with listening(serve) as port:
            await exchange(pool, Destination(f"http://127.0.0.1:{port}/v1", keep_alive=0.05))
            await gone.wait()

    run(work)


def test_a_large_body_is_written_as_the_expert_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    body, seen, waiting = bytes(range(256)) * 40_000, list[bytes](), list[int]()
    write_slices = Http1Connection._write_slices

    def watch(connection: Http1Connection) -> None:
        write_slices(connection)
        waiting.append(connection.transport.get_write_buffer_size())

    monkeypatch.setattr(Http1Connection, "_write_slices", watch)

    async def work(pool: HttpTransport) -> None:
        async with listening(replies(ANSWER, seen=seen)) as port:
            there = f"http://127.0.0.1:{port}/v1"
            assert await exchange(pool, there, body=body) == (200, b"ok")
            assert await exchange(pool, there) == (200, b"ok")  # on the same connection

    run(work)
    assert [one.partition(b"\r\n\r\n")[2] for one in seen] == [body, BODY]
    assert max(waiting) <= 2 * SLICE_BYTES


def test_an_expert_that_answers_before_it_has_read_all_is_heard() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await reader.read()
        writer.close()

    async def work(pool: HttpTransport) -> None:
        async with listening(refuse) as port:
            answer = await pool.send(call_to(f"http://127.0.0.1:{port}/v1", b"x" * 30_000_000))
            assert isinstance(answer, Http1Connection) and answer.status == 413 and not answer.is_reusable
            answer.close()

    run(work)
