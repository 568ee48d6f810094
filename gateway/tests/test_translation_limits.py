"""What Anthropic's API rejects is not sent to it; and an expert is asked only at endpoints that it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.experts.expert import create_expert
from ir3de_gateway.headers import compile_header_filter
from ir3de_gateway.requests.forwarding import build_head
from ir3de_gateway.translation.requests import build_messages_request
from ir3de_gateway.wire import FORMATS
from raw_sockets import ask, chat
from running_gateway import QUESTIONS, running

EMPTY = [{"content": None}, {"content": ""}, {"content": []}, {}, {"content": [{"type": "text", "text": ""}]}]


@pytest.mark.parametrize("said", EMPTY)
def test_a_turn_of_the_assistant_without_words_is_left_out(said: dict[str, Any]) -> None:
    first, last = {"role": "user", "content": "Hi"}, {"role": "user", "content": "Are you there?"}
    made = build_messages_request({"messages": [first, {"role": "assistant", **said}, last]})
    assert made["messages"] == [first, last]
    refused = build_messages_request({"messages": [first, {"role": "assistant", **said, "refusal": "No."}, last]})
    assert refused["messages"] == [first, {"role": "assistant", "content": "No."}, last]


@pytest.mark.parametrize(("given", "sent"), [(0, 0), (0.7, 0.7), (1, 1), (1.3, 1), (2, 1), ("hot", "hot")])
def test_a_temperature_above_one_is_sent_as_one(given: object, sent: object) -> None:
    made = build_messages_request({"messages": [{"role": "user", "content": "Hi"}], "temperature": given})
    assert made["temperature"] == sent


@pytest.mark.parametrize(
    ("settings", "has_bearer"),
    [
        ({"capabilities": ["messages"]}, False),
        ({"capabilities": ["messages", "chat"]}, True),
        ({"capabilities": ["messages", "chat"], "provider": "openrouter"}, True),
        ({"capabilities": ["messages", "chat"], "provider": "anthropic"}, False),
    ],
)
def test_an_expert_that_has_only_anthropics_api_or_is_anthropics_gets_its_key_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], has_bearer: bool
) -> None:
    monkeypatch.setenv("LAW_KEY", "sk-upstream")
    law = {**settings, "api_key_env": "LAW_KEY"}
    with running(tmp_path, experts={"law": law}) as gateway:
        ask(gateway.url, {**chat(QUESTIONS["law"], "law"), "max_tokens": 9}, "/v1/messages")
        (headers,) = gateway.upstream.headers
    assert headers["x-api-key"] == "sk-upstream"
    assert headers.get("authorization") == ("Bearer sk-upstream" if has_bearer else None)


@pytest.mark.parametrize(
    ("base_url", "capability", "names"),
    [
        ("https://api.anthropic.com/v1", "messages", {b"x-api-key"}),
        ("https://API.Anthropic.com:443/v1", "messages", {b"x-api-key"}),
        ("https://api.anthropic.com/v1", "chat/completions", {b"authorization"}),
        ("https://api.anthropic.com.example.org/v1", "messages", {b"x-api-key", b"authorization"}),
    ],
)
def test_anthropics_own_host_gets_one_key(
    monkeypatch: pytest.MonkeyPatch, base_url: str, capability: str, names: set[bytes]
) -> None:
    monkeypatch.setenv("LAW_KEY", "sk-upstream")
    config = ExpertConfig(name="law", base_url=base_url, capabilities=("chat", "messages"), api_key_env="LAW_KEY")
    expert, forwarded = create_expert(config), compile_header_filter(())
    head = build_head(FORMATS[capability], expert, [], "r", {}, forwarded)
    assert {line.split(b":")[0].lower() for line in head.splitlines() if b"sk-upstream" in line} == names


@pytest.mark.parametrize("stream", [False, True])
def test_an_expert_that_is_named_is_not_asked_at_an_endpoint_that_it_has_not(tmp_path: Path, stream: bool) -> None:
    alone = {"translate": False}
    experts = {
        "maths": {"capabilities": ["chat", "responses"]},
        "cooking": {"fallbacks": ["maths"]} | alone,
        "law": alone,
    }
    with running(tmp_path, experts=experts) as gateway:
        asked = {"model": "law", "input": QUESTIONS["law"], "stream": stream}
        got = ask(gateway.url, asked, "/v1/responses")
        assert (got.status, got.error["code"], got.error["param"]) == (400, "no_eligible_expert", "model")
        assert "law was chosen: has no responses (capabilities). maths could answer" in got.error["message"]
        assert gateway.upstream.asked == []
        got = ask(gateway.url, {**asked, "model": "cooking", "stream": False}, "/v1/responses")
        told = got.headers
        assert (got.status, told["x-ir3de-decided"], told["x-ir3de-instead"]) == (200, "cooking", "fallback")
        assert gateway.upstream.asked == ["maths"]
