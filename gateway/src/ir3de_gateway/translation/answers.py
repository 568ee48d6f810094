"""Whole answers and errors: a chat completion as a message of Anthropic's API, and the reverse."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from time import time
from typing import Any

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.translation.requests import parse_arguments, write_json
from ir3de_gateway.wire.formats import WireFormat

STOP_REASONS = {  # of a chat: of a message
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
FINISH_REASONS = {  # of a message: of a chat
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_STATUSES = {  # of Anthropic's types of errors, for events, which have no status
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 503,
}
_REASONING = ("reasoning_content", "reasoning")  # the names in llama.cpp, vLLM and DeepSeek; in newer vLLM and Ollama


class UnreadableAnswer(Exception):  # noqa: N818 - the expert's error
    """An answer of an expert that does not follow its format."""


def dump(content: Mapping[str, Any]) -> bytes:
    """JSON in UTF-8. Lone surrogates, which models may write, stay escaped."""
    try:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(content, separators=(",", ":")).encode()


def translate_error(wire: WireFormat, status: int, content: Mapping[str, Any] | None, expert: str) -> dict[str, Any]:
    """An expert's error in the client's format: the same status and message, the type of the client's API."""
    error = (content or {}).get("error", content) or f"'{expert}' answered with status {status}"
    if not isinstance(error, dict):
        error = {"message": error}
    kind, message, code, param = (error.get(name) for name in ("type", "message", "code", "param"))
    if status == 502 and isinstance(kind, str):
        status = _STATUSES.get(kind, status)
    if isinstance(code, int) and not isinstance(code, bool) and status == 502 and 400 <= code < 600:
        status = code  # llama.cpp has the status there
    text = message if isinstance(message, str) and message else "the expert reports an error"
    problem = ApiError(status, text, code if isinstance(code, str) else "", param if isinstance(param, str) else None)
    return wire.build_error(problem)


# a chat completion as a message --------------------------------------------------------------------------------------


def build_message(answer: Mapping[str, Any], stops: Collection[str] = ()) -> dict[str, Any]:
    """A chat completion as a message. `stops` are the request's stop sequences."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise UnreadableAnswer("a chat completion without choices[0].message")
    content = _build_content(message)
    has_calls = any(block["type"] == "tool_use" for block in content)
    is_refusal = isinstance(message.get("refusal"), str) and bool(message["refusal"])
    head = build_message_head(answer, answer.get("usage"))
    return {**head, "content": content, **build_stop(choice, stops, has_calls=has_calls, is_refusal=is_refusal)}


def build_message_head(answer: Mapping[str, Any], usage: object) -> dict[str, Any]:
    """A message without content that has not ended."""
    return {
        "id": f"msg_{str(answer.get('id') or '').removeprefix('chatcmpl-') or 'unknown'}",
        "type": "message",
        "role": "assistant",
        "model": answer.get("model") or "",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": build_message_usage(usage if isinstance(usage, dict) else {}),
    }


def _build_content(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    if thought := read_reasoning(message):
        content.append({"type": "thinking", "thinking": thought, "signature": ""})
    texts = (read_text(message.get("content")), message.get("refusal"))
    content += [{"type": "text", "text": text} for text in texts if isinstance(text, str) and text]
    calls = message.get("tool_calls")
    for index, call in enumerate(calls if isinstance(calls, list) else ()):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise UnreadableAnswer(f"tool_calls[{index}] without a function")
        given = parse_arguments(str(function.get("arguments") or ""))
        if given is None:
            raise UnreadableAnswer(f"the arguments of tool_calls[{index}] are not a JSON object")
        name, call_id = str(function.get("name") or ""), call.get("id") or f"toolu_{index}"
        content.append({"type": "tool_use", "id": call_id, "name": name, "input": given})
    return content


def read_reasoning(message: Mapping[str, Any]) -> str:
    """The reasoning before the answer, which OpenAI's API does not have, but many servers do."""
    return next((found for name in _REASONING if isinstance(found := message.get(name), str) and found), "")


def read_text(content: object) -> str:
    """The text of a chat's content, which some servers send in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def build_stop(
    choice: Mapping[str, Any], stops: Collection[str], *, has_calls: bool, is_refusal: bool
) -> dict[str, str | None]:
    """Why a message ended. Only vLLM reports whether a stop sequence ended it, and which."""
    finish, found = choice.get("finish_reason"), choice.get("stop_reason")
    if is_refusal:
        return {"stop_reason": "refusal", "stop_sequence": None}
    if finish == "stop" and isinstance(found, str) and found in stops:
        return {"stop_reason": "stop_sequence", "stop_sequence": found}
    reason = STOP_REASONS.get(str(finish), "end_turn")
    if has_calls and reason == "end_turn":  # some servers send "stop" there
        reason = "tool_use"
    return {"stop_reason": reason, "stop_sequence": None}


def build_message_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Anthropic's input_tokens do not contain those that were read from a cache or written to one."""
    read, written = (
        count_tokens(usage, "prompt_tokens_details", name) for name in ("cached_tokens", "cache_write_tokens")
    )
    prompt, thought = (
        count_tokens(usage, "prompt_tokens"),
        count_tokens(usage, "completion_tokens_details", "reasoning_tokens"),
    )
    counts: dict[str, Any] = {
        "input_tokens": max(0, prompt - read - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": count_tokens(usage, "completion_tokens"),
    }
    return {**counts, "output_tokens_details": {"thinking_tokens": thought}} if thought else counts


# a message as a chat completion --------------------------------------------------------------------------------------


def build_completion(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A message as a chat completion."""
    blocks, usage = answer.get("content"), answer.get("usage")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise UnreadableAnswer("a message without a list of content")
    texts = [str(block.get("text") or "") for block in blocks if block.get("type") == "text"]
    thoughts = [str(block.get("thinking") or "") for block in blocks if block.get("type") == "thinking"]
    calls = [_build_tool_call(block) for block in blocks if block.get("type") == "tool_use"]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(texts) if texts or not calls else None,
        "refusal": read_refusal(answer.get("stop_details")),
    }
    if calls:
        message["tool_calls"] = calls
    if any(thoughts):
        message["reasoning_content"] = "".join(thoughts)
    finish = FINISH_REASONS.get(str(answer.get("stop_reason")), "stop")
    return {
        **build_completion_head(answer, "chat.completion"),
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": build_chat_usage(usage if isinstance(usage, dict) else {}),
    }


def build_completion_head(message: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """What a completion and its chunks have in common."""
    chat_id = f"chatcmpl-{str(message.get('id') or '').removeprefix('msg_') or 'unknown'}"
    return {"id": chat_id, "object": kind, "created": int(time()), "model": message.get("model") or ""}


def _build_tool_call(block: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": block.get("name") or "", "arguments": write_json(block.get("input") or {})}
    return {"id": block.get("id") or "", "type": "function", "function": function}


def read_refusal(details: object) -> str | None:
    """Why a model refused, if the answer contains it."""
    found = details.get("explanation") if isinstance(details, dict) else None
    return found if isinstance(found, str) else None


def build_chat_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI's prompt_tokens contain those that were read from a cache or written to one."""
    read, written = (count_tokens(usage, f"cache_{name}_input_tokens") for name in ("read", "creation"))
    prompt, answer = count_tokens(usage, "input_tokens") + read + written, count_tokens(usage, "output_tokens")
    counts: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
    }
    thought = count_tokens(usage, "output_tokens_details", "thinking_tokens")
    return {**counts, "completion_tokens_details": {"reasoning_tokens": thought}} if thought else counts


def count_tokens(usage: Mapping[str, Any], *names: str) -> int:
    """A count of a usage, which may be nested; 0 if there is none."""
    value: Any = usage
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
