"""Requests with a text in every place where a model reads one, for each of the four APIs."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

SECRET = "the vault opens at nine"
USER = {"role": "user", "content": "Is my contract void?"}


def _tool(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "description": "d", "parameters": {}, **fields}}


def _schema(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": {"type": ["string", "null"], **fields}}, "required": ["x"]}


def _chat(*messages: dict[str, Any], **fields: Any) -> tuple[str, dict[str, Any]]:
    return "chat/completions", {"messages": [USER, *messages], **fields}


def _responses(*items: dict[str, Any], **fields: Any) -> tuple[str, dict[str, Any]]:
    return "responses", {"input": [USER, *items], **fields}


def _messages(*blocks: dict[str, Any], role: str = "user", **fields: Any) -> tuple[str, dict[str, Any]]:
    said = [{"role": role, "content": [{"type": "text", "text": "Is it void?"}, *blocks]}]
    return "messages", {"max_tokens": 9, "messages": said, **fields}


def _document(**fields: Any) -> dict[str, Any]:
    source = {"type": "text", "media_type": "text/plain", "data": "A letter."}
    return {"type": "document", "source": source, **fields}


_FILE = "data:text/plain;base64," + b64encode(f"Dear tenant, {SECRET}.".encode()).decode()
_TEXT_FILES = {  # that begin like other files
    name: b64encode(f"{start}Dear tenant, {SECRET}.".encode()).decode()
    for name, start in (("PDF", "%PDF-"), ("control", "\f\x01"))
}
_CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": f'{{"x": "{SECRET}"}}'}}

PLACES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat: content": _chat({"role": "user", "content": SECRET}),
    "chat: text part": _chat({"role": "user", "content": [{"type": "text", "text": SECRET}]}),
    "chat: role": _chat({"role": SECRET, "content": "x"}),
    "chat: name": _chat({"role": "user", "name": SECRET, "content": "x"}),
    "chat: reasoning_content": _chat({"role": "assistant", "content": "x", "reasoning_content": SECRET}),
    "chat: refusal": _chat({"role": "assistant", "content": None, "refusal": SECRET}),
    "chat: refusal part": _chat({"role": "assistant", "content": [{"type": "refusal", "refusal": SECRET}]}),
    "chat: arguments": _chat({"role": "assistant", "content": None, "tool_calls": [_CALL]}),
    "chat: tool result": _chat({"role": "tool", "tool_call_id": "call_1", "content": SECRET}),
    "chat: file data": _chat({"role": "user", "content": [{"type": "file", "file": {"file_data": _FILE}}]}),
    "chat: file name": _chat({"role": "user", "content": [{"type": "file", "file": {"filename": SECRET}}]}),
    "chat: tool name": _chat(tools=[_tool(name=SECRET)]),
    "chat: tool description": _chat(tools=[_tool(description=SECRET)]),
    "chat: property": _chat(tools=[_tool(parameters={"type": "object", "properties": {SECRET: {"type": "string"}}})]),
    "chat: property description": _chat(tools=[_tool(parameters=_schema(description=SECRET))]),
    "chat: enum": _chat(tools=[_tool(parameters=_schema(enum=["a", SECRET, None]))]),
    "chat: default": _chat(tools=[_tool(parameters=_schema(default={"a": [SECRET]}))]),
    "chat: keyword nobody knows": _chat(tools=[_tool(parameters=_schema(**{"x-note": SECRET}))]),
    "chat: functions": _chat(functions=[{"name": "f", "description": SECRET}]),
    "chat: response format": _chat(
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": _schema(description=SECRET)}}
    ),
    "chat: prediction": _chat(prediction={"type": "content", "content": [{"type": "text", "text": SECRET}]}),
    "chat: documents": _chat(documents=[{"title": "t", "text": SECRET}]),
    "chat: document with any field": _chat(documents=[{"title": "t", "image": SECRET}]),
    "chat: document with a field named so": _chat(documents=[{SECRET: "x"}]),
    "chat: nested document": _chat(documents=[{"id": "1", "data": {"headers": [SECRET]}}]),
    "chat: template's fields": _chat(chat_template_kwargs={"headers": {"type": SECRET}}),
    **{
        f"chat: text file, {name}": _chat(
            {"role": "user", "content": [{"type": "file", "file": {"file_data": f"data:text/plain;base64,{data}"}}]}
        )
        for name, data in _TEXT_FILES.items()
    },
    "completions: prompt": ("completions", {"prompt": SECRET}),
    "completions: prompts": ("completions", {"prompt": ["x", SECRET]}),
    "completions: suffix": ("completions", {"prompt": "x", "suffix": SECRET}),
    "responses: input": ("responses", {"input": SECRET}),
    "responses: instructions": _responses(instructions=SECRET),
    "responses: input_text": _responses({"role": "user", "content": [{"type": "input_text", "text": SECRET}]}),
    "responses: arguments": _responses({"type": "function_call", "call_id": "1", "name": "f", "arguments": SECRET}),
    "responses: tool result": _responses({"type": "function_call_output", "call_id": "1", "output": SECRET}),
    "responses: tool result parts": _responses(
        {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": SECRET}]}
    ),
    "responses: reasoning": _responses({"type": "reasoning", "summary": [{"type": "summary_text", "text": SECRET}]}),
    "responses: file data": _responses({"role": "user", "content": [{"type": "input_file", "file_data": _FILE}]}),
    "responses: prompt variables": _responses(prompt={"id": "pmpt_1", "variables": {"place": SECRET}}),
    **{
        f"responses: prompt variable {name}": _responses(prompt={"variables": {name: SECRET}})
        for name in ("signature", "headers", "data")
    },
    "responses: prompt parts": _responses(prompt={"variables": {"a": {"type": "input_text", "text": SECRET}}}),
    "responses: tool description": _responses(tools=[{"type": "function", "name": "f", "description": SECRET}]),
    "responses: text format": _responses(text={"format": {"type": "json_schema", "schema": _schema(const=SECRET)}}),
    "messages: system": _messages(system=SECRET),
    "messages: system blocks": _messages(system=[{"type": "text", "text": SECRET}]),
    "messages: text": _messages({"type": "text", "text": SECRET}),
    "messages: text document": _messages(_document(source={"type": "text", "data": SECRET})),
    **{
        f"messages: text file, {name}": _messages(
            _document(source={"type": "base64", "media_type": "text/plain", "data": data})
        )
        for name, data in _TEXT_FILES.items()
    },
    "messages: document blocks": _messages(
        _document(source={"type": "content", "content": [{"type": "text", "text": SECRET}]})
    ),
    "messages: document title": _messages(_document(title=SECRET)),
    "messages: document context": _messages(_document(context=SECRET)),
    "messages: search result": _messages(
        {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": SECRET}]}
    ),
    "messages: thinking": _messages({"type": "thinking", "thinking": SECRET, "signature": "s"}, role="assistant"),
    "messages: tool use": _messages(
        {"type": "tool_use", "id": "1", "name": "f", "input": {"x": [SECRET]}}, role="assistant"
    ),
    "messages: tool use, name": _messages(
        {"type": "tool_use", "id": "1", "name": "f", "input": {SECRET: 1}}, role="assistant"
    ),
    "messages: tool result": _messages({"type": "tool_result", "tool_use_id": "1", "content": SECRET}),
    "messages: tool result document": _messages(
        {"type": "tool_result", "tool_use_id": "1", "content": [_document(source={"type": "text", "data": SECRET})]}
    ),
    "messages: tool description": _messages(tools=[{"name": "f", "description": SECRET, "input_schema": {}}]),
    "messages: input schema": _messages(tools=[{"name": "f", "input_schema": _schema(description=SECRET)}]),
}
