"""A real model behind both APIs: llama.cpp is asked natively, and through the gateway in the other format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("xllamacpp")
openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")

from ir3de.embedding import packaged_models  # noqa: E402
from ir3de_gateway.app import create_app  # noqa: E402
from ir3de_gateway.config.document import Config  # noqa: E402
from ir3de_gateway.gateway import Gateway  # noqa: E402
from ir3de_gateway.local import DEMO_MODEL, local_model  # noqa: E402
from running_gateway import served, small_router  # noqa: E402

pytestmark = pytest.mark.local

HELLO: Any = [{"role": "user", "content": "Name three colours, please."}]
FIXED: Any = {"temperature": 0}  # the same answer each time


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Of llama.cpp, and of a gateway that knows it as two experts with one API each."""
    router = tmp_path_factory.mktemp("local") / "router"
    small_router().save(router)
    with local_model(packaged_models.locate(DEMO_MODEL), name="small", slots=1, context=512, threads=1) as base_url:
        experts = [
            {"name": "law", "base_url": base_url, "capabilities": ["chat"]},
            {"name": "maths", "base_url": base_url, "capabilities": ["messages"]},
        ]
        config = {"router": {"path": str(router)}, "experts": experts, "logs": {"access": None}}
        with served(create_app(Gateway.open(Config.model_validate(config)))) as gateway:
            yield base_url.removesuffix("/v1"), gateway


def messages(address: str, model: str, tokens: int, *, streamed: bool) -> tuple[Any, ...]:
    asked = {"model": model, "max_tokens": tokens, "messages": HELLO, "system": "Be brief.", "extra_body": FIXED}
    with anthropic.Anthropic(base_url=address, api_key="none", max_retries=0) as client:
        if streamed:
            with client.messages.stream(**asked) as stream:
                answer = stream.get_final_message()
        else:
            answer = client.messages.create(**asked)
    usage = answer.usage
    counts = (usage.input_tokens + (usage.cache_read_input_tokens or 0), usage.output_tokens)
    return "".join(block.text for block in answer.content), counts, answer.stop_reason


def chat(address: str, model: str, tokens: int, *, streamed: bool) -> tuple[Any, ...]:
    talk = [{"role": "system", "content": "Be brief."}, *HELLO]
    asked = {"model": model, "max_tokens": tokens, "messages": talk, "extra_body": FIXED}
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        if not streamed:
            answer = client.chat.completions.create(**asked)
            choice, usage = answer.choices[0], answer.usage
            return choice.message.content, (usage.prompt_tokens, usage.completion_tokens), choice.finish_reason
        chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
        usage = chunks[-1].usage
        text = "".join(choice.delta.content or "" for choice in choices)
        return text, (usage.prompt_tokens, usage.completion_tokens), choices[-1].finish_reason


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("ask", "expert"), [(messages, "law"), (chat, "maths")])
@pytest.mark.parametrize("tokens", [4, 30])
def test_a_real_model_says_the_same_translated(
    addresses: tuple[str, str], ask: Any, expert: str, tokens: int, streamed: bool
) -> None:
    native, gateway = addresses
    expected = ask(native, "small", tokens, streamed=streamed)
    assert ask(gateway, expert, tokens, streamed=streamed) == expected
    assert expected[0] and expected[1][0] > 5 and (tokens > 4 or expected[2] in ("max_tokens", "length"))
