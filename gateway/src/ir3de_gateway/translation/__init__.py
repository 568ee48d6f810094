"""Anthropic's messages and OpenAI's chats, each as the other: requests, answers, streams and errors.

The functions are pure: values of one format go in, values of the other come out. `translation.py` combines them;
nothing else here knows HTTP or routing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ir3de.errors import describe_value
from ir3de_gateway.api_errors import ApiError

CHAT, MESSAGES = "OpenAI's chat completions", "Anthropic's messages"
MAX_TEMPERATURE = 1  # of Anthropic's API; OpenAI's has 2
DEFAULT_MAX_TOKENS = 4096  # Anthropic's API requires a number; an expert's `defaults` may have another one

MESSAGES_CARRIED = frozenset((
    "model", "messages", "system", "max_tokens", "stop_sequences", "stream", "temperature", "top_p", "top_k",
    "metadata", "tools", "tool_choice", "output_config",
))  # fmt: skip
MESSAGES_DROPPED = frozenset((  # the answer is right without them
    "thinking", "cache_control", "service_tier", "speed", "diagnostics", "context_management", "user_profile_id",
    "workspace_id", "ir3de",
))  # fmt: skip
CHAT_CARRIED = frozenset((
    "model", "messages", "max_tokens", "max_completion_tokens", "stop", "stream", "stream_options", "temperature",
    "top_p", "top_k", "user", "safety_identifier", "tools", "tool_choice", "parallel_tool_calls", "response_format",
    "reasoning_effort",
))  # fmt: skip
CHAT_DROPPED = frozenset((
    "seed", "metadata", "service_tier", "prediction", "prompt_cache_key", "prompt_cache_retention",
    "prompt_cache_options", "verbosity", "ir3de",
))  # fmt: skip
CHAT_NEUTRAL: Mapping[str, object] = {  # fields without a counterpart, and the value that changes nothing
    "n": 1, "logprobs": False, "top_logprobs": 0, "logit_bias": {}, "presence_penalty": 0, "frequency_penalty": 0,
    "store": False, "modalities": ["text"],
}  # fmt: skip


class UntranslatableError(ApiError):
    """A field that has no counterpart in the format of the expert."""

    def __init__(self, param: str, wanted: str, hint: str = "") -> None:
        message = f"{param} has no counterpart in {wanted}{hint and f': {hint}'}"
        super().__init__(400, message, "untranslatable", param)


class Field(NamedTuple):
    """A value of a request, and its place, which errors name."""

    value: Any
    param: str

    def at(self, name: str) -> Field:
        """A field of this object; its value is None if it is missing."""
        return Field(self.read_object().get(name), f"{self.param}.{name}" if self.param else name)

    def read_object(self) -> Mapping[str, Any]:
        if not isinstance(self.value, dict):
            raise self.build_fault("an object")
        return self.value

    def read_list(self) -> list[Field]:
        if not isinstance(self.value, list):
            raise self.build_fault("a list")
        return [Field(item, f"{self.param}[{index}]") for index, item in enumerate(self.value)]

    def read_string(self) -> str:
        if not isinstance(self.value, str):
            raise self.build_fault("a string")
        return self.value

    def build_fault(self, wanted: str) -> ApiError:
        """The error for a wrong type. A string may be a prompt, so it is not repeated."""
        found = "a string" if isinstance(self.value, str) else describe_value(self.value)
        return ApiError(400, f"{self.param} must be {wanted}, found {found}", "invalid_type", self.param)

    def build_rejection(self, kind: object, wanted: str, hint: str = "") -> UntranslatableError:
        """The error for an object of a kind that the other API does not have."""
        return UntranslatableError(f"{self.param} ({str(kind)[:50]})", wanted, hint)


def reject_unknown(values: Mapping[str, Any], wanted: str) -> None:
    """Reject the first field without a counterpart in the wanted API. A null counts as missing."""
    known = MESSAGES_CARRIED | MESSAGES_DROPPED if wanted == CHAT else CHAT_CARRIED | CHAT_DROPPED
    for name, value in values.items():
        is_neutral = wanted == MESSAGES and name in CHAT_NEUTRAL and value == CHAT_NEUTRAL[name]
        if value is not None and name not in known and not is_neutral:
            raise UntranslatableError(name[:100], wanted)
