"""Whatever JSON stands in a request, the gateway answers it or rejects it: a legal request never makes it fail."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

import tiny
from api_answers import answer_for, serving
from client_keys import bearer, key, write_keys
from running_gateway import TEXTS, Running

SAID = [{"role": "user", "content": "Is my contract void?"}]
REQUESTS: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": SAID},
    "completions": {"prompt": "Is my contract void?"},
    "responses": {"input": SAID},
    "messages": {"max_tokens": 9, "messages": SAID},
}
IGNORED = (  # what routing does not read, though models and token estimates may
    "tools", "functions", "tool_choice", "response_format", "metadata", "text", "reasoning", "thinking", "stop", "user",
    "logit_bias", "prediction", "suffix", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens",
    "n", "seed", "audio", "modalities", "include", "truncation", "output_config", "service_tier", "mcp_servers",
    "stop_sequences", "temperature", "documents", "query", "logprobs",
)  # fmt: skip
INSIDE = ("name", "tool_calls", "function_call", "reasoning_content", "refusal", "tool_call_id", "cache_control", "id")
NAMES = ("type", "text", "content", "function", "parameters", "properties", "enum", "description", "image", "document")
SCHEMA = {"type": ["string", "null"], "properties": {"type": {"type": "object"}}, "enum": [None, {"type": {}}]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.sampled_from(NAMES) | st.text(st.characters(codec=None), max_size=5)  # halves of pairs, too
anything = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


async def answer_anything(request: Request, asked: dict[str, Any]) -> Response:
    """The expert itself does not stumble over the request."""
    said = answer_for(request.url.path, {"stream": asked.get("stream")})
    if isinstance(said, bytes):
        return Response(said, media_type="application/json")
    return StreamingResponse(iter(said), media_type="text/event-stream")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Whatever reads a request does so here: context windows, keys, hooks, translations, prompts in the log."""
    folder = tmp_path_factory.mktemp("any")
    keys = write_keys(folder / "keys.yaml", key("counted"))
    experts: dict[str, dict[str, Any]] = {name: {"context_window": 10**13} for name in TEXTS}
    experts["maths"]["capabilities"] = ["messages", "tools", "vision"]  # for chats, its answers are translated
    experts["law"]["capabilities"] = ["chat", "completions", "responses", "tools", "vision"]
    hook = {"call": "hook_functions:before"}
    logs = {"access": None, "decisions": str(folder / "decisions.log"), "prompts": True}
    with serving(folder, experts=experts, server={"keys_file": str(keys)}, hooks={"before": [hook]}, logs=logs) as one:
        one.upstream.behaviour.update(dict.fromkeys(TEXTS, answer_anything))
        yield one


@pytest.mark.parametrize("path", REQUESTS)
@given(
    fields=st.dictionaries(st.sampled_from(IGNORED), anything, max_size=3),
    inside=st.dictionaries(st.sampled_from(INSIDE), anything, max_size=2),
    part=st.none() | st.dictionaries(texts, anything, max_size=3),
    model=st.sampled_from(["auto", "law", "maths"]),
    is_large=st.booleans(),
)
@example({"tools": [TOOL]}, {}, None, "auto", False)
@example({"tools": [{"type": "function", "name": "f", "parameters": SCHEMA}]}, {}, None, "auto", True)
@example({"tools": [{"name": "f", "input_schema": SCHEMA}]}, {}, None, "auto", False)
@example({"tools": {"type": {}}, "response_format": SCHEMA, "metadata": SCHEMA}, {}, None, "auto", False)
@tiny.law_settings(suppress_health_check=list(HealthCheck))
def test_no_json_in_a_field_that_routing_ignores_is_an_error_of_the_gateway(
    gateway: Running, path: str, fields: dict[str, Any], inside: dict[str, Any], part: Any, model: str, is_large: bool
) -> None:
    body = {**REQUESTS[path], **fields, "model": model}
    for name in ("messages", "input"):
        if name in body:
            body[name] = [{"role": "assistant", **inside, "content": None}, *SAID]
            if part is not None:
                parts = [{"type": "text", "text": "Is it void?"}, {"type": "tool_result", **part}]
                body[name].append({"role": "user", "content": parts})
    if is_large:
        body["padding"] = [[]] * 20_000
    status, answer = ask(gateway, path, body)
    assert status in (200, 400), answer


def ask(gateway: Running, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(gateway.url).netloc, timeout=30)
    try:
        connection.request("POST", f"/v1/{path}", json.dumps(body).encode(), bearer("counted"))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
