"""A bare pass-through proxy in the gateway's own framework and with its transport: what the gateway is compared with.

    python -m ir3de_lab.benchmarks.gateway.bare --upstream 8001

passes every POST on as it came and relays the answer; nothing else. `--transport aiohttp` uses the usual library.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ir3de_gateway import Destination, HttpTransport, UpstreamCall

HOP_BY_HOP = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding", "accept-encoding"})
_HOP_BY_HOP = frozenset(name.encode() for name in HOP_BY_HOP)
TIMEOUT_S = 60.0
TRANSPORTS = ("ir3de", "aiohttp")


def create_app(upstream: str, delay: float = 0.0, transport: str = "ir3de") -> Starlette:
    """The proxy in front of that address; `delay` makes it slower by so many seconds, to test what measures it."""
    forward = forward_with_aiohttp if transport == "aiohttp" else forward_with_ir3de

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.upstream, app.state.destination = upstream, Destination(upstream)
        app.state.transport = HttpTransport()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as app.state.session:
            yield

    async def delayed(request: Request) -> Response:
        if delay:
            await asyncio.sleep(delay)
        return await forward(request)

    return Starlette(routes=[Route("/{path:path}", delayed, methods=["POST"])], lifespan=lifespan)


async def forward_with_ir3de(request: Request) -> Response:
    """Pass it on with the gateway's own transport."""
    head = b"".join(b"%b: %b\r\n" % (name, value) for name, value in request.headers.raw if name not in _HOP_BY_HOP)
    deadline = asyncio.get_running_loop().time() + TIMEOUT_S
    state, body = request.app.state, await request.body()
    answer = await state.transport.send(
        UpstreamCall(state.destination, request.url.path, head, body, TIMEOUT_S, deadline)
    )
    given = {name.decode(): value.decode() for name, value in answer.headers if name not in _HOP_BY_HOP}

    async def relay() -> AsyncIterator[bytes]:
        try:
            while piece := await answer.read(deadline):
                yield piece
        finally:
            answer.close()

    if any(name == b"content-length" for name, _ in answer.headers):
        return Response(b"".join([piece async for piece in relay()]), answer.status, given)
    return StreamingResponse(relay(), answer.status, given)


async def forward_with_aiohttp(request: Request) -> Response:
    """Pass it on with aiohttp."""
    headers = [(name, value) for name, value in request.headers.items() if name not in HOP_BY_HOP]
    state = request.app.state
    asked = await state.session.post(state.upstream + request.url.path, headers=headers, data=await request.body())
    given = {name: value for name, value in asked.headers.items() if name.lower() not in HOP_BY_HOP}
    if "content-length" in asked.headers:
        async with asked:
            return Response(await asked.read(), asked.status, given)
    return StreamingResponse(_relay(asked), asked.status, given)


async def _relay(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async with answer:
        async for piece in answer.content.iter_any():
            yield piece


def serve(app: Starlette, port: int = 0) -> None:
    """Serve until stopped; the port is written on standard output."""
    listening = socket.create_server(("127.0.0.1", port), backlog=2048)
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, http="httptools", log_level="error", access_log=False, ws="none")
    uvicorn.Server(config).run(sockets=[listening])


def main() -> None:
    parser = argparse.ArgumentParser(description="A bare pass-through proxy.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--upstream", type=int, required=True, help="port of what it is in front of")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds to add")
    parser.add_argument("--transport", choices=TRANSPORTS, default=TRANSPORTS[0])
    given = parser.parse_args()
    serve(create_app(f"http://127.0.0.1:{given.upstream}", given.delay, given.transport), given.port)


if __name__ == "__main__":
    main()
