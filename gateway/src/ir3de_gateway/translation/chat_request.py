"""A chat of OpenAI's API as a request of Anthropic's API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ir3de_gateway.translation.faults import (
    MESSAGES,
    UntranslatableError,
    build_fault,
    read_list,
    read_object,
    read_string,
    refuse_unknown,
)

MAX_TEMPERATURE = 1  # of Anthropic's API; OpenAI's has 2
DEFAULT_MAX_TOKENS = 4096  # Anthropic's API wants a number; an expert's `defaults` may have another one

CARRIED = frozenset(
    [
        "model",
        "messages",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "top_k",
        "user",
        "safety_identifier",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "reasoning_effort",
    ]
)
DROPPED = frozenset(  # the answer is right without them
    [
        "seed",
        "metadata",
        "service_tier",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prompt_cache_options",
        "verbosity",
        "ir3de",
    ]
)
# fields of which some values say nothing, and others have no counterpart
HARMLESS_VALUES: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "store": (False,),
    "modalities": (["text"],),
}
_EFFORTS = {"minimal": "low"}
_TOOL_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_data_url = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*;base64,").match

Block = dict[str, Any]


def build_messages_request(values: Mapping[str, Any], *, max_tokens: int = DEFAULT_MAX_TOKENS) -> dict[str, Any]:
    """The same request for `/v1/messages`, or an `ApiError` that names the field.

    >>> build_messages_request({"messages": [{"role": "user", "content": "Hi"}], "stop": "."}, max_tokens=9)
    {'messages': [{'role': 'user', 'content': 'Hi'}], 'max_tokens': 9, 'stop_sequences': ['.']}
    """
    for name, harmless in HARMLESS_VALUES.items():
        if values.get(name) is not None and not any(values[name] == one for one in harmless):
            raise UntranslatableError(name, MESSAGES)
    refuse_unknown(values, CARRIED | DROPPED | HARMLESS_VALUES.keys(), MESSAGES)
    system, messages = _build_messages(values)
    request: dict[str, Any] = {"system": system} if system else {}
    request["messages"] = messages
    request["max_tokens"] = values.get("max_completion_tokens") or values.get("max_tokens") or max_tokens
    if (stop := values.get("stop")) is not None:
        request["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    for name in ("temperature", "top_p", "top_k", "stream"):
        if values.get(name) is not None:
            request[name] = values[name]
    if isinstance(temperature := request.get("temperature"), int | float):
        request["temperature"] = min(temperature, MAX_TEMPERATURE)
    if (user := values.get("safety_identifier") or values.get("user")) is not None:
        request["metadata"] = {"user_id": user}
    _add_tools(values, request)
    _add_output_config(values, request)
    return request


# messages -----------------------------------------------------------------------------------------------------------


def _build_messages(values: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """The system text, and the messages; results of tools belong to the user's next message."""
    system: list[str] = []
    messages: list[dict[str, Any]] = []
    for place, message in enumerate(read_list(values.get("messages"), "messages")):
        param = f"messages[{place}]"
        role, content = read_object(message, param).get("role"), message.get("content")
        if role in ("system", "developer"):
            system.append(_join_texts(content, f"{param}.content"))
        elif role == "user":
            _add_user_content(messages, _build_blocks(content, f"{param}.content"))
        elif role == "tool":
            _add_user_content(messages, [_build_tool_result(message, param)])
        elif role == "assistant":
            if said := _build_assistant_content(message, param):  # Anthropic's API rejects a turn without content
                messages.append({"role": "assistant", "content": said})
        elif role == "function":
            raise UntranslatableError(f"{param} (function)", MESSAGES, "use tools")
        else:
            raise build_fault(f"{param}.role", "system, developer, user, assistant or tool", role)
    return "\n\n".join(system), messages


def _add_user_content(messages: list[dict[str, Any]], content: str | list[Block]) -> None:
    """Add to the messages; what follows results of tools joins them, because these must stand in one message."""
    last = messages[-1] if messages else {}
    if last.get("role") != "user" or not _holds_results(last["content"]):
        messages.append({"role": "user", "content": content})
        return
    more = [{"type": "text", "text": content}] if isinstance(content, str) else content
    last["content"] = [*last["content"], *more]


def _holds_results(content: object) -> bool:
    return isinstance(content, list) and bool(content) and content[0].get("type") == "tool_result"


def _build_blocks(content: object, param: str) -> str | list[Block]:
    if isinstance(content, str):
        return content
    return [_build_block(part, f"{param}[{place}]") for place, part in enumerate(read_list(content, param))]


def _build_block(part: object, param: str) -> Block:
    found = read_object(part, param)
    kind = found.get("type")
    if kind == "text":
        return {"type": "text", "text": read_string(found.get("text"), f"{param}.text")}
    if kind == "refusal":
        return {"type": "text", "text": read_string(found.get("refusal"), f"{param}.refusal")}
    if kind == "image_url":
        url = read_string(
            read_object(found.get("image_url"), f"{param}.image_url").get("url"), f"{param}.image_url.url"
        )
        return {"type": "image", "source": _build_image_source(url, f"{param}.image_url.url")}
    if not isinstance(kind, str):
        raise build_fault(f"{param}.type", "a string", kind)
    raise UntranslatableError(f"{param} ({kind[:50]})", MESSAGES)


def _build_image_source(url: str, param: str) -> dict[str, str]:
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    if (head := _data_url(url)) is None:
        raise build_fault(param, "an address, or data:image/…;base64,…", url)
    return {"type": "base64", "media_type": head[1], "data": url[head.end() :]}


def _join_texts(content: object, param: str) -> str:
    blocks = _build_blocks(content, param)
    if isinstance(blocks, str):
        return blocks
    for place, block in enumerate(blocks):
        if block["type"] != "text":
            raise UntranslatableError(f"{param}[{place}] ({block['type']})", MESSAGES)
    return "\n\n".join(block["text"] for block in blocks)


def _build_tool_result(message: Mapping[str, Any], param: str) -> Block:
    call = read_string(message.get("tool_call_id"), f"{param}.tool_call_id")
    return {
        "type": "tool_result",
        "tool_use_id": call,
        "content": _build_blocks(message.get("content"), f"{param}.content"),
    }


def _build_assistant_content(message: Mapping[str, Any], param: str) -> str | list[Block]:
    for name in ("audio", "function_call"):
        if message.get(name) is not None:
            raise UntranslatableError(f"{param}.{name}", MESSAGES)
    content = message.get("content")
    said = _build_blocks("" if content is None else content, f"{param}.content")
    if not isinstance(said, str):  # Anthropic's API rejects empty texts
        said = [block for block in said if block["type"] != "text" or block["text"]]
    if isinstance(refusal := message.get("refusal"), str) and not said:
        said = refusal
    calls = message.get("tool_calls")
    if not calls:
        return said
    texts = [{"type": "text", "text": said}] if isinstance(said, str) and said else said
    where = f"{param}.tool_calls"
    return [*texts, *(_build_tool_use(call, f"{where}[{n}]") for n, call in enumerate(read_list(calls, where)))]


def _build_tool_use(call: object, param: str) -> Block:
    found = read_object(call, param)
    if found.get("type", "function") != "function":
        raise UntranslatableError(f"{param} ({str(found['type'])[:50]})", MESSAGES)
    function = read_object(found.get("function"), f"{param}.function")
    name, call_id = (
        read_string(function.get("name"), f"{param}.function.name"),
        read_string(found.get("id"), f"{param}.id"),
    )
    place = f"{param}.function.arguments"
    given = parse_arguments(read_string(function.get("arguments"), place))
    if given is None:
        raise build_fault(place, "a JSON object in a string", function["arguments"])
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def parse_arguments(text: str) -> dict[str, Any] | None:
    """The arguments of a call; models write nothing for none. None if they are not an object."""
    try:
        found = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# tools and output ---------------------------------------------------------------------------------------------------


def _add_tools(values: Mapping[str, Any], request: dict[str, Any]) -> None:
    if not values.get("tools"):
        return
    tools = read_list(values["tools"], "tools")
    request["tools"] = [_build_tool(read_object(tool, f"tools[{n}]"), f"tools[{n}]") for n, tool in enumerate(tools)]
    choice, is_serial = values.get("tool_choice"), values.get("parallel_tool_calls") is False
    if choice is None and not is_serial:
        return
    request["tool_choice"] = _build_tool_choice("auto" if choice is None else choice)
    if is_serial and request["tool_choice"]["type"] != "none":
        request["tool_choice"]["disable_parallel_tool_use"] = True


def _build_tool_choice(choice: object) -> dict[str, Any]:
    if isinstance(choice, str) and choice in _TOOL_CHOICES:
        return {"type": _TOOL_CHOICES[choice]}
    if not isinstance(choice, dict):
        raise build_fault("tool_choice", "none, auto, required, or an object that names a function", choice)
    if choice.get("type") != "function":
        raise UntranslatableError(f"tool_choice ({str(choice.get('type'))[:50]})", MESSAGES)
    function = read_object(choice.get("function"), "tool_choice.function")
    return {"type": "tool", "name": read_string(function.get("name"), "tool_choice.function.name")}


def _build_tool(tool: Mapping[str, Any], param: str) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise UntranslatableError(f"{param} ({str(tool.get('type'))[:50]})", MESSAGES)
    function = read_object(tool.get("function"), f"{param}.function")
    found: dict[str, Any] = {"name": read_string(function.get("name"), f"{param}.function.name")}
    if function.get("description") is not None:
        found["description"] = function["description"]
    schema = function.get("parameters")
    found["input_schema"] = {"type": "object", "properties": {}} if schema is None else schema
    if function.get("strict") is not None:
        found["strict"] = function["strict"]
    return found


def _add_output_config(values: Mapping[str, Any], request: dict[str, Any]) -> None:
    config: dict[str, Any] = {}
    if (effort := values.get("reasoning_effort")) == "none":
        request["thinking"] = {"type": "disabled"}
    elif effort is not None:
        config["effort"] = _EFFORTS.get(effort, effort) if isinstance(effort, str) else effort
    wanted = values.get("response_format")
    if wanted is not None and read_object(wanted, "response_format").get("type") != "text":
        if wanted.get("type") != "json_schema":
            raise UntranslatableError(
                f"response_format ({str(wanted.get('type'))[:50]})", MESSAGES, "give a json_schema instead"
            )
        schema = read_object(wanted.get("json_schema"), "response_format.json_schema").get("schema")
        config["format"] = {"type": "json_schema", "schema": schema}
    if config:
        request["output_config"] = config
