"""Methods other than POST, and bodies that are files: over HTTP/1.1 and HTTP/2, on each of the event loops."""

from __future__ import annotations

import asyncio
import mmap
import tempfile
from typing import Any

import pytest

pytest.importorskip("h2")

from http2_server import Asked, Http2Server
from ir3de_gateway.transport.pool import HttpTransport
from test_http2 import serving
from transport_servers import ANSWER, exchange, listening, replies, run, usual_environment  # noqa: F401


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_request_without_a_body_has_no_length(method: str) -> None:
    async def work(transport: HttpTransport) -> None:
        seen: list[bytes] = []
        async with listening(replies(ANSWER, seen=seen)) as port:
            there = f"http://127.0.0.1:{port}/v1"
            for _ in range(2):  # on a kept connection, too
                assert await exchange(transport, there, body=b"", method=method) == (200, b"ok")
            assert await exchange(transport, there, body=b"{}", method=method) == (200, b"ok")
            transport.close()
        assert [one.partition(b" HTTP")[0] for one in seen] == [f"{method} /v1/chat/completions".encode()] * 3
        assert [b"content-length" in one for one in seen] == [False, False, True]

    run(work)


def test_http2_has_methods_too() -> None:
    async def say_method(server: Http2Server, asked: Asked) -> None:
        server.start(asked)
        await server.send(asked, asked.headers[b":method"], end=True)

    async def work(transport: HttpTransport) -> None:
        async with serving(say_method) as (there, _):
            assert await exchange(transport, there, body=b"", method="DELETE") == (200, b"DELETE")
            assert await exchange(transport, there) == (200, b"POST")
            transport.close()

    run(work)


@pytest.mark.parametrize("size", [1_000, 5_000_000])
def test_a_file_is_sent_as_it_is(size: int) -> None:
    content = bytes(range(250)) * (size // 250)

    async def work(transport: HttpTransport) -> None:
        seen: list[bytes] = []
        with tempfile.TemporaryFile() as file:
            file.write(content)
            file.flush()
            mapped: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            async with listening(replies(ANSWER, seen=seen)) as port:
                answer = await exchange(transport, f"http://127.0.0.1:{port}/v1", body=mapped)
                transport.close()
            await asyncio.sleep(0)
        assert answer == (200, b"ok")
        assert seen[0].partition(b"\r\n\r\n")[2] == content

    run(work)
