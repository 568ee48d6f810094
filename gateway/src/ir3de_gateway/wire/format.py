"""What a format of the wire says: the turns of a request, the end of a stream, token usage, and errors."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

from ir3de.serving import Turn
from ir3de_gateway.api_errors import ApiError, encode_json

Capability = Literal[
    "chat", "completions", "responses", "messages", "embeddings", "images", "audio_speech", "audio_transcriptions",
    "audio_translations", "rerank", "moderations", "files", "batches",
]  # fmt: skip

_error_event = re.compile(rb'(?m)^event: ?error\s|^(?:data|error): ?\{\s*"(?:error|type)": ?(?:\{|"error")')


class WireFormat(ABC):
    """One API: how it writes requests, answers, streams of events and errors.

    The schemas of the APIs are not repeated here. Only what routing and relaying need is read; the rest passes unread.
    """

    method = "POST"
    path: str  # below /v1/
    capability: Capability  # what an expert needs to answer
    can_stream = True  # where it cannot, a client's `stream: true` is the expert's affair
    is_sampled = True  # whether an expert's defaults for sampling apply
    has_system_message = False  # whether a system message may be put before the others
    needs_head = False  # whether usage or id are told at the beginning of a stream
    stores_answers = False  # whether later requests may refer to an answer
    is_charged = True  # whether an answer that tells no usage is charged by an estimate
    is_hedged = True  # whether a second replica may work on a request while the first one still does
    is_opaque = False  # whether requests and answers pass unread: nothing is routed
    answer_limits: tuple[str, ...] = ("max_tokens",)  # fields that limit an answer
    final_event: re.Pattern[bytes]  # of a stream that is complete

    @abstractmethod
    def parse_turns(self, values: Mapping[str, Any]) -> list[Turn]:
        """The turns of a request, or a `MessageError` that names the wrong field."""

    def is_complete(self, events: bytes) -> bool:
        """Whether a final event is among these, which need not be all of the stream."""
        return self.final_event.search(events) is not None

    def is_complete_at_end(self, events: bytes) -> bool:
        """Whether a stream that ended with these events, and whose connection ended well, is complete."""
        return self.is_complete(events)

    def has_error(self, events: bytes) -> bool:
        """Whether the expert itself reports an error among these last events."""
        return _error_event.search(events) is not None

    def read_usage(self, head: Mapping[str, Any] | None, tail: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """The token usage of a stream, from what was found near its beginning and near its end."""
        return tail

    def build_usage_options(self, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """`stream_options` that ask for the usage of a stream; None if it is told anyway, or cannot be asked for."""
        return None

    def read_response_id(self, answer: Mapping[str, Any]) -> str:
        """The id by which a later request may refer to this answer; empty if there is none."""
        return ""

    def find_response_id(self, head: bytes) -> str:
        """The same, from the first events of a stream."""
        return ""

    def find_previous_response(self, values: Mapping[str, Any]) -> str:
        """The id of the answer that the request continues; empty if there is none."""
        return ""

    def is_repeatable(self, values: Mapping[str, Any]) -> bool:
        """Whether a request that may have arrived can be sent again. Answers that are stored would be there twice, and
        so would be what tools of MCP servers do, which the expert calls itself.
        """
        return not values.get("store") and not values.get("background") and not calls_mcp_servers(values)

    def build_error(self, problem: ApiError) -> dict[str, Any]:
        """The error object."""
        return {"error": problem.fields}

    def build_error_event(self, problem: ApiError) -> bytes:
        """The error object as the last event of a stream that has begun."""
        return b"data: " + encode_json(self.build_error(problem)) + b"\n\n"


def calls_mcp_servers(values: Mapping[str, Any]) -> bool:
    """Whether the expert may call tools of MCP servers on its way to an answer."""
    tools = values.get("tools")
    is_tool = isinstance(tools, list) and any(isinstance(one, dict) and one.get("type") == "mcp" for one in tools)
    return is_tool or bool(values.get("mcp_servers"))
