"""Small endpoints: /v1/models, /v1/usage, /admin/keys, /health, /livez, /readyz, /version and /openapi.json.

`scripts/generate_openapi.py` writes openapi.json.
"""

from __future__ import annotations

import asyncio
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ir3de import __version__
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.experts import RESERVED
from ir3de_gateway.config.models import Server
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.keys.client_key import ClientKey
from ir3de_gateway.keys.registry import describe_key, list_environment_keys

NO_STORE = {"cache-control": "no-store"}
DOCUMENT = Path(__file__).parent / "openapi.json"


def _get_gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


def _describe_model(name: str, gateway: Gateway) -> dict[str, object]:
    return {"id": name, "object": "model", "created": gateway.opened_at, "owned_by": "ir3de"}


async def list_models(request: Request) -> Response:
    """`auto`, and every expert by name."""
    gateway = _get_gateway(request)
    key: ClientKey = request.state.key
    names = [*RESERVED, *filter(key.may_ask, gateway.live.snapshot.experts)]
    return JSONResponse({"object": "list", "data": [_describe_model(name, gateway) for name in names]})


async def show_model(request: Request) -> Response:
    """`auto`, or one expert."""
    gateway, name = _get_gateway(request), request.path_params["name"]
    key: ClientKey = request.state.key
    if name not in RESERVED and (name not in gateway.live.snapshot.experts or not key.may_ask(name)):
        raise ApiError(404, f"no model {name[:200]!r}: GET /v1/models lists them", "model_not_found", "model")
    return JSONResponse(_describe_model(name, gateway))


async def show_liveness(request: Request) -> Response:
    """The process is alive."""
    return JSONResponse({"status": "ok"})


async def show_readiness(request: Request) -> Response:
    """Whether an expert can answer: at least one circuit breaker is not open."""
    health = _describe_health(_get_gateway(request))
    return JSONResponse({"status": health["status"]}, 200 if health["status"] != "unavailable" else 503)


async def show_health(request: Request) -> Response:
    """The circuit breaker of each expert; the status is always 200."""
    return JSONResponse(_describe_health(_get_gateway(request)))


def _describe_health(gateway: Gateway) -> dict[str, object]:
    snapshot = gateway.live.snapshot
    experts = {name: expert.breaker.state for name, expert in snapshot.experts.items()}
    states = set(experts.values())
    # without their addresses, which not every client may see
    replicas = {
        name: [replica.state for replica in expert.replicas]
        for name, expert in snapshot.experts.items()
        if expert.replicas
    }
    is_degraded = states & {"open", "cooling"} or any({"open", "down"} & set(found) for found in replicas.values())
    status = "unavailable" if states == {"open"} else "degraded" if is_degraded else "ok"
    shown = {"replicas": replicas} if replicas else {}
    return {"status": status, "router": snapshot.digest[:16], "experts": experts, **shown}


async def show_version(request: Request) -> Response:
    return JSONResponse({"name": "ir3de", "version": __version__, "router": _get_gateway(request).live.snapshot.digest})


async def list_keys(request: Request) -> Response:
    """Every key: what it may do, its limits, and what it has used."""
    gateway = _get_gateway(request)
    keys, names = gateway.keys, list(gateway.live.snapshot.experts)
    data = await asyncio.to_thread(lambda: [describe_key(key, names) for key in keys.list_all()])
    file = None if keys.path is None else str(keys.path)
    return JSONResponse({"object": "list", "data": data, "file": file, "problem": keys.problem}, headers=NO_STORE)


async def show_usage(request: Request) -> Response:
    """The key of the request: what it may do, its limits, and what it has used."""
    key: ClientKey = request.state.key
    if key.store is None:
        raise ApiError(404, "this gateway does not count usage: it has no server.keys_file")
    gateway = _get_gateway(request)
    names = [name for name in gateway.live.snapshot.experts if key.may_ask(name)]
    return JSONResponse({"object": "usage", **await asyncio.to_thread(describe_key, key, names)}, headers=NO_STORE)


def build_document(server: Server) -> dict[str, Any]:
    """The document of a gateway: /v1 is marked as needing a key only where the gateway demands one."""
    return _build_document(server.keys_file is not None or bool(list_environment_keys(server)))


@lru_cache(maxsize=2)
def _build_document(needs_key: bool) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    document["info"]["version"] = __version__
    if not needs_key:
        for path, operations in document["paths"].items():
            if path.startswith(("/v1/", "/v2/")):
                for operation in operations.values():
                    del operation["security"]
    return document


async def show_document(request: Request) -> Response:
    return JSONResponse(build_document(request.app.state.gateway.live.snapshot.config.server))


routes = [
    Route("/v1/models", list_models),
    Route("/v1/models/{name:path}", show_model),
    Route("/livez", show_liveness),
    Route("/readyz", show_readiness),
    Route("/health", show_health),
    Route("/version", show_version),
    Route("/admin/keys", list_keys, methods=["GET"]),
    Route("/v1/usage", show_usage, methods=["GET"]),
    Route("/openapi.json", show_document, methods=["GET"]),
]
