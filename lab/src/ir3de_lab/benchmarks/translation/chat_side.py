"""The model behind OpenAI's API: reads chats, writes chat completions and chunks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ir3de_lab.benchmarks.translation.model import Answer, Asked, cut

_ENDS = {
    "end": "stop",
    "stop": "stop",
    "length": "length",
    "calls": "tool_calls",
    "refusal": "stop",
    "filter": "content_filter",
}
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "user": "user",
    "reasoning_effort": "effort",
}


def read(body: dict[str, Any]) -> Asked:
    """What a chat asks."""
    asked = Asked(max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"))
    for message in body["messages"]:
        role, content = message["role"], message.get("content")
        if role in ("system", "developer"):
            asked.system = content
        elif role == "tool":
            asked.add("user", ["result", message["tool_call_id"], *_read_parts(content)])
        else:
            calls = [_read_call(call) for call in message.get("tool_calls") or ()]
            asked.add(role, *_read_parts(content), *calls)
    for tool in body.get("tools") or ():
        function = tool["function"]
        asked.tools.append([function["name"], function.get("description"), function.get("parameters")])
    if isinstance(choice := body.get("tool_choice"), dict):
        asked.choice = ["tool", choice["function"]["name"]]
    elif choice is not None:
        asked.choice = [_CHOICES[choice]]
    asked.is_serial = body.get("parallel_tool_calls") is False
    stop = body.get("stop") or []
    asked.stops = [stop] if isinstance(stop, str) else stop
    asked.settings = {name: body[key] for key, name in _SETTINGS.items() if body.get(key) is not None}
    if wanted := body.get("response_format"):
        asked.settings["schema"] = wanted["json_schema"]["schema"]
    return asked


def _read_parts(content: Any) -> list[list[Any]]:
    if content is None:
        return []
    if isinstance(content, str):
        return [["text", content]]
    return [
        ["text", part["text"]] if part["type"] == "text" else ["image", part["image_url"]["url"]] for part in content
    ]


def _read_call(call: dict[str, Any]) -> list[Any]:
    return ["call", call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])]


def write(said: Answer) -> dict[str, Any]:
    """A chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None, "refusal": said.refusal or None}
    if said.thought:
        message["reasoning_content"] = said.thought
    if said.calls:
        message["tool_calls"] = [
            {"id": call, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for call, name, given in said.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": _ENDS[said.end], "stop_reason": said.stop}
    return {**_head("chat.completion"), "choices": [choice], "usage": _usage(said)}


def stream(said: Answer, body: dict[str, Any]) -> Iterator[bytes]:
    """The chunks of a chat completion, as OpenAI's servers send them; `stop_reason` is vLLM's."""
    yield b": the model begins\n\n"
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in cut(said.thought)]
    deltas += [{"content": piece} for piece in cut(said.text)]
    deltas += [{"refusal": piece} for piece in cut(said.refusal)]
    for place, (call, name, given) in enumerate(said.calls):
        begun = {"index": place, "id": call, "type": "function", "function": {"name": name, "arguments": ""}}
        deltas.append({"tool_calls": [begun]})
        parts = cut(json.dumps(given))
        deltas += [{"tool_calls": [{"index": place, "function": {"arguments": part}}]} for part in parts]
    for delta in deltas:
        yield _chunk([{"index": 0, "delta": delta, "finish_reason": None}])
    yield _chunk([{"index": 0, "delta": {}, "finish_reason": _ENDS[said.end], "stop_reason": said.stop}])
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _chunk([], usage=_usage(said))
    yield b"data: [DONE]\n\n"


def write_error(status: int, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


def _chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
    return f"data: {json.dumps({**_head('chat.completion.chunk'), 'choices': choices, **more})}\n\n".encode()


def _head(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "both"}


def _usage(said: Answer) -> dict[str, Any]:
    return {
        "prompt_tokens": said.prompt_tokens,
        "completion_tokens": said.answer_tokens,
        "total_tokens": said.prompt_tokens + said.answer_tokens,
        "prompt_tokens_details": {"cached_tokens": said.cached_tokens},
    }
