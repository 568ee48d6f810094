"""A request of Anthropic's API as a chat of OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ir3de_gateway.translation.faults import (
    CHAT,
    UntranslatableError,
    build_fault,
    read_list,
    read_object,
    read_string,
    refuse_unknown,
)

CARRIED = frozenset(
    [
        "model",
        "messages",
        "system",
        "max_tokens",
        "stop_sequences",
        "stream",
        "temperature",
        "top_p",
        "top_k",
        "metadata",
        "tools",
        "tool_choice",
        "output_config",
    ]
)
DROPPED = frozenset(  # the answer is right without them
    [
        "thinking",
        "cache_control",
        "service_tier",
        "speed",
        "diagnostics",
        "context_management",
        "user_profile_id",
        "workspace_id",
        "ir3de",
    ]
)
_THOUGHTS = ("thinking", "redacted_thinking")  # of answers before: an expert of another kind cannot use them
_TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def build_chat_request(values: Mapping[str, Any], *, tokens_field: str = "max_tokens") -> dict[str, Any]:
    """The same request for `/v1/chat/completions`, or an `ApiError` that names the field.

    >>> build_chat_request({"max_tokens": 9, "system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]})
    {'messages': [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi'}], 'max_tokens': 9}
    """
    refuse_unknown(values, CARRIED | DROPPED, CHAT)
    chat: dict[str, Any] = {"messages": _build_messages(values)}
    renamed = {"max_tokens": tokens_field, "stop_sequences": "stop"}
    for name in ("max_tokens", "stop_sequences", "temperature", "top_p", "top_k", "stream"):
        if values.get(name) is not None:
            chat[renamed.get(name, name)] = values[name]
    if chat.get("stream") is True:
        chat["stream_options"] = {"include_usage": True}  # for the counts in Anthropic's last event but one
    if (metadata := values.get("metadata")) is not None and read_object(metadata, "metadata").get(
        "user_id"
    ) is not None:
        chat["user"] = metadata["user_id"]
    _add_tools(values, chat)
    if (config := values.get("output_config")) is not None:
        _add_output_config(read_object(config, "output_config"), chat)
    return chat


# messages -----------------------------------------------------------------------------------------------------------


def _build_messages(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages = []
    if values.get("system"):
        messages.append({"role": "system", "content": _join_texts(values["system"], "system")})
    for place, message in enumerate(read_list(values.get("messages"), "messages")):
        param = f"messages[{place}]"
        role, content = read_object(message, param).get("role"), message.get("content")
        if role == "user":
            messages += _build_user_turn(content, f"{param}.content")
        elif role == "assistant":
            messages.append(_build_assistant_turn(content, f"{param}.content"))
        elif role == "system":
            messages.append({"role": "system", "content": _join_texts(content, f"{param}.content")})
        else:
            raise build_fault(f"{param}.role", "user, assistant or system", role)
    return messages


def _join_texts(content: object, param: str) -> str:
    """The blocks of a system text as one: many servers take a string there only."""
    if isinstance(content, str):
        return content
    texts = [
        read_string(block.get("text"), f"{where}.text") for block, where in _list_blocks(content, param, ("text",))
    ]
    return "\n\n".join(texts)


def _list_blocks(content: object, param: str, known: tuple[str, ...]) -> list[tuple[Mapping[str, Any], str]]:
    """Every block with its place; those of other kinds are refused."""
    found = []
    for place, block in enumerate(read_list(content, param)):
        where = f"{param}[{place}]"
        kind = read_object(block, where).get("type")
        if not isinstance(kind, str):
            raise build_fault(f"{where}.type", "a string", kind)
        if kind not in known:
            raise UntranslatableError(f"{where} ({kind[:50]})", CHAT)
        found.append((block, where))
    return found


def _build_user_turn(content: object, param: str) -> list[dict[str, Any]]:
    """The results of tools as messages of their own, then what the user says."""
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    results: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for block, where in _list_blocks(content, param, ("text", "image", "document", "tool_result")):
        if block["type"] == "tool_result":
            result, images = _build_tool_result(block, where)
            results.append(result)
            parts += images
        else:
            parts.append(_build_part(block, where))
    return [*results, *([{"role": "user", "content": _simplify(parts)}] if parts or not results else [])]


def _build_part(block: Mapping[str, Any], param: str) -> dict[str, Any]:
    if block["type"] == "text":
        return {"type": "text", "text": read_string(block.get("text"), f"{param}.text")}
    source = read_object(block.get("source"), f"{param}.source")
    if block["type"] == "document":
        return {"type": "text", "text": _read_document(block, source, param)}
    return {"type": "image_url", "image_url": {"url": _build_image_url(source, f"{param}.source")}}


def _build_image_url(source: Mapping[str, Any], param: str) -> str:
    kind = source.get("type")
    if kind == "url":
        return read_string(source.get("url"), f"{param}.url")
    if kind == "base64":
        media_type, data = (read_string(source.get(name), f"{param}.{name}") for name in ("media_type", "data"))
        return f"data:{media_type};base64,{data}"
    raise UntranslatableError(f"{param}.type ({str(kind)[:50]})", CHAT)


def _read_document(block: Mapping[str, Any], source: Mapping[str, Any], param: str) -> str:
    if source.get("type") != "text":
        raise UntranslatableError(f"{param} (document)", CHAT, "only documents of plain text can be sent as text")
    text = read_string(source.get("data"), f"{param}.source.data")
    titles = [title for name in ("title", "context") if isinstance(title := block.get(name), str) and title]
    return "\n\n".join([*titles, text])


def _simplify(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """A string where there is one text: every server takes that."""
    if not parts:
        return ""
    return str(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _build_tool_result(block: Mapping[str, Any], param: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The message of a result, and its images, which only the user's message can have."""
    call, content = read_string(block.get("tool_use_id"), f"{param}.tool_use_id"), block.get("content")
    parts: list[dict[str, Any]] = []
    if isinstance(content, str):
        parts = [{"type": "text", "text": content}]
    elif content is not None:
        known = ("text", "image", "document")
        parts = [_build_part(inner, where) for inner, where in _list_blocks(content, f"{param}.content", known)]
    texts = [part for part in parts if part["type"] == "text"]
    images = [part for part in parts if part["type"] == "image_url"]
    if block.get("is_error"):
        texts = [{"type": "text", "text": "Error: " + (texts[0]["text"] if texts else "")}, *texts[1:]]
    if images:
        images.insert(0, {"type": "text", "text": f"Images of the result of {call}:"})
    return {"role": "tool", "tool_call_id": call, "content": _simplify(texts)}, images


def _build_assistant_turn(content: object, param: str) -> dict[str, Any]:
    if isinstance(content, str):
        return {"role": "assistant", "content": content}
    texts, calls = [], []
    for block, where in _list_blocks(content, param, ("text", "tool_use", *_THOUGHTS)):
        if block["type"] == "text":
            texts.append(read_string(block.get("text"), f"{where}.text"))
        elif block["type"] == "tool_use":
            calls.append(_build_call(block, where))
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts or not calls else None}
    return {**message, "tool_calls": calls} if calls else message


def _build_call(block: Mapping[str, Any], param: str) -> dict[str, Any]:
    name, call = read_string(block.get("name"), f"{param}.name"), read_string(block.get("id"), f"{param}.id")
    given = read_object(block.get("input"), f"{param}.input")
    return {"id": call, "type": "function", "function": {"name": name, "arguments": write_json(given)}}


# tools and output ---------------------------------------------------------------------------------------------------


def _add_tools(values: Mapping[str, Any], chat: dict[str, Any]) -> None:
    if not values.get("tools"):
        return  # without tools, OpenAI's API refuses a tool_choice
    tools = read_list(values["tools"], "tools")
    chat["tools"] = [_build_tool(read_object(tool, f"tools[{n}]"), f"tools[{n}]") for n, tool in enumerate(tools)]
    if values.get("tool_choice") is None:
        return
    choice = read_object(values["tool_choice"], "tool_choice")
    kind = choice.get("type")
    if kind == "tool":
        name = read_string(choice.get("name"), "tool_choice.name")
        chat["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif isinstance(kind, str) and kind in _TOOL_CHOICES:
        chat["tool_choice"] = _TOOL_CHOICES[kind]
    else:
        raise build_fault("tool_choice.type", "auto, any, tool or none", kind)
    if choice.get("disable_parallel_tool_use"):
        chat["parallel_tool_calls"] = False


def _build_tool(tool: Mapping[str, Any], param: str) -> dict[str, Any]:
    kind = tool.get("type")
    if kind not in (None, "custom"):  # a tool that Anthropic's servers have, or that its models know by heart
        raise UntranslatableError(
            f"{param} ({str(kind)[:50]})", CHAT, "only tools with an input_schema of their own have one"
        )
    function: dict[str, Any] = {"name": read_string(tool.get("name"), f"{param}.name")}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    function["parameters"] = read_object(tool.get("input_schema"), f"{param}.input_schema")
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def _add_output_config(config: Mapping[str, Any], chat: dict[str, Any]) -> None:
    for name, value in config.items():
        if name not in ("effort", "format") and value is not None:
            raise UntranslatableError(f"output_config.{name[:100]}", CHAT)
    if config.get("effort") is not None:
        chat["reasoning_effort"] = config["effort"]
    if (wanted := config.get("format")) is not None:
        schema = read_object(wanted, "output_config.format").get("schema")
        if wanted.get("type") != "json_schema":
            raise UntranslatableError("output_config.format.type", CHAT)
        chat["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, "strict": True},
        }


def write_json(value: object) -> str:
    """JSON within a string, as models write it."""
    return json.dumps(value, ensure_ascii=False)
