"""The formats of the APIs: the turns of a request, the end of a stream, token usage, and errors."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ir3de.serving import Turn, build_type_error, parse_message, parse_messages
from ir3de_gateway.api_errors import ApiError, encode_json
from ir3de_gateway.wire.events import Event, read_events

Capability = Literal[
    "chat", "completions", "responses", "messages", "embeddings", "images", "audio_speech", "audio_transcriptions",
    "audio_translations", "rerank", "moderations", "files", "batches",
]  # fmt: skip
ObjectKind = Literal["response", "file", "batch"]  # what experts store for later requests
is_object_id = re.compile(r"(?!\.)[A-Za-z0-9._:~-]{1,256}").fullmatch  # it becomes a part of a path

MAX_TOKENS = 1 << 53  # of a usage: larger counts are errors of the expert
_is_error_object = re.compile(rb'\s*\{\s*"(?:error|type)": ?(?:\{|"error")').match
_finish_reason = re.compile(rb'"finish_reason"\s*:\s*"')  # in a text, its quotes would have backslashes
_final_message = re.compile(rb'\{"type": ?"(?:message_stop|error)"').match
_final_response = re.compile(rb'"type": ?"response\.(?:completed|incomplete|failed)"').search
_response_id = re.compile(rb'"response": ?\{[^{}]*?"id": ?"([!-~]{1,256}?)"').search


class WireFormat(ABC):
    """One API: how it writes requests, answers, streams of events and errors.

    The schemas of the APIs are not repeated here. Only what routing and relaying need is read; the rest passes unread.
    """

    method = "POST"
    path: str  # below /v1/
    capability: Capability  # what an expert needs to answer
    can_stream = True  # if not, the expert handles a client's `stream: true`
    is_sampled = True  # whether an expert's defaults for sampling apply
    has_system_message = False  # whether a system message may be put before the others
    needs_head = False  # whether the beginning of a stream has the usage or the id
    stores_answers = False  # whether later requests may refer to an answer
    is_charged = True  # whether an answer without usage is charged by an estimate
    is_hedged = True  # whether a second replica may work on a request while the first one still does
    is_opaque = False  # whether requests and answers pass unread: nothing is routed
    answer_limits: tuple[str, ...] = ("max_tokens",)  # fields that limit an answer

    @abstractmethod
    def parse_turns(self, values: Mapping[str, Any]) -> list[Turn]:
        """The turns of a request, or a `MessageError` that names the wrong field."""

    def is_final(self, event: Event) -> bool:
        """Whether a stream is complete with this event."""
        return event.data is not None and event.data.startswith(b"[DONE]")

    def is_complete(self, events: bytes) -> bool:
        """Whether a final event is among these, which need not be all of the stream."""
        return any(map(self.is_final, read_events(events)))

    def is_complete_at_end(self, events: bytes) -> bool:
        """Whether a stream that ended with these events, and whose connection ended well, is complete."""
        return self.is_complete(events)

    def has_error(self, events: bytes) -> bool:
        """Whether the expert itself reports an error among these last events."""
        return b"error" in events and any(
            event.name == "error" or _is_error_object(event.data or b"") is not None for event in read_events(events)
        )

    def read_usage(self, head: Mapping[str, Any] | None, tail: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """The token usage of a stream, from what was found near its beginning and near its end."""
        return tail

    def build_usage_options(self, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """`stream_options` that request the usage of a stream; None if it comes anyway, or cannot be requested."""
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
        """Whether a request that may have arrived can be sent again.

        Not if its answer is stored, or if the expert calls tools of MCP servers: both would happen twice.
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


def count_usage(usage: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The tokens of prompt and answer, as an expert counts them. Anthropic's API lists those of its cache apart."""
    prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
    answer = usage.get("completion_tokens", usage.get("output_tokens"))
    if type(prompt) is not int or not 0 <= prompt < MAX_TOKENS:
        prompt = None
    elif "cache_read_input_tokens" in usage:
        cached = (usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens"))
        prompt += sum(count for count in cached if type(count) is int and 0 <= count < MAX_TOKENS)
    return prompt, answer if type(answer) is int and 0 <= answer < MAX_TOKENS else None


def count_cached(usage: Mapping[str, Any]) -> int | None:
    """The tokens of the prompt that the expert read from its prompt cache; None if it does not report them.

    >>> count_cached({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}})
    4
    """
    found = usage.get("cache_read_input_tokens")
    for name in ("prompt_tokens_details", "input_tokens_details"):
        if isinstance(details := usage.get(name), dict):
            found = details.get("cached_tokens", found)
    return found if type(found) is int and 0 <= found < MAX_TOKENS else None


# OpenAI's chat completions, and its older endpoints -----------------------------------------------------------------


class ChatFormat(WireFormat):
    """`/v1/chat/completions`: `messages`."""

    path = "chat/completions"
    capability: Capability = "chat"
    answer_limits: tuple[str, ...] = ("max_tokens", "max_completion_tokens")
    has_system_message = True

    def parse_turns(self, values: Mapping[str, Any]) -> list[Turn]:
        return parse_messages(values.get("messages"))

    def build_usage_options(self, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if not values.get("stream"):
            return None
        given = values.get("stream_options")
        if given is not None and (not isinstance(given, dict) or given.get("include_usage")):
            return None
        return {**(given or {}), "include_usage": True}

    def is_complete(self, events: bytes) -> bool:
        return b"[DONE]" in events and super().is_complete(events)  # which is slow

    def is_complete_at_end(self, events: bytes) -> bool:
        """Some servers end without [DONE] (ik_llama.cpp, older TGI): then the reason for the end is enough."""
        return _finish_reason.search(events) is not None or self.is_complete(events)


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


# OpenAI's responses: items instead of messages, named events, and answers that later requests refer to --------------


class ResponsesFormat(WireFormat):
    """`/v1/responses`: `input`, `instructions`, `previous_response_id`."""

    path = "responses"
    capability = "responses"
    answer_limits = ("max_output_tokens",)
    needs_head = stores_answers = True

    def parse_turns(self, values: Mapping[str, Any]) -> list[Turn]:
        given, instructions = values.get("input"), values.get("instructions")
        before = [Turn("system", instructions)] if isinstance(instructions, str) else []
        if isinstance(given, str):
            return [*before, Turn("user", given)]
        if not isinstance(given, list) or not given:
            raise build_type_error("input", "a string or a list of items", given)
        return before + [_parse_item(item, f"input[{place}]") for place, item in enumerate(given)]

    def is_final(self, event: Event) -> bool:
        is_named = event.name in ("response.completed", "response.incomplete", "response.failed", "error")
        return is_named or super().is_final(event) or _final_response(event.data or b"") is not None

    def read_response_id(self, answer: Mapping[str, Any]) -> str:
        found = answer.get("id")
        return found if isinstance(found, str) else ""

    def find_response_id(self, head: bytes) -> str:
        found = _response_id(head)
        return found.group(1).decode() if found is not None else ""

    def find_previous_response(self, values: Mapping[str, Any]) -> str:
        found = values.get("previous_response_id")
        return found if isinstance(found, str) else ""

    def is_repeatable(self, values: Mapping[str, Any]) -> bool:
        """Answers are stored by default here, and a server may work on in the background."""
        return values.get("store") is False and super().is_repeatable(values)

    def build_error_event(self, problem: ApiError) -> bytes:
        content = {**problem.fields, "type": "error", **self.build_error(problem)}  # also at the top level
        return b"event: error\ndata: " + encode_json(content) + b"\n\n"


def _parse_item(item: object, param: str) -> Turn:
    if not isinstance(item, dict):
        raise build_type_error(param, "an object", item)
    if "role" in item:
        return parse_message(item, param)
    is_result = str(item.get("type", "")).endswith("_output")  # else a function call, or a reference
    return Turn("tool" if is_result else "assistant", "", tool_result=is_result)


# Anthropic's messages: a separate system text, named events, usage in two parts, and errors of its own --------------

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

    def parse_turns(self, values: Mapping[str, Any]) -> list[Turn]:
        system = values.get("system")
        before = [parse_message({"role": "system", "content": system}, "system")] if system else []
        return before + parse_messages(values.get("messages"))

    def is_final(self, event: Event) -> bool:
        return event.name in ("message_stop", "error") or _final_message(event.data or b"") is not None

    def read_usage(self, head: Mapping[str, Any] | None, tail: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """The first event has the tokens of the prompt, the last but one those of the answer."""
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


FORMATS: Mapping[str, WireFormat] = {  # by the path below /v1/
    one.path: one
    for one in (
        ChatFormat(),
        CompletionsFormat(),
        ResponsesFormat(),
        MessagesFormat(),
        CountTokensFormat(),
        EmbeddingsFormat(),
    )
}


@dataclass(frozen=True)
class PassthroughFormat(WireFormat):
    """One method of one path. Requests and answers pass unread, but for the model and the ids of stored objects."""

    method: str = field()
    path: str  # below /v1/; {id} stands for the id of a stored object
    capability: Capability
    summary: str  # for the OpenAPI document
    body: Literal["json", "form", "none"] = "json"
    has_model: bool = True  # otherwise a field `model` names the expert, and is not forwarded
    finds: ObjectKind | None = None  # the id in the path is of such an object
    makes: ObjectKind | None = None  # the answer is such an object, or a list of them
    also_at: str = ""  # another path of the gateway for the same

    can_stream = is_sampled = False
    is_opaque = True
    is_charged = False

    def with_id(self, object_id: str) -> PassthroughFormat:
        """The path of one object."""
        return replace(self, path=self.path.replace("{id}", object_id))

    def parse_turns(self, values: Mapping[str, Any]) -> list[Turn]:
        return []

    def is_repeatable(self, values: Mapping[str, Any]) -> bool:
        """Not if it stores or cancels an object."""
        return self.method == "GET" or (self.makes is None and self.finds is None)

    @property
    def is_hedged(self) -> bool:  # type: ignore[override]
        """Images and speech are too expensive to make twice."""
        return self.capability not in ("images", "audio_speech")

    @property
    def counts_usage(self) -> bool:
        """Whether an answer's usage is that of this request. Stored objects have the usage of earlier ones."""
        return self.finds is None and self.makes is None


def _list_formats() -> list[PassthroughFormat]:
    post, get, delete = "POST", "GET", "DELETE"
    form = PassthroughFormat
    response: dict[str, Any] = {"body": "none", "finds": "response"}
    file: dict[str, Any] = {"body": "none", "finds": "file", "has_model": False}
    batch: dict[str, Any] = {"body": "none", "finds": "batch", "has_model": False}
    return [
        form(get, "responses/{id}", "responses", "A stored response; with `stream=true` as a stream.", **response),
        form(delete, "responses/{id}", "responses", "Delete a stored response.", **response),
        form(post, "responses/{id}/cancel", "responses", "Cancel a response in the background.", **response),
        form(get, "responses/{id}/input_items", "responses", "The input of a stored response.", **response),
        form(post, "images/generations", "images", "Generate images."),
        form(post, "images/edits", "images", "Edit images.", "form"),
        form(post, "images/variations", "images", "Generate variations of an image.", "form"),
        form(post, "audio/speech", "audio_speech", "Generate speech from a text."),
        form(post, "audio/transcriptions", "audio_transcriptions", "Transcribe audio.", "form"),
        form(post, "audio/translations", "audio_translations", "Transcribe audio in English.", "form"),
        form(post, "rerank", "rerank", "Sort documents by relevance to a query.", also_at="/v2/rerank"),
        form(post, "moderations", "moderations", "Classify texts as harmful or not."),
        form(post, "files", "files", "Upload a file.", "form", has_model=False, makes="file"),
        form(get, "files", "files", "The key's own files.", "none", has_model=False, makes="file"),
        form(get, "files/{id}", "files", "One file.", makes="file", **file),
        form(delete, "files/{id}", "files", "Delete a file.", **file),
        form(get, "files/{id}/content", "files", "The content of a file.", **file),
        form(post, "batches", "batches", "Start a batch, where its file is.", has_model=False, makes="batch"),
        form(get, "batches", "batches", "The key's own batches.", "none", has_model=False, makes="batch"),
        form(get, "batches/{id}", "batches", "One batch.", makes="batch", **batch),
        form(post, "batches/{id}/cancel", "batches", "Cancel a batch.", makes="batch", **batch),
    ]


PASSTHROUGH_FORMATS = tuple(_list_formats())
