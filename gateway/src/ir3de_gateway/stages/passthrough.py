"""Endpoints that are passed through: the client names the expert, or the object that an expert has stored."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ir3de_gateway.config.experts import RESERVED
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.headers import text
from ir3de_gateway.requests.client import Controls
from ir3de_gateway.requests.forms import Upload, read_upload
from ir3de_gateway.requests.forwarding import NoBody, OutgoingBody, RequestContent
from ir3de_gateway.requests.json_body import FIELD, read_json
from ir3de_gateway.requests.tokens import find_passed_bound
from ir3de_gateway.stages.accept import accept
from ir3de_gateway.stages.call_hooks import show_form, show_request
from ir3de_gateway.stages.charge import reserve
from ir3de_gateway.stages.choice import Choice, check_batch
from ir3de_gateway.stages.choose import StoredAt, choose_by_name, choose_owner
from ir3de_gateway.stages.joined_batches import answer_joined
from ir3de_gateway.stages.read import read_content, read_model
from ir3de_gateway.stages.run import run
from ir3de_gateway.stages.stored_responses import answer_own
from ir3de_gateway.stages.values import Accepted, Answered, Chosen
from ir3de_gateway.store.pins import OWN_RESPONSE, build_unknown_error
from ir3de_gateway.telemetry.observer import RECORDED
from ir3de_gateway.wire.formats import PASSTHROUGH_FORMATS, PassthroughFormat


def build_routes(gateway: Gateway) -> list[Route]:
    """A route for each endpoint that is passed through."""
    routes = []
    for wire in PASSTHROUGH_FORMATS:
        endpoint = PassthroughEndpoint(gateway, wire)
        paths = [f"/v1/{wire.path}", *([wire.also_at] if wire.also_at else [])]
        routes += [Route(path, endpoint, methods=[wire.method]) for path in paths]
    return routes


class PassthroughEndpoint:
    """An endpoint that is passed through, as an ASGI application."""

    def __init__(self, gateway: Gateway, wire: PassthroughFormat) -> None:
        self._gateway, self._wire = gateway, wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._wire.finds == "response" and scope["path_params"]["id"].startswith(OWN_RESPONSE):
            accepted = accept(self._gateway, self._wire, scope, receive, send)
            await (await answer_own(accepted, self._wire))(scope, receive, send)
            return
        scope["state"][RECORDED] = True
        with ExitStack() as uploads:
            accepted = accept(self._gateway, self._wire, scope, receive, send)
            await run(accepted, partial(_read, self._wire, uploads), _choose)


class _Received(NamedTuple):
    """A request that is passed through, and has been read."""

    accepted: Accepted
    wire: PassthroughFormat
    body: RequestContent
    values: Mapping[str, Any]


async def _read(wire: PassthroughFormat, uploads: ExitStack, accepted: Accepted) -> _Received:
    """Read what the client sends: JSON, a form, or nothing. An upload is dropped with `uploads`."""
    snapshot, received = accepted.snapshot, partial(_Received, accepted, wire)
    limits = snapshot.config.server.limits
    if wire.body == "form":
        upload = Upload(text(accepted.headers.get(b"content-type", b"")), has_model=wire.has_model)
        uploads.callback(upload.close)
        await read_upload(upload, accepted.receive, accepted.headers, limits)
        accepted.progress.record.received_bytes = upload.size
        accepted.response.watch(accepted.receive, accepted.connection)
        if snapshot.has_before_hooks:
            await show_form(accepted)
        return received(upload, {"model": upload.model, FIELD: upload.controls})
    if wire.method == "POST":
        content = await read_content(accepted)
    else:
        accepted.response.watch(accepted.receive, accepted.connection)
    if wire.body == "none":
        return received(NoBody(wire.is_repeatable({})), {})
    body = await read_json(content, limits.json_depth)
    if snapshot.has_before_hooks:
        body = await show_request(accepted, body)
    return received(OutgoingBody.from_passed(wire, body), dict(body.values))


async def _choose(received: _Received) -> Chosen | Answered:
    """The expert that the request names, or that has what it is about. What several experts have is answered here."""
    accepted, wire, body, values = received
    model, controls = read_model(accepted, values)
    if wire.capability in ("files", "batches"):
        named = model if model not in RESERVED else ""
        joined = await answer_joined(accepted, wire, body, values, controls, named)
        if joined is not None:
            return joined
    choice, replica = await _choose_expert(accepted, wire, model, values, controls)
    accepted.progress.add_choice(choice)
    if accepted.lease is not None and wire.counts_usage:
        size = None if wire.body == "form" else accepted.progress.record.received_bytes
        await reserve(accepted, accepted.lease, choice, partial(find_passed_bound, wire, values, size))
    if wire.finds is not None:
        accepted = accepted._replace(wire=wire.with_id(accepted.object_id))
    return Chosen(accepted, choice, body, replica)


async def _choose_expert(
    accepted: Accepted, wire: PassthroughFormat, model: str, values: Mapping[str, Any], controls: Controls
) -> tuple[Choice, str]:
    """The choice, and the replica that has the object of the request."""
    if wire.finds is not None:
        found = await _choose_owner(accepted, wire, wire.finds, accepted.object_id, controls)
        accepted.progress.response_id = accepted.object_id if wire.finds == "response" else ""
        return found
    if isinstance(file_id := values.get("input_file_id"), str) and wire.makes == "batch":
        found = await _choose_owner(accepted, wire, "file", file_id, controls, "input_file_id")
        check_batch(found[0].first, controls)
        return found
    record = accepted.progress.record
    record.asked = record.alias or model
    return choose_by_name(accepted.snapshot, wire, model, controls), ""


async def _choose_owner(
    accepted: Accepted, wire: PassthroughFormat, kind: str, object_id: str, controls: Controls, param: str | None = None
) -> tuple[Choice, str]:
    """The expert that has an object, and the replica."""
    objects, key = accepted.stored_objects, accepted.key
    owner = await objects.find(kind, object_id)
    if owner is not None and not key.may_ask(owner):
        raise build_unknown_error(kind, object_id, param)
    stored = StoredAt(kind, object_id, owner, is_shared=not key.name, param=param)
    choice = choose_owner(accepted.snapshot, wire, stored, controls)
    return choice, await objects.find_replica(kind, object_id)
