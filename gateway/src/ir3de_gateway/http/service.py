"""Small endpoints: /v1/models, /v1/usage, /admin/keys, /health, /livez, /readyz, /version, /openapi.json; the page.

`scripts/generate_openapi.py` writes openapi.json. The files of the page are in page/; there is no build step.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ir3de import __version__
from ir3de.serving import write_variables
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.document import Server
from ir3de_gateway.config.experts import RESERVED, read_variable
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.keys.client_key import ClientKey
from ir3de_gateway.keys.registry import describe_key, list_environment_keys
from ir3de_gateway.stages.accept import is_loopback

NO_STORE = {"cache-control": "no-store"}
DOCUMENT = Path(__file__).parent / "openapi.json"
TOKEN_BYTES = 24  # random ones: 192 bits cannot be guessed
PAGE_FOLDER = Path(__file__).parent / "page"
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGE_HEADERS = {
    "cache-control": "no-cache",  # browsers revalidate it, and get 304
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}


def _get_gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


async def _get_caught_up(request: Request) -> Gateway:
    """The same, with what other workers have changed through /admin."""
    gateway = _get_gateway(request)
    if gateway.administration is not None:
        await gateway.administration.catch_up()
    return gateway


def _describe_model(name: str, gateway: Gateway) -> dict[str, object]:
    return {"id": name, "object": "model", "created": gateway.opened_at, "owned_by": "ir3de"}


def _list_models(gateway: Gateway, key: ClientKey) -> list[str]:
    """The models that a key may request."""
    snapshot = gateway.live.snapshot
    names = [*RESERVED, *filter(key.may_ask, snapshot.experts)]
    return names + [alias for alias, target in snapshot.aliases.items() if target in names]


async def list_models(request: Request) -> Response:
    """`auto`, every expert by name, and the aliases."""
    gateway = await _get_caught_up(request)
    names = _list_models(gateway, request.state.key)
    return JSONResponse({"object": "list", "data": [_describe_model(name, gateway) for name in names]})


async def show_model(request: Request) -> Response:
    """`auto`, one expert, or one alias."""
    gateway, name = await _get_caught_up(request), request.path_params["name"]
    if name not in _list_models(gateway, request.state.key):
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
    snapshot = (await _get_caught_up(request)).live.snapshot
    takes_feedback = snapshot.config.feedback.folder is not None
    shown = {"name": "ir3de", "version": __version__, "router": snapshot.digest, "feedback": takes_feedback}
    return JSONResponse(shown)


async def list_keys(request: Request) -> Response:
    """Every key: what it may do, its limits, and what it has used."""
    gateway = await _get_caught_up(request)
    keys, names = gateway.keys, list(gateway.live.snapshot.experts)
    data = []
    for key in keys.list_all():
        data.append(await describe_key(key, names))
        await asyncio.sleep(0)  # there may be thousands
    file = None if keys.path is None else str(keys.path)
    return JSONResponse({"object": "list", "data": data, "file": file, "problem": keys.problem}, headers=NO_STORE)


async def show_usage(request: Request) -> Response:
    """The key of the request: what it may do, its limits, and what it has used."""
    key: ClientKey = request.state.key
    if key.store is None:
        raise ApiError(404, "this gateway does not count usage: it has no server.keys_file")
    gateway = _get_gateway(request)
    names = [name for name in gateway.live.snapshot.experts if key.may_ask(name)]
    return JSONResponse({"object": "usage", **await describe_key(key, names)}, headers=NO_STORE)


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


# the page: playground, traffic, experts ------------------------------------------------------------------------------


@dataclass(frozen=True)
class StaticFile:
    """A file of the page as it is sent."""

    content: bytes
    kind: str
    etag: str


@cache
def load_files() -> dict[str, StaticFile]:
    """Every file of the page by its name, read once; its colours are those of every picture."""
    contents = {path.name: path.read_bytes() for path in sorted(PAGE_FOLDER.iterdir()) if path.suffix in CONTENT_TYPES}
    contents["palette.css"] = write_variables().encode()
    return {
        name: StaticFile(content, CONTENT_TYPES[Path(name).suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
        for name, content in contents.items()
    }


async def serve_page(request: Request) -> Response:
    """The page, or one of its files."""
    name = request.path_params.get("file", "index.html")
    file = load_files().get(name)
    if file is None or (name == "index.html" and "file" in request.path_params):
        raise ApiError(404, f"the page has no file {name[:80]!r}")
    headers = {**PAGE_HEADERS, "etag": file.etag}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if file.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.kind)


# a token for one run on loopback, so that the page works without pasting one ----------------------------------------


@contextmanager
def provide_admin_token(server: Server) -> Iterator[str | None]:
    """Set a random admin token for the block, and give it; None if one is configured, or others can connect.

    It is put where the configured one would be, so that all workers have it. It is never written to a file.
    """
    variable = server.admin_token_env
    if read_variable(variable) or not is_loopback(server.host):
        yield None
        return
    before = os.environ.get(variable)
    os.environ[variable] = token = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        yield token
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def build_page_link(address: str, token: str | None) -> str:
    """The address of the page. The token is in the fragment, which browsers never send."""
    return f"{address}/#token={token}" if token else f"{address}/"


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
    Route("/", serve_page, methods=["GET"]),
    Route("/page/{file}", serve_page, methods=["GET"]),
]
