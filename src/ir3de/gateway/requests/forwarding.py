"""The request as an expert gets it: the client's, with the expert's model, key, defaults and system message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ir3de.gateway.experts.snapshot import Expert
from ir3de.gateway.headers import HeaderFilter, HeaderList, build_upstream_head
from ir3de.gateway.requests.controls import FIELD
from ir3de.gateway.requests.json_body import JsonBody
from ir3de.gateway.wire.format import WireFormat

_UNQUOTED = "!$&'()*+,-./:;=?@_~%"  # characters of a query that are forwarded as they are


def build_path(wire: WireFormat, query: bytes) -> str:
    """The path below an expert's base URL, with the client's query."""
    return f"{wire.path}?{quote(query, safe=_UNQUOTED)}" if query else wire.path


def build_head(
    wire: WireFormat,
    expert: Expert,
    received: HeaderList,
    request_id: str,
    trace: Mapping[str, str],
    forwarded: HeaderFilter,
) -> bytes:
    """The headers: the expert's key, the trace, and those of the client that may be forwarded."""
    more: dict[str, str] = {}
    if expert.authorization is not None:
        more["authorization"] = expert.authorization
        if wire.capability == "messages":  # as Anthropic's API has it
            more["x-api-key"] = expert.authorization.removeprefix("Bearer ")
    return build_upstream_head(received, request_id, {**more, **trace}, forwarded)


def build_body(wire: WireFormat, expert: Expert, body: JsonBody) -> bytes:
    """The body: every byte of the client's but for the model, what the expert's configuration adds, and our field."""
    config = expert.config
    changes: dict[str, Any] = {}
    if config.defaults and wire.is_sampled:
        changes = {key: value for key, value in config.defaults.items() if key not in body.values}
    changes["model"] = config.served_model
    first = None
    if config.system_prompt is not None and wire.has_system_message:
        roles = {message["role"] for message in body.values["messages"]}
        if not roles & {"system", "developer"}:
            first = {"role": "system", "content": config.system_prompt}
    return body.rewrite(changes, drop=FIELD, first_message=first)
