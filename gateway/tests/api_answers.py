"""Answers as the servers of OpenAI and Anthropic give them, and a gateway in front of experts that say them.

They hold what a careless relay would spoil: spacing, escapes, numbers too long for a float, fields nobody knows.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ir3de_gateway.experts.circuit_breaker import CircuitBreaker
from running_gateway import TEXTS, Behaviour, Running, running

EVERYTHING = ("chat", "completions", "responses", "messages", "embeddings", "tools", "vision")
WORDS = ("Caf\u00e9", ", ", "it ", "depends", ".")
SAID = "".join(WORDS)
USAGE = b'{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":0}}'

_CHAT = (
    b'{ "id":"chatcmpl-1", "object":"chat.completion","created":1700000000,"model":"served", "choices":[{"index":0,'
    b'"message":%s,"logprobs":null,"finish_reason":"%s"}],\n "usage":' + USAGE + b","
    b'"seed": 12345678901234567890123,"odd":1.10000000000000000000,"tiny":1E-400,"new_field":{"a" :[ ]} }\n'
)
CHAT = _CHAT % (b'{"role":"assistant","content":"Caf\\u00e9, it depends.","refusal":null}', b"stop")
PARSED = _CHAT % (b'{"role":"assistant","content":"{\\"value\\": 4}","refusal":null}', b"stop")
TOOL_CALL = _CHAT % (
    b'{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"call_1","type":"function","function":'
    b'{"name":"weather","arguments":"{\\"city\\": \\"Z\\u00fcrich\\"}"}}]}',
    b"tool_calls",
)
COMPLETION = (
    b'{"id":"cmpl-1","object":"text_completion","created":1,"model":"served","choices":[{"text":'
    b'"Caf\\u00e9, it depends.","index":0,"logprobs":null,"finish_reason":"stop"}],"usage":' + USAGE + b"}"
)
EMBEDDING = (
    b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1.0,1e-3]}],"model":"served",'
    b'"usage":{"prompt_tokens":1,"total_tokens":1}}'
)
_RESPONSE = (
    b'{"id":"resp_1","object":"response","created_at":1,"status":"%s","model":"served","output":[%s],"error":null,'
    b'"incomplete_details":null,"instructions":null,"metadata":{},"parallel_tool_calls":true,"temperature":1.0,'
    b'"tool_choice":"auto","tools":[],"top_p":1.0,"usage":%s}'
)
_OUTPUT = (
    b'{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text",'
    b'"text":"Caf\\u00e9, it depends.","annotations":[]}]}'
)
_RESPONSE_USAGE = (
    b'{"input_tokens":10,"input_tokens_details":{"cached_tokens":0},"output_tokens":5,'
    b'"output_tokens_details":{"reasoning_tokens":0},"total_tokens":15}'
)
RESPONSE = _RESPONSE % (b"completed", _OUTPUT, _RESPONSE_USAGE)
MESSAGE = (
    b'{"id":"msg_1","type":"message","role":"assistant","model":"served","content":[{"type":"text",'
    b'"text":"Caf\\u00e9, it depends."}],"stop_reason":"end_turn","stop_sequence":null,'
    b'"usage":{"input_tokens":10,"output_tokens":5}}'
)


def _chunk(object_: str, choice: dict[str, Any] | None, **more: Any) -> bytes:
    choices = [] if choice is None else [{"index": 0, "finish_reason": None, **choice}]
    value = {"id": "c1", "object": object_, "created": 1, "model": "served", "choices": choices, **more}
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _events(object_: str, choices: list[dict[str, Any]]) -> list[bytes]:
    usage = _chunk(object_, None, usage=json.loads(USAGE))
    return [*(_chunk(object_, choice) for choice in choices), usage, b"data: [DONE]\n\n"]


def _named(name: str, **fields: Any) -> bytes:
    return f"event: {name}\ndata: ".encode() + json.dumps({"type": name, **fields}).encode() + b"\n\n"


_DELTAS = [{"delta": {"role": "assistant", "content": ""}}, *({"delta": {"content": word}} for word in WORDS)]
_CALLS = [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": '}}]
_MORE = [{"function": {"arguments": '"Zürich"}'}}]
CHAT_EVENTS = _events("chat.completion.chunk", [*_DELTAS, {"delta": {}, "finish_reason": "stop"}])
TOOL_EVENTS = _events(
    "chat.completion.chunk",
    [
        {"delta": {"role": "assistant", "content": None}},
        *({"delta": {"tool_calls": [{"index": 0, **call}]}} for call in (*_CALLS, *_MORE)),
        {"delta": {}, "finish_reason": "tool_calls"},
    ],
)
COMPLETION_EVENTS = _events("text_completion", [{"text": word, "logprobs": None} for word in WORDS])
_WHERE = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
RESPONSE_EVENTS = [
    _named("response.created", sequence_number=0, response=json.loads(_RESPONSE % (b"in_progress", b"", b"null"))),
    *(
        _named("response.output_text.delta", sequence_number=1 + place, delta=word, logprobs=[], **_WHERE)
        for place, word in enumerate(WORDS)
    ),
    _named("response.completed", sequence_number=9, response=json.loads(RESPONSE)),
]
_BEGUN = {**json.loads(MESSAGE), "content": [], "stop_reason": None}
MESSAGE_EVENTS = [
    _named("message_start", message=_BEGUN),
    _named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    _named("ping"),
    *(_named("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in WORDS),
    _named("content_block_stop", index=0),
    _named("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 5}),
    _named("message_stop"),
]

HEADERS = {
    "content-type": "application/json",
    "openai-organization": "org-upstream",
    "openai-processing-ms": "12",
    "x-ratelimit-remaining-requests": "41",
}


def answer_for(path: str, asked: dict[str, Any]) -> bytes | list[bytes]:
    """What a server says to a request: an object, or the events of a stream."""
    if path.endswith("embeddings"):
        return EMBEDDING
    if path.endswith("responses"):
        return RESPONSE_EVENTS if asked.get("stream") else RESPONSE
    if path.endswith("messages"):
        return MESSAGE_EVENTS if asked.get("stream") else MESSAGE
    if path.endswith("chat/completions"):
        wants_tool = asked.get("tools") and asked["messages"][-1]["role"] != "tool"
        if asked.get("stream"):
            return TOOL_EVENTS if wants_tool else CHAT_EVENTS
        return TOOL_CALL if wants_tool else PARSED if "response_format" in asked else CHAT
    return COMPLETION_EVENTS if asked.get("stream") else COMPLETION


async def answer_as_servers_do(request: Request, asked: dict[str, Any]) -> Response:
    said = answer_for(request.url.path, asked)
    if isinstance(said, bytes):
        return Response(said, headers=HEADERS)
    return StreamingResponse(_one_by_one(said), headers={**HEADERS, "content-type": "text/event-stream; charset=utf-8"})


async def _one_by_one(events: list[bytes]) -> AsyncIterator[bytes]:
    for event in events:
        yield event
        await asyncio.sleep(0)


def saying(body: bytes, status: int = 200, **headers: str) -> Behaviour:
    """An expert that always says this."""

    async def say(request: Request, asked: dict[str, Any]) -> Response:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return Response(body, status, {"content-type": "application/json", **given})

    return say


def breaking_off(events: list[bytes]) -> Behaviour:
    """An expert whose stream is cut after these events."""

    async def stream() -> AsyncIterator[bytes]:
        for event in events:
            yield event
            await asyncio.sleep(0)

    async def say(request: Request, asked: dict[str, Any]) -> Response:
        return StreamingResponse(stream(), media_type="text/event-stream")

    return say


async def never(request: Request, asked: dict[str, Any]) -> Response:
    """An expert that does not answer as long as anybody waits."""
    while (await request._receive())["type"] != "http.disconnect":
        pass
    return Response()


@contextmanager
def serving(folder: Path, **changes: Any) -> Iterator[Running]:
    """A gateway in front of experts that can do everything and never rest."""
    special = changes.pop("experts", {})
    usual = {"capabilities": EVERYTHING, "breaker": {"failures": 10_000}}
    experts = {name: {**usual, "model": f"{name}-v1", **special.get(name, {})} for name in TEXTS}
    with running(folder, experts=experts, **changes) as gateway:
        tell_all(gateway)
        yield gateway


def tell_all(gateway: Running) -> None:
    """Let the experts answer as servers do, and forget what they were asked."""
    upstream = gateway.upstream
    upstream.behaviour.update(dict.fromkeys(TEXTS, answer_as_servers_do))
    for kept in (upstream.bodies, upstream.headers, upstream.asked):
        kept.clear()
    for expert in gateway.gateway.live.snapshot.experts.values():
        expert.breaker = CircuitBreaker(**expert.config.breaker.model_dump())


def without_provenance(content: bytes) -> tuple[bytes, dict[str, Any]]:
    """An answer with the field `ir3de` cut out, and that field."""
    start = content.index(b',"ir3de":')
    text = content[start:].decode()
    value, end = json.JSONDecoder().raw_decode(text, len(',"ir3de":'))
    return content[:start] + text[end:].encode(), value


async def answers_as_openai(request: Request, asked: dict[str, Any]) -> Response:
    """A stream with its usage in an event of its own, and only if it was asked for."""

    async def events() -> Any:
        yield b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"Yes"},"finish_reason":null}]}\n\n'
        yield b'data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\r\n\r\n'
        if (asked.get("stream_options") or {}).get("include_usage"):
            yield b'data: {"id":"1","choices":[],"usage":{"prompt_tokens":70,"completion_tokens":7}}\n\n'
        yield b"data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")
