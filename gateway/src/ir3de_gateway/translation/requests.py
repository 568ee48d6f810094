"""Requests: one of Anthropic's API as a chat of OpenAI's API, and the reverse."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ir3de_gateway.translation import (
    CHAT,
    DEFAULT_MAX_TOKENS,
    MAX_TEMPERATURE,
    MESSAGES,
    Field,
    UntranslatableError,
    reject_unknown,
)

_SHARED = ("temperature", "top_p", "top_k", "stream")  # fields that are the same in both APIs
_CHAT_TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_MESSAGE_TOOL_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_data_url = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*;base64,").match

Part = dict[str, Any]  # of a message: a part in OpenAI's API, a block in Anthropic's


def _text(text: str) -> Part:
    return {"type": "text", "text": text}


def _drop_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def write_json(value: object) -> str:
    """JSON within a string, as models write it."""
    return json.dumps(value, ensure_ascii=False)


def parse_arguments(text: str) -> dict[str, Any] | None:
    """The arguments of a tool call, which may be empty; None if they are not a JSON object."""
    try:
        found = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# Anthropic's request as a chat ---------------------------------------------------------------------------------------


def build_chat_request(values: Mapping[str, Any], *, tokens_field: str = "max_tokens") -> dict[str, Any]:
    """The same request for `/v1/chat/completions`, or an `ApiError` that names the field.

    >>> build_chat_request({"max_tokens": 9, "system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]})
    {'messages': [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi'}], 'max_tokens': 9}
    """
    reject_unknown(values, CHAT)
    request = Field(values, "")
    chat: dict[str, Any] = {"messages": list(_build_chat_messages(request))}
    renamed = {"max_tokens": tokens_field, "stop_sequences": "stop"}
    for name in (*renamed, *_SHARED):
        if values.get(name) is not None:
            chat[renamed.get(name, name)] = values[name]
    if chat.get("stream") is True:
        chat["stream_options"] = {"include_usage": True}  # for the counts in Anthropic's last event but one
    if values.get("metadata") is not None and (user := request.at("metadata").at("user_id").value) is not None:
        chat["user"] = user
    if values.get("tools"):  # without tools, OpenAI's API rejects a tool_choice
        chat["tools"] = [_build_chat_tool(tool) for tool in request.at("tools").read_list()]
        if values.get("tool_choice") is not None:
            _add_chat_tool_choice(request.at("tool_choice"), chat)
    if values.get("output_config") is not None:
        _add_response_format(request.at("output_config"), chat)
    return chat


def _build_chat_messages(request: Field) -> Iterator[dict[str, Any]]:
    if request.value.get("system"):
        yield {"role": "system", "content": _join_blocks(request.at("system"))}
    for message in request.at("messages").read_list():
        role, content = message.at("role"), message.at("content")
        if role.value == "user":
            yield from _build_user_messages(content)
        elif role.value == "assistant":
            yield _build_assistant_message(content)
        elif role.value == "system":
            yield {"role": "system", "content": _join_blocks(content)}
        else:
            raise role.build_fault("user, assistant or system")


def _join_blocks(content: Field) -> str:
    """The blocks of a system text as one string, because many servers only accept a string there."""
    if isinstance(content.value, str):
        return content.value
    return "\n\n".join(block.at("text").read_string() for _, block in _list_blocks(content, "text"))


def _list_blocks(content: Field, *known: str) -> Iterator[tuple[str, Field]]:
    """Every block with its type; other types are rejected."""
    for block in content.read_list():
        kind = block.at("type").read_string()
        if kind not in known:
            raise block.build_rejection(kind, CHAT)
        yield kind, block


def _build_user_messages(content: Field) -> list[dict[str, Any]]:
    """The results of tools as separate messages, then the user's own message."""
    if isinstance(content.value, str):
        return [{"role": "user", "content": content.value}]
    results: list[dict[str, Any]] = []
    parts: list[Part] = []
    for kind, block in _list_blocks(content, "text", "image", "document", "tool_result"):
        if kind == "tool_result":
            result, images = _build_tool_message(block)
            results.append(result)
            parts += images
        else:
            parts.append(_build_part(kind, block))
    return [*results, *([{"role": "user", "content": _simplify(parts)}] if parts or not results else [])]


def _build_part(kind: str, block: Field) -> Part:
    if kind == "text":
        return _text(block.at("text").read_string())
    source = block.at("source")
    source_kind = source.at("type").value
    if kind == "document":
        if source_kind != "text":
            raise block.build_rejection("document", CHAT, "only documents of plain text can be sent as text")
        titles = [title for name in ("title", "context") if isinstance(title := block.at(name).value, str) and title]
        return _text("\n\n".join([*titles, source.at("data").read_string()]))
    if source_kind == "url":
        url = source.at("url").read_string()
    elif source_kind == "base64":
        url = f"data:{source.at('media_type').read_string()};base64,{source.at('data').read_string()}"
    else:
        raise source.at("type").build_rejection(source_kind, CHAT)
    return {"type": "image_url", "image_url": {"url": url}}


def _simplify(parts: list[Part]) -> str | list[Part]:
    """A string if there is only one text, because every server accepts that."""
    if not parts:
        return ""
    return str(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _build_tool_message(block: Field) -> tuple[dict[str, Any], list[Part]]:
    """The message of a tool's result, and its images, which only the user's message can have."""
    call, content = block.at("tool_use_id").read_string(), block.at("content")
    parts: list[Part] = []
    if isinstance(content.value, str):
        parts = [_text(content.value)]
    elif content.value is not None:
        parts = [_build_part(*inner) for inner in _list_blocks(content, "text", "image", "document")]
    texts = [part for part in parts if part["type"] == "text"]
    images = [part for part in parts if part["type"] == "image_url"]
    if block.at("is_error").value:
        texts = [_text("Error: " + (texts[0]["text"] if texts else "")), *texts[1:]]
    if images:
        images.insert(0, _text(f"Images of the result of {call}:"))
    return {"role": "tool", "tool_call_id": call, "content": _simplify(texts)}, images


def _build_assistant_message(content: Field) -> dict[str, Any]:
    if isinstance(content.value, str):
        return {"role": "assistant", "content": content.value}
    texts, calls = [], []
    for kind, block in _list_blocks(content, "text", "tool_use", "thinking", "redacted_thinking"):
        if kind == "text":
            texts.append(block.at("text").read_string())
        elif kind == "tool_use":
            arguments = write_json(block.at("input").read_object())
            function = {"name": block.at("name").read_string(), "arguments": arguments}
            calls.append({"id": block.at("id").read_string(), "type": "function", "function": function})
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts or not calls else None}
    return {**message, "tool_calls": calls} if calls else message


def _build_chat_tool(tool: Field) -> dict[str, Any]:
    kind = tool.at("type").value
    if kind not in (None, "custom"):  # a tool of Anthropic's servers, or one that its models are trained for
        raise tool.build_rejection(kind, CHAT, "only tools with an input_schema of their own have one")
    function = {
        "name": tool.at("name").read_string(),
        "description": tool.at("description").value,
        "parameters": tool.at("input_schema").read_object(),
        "strict": tool.at("strict").value,
    }
    return {"type": "function", "function": _drop_none(function)}


def _add_chat_tool_choice(choice: Field, chat: dict[str, Any]) -> None:
    kind = choice.at("type")
    if kind.value == "tool":
        chat["tool_choice"] = {"type": "function", "function": {"name": choice.at("name").read_string()}}
    elif isinstance(kind.value, str) and kind.value in _CHAT_TOOL_CHOICES:
        chat["tool_choice"] = _CHAT_TOOL_CHOICES[kind.value]
    else:
        raise kind.build_fault("auto, any, tool or none")
    if choice.at("disable_parallel_tool_use").value:
        chat["parallel_tool_calls"] = False


def _add_response_format(config: Field, chat: dict[str, Any]) -> None:
    for name, value in config.read_object().items():
        if name not in ("effort", "format") and value is not None:
            raise UntranslatableError(f"output_config.{name[:100]}", CHAT)
    if (effort := config.at("effort").value) is not None:
        chat["reasoning_effort"] = effort
    if (wanted := config.at("format")).value is not None:
        if wanted.at("type").value != "json_schema":
            raise UntranslatableError("output_config.format.type", CHAT)
        schema = {"name": "answer", "schema": wanted.at("schema").value, "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}


# a chat as Anthropic's request ---------------------------------------------------------------------------------------


def build_messages_request(values: Mapping[str, Any], *, max_tokens: int = DEFAULT_MAX_TOKENS) -> dict[str, Any]:
    """The same request for `/v1/messages`, or an `ApiError` that names the field.

    >>> build_messages_request({"messages": [{"role": "user", "content": "Hi"}], "stop": "."}, max_tokens=9)
    {'messages': [{'role': 'user', 'content': 'Hi'}], 'max_tokens': 9, 'stop_sequences': ['.']}
    """
    reject_unknown(values, MESSAGES)
    chat = Field(values, "")
    system, messages = _build_messages(chat.at("messages"))
    request: dict[str, Any] = {"system": system} if system else {}
    request["messages"] = messages
    request["max_tokens"] = values.get("max_completion_tokens") or values.get("max_tokens") or max_tokens
    if (stop := values.get("stop")) is not None:
        request["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    request |= {name: values[name] for name in _SHARED if values.get(name) is not None}
    if isinstance(temperature := request.get("temperature"), int | float):
        request["temperature"] = min(temperature, MAX_TEMPERATURE)
    if (user := values.get("safety_identifier") or values.get("user")) is not None:
        request["metadata"] = {"user_id": user}
    if values.get("tools"):
        request["tools"] = [_build_message_tool(tool) for tool in chat.at("tools").read_list()]
        _add_message_tool_choice(chat, request)
    _add_output_config(chat, request)
    return request


def _build_messages(given: Field) -> tuple[str, list[dict[str, Any]]]:
    """The system text, and the messages. The results of tools belong to the user's next message."""
    system: list[str] = []
    messages: list[dict[str, Any]] = []
    for message in given.read_list():
        role, content = message.at("role"), message.at("content")
        if role.value in ("system", "developer"):
            system.append(_join_parts(content))
        elif role.value == "user":
            _add_user_content(messages, _build_blocks(content))
        elif role.value == "tool":
            call = message.at("tool_call_id").read_string()
            result = {"type": "tool_result", "tool_use_id": call, "content": _build_blocks(content)}
            _add_user_content(messages, [result])
        elif role.value == "assistant":
            if blocks := _build_assistant_blocks(message):  # Anthropic's API rejects a turn without content
                messages.append({"role": "assistant", "content": blocks})
        elif role.value == "function":
            raise message.build_rejection("function", MESSAGES, "use tools")
        else:
            raise role.build_fault("system, developer, user, assistant or tool")
    return "\n\n".join(system), messages


def _add_user_content(messages: list[dict[str, Any]], content: str | list[Part]) -> None:
    """Add to the messages. What follows results of tools joins them, because these must be in one message."""
    last = messages[-1] if messages else {}
    before = last.get("content")
    if last.get("role") == "user" and isinstance(before, list) and before and before[0]["type"] == "tool_result":
        last["content"] = [*before, *([_text(content)] if isinstance(content, str) else content)]
    else:
        messages.append({"role": "user", "content": content})


def _build_blocks(content: Field) -> str | list[Part]:
    return content.value if isinstance(content.value, str) else [_build_block(part) for part in content.read_list()]


def _build_block(part: Field) -> Part:
    kind = part.at("type").read_string()
    if kind in ("text", "refusal"):
        return _text(part.at(kind).read_string())
    if kind != "image_url":
        raise part.build_rejection(kind, MESSAGES)
    address = part.at("image_url").at("url")
    url = address.read_string()
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    if (head := _data_url(url)) is None:
        raise address.build_fault("an address, or data:image/…;base64,…")
    return {"type": "image", "source": {"type": "base64", "media_type": head[1], "data": url[head.end() :]}}


def _join_parts(content: Field) -> str:
    blocks = _build_blocks(content)
    if isinstance(blocks, str):
        return blocks
    for index, block in enumerate(blocks):
        if block["type"] != "text":
            raise UntranslatableError(f"{content.param}[{index}] ({block['type']})", MESSAGES)
    return "\n\n".join(block["text"] for block in blocks)


def _build_assistant_blocks(message: Field) -> str | list[Part]:
    for name in ("audio", "function_call"):
        if message.at(name).value is not None:
            raise UntranslatableError(f"{message.param}.{name}", MESSAGES)
    content = message.at("content")
    blocks = "" if content.value is None else _build_blocks(content)
    if not isinstance(blocks, str):  # Anthropic's API rejects empty texts
        blocks = [block for block in blocks if block["type"] != "text" or block["text"]]
    if isinstance(refusal := message.at("refusal").value, str) and not blocks:
        blocks = refusal
    if not (calls := message.at("tool_calls")).value:
        return blocks
    texts = [_text(blocks)] if isinstance(blocks, str) and blocks else blocks
    return [*texts, *map(_build_tool_use, calls.read_list())]


def _build_tool_use(call: Field) -> Part:
    if (kind := call.read_object().get("type", "function")) != "function":
        raise call.build_rejection(kind, MESSAGES)
    function = call.at("function")
    if (given := parse_arguments(function.at("arguments").read_string())) is None:
        raise function.at("arguments").build_fault("a JSON object in a string")
    name = function.at("name").read_string()
    return {"type": "tool_use", "id": call.at("id").read_string(), "name": name, "input": given}


def _build_message_tool(tool: Field) -> dict[str, Any]:
    if (kind := tool.at("type").value) != "function":
        raise tool.build_rejection(kind, MESSAGES)
    function = tool.at("function")
    schema = function.at("parameters").value
    found = {
        "name": function.at("name").read_string(),
        "description": function.at("description").value,
        "input_schema": {"type": "object", "properties": {}} if schema is None else schema,
        "strict": function.at("strict").value,
    }
    return _drop_none(found)


def _add_message_tool_choice(chat: Field, request: dict[str, Any]) -> None:
    choice, is_serial = chat.at("tool_choice"), chat.at("parallel_tool_calls").value is False
    if choice.value is None and not is_serial:
        return
    found: dict[str, Any]
    name = "auto" if choice.value is None else choice.value
    if isinstance(name, str) and name in _MESSAGE_TOOL_CHOICES:
        found = {"type": _MESSAGE_TOOL_CHOICES[name]}
    elif not isinstance(name, dict):
        raise choice.build_fault("none, auto, required, or an object that names a function")
    elif name.get("type") != "function":
        raise choice.build_rejection(name.get("type"), MESSAGES)
    else:
        found = {"type": "tool", "name": choice.at("function").at("name").read_string()}
    if is_serial and found["type"] != "none":
        found["disable_parallel_tool_use"] = True
    request["tool_choice"] = found


def _add_output_config(chat: Field, request: dict[str, Any]) -> None:
    config: dict[str, Any] = {}
    if (effort := chat.at("reasoning_effort").value) == "none":
        request["thinking"] = {"type": "disabled"}
    elif effort is not None:
        config["effort"] = "low" if effort == "minimal" else effort
    wanted = chat.at("response_format")
    if wanted.value is not None and (kind := wanted.at("type").value) != "text":
        if kind != "json_schema":
            raise wanted.build_rejection(kind, MESSAGES, "give a json_schema instead")
        config["format"] = {"type": "json_schema", "schema": wanted.at("json_schema").at("schema").value}
    if config:
        request["output_config"] = config
