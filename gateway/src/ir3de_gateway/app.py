"""The ASGI application, with every route in one list."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp

from ir3de_gateway.admin import key_routes, version_routes
from ir3de_gateway.admin import routes as admin
from ir3de_gateway.api_errors import ApiError, build_internal_error
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.http import feedback, route, service, traffic
from ir3de_gateway.stages import passthrough
from ir3de_gateway.stages.accept import AccessControl
from ir3de_gateway.stages.run import InferenceEndpoint
from ir3de_gateway.wire import FORMATS

_log = logging.getLogger("ir3de.gateway")


def create_app(gateway: Gateway) -> ASGIApp:
    """The gateway as an ASGI application, to be run by any server or mounted in another application."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await gateway.start()
        try:
            yield
        finally:
            await gateway.stop()

    inference: dict[str, ASGIApp] = {f"/v1/{path}": InferenceEndpoint(gateway, wire) for path, wire in FORMATS.items()}
    app = Starlette(
        routes=[*(Route(path, one, methods=["POST"]) for path, one in inference.items()), *other_routes(gateway)],
        exception_handlers={ApiError: _send_api_error, HTTPException: _http_error, Exception: _unexpected},
        lifespan=lifespan,
    )
    app.state.gateway = gateway
    observer = gateway.observer
    return AccessControl(
        observer.wrap(app),
        gateway.live.snapshot.config,
        inference,
        observer.record_refusal,
        gateway.keys,
        None if gateway.administration is None else gateway.administration.catch_up,
    )


def other_routes(gateway: Gateway) -> list[Route]:
    """Every route but those whose requests are routed."""
    return [
        *passthrough.build_routes(gateway),
        *route.routes,
        *feedback.routes,
        *service.routes,
        *gateway.observer.routes,
        *admin.routes,
        *version_routes.routes,
        *key_routes.routes,
        *traffic.routes,
    ]


async def _send_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    response = Response(error.body(), error.status, {"x-request-id": request.state.request_id}, "application/json")
    response.raw_headers.extend(error.header_list())
    return response


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status, headers = error.status_code, dict(error.headers or {})
    nothing = f"no endpoint {request.url.path[:200]}{_find_hint(request)}" if status == 404 else ""
    messages = {404: nothing, 405: f"the method {request.method} is not allowed here"}
    if status == 405:  # starlette names the methods of one route only
        routes = [route for route in request.app.routes if route.matches(request.scope)[0] != Match.NONE]
        headers = {"allow": ", ".join(sorted({method for route in routes for method in route.methods}))}
    return await _send_api_error(request, ApiError(status, messages.get(status, error.detail), headers=headers))


def _find_hint(request: Request) -> str:
    """What is wrong with a path that only has `/v1` twice, or not at all; empty if it is something else."""
    path = str(request.scope["path"])
    meant = path.removeprefix("/v1") if path.startswith("/v1/v1/") else f"/v1{path}"
    scope = {**request.scope, "path": meant}
    if all(route.matches(scope)[0] == Match.NONE for route in request.app.routes):
        return ""
    return f", but {meant[:200]} exists: base_url must {'not ' if len(meant) < len(path) else ''}end in /v1"


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("request %s failed", request.state.request_id, exc_info=error)
    return await _send_api_error(request, build_internal_error(request.state.request_id))
