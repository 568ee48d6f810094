"""What is asked, for the clients of both APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_WEB = "https://example.org/cat.png"


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


# Anthropic's ----------------------------------------------------------------------------------------------------------

_TOOLS = [{"name": name, "description": "Looks.", "input_schema": _CITY} for name in ("weather", "map")]
_USE = [
    _text("I look."),
    {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Zürich"}},
    {"type": "tool_use", "id": "t2", "name": "map", "input": {}},
]
_RESULTS = [
    {"type": "tool_result", "tool_use_id": "t1", "content": "It rains."},
    {"type": "tool_result", "tool_use_id": "t2", "content": [_text("no city")], "is_error": True},
    _text("Well?"),
]
_IMAGES = [
    _text("What is on these?"),
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PNG}},
    {"type": "image", "source": {"type": "url", "url": _WEB}},
]

MESSAGES: Mapping[str, dict[str, Any]] = {
    "text": {"messages": [_user("Hello, Zürich 東京 😀")]},
    "system and turns": {
        "system": [_text("Be brief."), {**_text("Be kind."), "cache_control": {"type": "ephemeral"}}],
        "messages": [_user("Hi"), {"role": "assistant", "content": "Hello."}, _user([_text("And"), _text("now?")])],
    },
    "settings": {
        "messages": [_user("Hi")],
        "metadata": {"user_id": "u1"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": _CITY}},
        "extra_body": {"temperature": 0.5, "top_p": 0.9, "top_k": 7},
    },
    "cached prompt": {"messages": [_user("cached")]},
    "thinking": {"messages": [_user("think")]},
    "one call": {"messages": [_user("call")], "tools": _TOOLS},
    "three calls": {"messages": [_user("call three")], "tools": _TOOLS, "tool_choice": {"type": "any"}},
    "calls without text": {"messages": [_user("call three, silently")], "tools": _TOOLS},
    "no parallel calls": {
        "messages": [_user("call three")],
        "tools": _TOOLS,
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    },
    "a named tool": {"messages": [_user("call")], "tools": _TOOLS, "tool_choice": {"type": "tool", "name": "map"}},
    "no tool": {"messages": [_user("Hi")], "tools": _TOOLS, "tool_choice": {"type": "none"}},
    "results of tools": {
        "messages": [_user("Rain?"), {"role": "assistant", "content": _USE}, _user(_RESULTS)],
        "tools": _TOOLS,
    },
    "images": {"messages": [_user(_IMAGES)]},
    "end at max_tokens": {"messages": [_user("end early")]},
    "end at a stop sequence": {"messages": [_user("Hi")], "stop_sequences": ["END", "STOP"]},
    "refusal": {"messages": [_user("refuse")]},
    "content filter": {"messages": [_user("filter")]},
    "error 400": {"messages": [_user("fail400")]},
    "error 429": {"messages": [_user("fail429")]},
    "error 500": {"messages": [_user("fail500")]},
}

# OpenAI's -------------------------------------------------------------------------------------------------------------

_FUNCTIONS = [
    {"type": "function", "function": {"name": name, "description": "Looks.", "parameters": _CITY}}
    for name in ("weather", "map")
]
_CALLS = [
    {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Zürich"}'}},
    {"id": "t2", "type": "function", "function": {"name": "map", "arguments": "{}"}},
]
_TOLD = [
    {"role": "tool", "tool_call_id": "t1", "content": "It rains."},
    {"role": "tool", "tool_call_id": "t2", "content": [_text("No city.")]},
]
_PARTS = [
    _text("What is on these?"),
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PNG}", "detail": "low"}},
    {"type": "image_url", "image_url": {"url": _WEB}},
]
_SCHEMA = {"type": "json_schema", "json_schema": {"name": "city", "schema": _CITY, "strict": True}}

CHATS: Mapping[str, dict[str, Any]] = {
    "text": {"messages": [_user("Hello, Zürich 東京 😀")]},
    "system and turns": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            _user("Hi"),
            {"role": "assistant", "content": "Hello."},
            _user([_text("And"), _text("now?")]),
        ]
    },
    "settings": {
        "messages": [_user("Hi")],
        "user": "u1",
        "reasoning_effort": "low",
        "response_format": _SCHEMA,
        "temperature": 0.5,
        "top_p": 0.9,
        "extra_body": {"top_k": 7},
    },
    "cached prompt": {"messages": [_user("cached")]},
    "thinking": {"messages": [_user("think")]},
    "one call": {"messages": [_user("call")], "tools": _FUNCTIONS},
    "three calls": {"messages": [_user("call three")], "tools": _FUNCTIONS, "tool_choice": "required"},
    "calls without text": {"messages": [_user("call three, silently")], "tools": _FUNCTIONS},
    "no parallel calls": {
        "messages": [_user("call three")],
        "tools": _FUNCTIONS,
        "tool_choice": "auto",
        "parallel_tool_calls": False,
    },
    "a named tool": {
        "messages": [_user("call")],
        "tools": _FUNCTIONS,
        "tool_choice": {"type": "function", "function": {"name": "map"}},
    },
    "no tool": {"messages": [_user("Hi")], "tools": _FUNCTIONS, "tool_choice": "none"},
    "results of tools": {
        "messages": [
            _user("Rain?"),
            {"role": "assistant", "content": "I look.", "tool_calls": _CALLS},
            *_TOLD,
            _user("Well?"),
        ],
        "tools": _FUNCTIONS,
    },
    "images": {"messages": [_user(_PARTS)]},
    "end at max_tokens": {"messages": [_user("end early")]},
    "end at a stop sequence": {"messages": [_user("Hi")], "stop": ["END", "STOP"]},
    "content filter": {"messages": [_user("filter")]},
    "error 400": {"messages": [_user("fail400")]},
    "error 429": {"messages": [_user("fail429")]},
    "error 500": {"messages": [_user("fail500")]},
}
