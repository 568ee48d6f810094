"""Anthropic's messages: a system text beside them, named events, usage in two parts, and errors of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ir3de.serving import Turn, parse_message, parse_messages
from ir3de_gateway.api_errors import ApiError, encode_json
from ir3de_gateway.wire.format import WireFormat

_ERROR_TYPES = {
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class MessagesFormat(WireFormat):
    """`/v1/messages`: `messages`, `system`."""

    path = "messages"
    capability = "messages"
    needs_head = True
    final_event = re.compile(  # which may be an error
        rb'(?m)^event: ?(?:message_stop|error)\s|^data: ?\{"type": ?"(?:message_stop|error)"'
    )

    def parse_turns(self, values: Mapping[str, Any]) -> list[Turn]:
        system = values.get("system")
        before = [parse_message({"role": "system", "content": system}, "system")] if system else []
        return before + parse_messages(values.get("messages"))

    def read_usage(self, head: Mapping[str, Any] | None, tail: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """The first event tells the tokens of the prompt, the last but one those of the answer."""
        return tail if head is None else {**head, **(tail or {})}

    def build_error(self, problem: ApiError) -> dict[str, Any]:
        kind = _ERROR_TYPES.get(problem.status, "api_error" if problem.status >= 500 else problem.kind)
        return {"type": "error", "error": {**problem.fields, "type": kind}}

    def build_error_event(self, problem: ApiError) -> bytes:
        return b"event: error\ndata: " + encode_json(self.build_error(problem)) + b"\n\n"


class CountTokensFormat(MessagesFormat):
    """`/v1/messages/count_tokens`: the same request, answered with a number."""

    path = "messages/count_tokens"
    can_stream = is_sampled = is_charged = False
