"""Requests that are sent again because a kept connection closed, and those that never are."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from ir3de_gateway.transport import ConnectionClosedError, Destination, InvalidResponseError, UpstreamCall
from ir3de_gateway.transport.http1 import Http1Connection
from ir3de_gateway.transport.pool import HttpTransport
from transport_servers import ANSWER, call_to, exchange, listening, never, replies, request_of, run, usual_environment  # noqa: F401


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


def test_a_request_that_was_sent_again_is_not_kept_by_the_connection_that_closed() -> None:
    """Connection and parser refer to each other, so both wait for the collector, and the connection has the error."""
    server = Resending()

    async def work(pool: HttpTransport) -> None:
        gc.collect()
        gc.disable()
        try:
            assert await server.ask_twice(pool) == (200, b"ok")
            errors = [one for one in gc.get_objects() if isinstance(one, ConnectionClosedError)]
            assert errors and all(error.__traceback__ is None for error in errors)
        finally:
            gc.enable()

    run(work)


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
