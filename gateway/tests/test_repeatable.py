"""Which requests may reach an expert twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api_answers import never
from ir3de_gateway.requests.forwarding import OutgoingBody
from ir3de_gateway.requests.json_body import JsonBody
from ir3de_gateway.wire import FORMATS
from raw_sockets import ask, chat
from replicated_expert import fail_all, replicated


@pytest.mark.parametrize(
    ("path", "more", "is_repeatable"),
    [
        ("chat/completions", {}, True),
        ("chat/completions", {"store": False}, True),
        ("chat/completions", {"store": True}, False),
        ("responses", {}, False),  # stored by default
        ("responses", {"store": None}, False),
        ("responses", {"store": False}, True),
        ("responses", {"store": False, "background": True}, False),
        ("embeddings", {}, True),
        ("chat/completions", {"tools": [{"type": "function", "function": {"name": "f"}}]}, True),
        ("responses", {"store": False, "tools": [{"type": "function", "name": "f"}, {"type": "mcp"}]}, False),
        ("messages", {"mcp_servers": [{"type": "url", "url": "https://x/"}]}, False),
        ("messages", {"mcp_servers": []}, True),
    ],
)
def test_what_is_stored_or_goes_on_in_the_background_is_sent_once(
    path: str, more: dict[str, Any], is_repeatable: bool
) -> None:
    wire = FORMATS[path]
    content = {"model": "auto", "messages": [{"role": "user", "content": "x"}], "input": "x", **more}
    for parse in (JsonBody.parse, JsonBody.parse_large):
        body = parse(json.dumps(content).encode(), 10)
        assert OutgoingBody.from_request(wire, body).is_repeatable == is_repeatable


def test_an_mcp_tool_is_seen_in_a_request_of_any_size() -> None:
    tools = [{"type": "function", "name": f"f{n}", "parameters": {"description": "x" * 999}} for n in range(99)]
    content = {"model": "auto", "input": "x", "store": False, "tools": [*tools, {"type": "mcp", "server_label": "s"}]}
    body = JsonBody.parse_large(json.dumps(content).encode(), 10)
    assert not OutgoingBody.from_request(FORMATS["responses"], body).is_repeatable


def test_hedges_repeat_no_images_no_speech_and_no_calls_of_mcp_servers(tmp_path: Path) -> None:
    law = {"hedge_after": 0.02, "capabilities": ["chat", "responses", "messages", "images", "audio_speech"]}
    law |= {"timeouts": {"first_token": 0.3}, "breaker": {"failures": 10_000}, "retries": {"others": 0}}
    mcp = {"type": "mcp", "server_label": "s", "server_url": "https://x/"}
    requests = {
        "images/generations": {"prompt": "a cat"},
        "audio/speech": {"input": "hello", "voice": "v"},
        "responses": {"input": "x", "store": False, "tools": [mcp]},
        "messages": {"max_tokens": 9, "messages": chat("x")["messages"], "mcp_servers": [{"url": "https://x/"}]},
    }
    with replicated(tmp_path, law, routing={"fallbacks": 0}) as gateway:
        fail_all(gateway, never)
        for path, body in requests.items():
            gateway.upstream.asked.clear()
            assert ask(gateway.url, {"model": "law", **body}, f"/v1/{path}").status == 504
            assert len(gateway.upstream.asked) == 1, path
