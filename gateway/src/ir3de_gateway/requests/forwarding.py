"""The request as an expert gets it: the client's, with the expert's model, key, defaults and system message."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.headers import HeaderFilter, HeaderList
from ir3de_gateway.requests.json_body import FIELD, JsonBody
from ir3de_gateway.transport import RequestBody
from ir3de_gateway.wire.formats import PassthroughFormat, WireFormat

JSON_KINDS = b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
_ANY_ANSWER = b"accept: */*\r\n"
_PASSED_KINDS = b"content-type: application/json\r\n" + _ANY_ANSWER
_UNQUOTED = "!$&'()*+,-./:;=?@_~%"  # characters of a query that are forwarded as they are
_BREAKS = str.maketrans("", "", "\r\n\0")


def build_path(path: str, query: bytes) -> str:
    """The path below an expert's base URL, with the client's query."""
    return f"{path}?{quote(query, safe=_UNQUOTED)}" if query else path


def build_head(
    wire: WireFormat,
    expert: Expert,
    received: HeaderList,
    request_id: str,
    more: Mapping[str, str],
    forwarded: HeaderFilter,
    kinds: bytes = JSON_KINDS,
) -> bytes:
    """The headers: what the body is, the expert's key, `more`, and those of the client that may be forwarded."""
    own = dict(more)
    if expert.authorization is not None:
        is_messages = wire.capability == "messages"
        if is_messages:  # as Anthropic's API has it
            own["x-api-key"] = expert.authorization.removeprefix("Bearer ")
        may_want_either = "chat" in expert.config.capabilities and not expert.is_anthropics  # it has both APIs
        if not is_messages or may_want_either:
            own["authorization"] = expert.authorization
    # the answer must not be compressed, because a field is added to it
    lines = [kinds, f"accept-encoding: identity\r\nx-request-id: {request_id}\r\n".encode()]
    lines += [f"{name}: {value.translate(_BREAKS)}\r\n".encode() for name, value in own.items()] if own else []
    own_names = [name.encode() for name in own] if own else ()
    hop_by_hop: Collection[bytes] = ()  # the headers that `connection` names are for the gateway alone
    for name, value in received:
        if name == b"connection" and value != b"keep-alive":
            hop_by_hop = {*hop_by_hop, *(option.strip() for option in value.lower().split(b","))}
    known = forwarded.known
    for pair in received:
        name = pair[0]
        keeps = known.get(name)
        if (forwarded.keeps(name) if keeps is None else keeps) and name not in own_names and name not in hop_by_hop:
            lines.append(b"%b: %b\r\n" % pair)
    return b"".join(lines)


class RequestContent(Protocol):
    """What is sent to an expert: JSON, a form, or nothing."""

    @property
    def is_repeatable(self) -> bool:
        """Whether an expert that gets it twice does nothing twice but answer."""

    @property
    def kinds(self) -> bytes:
        """The headers with the type of the body, and of the answers that are accepted."""

    @property
    def digest(self) -> int:
        """The same number for the same body."""

    def build(self, expert: Expert, *, adds_usage: bool = False) -> RequestBody:
        """The body as this expert gets it; `adds_usage`: with the option that adds the usage to a stream."""


class OutgoingBody(NamedTuple):
    """A JSON body, without its values: each expert gets its own version."""

    body: JsonBody
    is_repeatable: bool
    kinds: bytes = JSON_KINDS
    has_model: bool = True
    takes_defaults: bool = False
    takes_system_message: bool = False
    usage_options: Mapping[str, Any] | None = None  # `stream_options` that add the usage; None if they do already

    @classmethod
    def from_request(cls, wire: WireFormat, body: JsonBody) -> OutgoingBody:
        """The body of a request that is routed. It has been read, and need not be read again."""
        values, takes_system_message = body.values, wire.has_system_message
        if takes_system_message:
            for message in values["messages"]:
                if message["role"] in ("system", "developer"):
                    takes_system_message = False
        options = wire.build_usage_options(values) if values.get("stream") else None
        repeatable, bare = wire.is_repeatable(values), body._replace(values={})
        return cls(bare, repeatable, JSON_KINDS, True, wire.is_sampled, takes_system_message, options)

    @classmethod
    def from_passed(cls, wire: PassthroughFormat, body: JsonBody) -> OutgoingBody:
        """The body of a request that is passed through."""
        return cls(body._replace(values={}), wire.is_repeatable(body.values), _PASSED_KINDS, wire.has_model)

    @property
    def digest(self) -> int:
        return hash(self.body.content)

    def build(self, expert: Expert, *, adds_usage: bool = False) -> bytes:
        """Every byte of the client's but for the model, what the expert's configuration adds, and our own field."""
        config, content, members = expert.config, self.body.content, self.body.members
        if not self.has_model:
            content = self.body.rewrite({}, drop=FIELD)
            return JsonBody.parse(content, depth=500).rewrite({}, drop="model") if "model" in members else content
        changes: dict[str, Any] = {}
        if config.defaults and self.takes_defaults:
            changes = {key: value for key, value in config.defaults.items() if key not in members}
        if adds_usage:
            changes["stream_options"] = self.usage_options
        first = None
        if config.system_prompt is not None and self.takes_system_message:
            first = {"role": "system", "content": config.system_prompt}
        if not changes and first is None and FIELD not in members and "model" in members:  # as with most requests
            _, start, end = members["model"]
            return b"".join((content[:start], json.dumps(expert.model).encode(), content[end:]))
        return self.body.rewrite({**changes, "model": expert.model}, drop=FIELD, first_message=first)


class NoBody(NamedTuple):
    """Nothing is sent but the method and the path."""

    is_repeatable: bool

    @property
    def kinds(self) -> bytes:
        return _ANY_ANSWER

    @property
    def digest(self) -> int:
        return 0

    def build(self, expert: Expert, *, adds_usage: bool = False) -> bytes:
        return b""
