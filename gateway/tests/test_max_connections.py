"""A limit of connections to an address, and calls other than POST; on real sockets."""

from __future__ import annotations

import asyncio

import pytest

from ir3de_gateway.transport import Destination, NoConnectionError, UnreachableError
from ir3de_gateway.transport.pool import HttpTransport
from transport_servers import ANSWER, call_to, exchange, listening, replies, request_of, run, usual_environment  # noqa: F401


def test_calls_beyond_the_limit_wait_for_a_connection_first_come_first_served() -> None:
    gate, open_now, most, places = asyncio.Event(), 0, 0, set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        places.add(writer.get_extra_info("peername"))
        open_now += 1
        most = max(most, open_now)
        try:
            while True:
                await request_of(reader)
                await gate.wait()
                writer.write(ANSWER)
        except asyncio.IncompleteReadError:
            open_now -= 1

    async def work(pool: HttpTransport) -> None:
        async with listening(serve) as port:
            there = Destination(f"http://127.0.0.1:{port}/v1", max_connections=2)
            calls = [asyncio.ensure_future(exchange(pool, there)) for _ in range(7)]
            while open_now < 2:
                await asyncio.sleep(0.001)
            calls[3].cancel()
            gate.set()
            done = await asyncio.gather(*calls, return_exceptions=True)
            assert [one for one in done if not isinstance(one, BaseException)] == [(200, b"ok")] * 6
            assert await exchange(pool, there) == (200, b"ok")
        assert most == 2 and len(places) == 2  # and they are kept for the next calls

    run(work)


def test_a_call_that_finds_no_connection_in_time_says_so_and_failures_give_their_place_back() -> None:
    async def work(pool: HttpTransport) -> None:
        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        async with listening(hang) as port:
            there = Destination(f"http://127.0.0.1:{port}/v1", max_connections=1)
            first = asyncio.ensure_future(pool.send(call_to(there)))
            await asyncio.sleep(0)
            with pytest.raises(NoConnectionError):
                await pool.send(call_to(there, connect_seconds=0.01))
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
        for _ in range(3):  # nobody listens there any more: each call has the place, and fails by itself
            with pytest.raises(UnreachableError):
                await pool.send(call_to(there))

    run(work)


def test_an_answer_that_is_closed_twice_gives_one_place_back() -> None:
    async def work(pool: HttpTransport) -> None:
        async with listening(replies(ANSWER)) as port:
            there = Destination(f"http://127.0.0.1:{port}/v1", max_connections=1)
            answer = await pool.send(call_to(there))
            assert await answer.read(answer_deadline()) == b"ok"
            answer.close()
            answer.close()
            kept = await pool.send(call_to(there))
            with pytest.raises(NoConnectionError):
                await pool.send(call_to(there, connect_seconds=0.01))
            kept.close()

    run(work)


def answer_deadline() -> float:
    return asyncio.get_running_loop().time() + 60


@pytest.mark.parametrize(
    ("path", "line"), [("models", b"GET /v1/models HTTP/1.1"), ("/health", b"GET /health HTTP/1.1")]
)
def test_another_method_and_a_path_of_the_server_itself(path: str, line: bytes) -> None:
    seen: list[bytes] = []

    async def work(pool: HttpTransport) -> None:
        async with listening(replies(ANSWER, seen=seen)) as port:
            call = call_to(f"http://127.0.0.1:{port}/v1", b"", method="GET")
            call.path = path
            answer = await pool.send(call)
            assert (answer.status, await answer.read(answer_deadline())) == (200, b"ok")
            answer.close()
        assert seen[0].startswith(line + b"\r\n") and b"content-length" not in seen[0]

    run(work)
