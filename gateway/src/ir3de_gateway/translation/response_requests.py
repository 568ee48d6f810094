"""Requests of OpenAI's responses as chats, for experts that have only chat completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ir3de_gateway.translation import CHAT, Field, UntranslatableError

CARRIED = frozenset((
    "model", "input", "instructions", "max_output_tokens", "temperature", "top_p", "top_k", "stream", "tools",
    "tool_choice", "parallel_tool_calls", "text", "reasoning", "user", "safety_identifier", "prompt_cache_key",
    "service_tier",
))  # fmt: skip
DROPPED = frozenset((  # the answer is right without them; some are in the response object, and `store` is the gateway's
    "metadata", "store", "truncation", "include", "stream_options", "max_tool_calls", "prompt_cache_retention", "ir3de",
))  # fmt: skip
NEUTRAL: Mapping[str, object] = {"background": False, "top_logprobs": 0}  # the values that change nothing
_SAME = (
    "temperature", "top_p", "top_k", "stream", "parallel_tool_calls", "user", "safety_identifier", "prompt_cache_key",
    "service_tier",
)  # fmt: skip
_INCLUDED = ("reasoning.encrypted_content",)  # of `include`, what may be missing in an answer
_TEXTS = ("input_text", "output_text", "text", "summary_text")

Message = dict[str, Any]


def build_chat_from_response(values: Mapping[str, Any], *, tokens_field: str = "max_tokens") -> dict[str, Any]:
    """The same request for `/v1/chat/completions`, or an `ApiError` that names the field.

    >>> build_chat_from_response({"input": "Hi", "instructions": "Be brief.", "max_output_tokens": 9})
    {'messages': [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi'}], 'max_tokens': 9}
    """
    _reject_unknown(values)
    request = Field(values, "")
    chat: dict[str, Any] = {"messages": _build_messages(request)}
    if values.get("max_output_tokens") is not None:
        chat[tokens_field] = values["max_output_tokens"]
    chat |= {name: values[name] for name in _SAME if values.get(name) is not None}
    if chat.get("stream") is True:
        chat["stream_options"] = {"include_usage": True}
    if values.get("tools"):  # without tools, OpenAI's API rejects what is about them
        chat["tools"] = [_build_tool(tool) for tool in request.at("tools").read_list()]
        if values.get("tool_choice") is not None:
            chat["tool_choice"] = _build_tool_choice(request.at("tool_choice"))
    else:
        chat.pop("parallel_tool_calls", None)
    if values.get("text") is not None:
        _add_text_options(request.at("text"), chat)
    if values.get("reasoning") is not None and (effort := request.at("reasoning").at("effort").value) is not None:
        chat["reasoning_effort"] = effort
    return chat


def _reject_unknown(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        is_neutral = name in NEUTRAL and value == NEUTRAL[name]
        if value is not None and name not in CARRIED and name not in DROPPED and not is_neutral:
            raise UntranslatableError(name[:100], CHAT)
    for one in Field(values, "").at("include").read_list() if values.get("include") is not None else ():
        if one.value not in _INCLUDED:
            raise one.build_rejection(one.value, CHAT)


def _build_messages(request: Field) -> list[Message]:
    messages: list[Message] = []
    if request.value.get("instructions"):
        messages.append({"role": "system", "content": request.at("instructions").read_string()})
    given = request.at("input")
    if isinstance(given.value, str):
        return [*messages, {"role": "user", "content": given.value}]
    for item in given.read_list():
        _add_item(messages, item)
    return messages


def _add_item(messages: list[Message], item: Field) -> None:
    kind = item.read_object().get("type") or ("message" if "role" in item.value else None)
    if kind == "message":
        _add_message(messages, item)
    elif kind == "function_call":
        function = {name: item.at(name).read_string() for name in ("name", "arguments")}
        call = {"id": item.at("call_id").read_string(), "type": "function", "function": function}
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": None})
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        output = item.at("output")
        text = output.value if isinstance(output.value, str) else "\n".join(map(_read_text, output.read_list()))
        messages.append({"role": "tool", "tool_call_id": item.at("call_id").read_string(), "content": text})
    elif kind != "reasoning":  # which is another model's, or cannot be sent again
        raise item.build_rejection(kind, CHAT)


def _add_message(messages: list[Message], item: Field) -> None:
    role, content = item.at("role"), item.at("content")
    if role.value in ("system", "developer"):  # many servers know only the first
        text = content.value if isinstance(content.value, str) else "\n\n".join(map(_read_text, content.read_list()))
        messages.append({"role": "system", "content": text})
    elif role.value == "user":
        parts = content.value if isinstance(content.value, str) else _build_parts(content)
        messages.append({"role": "user", "content": parts})
    elif role.value == "assistant":
        text = content.value if isinstance(content.value, str) else "".join(map(_read_text, content.read_list()))
        last = messages[-1] if messages else {}
        if last.get("role") == "assistant" and last.get("tool_calls"):  # results must follow the calls at once
            last["content"] = f"{last['content'] or ''}{text}"
        else:
            messages.append({"role": "assistant", "content": text})
    else:
        raise role.build_fault("user, assistant, system or developer")


def _read_text(part: Field) -> str:
    kind = part.at("type").read_string()
    if kind == "refusal":
        return part.at("refusal").read_string()
    if kind not in _TEXTS:
        raise part.build_rejection(kind, CHAT)
    return part.at("text").read_string()


def _build_parts(content: Field) -> str | list[dict[str, Any]]:
    """The parts of a user's message; a string if there is only one text, because every server accepts that."""
    parts = [_build_part(part) for part in content.read_list()]
    is_text = len(parts) == 1 and parts[0]["type"] == "text"
    return str(parts[0]["text"]) if is_text else parts


def _build_part(part: Field) -> dict[str, Any]:
    kind = part.at("type").read_string()
    if kind in _TEXTS:
        return {"type": "text", "text": part.at("text").read_string()}
    if kind == "input_image" and part.at("image_url").value is not None:
        image = {"url": part.at("image_url").read_string(), "detail": part.at("detail").value}
        return {"type": "image_url", "image_url": {name: one for name, one in image.items() if one is not None}}
    if kind == "input_audio":
        return {"type": "input_audio", "input_audio": part.at("input_audio").read_object()}
    if kind == "input_file" and part.at("file_data").value is not None:
        names = ("filename", "file_data")
        return {"type": "file", "file": {name: one for name in names if (one := part.at(name).value) is not None}}
    raise part.build_rejection(kind, CHAT, "" if kind != "input_image" else "give an image_url")


def _build_tool(tool: Field) -> dict[str, Any]:
    if (kind := tool.at("type").value) != "function":
        raise tool.build_rejection(kind, CHAT, "only functions have one")
    named = {"name": tool.at("name").read_string()}
    more = {name: tool.at(name).value for name in ("description", "parameters", "strict")}
    return {"type": "function", "function": named | {name: one for name, one in more.items() if one is not None}}


def _build_tool_choice(choice: Field) -> object:
    if isinstance(choice.value, str):
        if choice.value not in ("none", "auto", "required"):
            raise choice.build_fault("none, auto, required, or an object that names a function")
        return choice.value
    if (kind := choice.at("type").value) != "function":
        raise choice.build_rejection(kind, CHAT)
    return {"type": "function", "function": {"name": choice.at("name").read_string()}}


def _add_text_options(text: Field, chat: dict[str, Any]) -> None:
    if (verbosity := text.at("verbosity").value) is not None:
        chat["verbosity"] = verbosity
    wanted = text.at("format")
    if wanted.value is None or (kind := wanted.at("type").value) == "text":
        return
    if kind == "json_object":
        chat["response_format"] = {"type": "json_object"}
    elif kind == "json_schema":
        names = ("name", "description", "schema", "strict")
        schema = {name: one for name in names if (one := wanted.at(name).value) is not None}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    else:
        raise wanted.build_rejection(kind, CHAT)
