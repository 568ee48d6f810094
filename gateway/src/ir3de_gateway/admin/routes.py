"""The /admin endpoints: change experts and routers while the gateway serves. `http/access` has checked the token."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ir3de.errors import IR3DEError
from ir3de.serving import hide_user, read_header
from ir3de_gateway.admin.administration import Administration, Caller
from ir3de_gateway.admin.changes import AdminState, ExpertAddition, ReplicaChange, RouterReplacement
from ir3de_gateway.admin.router_source import is_address
from ir3de_gateway.api_errors import ApiError, ClientDisconnect, validate
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.requests.client import read_body

T = TypeVar("T")

MAX_AUDIT_LINES = 10_000  # of the audit log in one answer


async def list_experts(request: Request) -> Response:
    """Every expert: its endpoint, its circuit breaker and queue, and its domain in the router."""
    administration = _get_administration(request)
    return _respond(administration, {"object": "list", "data": describe_experts(administration.current)})


async def add_expert(request: Request) -> Response:
    """Add an expert; with `merge`, extend one that exists."""
    administration = _get_administration(request)
    more = validate(ExpertAddition, await _read_json(request, administration))
    found = await _run_unless_left(request, administration.add(more, _read_caller(request)))
    row = next(row for row in describe_experts(administration.current) if row["name"] == more.name)
    return _respond(administration, {**row, "change": found}, status=200 if more.merge else 201)


async def remove_expert(request: Request) -> Response:
    """Remove an expert; its requests in flight finish."""
    administration, domain = _get_administration(request), _read_option(request, "domain", "keep")
    name, scorer = request.path_params["name"], _read_option(request, "scorer", "choose")
    options: Any = {"keep_domain": domain is not None, "scorer": scorer or "keep"}
    found = await _run_unless_left(request, administration.remove(name, _read_caller(request), **options))
    return _respond(administration, {"name": name, "removed": True, "change": found})


async def change_replica(request: Request) -> Response:
    """Drain a replica of an expert, or give it requests again."""
    administration, name, label = _get_administration(request), *_read_replica(request)
    wanted = validate(ReplicaChange, await _read_json(request, administration))
    change = administration.drain(name, label, _read_caller(request), is_drained=wanted.drain)
    await _run_unless_left(request, change)
    rows = next(row["replicas"] for row in describe_experts(administration.current) if row["name"] == name)
    return _respond(administration, next(row for row in rows if row["name"] == label))


async def show_router(request: Request) -> Response:
    """The router that serves, and the one that is configured."""
    return await _respond_with_router(_get_administration(request))


async def replace_router(request: Request) -> Response:
    """Serve the router in another folder or at another address."""
    administration = _get_administration(request)
    given = validate(RouterReplacement, await _read_json(request, administration))
    await _run_unless_left(request, administration.replace_router(given, _read_caller(request)))
    return await _respond_with_router(administration)


async def restore_router(request: Request) -> Response:
    """Serve the configured router again."""
    administration = _get_administration(request)
    await _run_unless_left(request, administration.replace_router(None, _read_caller(request)))
    return await _respond_with_router(administration)


async def reload(request: Request) -> Response:
    """Read the configuration file again; ?router=configured also drops a router that /admin changed or replaced."""
    administration, router = _get_administration(request), _read_option(request, "router", "configured")
    change = administration.reload(_read_caller(request), configured_router=router is not None)
    await _run_unless_left(request, change)
    return _respond(administration, {"reloaded": True, "needs_restart": administration.list_restart_needs()})


async def show_audit(request: Request) -> Response:
    """The last changes, newest first."""
    administration, given = _get_administration(request), request.query_params.get("last", "100")
    if not re.fullmatch("[0-9]{1,6}", given) or not 1 <= int(given) <= MAX_AUDIT_LINES:
        message = f"last must be a number from 1 to {MAX_AUDIT_LINES:,}, found {given[:20]!r}"
        raise ApiError(422, message, "invalid_field", "last")
    lines = await asyncio.to_thread(administration.folder.history, int(given))
    return _respond(administration, {"object": "list", "data": lines})


# descriptions ---------------------------------------------------------------------------------------------------


def describe_experts(now: AdminState) -> list[dict[str, Any]]:
    """Experts with an endpoint, in the order of the configuration, then those that only the router has."""
    counted = {expert["name"]: expert for expert in now.loaded.header.get("experts", ())}
    changed = {expert.name for expert in now.state.experts}
    rows: list[dict[str, Any]] = []
    for name, expert in now.experts.items():
        rows.append(
            {
                "name": name,
                "upstream": expert.config.model_dump(mode="json", exclude={"name"}),
                "origin": "admin" if name in changed else "configuration",
                "breaker": expert.breaker.state,
                "in_flight": expert.concurrency.in_use,
                "waiting": expert.concurrency.waiting,
                "replicas": describe_replicas(expert),
                **_describe_domain(now, name, counted),
            }
        )
    unserved = [name for name in now.router.experts if name not in now.experts]
    return [*rows, *({"name": name, "upstream": None, **_describe_domain(now, name, counted)} for name in unserved)]


def describe_replicas(expert: Expert) -> list[dict[str, Any]]:
    """Each address of an expert; the one of an expert without replicas, too."""
    if not expert.replicas:
        breaker, busy = expert.breaker.state, expert.concurrency.in_use
        own = {"state": "up" if breaker == "closed" else breaker, "breaker": breaker, "drained": False}
        label = expert.config.base_url.partition("://")[2]
        return [{"name": label, "base_url": expert.config.base_url, **own, "in_flight": busy, "weight": 1.0}]
    return [
        {
            "name": replica.label,
            "base_url": replica.config.base_url,
            "state": replica.state,
            "breaker": replica.breaker.state,
            "drained": replica.is_drained,
            "in_flight": replica.in_flight,
            "weight": replica.weight,
        }
        for replica in expert.replicas
    ]


def _describe_domain(now: AdminState, name: str, counted: dict[str, Any]) -> dict[str, Any]:
    row = counted.get(name, {})
    return {"routed": name in now.router.experts, "prompts": row.get("prompts"), "tokens": row.get("tokens")}


def describe_router(now: AdminState) -> dict[str, Any]:
    """The router that serves, and whether it is the configured one."""
    choice, header, path = now.state.router, now.loaded.header, now.follower.shown
    serving = bool(header.get("serving"))
    return {
        "path": path,
        "digest": now.digest,
        "origin": "configuration" if choice is None else "changed" if choice.own else "replaced",
        "experts": list(now.router.experts),
        "default": now.router.default,
        "scorer": header.get("scorer"),
        "selector": header.get("selector"),
        "changeable": not serving and not is_address(path),
        "serving_copy": serving,
        "configured": _describe_configured(now),
    }


def _describe_configured(now: AdminState) -> dict[str, Any]:
    """The configured router; if /admin changed a copy of it, also whether the original is newer."""
    choice, path = now.state.router, now.base.router.path
    found: dict[str, Any] = {"path": hide_user(path)}
    if choice is not None and choice.own and not is_address(path):
        try:
            digest = read_header(Path(path).expanduser())["sha256"]
        except IR3DEError:
            return {**found, "digest": None}
        found |= {"digest": digest, "newer_than_changed": digest != choice.base}
    return found


# requests and answers -------------------------------------------------------------------------------------------


def _get_administration(request: Request) -> Administration:
    found: Administration | None = request.app.state.gateway.administration
    if found is None:
        raise ApiError(404, "this gateway was built without /admin: open it with Gateway.open")
    return found


def _read_replica(request: Request) -> tuple[str, str]:
    """The expert and the replica that the path names."""
    return request.path_params["name"], request.path_params["replica"]


def _read_caller(request: Request) -> Caller:
    """The token itself is never stored: a key has a name, and the first digits of their hashes tell tokens apart."""
    token = request.headers.get("authorization", "").partition(" ")[2].strip() or request.headers.get("x-api-key", "")
    label = f"token {hashlib.sha256(token.encode()).hexdigest()[:8]}" if token else ""
    if name := request.state.key.name:
        label = f"key {name}"
    return Caller(label, str(getattr(request.state, "request_id", "")), request.headers.get("if-match"))


async def _read_json(request: Request, administration: Administration) -> object:
    limits = administration.live.snapshot.config.server.limits
    try:
        return json.loads(await read_body(request.receive, dict(request.scope["headers"]), limits))
    except ClientDisconnect:
        raise ApiError(400, "the client disconnected before the request was complete") from None
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}", "invalid_json") from None


async def _run_unless_left(request: Request, change: Coroutine[Any, Any, T]) -> T:
    """Make a change. If the client disconnects before it is made, it is stopped."""
    task, left = asyncio.ensure_future(change), asyncio.ensure_future(_wait_until_left(request))
    try:
        await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ApiError(499, "the client disconnected before the change was made", "stopped")
        return task.result()
    finally:
        task.cancel()
        left.cancel()


async def _wait_until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _read_option(request: Request, name: str, only: str) -> str | None:
    value = request.query_params.get(name)
    if value not in (None, only):
        raise ApiError(422, f"{name}: only {only!r} is possible, found {value[:50]!r}", "invalid_field", name)
    return value


async def _respond_with_router(administration: Administration) -> Response:
    return _respond(administration, await asyncio.to_thread(describe_router, administration.current))


def _respond(administration: Administration, body: dict[str, Any], *, status: int = 200) -> Response:
    return JSONResponse(body, status, {"etag": administration.etag, "cache-control": "no-store"})


routes = [
    Route("/admin/experts", list_experts, methods=["GET"]),
    Route("/admin/experts", add_expert, methods=["POST"]),
    Route("/admin/experts/{name:path}", remove_expert, methods=["DELETE"]),
    Route("/admin/experts/{name:path}/replicas/{replica:path}", change_replica, methods=["PUT"]),
    Route("/admin/router", show_router, methods=["GET"]),
    Route("/admin/router", replace_router, methods=["PUT"]),
    Route("/admin/router", restore_router, methods=["DELETE"]),
    Route("/admin/reload", reload, methods=["POST"]),
    Route("/admin/audit", show_audit, methods=["GET"]),
]
