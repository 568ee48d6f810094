"""GET /v1/usage tells a key what it may use and has used; GET /admin/keys tells the same of all keys."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.keys.client_key import ClientKey
from ir3de_gateway.keys.registry import describe_key


async def list_keys(request: Request) -> Response:
    """Every key: what it may do, its limits, and what it has used."""
    gateway: Gateway = request.app.state.gateway
    keys, names = gateway.keys, list(gateway.live.snapshot.experts)
    data = await asyncio.to_thread(lambda: [describe_key(key, names) for key in keys.list_all()])
    file = None if keys.path is None else str(keys.path)
    return _respond({"object": "list", "data": data, "file": file, "problem": keys.problem})


async def show_usage(request: Request) -> Response:
    """The key that asks: what it may do, its limits, and what it has used."""
    key: ClientKey = request.state.key
    if key.store is None:
        raise ApiError(404, "this gateway counts nothing for its clients: it has no server.keys_file")
    gateway: Gateway = request.app.state.gateway
    names = [name for name in gateway.live.snapshot.experts if key.may_ask(name)]
    return _respond({"object": "usage", **await asyncio.to_thread(describe_key, key, names)})


def _respond(body: dict[str, object]) -> Response:
    return JSONResponse(body, headers={"cache-control": "no-store"})


routes = [
    Route("/admin/keys", list_keys, methods=["GET"]),
    Route("/v1/usage", show_usage, methods=["GET"]),
]
