"""A bare pass-through proxy in the gateway's own framework: what the gateway is compared with.

    python -m ir3de_lab.benchmarks.gateway.bare --upstream 8001

passes every request on as it came and relays the answer; nothing else.
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

HOP_BY_HOP = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding", "accept-encoding"})


def create_app(upstream: str, delay: float = 0.0) -> Starlette:
    """The proxy in front of that address; `delay` makes it slower by so many seconds, to test what measures it."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as app.state.session:
            yield

    async def forward(request: Request) -> Response:
        if delay:
            await asyncio.sleep(delay)
        headers = [(name, value) for name, value in request.headers.items() if name not in HOP_BY_HOP]
        session: aiohttp.ClientSession = request.app.state.session
        asked = await session.request(
            request.method, upstream + request.url.path, headers=headers, data=await request.body()
        )
        given = {name: value for name, value in asked.headers.items() if name.lower() not in HOP_BY_HOP}
        if "content-length" in asked.headers:
            async with asked:
                return Response(await asked.read(), asked.status, given)
        return StreamingResponse(relayed(asked), asked.status, given)

    methods = ["GET", "POST", "PUT", "DELETE"]
    return Starlette(routes=[Route("/{path:path}", forward, methods=methods)], lifespan=lifespan)


async def relayed(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
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
    given = parser.parse_args()
    serve(create_app(f"http://127.0.0.1:{given.upstream}", given.delay), given.port)


if __name__ == "__main__":
    main()
