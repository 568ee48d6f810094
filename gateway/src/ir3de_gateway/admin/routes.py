"""The /admin endpoints: change experts and routers while the gateway serves. `stages/accept` has checked the token."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ir3de.errors import IR3DEError
from ir3de.serving import hide_user, read_header
from ir3de_gateway.admin import changes
from ir3de_gateway.admin.administration import Administration, Caller
from ir3de_gateway.admin.changes import AdminState
from ir3de_gateway.admin.router_source import is_address
from ir3de_gateway.api_errors import ApiError, ClientDisconnect, validate
from ir3de_gateway.config.experts import Part
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.requests.client import read_body

P = TypeVar("P", bound=Part)

MAX_AUDIT_LINES = 10_000  # of the audit log in one answer


async def list_experts(request: Request) -> Response:
    """Every expert: its endpoint, its circuit breaker and queue, and its domain in the router."""
    administration = await get_caught_up(request)
    return respond(administration, {"object": "list", "data": describe_experts(administration.current)})


async def add_expert(request: Request) -> Response:
    """Add an expert; with `merge`, extend one that exists."""
    administration, more = get_administration(request), await read(changes.ExpertAddition, request)
    action = "merge expert" if more.merge else "add expert"
    found = await make_change(request, partial(changes.add_expert, more), action=action, expert=more.name)
    row = _find_row(describe_experts(administration.current), more.name)
    return respond(administration, {**row, "change": found}, status=200 if more.merge else 201)


async def remove_expert(request: Request) -> Response:
    """Remove an expert; its requests in flight finish."""
    administration, name = get_administration(request), request.path_params["name"]
    keep_domain = _read_option(request, "domain", "keep") is not None
    scorer: Any = _read_option(request, "scorer", "choose") or "keep"
    change = partial(changes.remove_expert, name, keep_domain, scorer)
    found = await make_change(request, change, action="remove expert", expert=name)
    return respond(administration, {"name": name, "removed": True, "change": found})


async def change_replica(request: Request) -> Response:
    """Drain a replica of an expert, or give it requests again."""
    administration, wanted = get_administration(request), await read(changes.ReplicaChange, request)
    name, label = request.path_params["name"], request.path_params["replica"]
    action = "drain replica" if wanted.drain else "undrain replica"
    change = partial(changes.drain_replica, name, label, wanted.drain)
    await make_change(request, change, action=action, expert=name, replica=label)
    replicas = _find_row(describe_experts(administration.current), name)["replicas"]
    return respond(administration, _find_row(replicas, label))


async def show_router(request: Request) -> Response:
    """The router that serves, and the one that is configured."""
    administration = await get_caught_up(request)
    return respond(administration, await asyncio.to_thread(describe_router, administration.current))


async def replace_router(request: Request) -> Response:
    """Serve the router in another folder or at another address, or with DELETE the configured one again."""
    administration = get_administration(request)
    given = await read(changes.RouterReplacement, request) if request.method == "PUT" else None
    path = hide_user(administration.current.base.router.path if given is None else given.path)
    action = "replace router" if given else "configured router"
    await make_change(request, partial(changes.choose_router, given), action=action, path=path)
    return await show_router(request)


async def reload(request: Request) -> Response:
    """Read the configuration file again; ?router=configured also drops a router that /admin changed or replaced."""
    administration, router = get_administration(request), _read_option(request, "router", "configured")
    change = partial(administration.reload, configured_router=router is not None)
    await make_change(request, change, action="reload")
    return respond(administration, {"reloaded": True, "needs_restart": administration.list_restart_needs()})


async def show_audit(request: Request) -> Response:
    """The last changes, newest first."""
    administration, given = await get_caught_up(request), request.query_params.get("last", "100")
    if not re.fullmatch("[0-9]{1,6}", given) or not 1 <= int(given) <= MAX_AUDIT_LINES:
        message = f"last must be a number from 1 to {MAX_AUDIT_LINES:,}, found {given[:20]!r}"
        raise ApiError(422, message, "invalid_field", "last")
    lines = await asyncio.to_thread(administration.folder.history, int(given))
    return respond(administration, {"object": "list", "data": lines})


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
    return {
        "path": path,
        "digest": now.digest,
        "origin": "configuration" if choice is None else "changed" if choice.own else "replaced",
        "experts": list(now.router.experts),
        "default": now.router.default,
        "scorer": header.get("scorer"),
        "selector": header.get("selector"),
        "changeable": not is_address(path) and changes.is_changeable(now.loaded),
        "serving_copy": bool(header.get("serving")),
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


def get_administration(request: Request) -> Administration:
    found: Administration | None = request.app.state.gateway.administration
    if found is None:
        raise ApiError(404, "this gateway was built without /admin: open it with Gateway.open")
    return found


async def get_caught_up(request: Request) -> Administration:
    """The same for a read, with what other workers have changed."""
    administration = get_administration(request)
    await administration.catch_up()
    return administration


def read_caller(request: Request) -> Caller:
    """The token itself is never stored: a key has a name, and tokens differ in the first digits of their hashes."""
    token = request.headers.get("authorization", "").partition(" ")[2].strip() or request.headers.get("x-api-key", "")
    label = f"token {hashlib.sha256(token.encode()).hexdigest()[:8]}" if token else ""
    if name := request.state.key.name:
        label = f"key {name}"
    return Caller(label, str(getattr(request.state, "request_id", "")), request.headers.get("if-match"))


async def read(model: type[P], request: Request) -> P:
    """The body of a request."""
    limits = get_administration(request).current.config.server.limits
    try:
        body = json.loads(await read_body(request.receive, dict(request.scope["headers"]), limits))
    except ClientDisconnect:
        raise ApiError(400, "the client disconnected before the request was complete") from None
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}", "invalid_json") from None
    return validate(model, body)


def _read_option(request: Request, name: str, only: str) -> str | None:
    value = request.query_params.get(name)
    if value not in (None, only):
        raise ApiError(422, f"{name}: only {only!r} is possible, found {value[:50]!r}", "invalid_field", name)
    return value


async def make_change(request: Request, change: changes.Change, **what: str) -> changes.Comparison:
    """Make a change, which `what` describes in the audit log. It is stopped if the client disconnects before."""
    made = get_administration(request).change(change, read_caller(request), **what)
    task, left = asyncio.ensure_future(made), asyncio.ensure_future(_wait_until_disconnected(request))
    try:
        await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ApiError(499, "the client disconnected before the change was made", "stopped")
        return task.result()
    finally:
        task.cancel()
        left.cancel()


async def _wait_until_disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _find_row(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["name"] == name)


def respond(administration: Administration, body: dict[str, Any], *, status: int = 200) -> Response:
    """JSON in UTF-8. Half a character, which prompts in the journal may have, becomes a question mark.

    While some workers have not applied the last change, `pending` is their number.
    """
    if pending := administration.count_pending():
        body = {**body, "pending": pending}
    content = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors="replace")
    headers = {"etag": administration.etag, "cache-control": "no-store"}
    return Response(content, status, headers, "application/json")


routes = [
    Route("/admin/experts", list_experts, methods=["GET"]),
    Route("/admin/experts", add_expert, methods=["POST"]),
    Route("/admin/experts/{name:path}", remove_expert, methods=["DELETE"]),
    Route("/admin/experts/{name:path}/replicas/{replica:path}", change_replica, methods=["PUT"]),
    Route("/admin/router", show_router, methods=["GET"]),
    Route("/admin/router", replace_router, methods=["PUT", "DELETE"]),
    Route("/admin/reload", reload, methods=["POST"]),
    Route("/admin/audit", show_audit, methods=["GET"]),
]
