"""OpenAI's chat completions, and its older endpoints: completions and embeddings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ir3de.serving import Turn, build_type_error, parse_messages
from ir3de_gateway.wire.format import Capability, WireFormat

_finish_reason = re.compile(rb'"finish_reason"\s*:\s*"')  # in a text, its quotes would have backslashes


class ChatFormat(WireFormat):
    """`/v1/chat/completions`: `messages`."""

    path = "chat/completions"
    capability: Capability = "chat"
    answer_limits: tuple[str, ...] = ("max_tokens", "max_completion_tokens")
    has_system_message = True
    final_event = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]")  # only at the beginning of a line: a text may quote it

    def parse_turns(self, values: Mapping[str, Any]) -> list[Turn]:
        return parse_messages(values.get("messages"))

    def build_usage_options(self, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if not values.get("stream"):
            return None
        given = values.get("stream_options")
        if given is not None and (not isinstance(given, dict) or given.get("include_usage")):
            return None
        return {**(given or {}), "include_usage": True}

    def is_complete_at_end(self, events: bytes) -> bool:
        """Some servers end without [DONE] (ik_llama.cpp, older TGI): then the reason for the end is enough."""
        return self.is_complete(events) or _finish_reason.search(events) is not None


class CompletionsFormat(ChatFormat):
    """`/v1/completions`: `prompt`."""

    path = "completions"
    capability = "completions"
    answer_limits = ("max_tokens",)
    has_system_message = False

    def parse_turns(self, values: Mapping[str, Any]) -> list[Turn]:
        prompt = values.get("prompt")
        if isinstance(prompt, str):
            return [Turn("user", prompt)]
        if isinstance(prompt, list) and prompt and all(isinstance(one, str) for one in prompt):
            return [Turn("user", "\n".join(prompt))]
        if isinstance(prompt, list) and prompt:  # token ids of the expert's own vocabulary: there is no text to route
            return [Turn("user", "")]
        raise build_type_error("prompt", "a string or a list of strings", prompt)


class EmbeddingsFormat(ChatFormat):
    """`/v1/embeddings`: `input`."""

    path = "embeddings"
    capability = "embeddings"
    can_stream = is_sampled = has_system_message = False

    def build_usage_options(self, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return None

    def parse_turns(self, values: Mapping[str, Any]) -> list[Turn]:
        given = values.get("input")
        if not isinstance(given, (str, list)) or given == []:
            raise build_type_error("input", "a string or a list", given)
        return [Turn("user", given if isinstance(given, str) else "")]
