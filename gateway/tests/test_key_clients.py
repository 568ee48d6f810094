"""The official clients with a key: what they are told, what they raise, and when they try again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from client_keys import key, secret, write_keys
from running_gateway import ANSWER, QUESTIONS, Running, running

LAW: Any = [{"role": "user", "content": QUESTIONS["law"]}]
PRICE = {"output_per_1m": 1e6}  # an answer costs 5


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("clients")
    file = write_keys(
        folder / "keys.yaml",
        key("two", requests_per_minute=2),
        key("poor", budget_per_month=1),
        key("free"),
        key("two-messages", requests_per_minute=2),
        key("poor-messages", budget_per_month=1),
    )
    able = {"price": PRICE, "capabilities": ["chat", "messages", "tools"]}
    with running(folder, server={"keys_file": str(file)}, experts={"law": able}) as found:
        yield found


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    """Closes every client of a test."""
    with ExitStack() as found:
        yield found


def test_OpenAI_s_client(gateway: Running, clients: ExitStack) -> None:
    import openai

    def connect(name: str, retries: int = 0) -> openai.OpenAI:
        made = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=secret(name), max_retries=retries)
        return clients.enter_context(made)

    with pytest.raises(openai.AuthenticationError, match="unknown API key"):
        connect("nobody").chat.completions.create(model="auto", messages=LAW)
    two = connect("two")
    raw = two.chat.completions.with_raw_response.create(model="law", messages=LAW)
    assert raw.headers["x-ratelimit-remaining-requests"] == "1"
    two.chat.completions.create(model="law", messages=LAW)
    with pytest.raises(openai.RateLimitError) as limited:
        two.chat.completions.create(model="law", messages=LAW)
    assert limited.value.code == "rate_limit_exceeded" and int(limited.value.response.headers["retry-after"]) >= 1
    poor = connect("poor", retries=5)
    poor.chat.completions.create(model="law", messages=LAW)
    asked = len(gateway.upstream.asked)
    with pytest.raises(openai.RateLimitError) as spent:  # at once: it is told not to try again
        poor.chat.completions.create(model="law", messages=LAW)
    assert (spent.value.code, spent.value.type) == ("insufficient_quota", "insufficient_quota")
    assert len(gateway.upstream.asked) == asked
    chunks = list(connect("free").chat.completions.create(model="law", messages=LAW, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "".join(ANSWER)


@pytest.mark.clients
def test_Anthropic_s_client(gateway: Running, clients: ExitStack) -> None:
    anthropic = pytest.importorskip("anthropic")

    def connect(name: str, retries: int = 0) -> Any:
        made = anthropic.Anthropic(base_url=gateway.url, api_key=secret(name), max_retries=retries)
        return clients.enter_context(made)

    def tell(client: Any) -> Any:
        return client.messages.with_raw_response.create(model="law", max_tokens=9, messages=LAW)

    with pytest.raises(anthropic.AuthenticationError) as unknown:
        tell(connect("nobody"))
    assert unknown.value.body["error"]["type"] == "authentication_error"
    two = connect("two-messages")
    assert tell(two).headers["anthropic-ratelimit-requests-remaining"] == "1"
    tell(two)
    with pytest.raises(anthropic.RateLimitError) as limited:
        tell(two)
    assert limited.value.body["error"]["type"] == "rate_limit_error"
    assert limited.value.response.headers["anthropic-ratelimit-requests-remaining"] == "0"
    poor = connect("poor-messages", retries=5)
    tell(poor)
    with pytest.raises(anthropic.RateLimitError, match="used up its budget of 1 for this month"):
        tell(poor)
