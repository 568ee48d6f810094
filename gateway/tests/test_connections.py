"""Connections to experts: kept, closed, secured, led through proxies; on real sockets."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack, suppress

import pytest

from ir3de_gateway.transport import ConnectionClosedError, Destination, InvalidResponseError, UnreachableError
from ir3de_gateway.transport.http1 import MAX_BUFFERED_BYTES, MAX_HEAD_BYTES, SLICE_BYTES, Http1Connection
from ir3de_gateway.transport.pool import HttpTransport
from transport_servers import ANSWER, BODY, call_to, exchange, listening, never, replies, run, usual_environment  # noqa: F401


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
            assert isinstance(answer, Http1Connection)
            while not answer._paused:
                await asyncio.sleep(0)
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
