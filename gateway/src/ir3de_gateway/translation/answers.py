"""Whole answers: a chat completion as a message of Anthropic's API, and the reverse; with stop reasons and usage."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from time import time
from typing import Any

from ir3de_gateway.translation.chat_request import parse_arguments
from ir3de_gateway.translation.faults import UnreadableAnswer
from ir3de_gateway.translation.messages_request import write_json

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
_REASONING = ("reasoning_content", "reasoning")  # as llama.cpp, vLLM and DeepSeek call it, and newer vLLM and Ollama


# a chat completion as a message --------------------------------------------------------------------------------------


def build_message(answer: Mapping[str, Any], stops: Collection[str] = ()) -> dict[str, Any]:
    """The message that a chat completion says. `stops` are the request's stop sequences."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    said = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(said, dict):
        raise UnreadableAnswer("a chat completion without choices[0].message")
    content = _build_content(said)
    has_calls = any(block["type"] == "tool_use" for block in content)
    refusal = said.get("refusal") if isinstance(said.get("refusal"), str) else ""
    usage = answer.get("usage")
    return {
        "id": build_message_id(answer.get("id")),
        "type": "message",
        "role": "assistant",
        "model": answer.get("model") or "",
        "content": content,
        **build_stop(choice, stops, has_calls=has_calls, is_refusal=bool(refusal)),
        "usage": build_message_usage(usage if isinstance(usage, dict) else {}),
    }


def _build_content(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    if thought := read_reasoning(said):
        content.append({"type": "thinking", "thinking": thought, "signature": ""})
    texts = (read_text(said.get("content")), said.get("refusal"))
    content += [{"type": "text", "text": text} for text in texts if isinstance(text, str) and text]
    calls = said.get("tool_calls")
    for place, call in enumerate(calls if isinstance(calls, list) else ()):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise UnreadableAnswer(f"tool_calls[{place}] without a function")
        given = parse_arguments(str(function.get("arguments") or ""))
        if given is None:
            raise UnreadableAnswer(f"the arguments of tool_calls[{place}] are not a JSON object")
        name, call_id = str(function.get("name") or ""), call.get("id") or f"toolu_{place}"
        content.append({"type": "tool_use", "id": call_id, "name": name, "input": given})
    return content


def read_reasoning(said: Mapping[str, Any]) -> str:
    """What a model thought before it answered: not in OpenAI's API, but many servers have it."""
    return next((found for name in _REASONING if isinstance(found := said.get(name), str) and found), "")


def read_text(content: object) -> str:
    """The text of a chat's content, which some servers give in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def build_stop(
    choice: Mapping[str, Any], stops: Collection[str], *, has_calls: bool, is_refusal: bool
) -> dict[str, str | None]:
    """Why a chat ended, as a message says it. Only vLLM says whether a stop sequence ended it, and which."""
    finish, found = choice.get("finish_reason"), choice.get("stop_reason")
    if is_refusal:
        return {"stop_reason": "refusal", "stop_sequence": None}
    if finish == "stop" and isinstance(found, str) and found in stops:
        return {"stop_reason": "stop_sequence", "stop_sequence": found}
    reason = STOP_REASONS.get(finish, "end_turn") if isinstance(finish, str) else "end_turn"
    if has_calls and reason == "end_turn":  # some servers say "stop" there
        reason = "tool_use"
    return {"stop_reason": reason, "stop_sequence": None}


def build_message_id(chat_id: object) -> str:
    return f"msg_{str(chat_id or '').removeprefix('chatcmpl-') or 'unknown'}"


def build_message_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Anthropic's input_tokens do not contain those that were read from a cache or written to one."""
    read, written = (_count(usage, "prompt_tokens_details", name) for name in ("cached_tokens", "cache_write_tokens"))
    prompt, thought = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens_details", "reasoning_tokens")
    counts: dict[str, Any] = {
        "input_tokens": max(0, prompt - read - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": _count(usage, "completion_tokens"),
    }
    return {**counts, "output_tokens_details": {"thinking_tokens": thought}} if thought else counts


# a message as a chat completion --------------------------------------------------------------------------------------


def build_completion(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The chat completion that a message says."""
    blocks, usage = answer.get("content"), answer.get("usage")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise UnreadableAnswer("a message without a list of content")
    texts = [str(block.get("text") or "") for block in blocks if block.get("type") == "text"]
    thoughts = [str(block.get("thinking") or "") for block in blocks if block.get("type") == "thinking"]
    calls = [_build_tool_call(block) for block in blocks if block.get("type") == "tool_use"]
    finish = build_finish_reason(answer.get("stop_reason"))
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(texts) if texts or not calls else None,
        "refusal": read_refusal(answer.get("stop_details")),
    }
    if calls:
        message["tool_calls"] = calls
    if any(thoughts):
        message["reasoning_content"] = "".join(thoughts)
    return {
        "id": build_chat_id(answer.get("id")),
        "object": "chat.completion",
        "created": int(time()),
        "model": answer.get("model") or "",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": build_chat_usage(usage if isinstance(usage, dict) else {}),
    }


def _build_tool_call(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = write_json(block.get("input") or {})
    return {
        "id": block.get("id") or "",
        "type": "function",
        "function": {"name": block.get("name") or "", "arguments": arguments},
    }


def build_finish_reason(reason: object) -> str:
    return FINISH_REASONS.get(reason, "stop") if isinstance(reason, str) else "stop"


def read_refusal(details: object) -> str | None:
    """Why a model refused, where it says so."""
    found = details.get("explanation") if isinstance(details, dict) else None
    return found if isinstance(found, str) else None


def build_chat_id(message_id: object) -> str:
    return f"chatcmpl-{str(message_id or '').removeprefix('msg_') or 'unknown'}"


def build_chat_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI's prompt_tokens contain those that were read from a cache or written to one."""
    read, written = (_count(usage, f"cache_{name}_input_tokens") for name in ("read", "creation"))
    prompt, answer = _count(usage, "input_tokens") + read + written, _count(usage, "output_tokens")
    counts: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
    }
    thought = _count(usage, "output_tokens_details", "thinking_tokens")
    return {**counts, "completion_tokens_details": {"reasoning_tokens": thought}} if thought else counts


def _count(usage: Mapping[str, Any], *names: str) -> int:
    value: Any = usage
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
