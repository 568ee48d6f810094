"""The request as an expert gets it: the client's, with the expert's model, key, defaults and system message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.headers import JSON_KINDS, HeaderFilter, HeaderList, build_upstream_head
from ir3de_gateway.requests.controls import FIELD
from ir3de_gateway.requests.json_body import JsonBody
from ir3de_gateway.transport import RequestBody
from ir3de_gateway.wire.formats import WireFormat

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
    kinds: bytes = JSON_KINDS,
) -> bytes:
    """The headers: what the body is, the expert's key, the trace, and those of the client that may be forwarded."""
    more: dict[str, str] = {}
    if expert.authorization is not None:
        is_messages = wire.capability == "messages"
        if is_messages:  # as Anthropic's API has it
            more["x-api-key"] = expert.authorization.removeprefix("Bearer ")
        may_want_either = "chat" in expert.config.capabilities and not expert.is_anthropics  # it has both APIs
        if not is_messages or may_want_either:
            more["authorization"] = expert.authorization
    return build_upstream_head(received, request_id, {**more, **trace}, forwarded, kinds)


class RequestContent(Protocol):
    """What is sent to an expert: JSON, a form, or nothing."""

    @property
    def is_repeatable(self) -> bool:
        """Whether an expert that gets it twice does nothing twice but answer."""

    @property
    def kinds(self) -> bytes:
        """The headers that say what is sent and what may come."""

    @property
    def digest(self) -> int:
        """The same number for the same body."""

    def build(self, expert: Expert) -> RequestBody:
        """The body as this expert gets it."""


class OutgoingBody(NamedTuple):
    """A request's body, without its values: each expert gets its own version."""

    body: JsonBody
    takes_defaults: bool
    takes_system_message: bool
    is_repeatable: bool  # whether an expert that gets it twice does nothing twice but answer
    usage_options: Mapping[str, Any] | None = None  # `stream_options` that ask for usage; None where they do already

    @classmethod
    def from_request(cls, wire: WireFormat, body: JsonBody) -> OutgoingBody:
        """The body of a request that has been read, and need not be read again."""
        takes_system_message = wire.has_system_message and not any(
            message["role"] in ("system", "developer") for message in body.values["messages"]
        )
        repeatable, options = wire.is_repeatable(body.values), wire.build_usage_options(body.values)
        return cls(body.without_values(), wire.is_sampled, takes_system_message, repeatable, options)

    @property
    def kinds(self) -> bytes:
        """The headers that say what is sent and what may come."""
        return JSON_KINDS

    @property
    def digest(self) -> int:
        """The same number for the same body."""
        return hash(self.body.content)

    def build(self, expert: Expert, asks_usage: bool = False) -> bytes:
        """Every byte of the client's but for the model, what the expert's configuration adds, and our own field."""
        config, members = expert.config, self.body.members
        changes: dict[str, Any] = {}
        if config.defaults and self.takes_defaults:
            changes = {key: value for key, value in config.defaults.items() if key not in members}
        changes["model"] = config.served_model
        if asks_usage:
            changes["stream_options"] = self.usage_options
        first = None
        if config.system_prompt is not None and self.takes_system_message:
            first = {"role": "system", "content": config.system_prompt}
        return self.body.rewrite(changes, drop=FIELD, first_message=first)
