"""The bodies of requests that are passed through: JSON with another model, or nothing."""

from __future__ import annotations

from typing import NamedTuple

from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.requests.controls import FIELD
from ir3de_gateway.requests.json_body import JsonBody
from ir3de_gateway.wire.passthrough import PassthroughFormat

_ANY_ANSWER = b"accept: */*\r\n"


class PassedBody(NamedTuple):
    """A JSON object. Every byte of the client's is kept but for the model, and our own field."""

    body: JsonBody
    has_model: bool
    is_repeatable: bool

    @classmethod
    def from_request(cls, wire: PassthroughFormat, body: JsonBody) -> PassedBody:
        return cls(body.without_values(), wire.has_model, wire.is_repeatable(body.values))

    @property
    def kinds(self) -> bytes:
        return b"content-type: application/json\r\n" + _ANY_ANSWER

    @property
    def digest(self) -> int:
        return hash(self.body.content)

    def build(self, expert: Expert) -> bytes:
        """The object as this expert gets it."""
        if self.has_model:
            return self.body.rewrite({"model": expert.config.served_model}, drop=FIELD)
        content = self.body.rewrite({}, drop=FIELD)
        return JsonBody.parse(content, depth=500).rewrite({}, drop="model") if "model" in self.body.members else content


class NoBody(NamedTuple):
    """Nothing is sent but the method and the path."""

    is_repeatable: bool

    @property
    def kinds(self) -> bytes:
        return _ANY_ANSWER

    @property
    def digest(self) -> int:
        return 0

    def build(self, expert: Expert) -> bytes:
        return b""
