"""Servers on real sockets for tests of the transport, and calls to them; on each of the event loops."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ir3de_gateway.transport import Destination, UpstreamCall
from ir3de_gateway.transport.pool import HttpTransport

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
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()  # `async with` would also wait for the connections that the pool keeps (since Python 3.12)


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
