"""Endpoints that are passed through: the model, or who has a stored object, names the expert; nothing is routed."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ir3de_gateway.api_errors import build_type_error
from ir3de_gateway.exchange.accounting import reserve, restrict_to_key
from ir3de_gateway.exchange.endpoint import read_content, run
from ir3de_gateway.exchange.exchange import Exchange
from ir3de_gateway.exchange.hooked import show_form, show_request
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.headers import text
from ir3de_gateway.requests.choice import Choice
from ir3de_gateway.requests.controls import FIELD, read_controls
from ir3de_gateway.requests.json_body import read_json
from ir3de_gateway.requests.named_choice import StoredAt, choose_by_name, choose_keeper
from ir3de_gateway.requests.passed_body import NoBody, PassedBody
from ir3de_gateway.requests.request_bound import find_passed_bound
from ir3de_gateway.requests.upload import Upload, read_upload
from ir3de_gateway.store.pins import build_unknown_error
from ir3de_gateway.telemetry.observer import RECORDED
from ir3de_gateway.wire.passthrough import PASSTHROUGH_FORMATS, PassthroughFormat


class PassthroughEndpoint:
    """An endpoint that is passed through, as an ASGI application."""

    def __init__(self, gateway: Gateway, wire: PassthroughFormat) -> None:
        self._gateway, self._wire = gateway, wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"][RECORDED] = True
        exchange = PassthroughExchange(self._gateway, self._wire, scope, receive, send)
        try:
            await run(exchange, read_passed, choose_named)
        finally:
            exchange.close()


class PassthroughExchange(Exchange):
    """One request that is passed through, and its answer."""

    def __init__(self, gateway: Gateway, wire: PassthroughFormat, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(gateway, wire, scope, receive, send)
        self.format = wire
        self.object_id: str = scope.get("path_params", {}).get("id", "")
        self.record.method = wire.method
        self.upload: Upload | None = None

    def close(self) -> None:
        """Let go of what the client has uploaded."""
        if self.upload is not None:
            self.upload.close()


async def read_passed(exchange: Exchange) -> None:
    """Read what the client sends: JSON, a form, or nothing."""
    assert isinstance(exchange, PassthroughExchange)
    if exchange.format.body != "form":
        if exchange.format.method == "POST":
            await read_content(exchange)
        return
    limits, received = exchange.snapshot.config.server.limits, exchange.received
    kind = text(received.get(b"content-type", b""))
    exchange.upload = Upload(kind, has_model=exchange.format.has_model)
    await read_upload(exchange.upload, exchange.receive, received, limits)
    exchange.record.received_bytes = exchange.upload.size


async def choose_named(exchange: Exchange) -> Choice:
    """The expert that the request names, or that has what it is about."""
    assert isinstance(exchange, PassthroughExchange)
    values: dict[str, Any] = {}
    if exchange.upload is not None:
        exchange.body = exchange.upload
        if exchange.snapshot.has_before_hooks:
            await show_form(exchange)
        values = {"model": exchange.upload.model, FIELD: exchange.upload.controls}
    elif exchange.format.body == "json":
        body = await read_json(exchange.content, exchange.snapshot.config.server.limits.json_depth)
        exchange.content = b""
        if exchange.snapshot.has_before_hooks:
            body = await show_request(exchange, body)
        exchange.body, values = PassedBody.from_request(exchange.format, body), dict(body.values)
    else:
        exchange.body = NoBody(exchange.format.is_repeatable({}))
    choice = _choose(exchange, values)
    exchange.record.add_choice(choice)
    if exchange.lease is not None and exchange.format.counts_usage:
        size = None if exchange.upload is not None else exchange.record.received_bytes
        reserve(exchange, exchange.lease, choice, partial(find_passed_bound, exchange.format, values, size))
    return choice


def _choose(exchange: PassthroughExchange, values: dict[str, Any]) -> Choice:
    model = values.get("model", "auto")
    if not isinstance(model, str) or not model:
        raise build_type_error("model", "the name of an expert, or 'auto'", model)
    exchange.controls = read_controls(values.get(FIELD), exchange.received, exchange.gateway.session_headers)
    exchange.record.session = exchange.controls.session
    if exchange.key.experts is not None:
        exchange.controls = restrict_to_key(exchange, model, exchange.key.experts)
    wire = exchange.format
    if wire.finds is not None:
        choice = _choose_keeper(exchange, wire.finds, exchange.object_id)
        exchange.wire = wire.with_id(exchange.object_id)
        exchange.response_id = exchange.object_id if wire.finds == "response" else ""
        return choice
    if isinstance(file_id := values.get("input_file_id"), str) and wire.makes == "batch":
        return _choose_keeper(exchange, "file", file_id, "input_file_id")
    exchange.record.asked = model
    return choose_by_name(exchange.snapshot, wire, model, exchange.controls)


def _choose_keeper(exchange: PassthroughExchange, kind: str, object_id: str, param: str | None = None) -> Choice:
    """The expert that has an object, and the replica."""
    objects, key = exchange.stored_objects, exchange.key
    keeper = objects.find(kind, object_id)
    if keeper is not None and not key.may_ask(keeper):
        raise build_unknown_error(kind, object_id, param)
    exchange.keeper = objects.find_replica(kind, object_id)
    found = StoredAt(kind, object_id, keeper, is_shared=not key.name, param=param)
    return choose_keeper(exchange.snapshot, exchange.format, found, exchange.controls)


def build_routes(gateway: Gateway) -> list[Route]:
    """A route for each endpoint that is passed through."""
    routes = []
    for wire in PASSTHROUGH_FORMATS:
        endpoint = PassthroughEndpoint(gateway, wire)
        paths = [f"/v1/{wire.path}", *([wire.also_at] if wire.also_at else [])]
        routes += [Route(path, endpoint, methods=[wire.method]) for path in paths]
    return routes
