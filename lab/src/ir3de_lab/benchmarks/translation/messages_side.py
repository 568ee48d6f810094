"""The model behind Anthropic's API: reads messages, writes a message or its events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ir3de_lab.benchmarks.translation.model import Answer, Asked, cut

_ENDS = {
    "end": "end_turn",
    "stop": "stop_sequence",
    "length": "max_tokens",
    "calls": "tool_use",
    "refusal": "refusal",
    "filter": "refusal",
}
_ERRORS = {400: "invalid_request_error", 429: "rate_limit_error", 500: "api_error"}


def read(body: dict[str, Any]) -> Asked:
    """What a request asks. The model hears of a tool's error as a text."""
    asked = Asked(max_tokens=body["max_tokens"], stops=body.get("stop_sequences") or [])
    system = body.get("system") or ""
    asked.system = system if isinstance(system, str) else "\n\n".join(block["text"] for block in system)
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        asked.add(message["role"], *(_read_block(block) for block in blocks if block["type"] != "thinking"))
    for tool in body.get("tools") or ():
        asked.tools.append([tool["name"], tool.get("description"), tool["input_schema"]])
    choice = body.get("tool_choice") or {}
    asked.is_serial = bool(choice.get("disable_parallel_tool_use"))
    asked.choice = [choice[key] for key in ("type", "name") if key in choice]
    asked.settings = {key: body[key] for key in ("temperature", "top_p", "top_k") if body.get(key) is not None}
    if user := (body.get("metadata") or {}).get("user_id"):
        asked.settings["user"] = user
    config = body.get("output_config") or {}
    if config.get("effort"):
        asked.settings["effort"] = config["effort"]
    if config.get("format"):
        asked.settings["schema"] = config["format"]["schema"]
    return asked


def _read_block(block: dict[str, Any]) -> list[Any]:
    if block["type"] == "text":
        return ["text", block["text"]]
    if block["type"] == "image":
        source = block["source"]
        url = source["url"] if source["type"] == "url" else f"data:{source['media_type']};base64,{source['data']}"
        return ["image", url]
    if block["type"] == "tool_use":
        return ["call", block["id"], block["name"], block["input"]]
    content = block["content"]
    items = [["text", content]] if isinstance(content, str) else [_read_block(inner) for inner in content]
    if block.get("is_error"):
        items[0][1] = f"Error: {items[0][1]}"
    return ["result", block["tool_use_id"], *items]


def write(said: Answer) -> dict[str, Any]:
    """A message."""
    return {**_head(), "content": _blocks(said), "stop_reason": _ENDS[said.end], "stop_sequence": said.stop,
            "usage": _usage(said, said.answer_tokens)}  # fmt: skip


def stream(said: Answer, body: dict[str, Any]) -> Iterator[bytes]:
    """The events of a message, as Anthropic's servers send them."""
    begun = {**_head(), "content": [], "stop_reason": None, "stop_sequence": None, "usage": _usage(said, 1)}
    yield _event("message_start", message=begun)
    yield _event("ping")
    for place, block in enumerate(_blocks(said)):
        kind = block["type"]
        empty: dict[str, Any] = {"input": {}} if kind == "tool_use" else {kind: ""}
        yield _event("content_block_start", index=place, content_block={**block, **empty})
        text = block[kind] if kind != "tool_use" else json.dumps(block["input"]) if block["input"] else ""
        names = {"tool_use": ("input_json_delta", "partial_json")}.get(kind, (f"{kind}_delta", kind))
        for piece in cut(text):
            yield _event("content_block_delta", index=place, delta={"type": names[0], names[1]: piece})
        yield _event("content_block_stop", index=place)
    delta = {"stop_reason": _ENDS[said.end], "stop_sequence": said.stop}
    yield _event("message_delta", delta=delta, usage={"output_tokens": said.answer_tokens})
    yield _event("message_stop")


def write_error(status: int, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": _ERRORS[status], "message": message}}


def _blocks(said: Answer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if said.thought:
        blocks.append({"type": "thinking", "thinking": said.thought, "signature": ""})
    blocks += [{"type": "text", "text": text} for text in (said.text, said.refusal) if text]
    return blocks + [{"type": "tool_use", "id": call, "name": name, "input": given} for call, name, given in said.calls]


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _head() -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "both"}


def _usage(said: Answer, answer_tokens: int) -> dict[str, Any]:
    return {
        "input_tokens": said.prompt_tokens - said.cached_tokens,
        "cache_read_input_tokens": said.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": answer_tokens,
    }
