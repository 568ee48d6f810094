"""Local experts are real: llama.cpp serves SmolLM2-135M, the official client asks it, alone and behind the gateway."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

pytest.importorskip("xllamacpp")
openai = pytest.importorskip("openai")

import running_gateway  # noqa: E402
from ir3de import Router  # noqa: E402
from ir3de.corpora.examples import DOMAINS  # noqa: E402
from ir3de.embedding import packaged_models  # noqa: E402
from ir3de.errors import ArtifactError, InputError  # noqa: E402
from ir3de_gateway.app import create_app  # noqa: E402
from ir3de_gateway.config.document import Config  # noqa: E402
from ir3de_gateway.gateway import Gateway  # noqa: E402
from ir3de_gateway.local import DEMO_MODEL, PERSONAS, demo, local_model  # noqa: E402
from running_gateway import served  # noqa: E402

HELLO: Any = [{"role": "user", "content": "Say hello."}]
FIXED: Any = {"temperature": 0, "max_tokens": 6}
SMALL: Any = {"slots": 2, "context": 256, "threads": 1}


CLIENTS: list[Any] = []


def client(base_url: str) -> Any:
    """The official client; it is closed when the test ends."""
    CLIENTS.append(openai.OpenAI(base_url=base_url, api_key="none", max_retries=0))
    return CLIENTS[-1]


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    yield
    while CLIENTS:
        CLIENTS.pop().close()


def content(answer: Any) -> str:
    return str(answer.choices[0].message.content)


def adapter(path: Path) -> Path:
    """A LoRA adapter of the model's first layers, with random weights large enough to be noticed."""
    gguf = pytest.importorskip("gguf")
    writer, random = gguf.GGUFWriter(path, "llama"), np.random.default_rng(0)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    for layer in range(4):
        for part, shape in (("a", (1, 576)), ("b", (576, 1))):
            writer.add_tensor(f"blk.{layer}.attn_q.weight.lora_{part}", random.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


# the model alone --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    lora = adapter(tmp_path_factory.mktemp("adapters") / "random.gguf")
    with local_model(
        packaged_models.locate(DEMO_MODEL), name="small", answer=3, embeddings=True, adapters=[lora], **SMALL
    ) as base_url:
        yield base_url


@pytest.mark.local
def test_it_answers_the_official_client_and_ends_where_it_was_told(alone: str) -> None:
    answer = client(alone).chat.completions.create(model="any", messages=HELLO)
    assert (answer.model, answer.usage.completion_tokens, answer.choices[0].finish_reason) == ("small", 3, "length")
    longer = client(alone).chat.completions.create(model="any", messages=HELLO, max_completion_tokens=5)
    assert longer.usage.completion_tokens == 5


@pytest.mark.local
@pytest.mark.parametrize("stream", [False, True])
def test_spans_name_it_as_it_names_itself(alone: str, tmp_path: Path, stream: bool) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from collected_telemetry import Collected

    with running_gateway.running(tmp_path, experts={"law": {"base_url": alone, "model": "any"}}) as gateway:
        collected = Collected(gateway)
        body = {"model": "law", "messages": HELLO, "stream": stream, "stream_options": {"include_usage": True}}
        assert collected.ask("chat/completions", body).status == 200
        said = collected.said
    assert collected.span.name == "chat any" and said["gen_ai.provider.name"] == "llama.cpp"
    assert said["gen_ai.response.model"] == "small" and said["gen_ai.response.id"].startswith("chatcmpl-")
    assert said["gen_ai.response.finish_reasons"] == ("length",) and said["gen_ai.usage.output_tokens"] == 3


@pytest.mark.local
def test_a_stream_adds_up_to_the_whole_answer(alone: str) -> None:
    asked = {"model": "any", "messages": HELLO, **FIXED}
    pieces = [
        piece.choices[0].delta.content or ""
        for piece in client(alone).chat.completions.create(**asked, stream=True)
        if piece.choices
    ]
    assert len(pieces) > 3
    assert "".join(pieces) == content(client(alone).chat.completions.create(**asked)) != ""


@pytest.mark.local
def test_an_adapter_changes_the_answers_it_is_named_for_and_no_other(alone: str) -> None:
    def ask(*adapters: dict[str, Any]) -> str:
        asked = {"model": "any", "messages": HELLO, **FIXED}
        return content(client(alone).chat.completions.create(**asked, extra_body={"lora": list(adapters)}))

    plain, adapted, plain_again = ask(), ask({"id": 0, "scale": 1.0}), ask()
    assert plain == plain_again != adapted


@pytest.mark.local
def test_it_embeds(alone: str) -> None:
    same, again, other = (
        row.embedding
        for row in client(alone)
        .embeddings.create(model="any", input=["law", "law", "an egg"], encoding_format="float")
        .data
    )
    assert len(same) == 576
    assert np.dot(same, again) > 0.999 > np.dot(same, other)


# how it begins and ends -------------------------------------------------------------------------------------------


def refused(base_url: str) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((urlsplit(base_url).hostname, urlsplit(base_url).port)) != 0


@pytest.mark.local
def test_it_ends_at_once_whoever_is_being_answered() -> None:
    endless: Any = {"model": "any", "messages": HELLO, "max_tokens": 240, "extra_body": {"ignore_eos": True}}
    ended: list[Exception] = []

    def ask(base_url: str) -> None:
        try:
            client(base_url).chat.completions.create(**endless)
        except openai.APIError as error:
            ended.append(error)

    with local_model(packaged_models.locate(DEMO_MODEL), **SMALL) as base_url:
        waiting = threading.Thread(target=ask, args=(base_url,))
        waiting.start()
        stream = client(base_url).chat.completions.create(**endless, stream=True)
        next(iter(stream))
    assert refused(base_url)
    waiting.join(20)
    assert [type(error) for error in ended] == [openai.APIConnectionError]


@pytest.mark.local
def test_it_does_not_outlive_a_gateway_that_is_killed() -> None:
    program = f"""
import sys, time
from ir3de_gateway.local import local_model
with local_model({packaged_models.locate(DEMO_MODEL)!r}, slots=1, context=64, threads=1) as base_url:
    print(base_url, flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        base_url = gateway.stdout.readline().strip()
        assert not refused(base_url)
        gateway.kill()
    deadline = time.monotonic() + 20
    while not refused(base_url):
        assert time.monotonic() < deadline, "llama.cpp still listens"
        time.sleep(0.02)


def test_what_is_no_model_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="does not exist"), local_model(tmp_path / "nothing.gguf"):
        pass
    (tmp_path / "text.gguf").write_text("hello")
    text, said = local_model(tmp_path / "text.gguf"), r"cannot serve .*text\.gguf.*a complete GGUF file"
    with pytest.raises(ArtifactError, match=said), text:
        pass
    assert capfd.readouterr() == ("", "")  # llama.cpp's own words are for IR3DE_LOG_LEVEL=debug


# the demo ---------------------------------------------------------------------------------------------------------

QUESTIONS = {
    "coding": "Write a Python function that reverses a list.",
    "mathematics": "Prove that the square root of 3 is irrational.",
    "law": "Can my landlord keep the deposit after the lease ended?",
    "medicine": "What are the symptoms of iron deficiency?",
    "history": "Why did the Roman Empire fall?",
}


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[str, Config, list[str]]]:
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("IR3DE_ADMIN_TOKEN", raising=False)
        with demo(said.append) as config, served(create_app(Gateway.open(config))) as url:
            yield url, config, said


@pytest.mark.local
@pytest.mark.parametrize("domain", DOMAINS)
def test_a_question_of_a_domain_is_answered_by_its_expert_as_it_was_told_to(running: Any, domain: str) -> None:
    url, config, _ = running
    asked = {"messages": [{"role": "user", "content": QUESTIONS[domain]}], **FIXED}
    answer = client(f"{url}/v1").chat.completions.create(model="auto", **asked)
    assert (answer.ir3de["expert"], answer.model) == (domain, DEMO_MODEL)
    expert = config.by_name[domain]
    told = {"role": "system", "content": PERSONAS[domain][0]}
    direct: Any = {**asked, "messages": [told, *asked["messages"]]}
    penalty = {"repeat_penalty": expert.defaults["repeat_penalty"]}
    same = client(expert.base_url).chat.completions.create(model=DEMO_MODEL, **direct, extra_body=penalty)
    assert answer.usage.prompt_tokens == same.usage.prompt_tokens
    assert content(answer) == content(same) != ""


@pytest.mark.local
def test_the_demo_streams_and_says_what_it_does(running: Any) -> None:
    url, _, said = running
    asked = {"model": "auto", "messages": [{"role": "user", "content": QUESTIONS["law"]}], **FIXED}
    pieces = list(client(f"{url}/v1").chat.completions.create(**asked, stream=True))
    assert "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    assert [line.split()[0] for line in said] == ["Model:", "Fitting", "Starting"]


@pytest.mark.nightly
@pytest.mark.local
def test_the_demo_s_experts_serve_a_router_of_one_s_own(tmp_path: Path) -> None:
    Router.fit({"law": ["Is this contract void?"], "cooking": ["How do I boil an egg?"]}).save(tmp_path / "router")
    said: list[str] = []
    with demo(said.append, router=tmp_path / "router") as config, served(create_app(Gateway.open(config))) as url:
        assert [expert.name for expert in config.experts] == ["law", "cooking"]
        assert "cooking" in (config.by_name["cooking"].system_prompt or "")
        asked = {"messages": [{"role": "user", "content": "How do I boil an egg?"}], **FIXED}
        answer = client(f"{url}/v1").chat.completions.create(model="auto", **asked)
    assert answer.ir3de["expert"] == "cooking" and content(answer)
    assert [line.split()[0] for line in said] == ["Model:", "Starting"]


@pytest.mark.local
def test_a_missing_router_is_named_before_a_model_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"no router at .*leave --router out"), demo(router=tmp_path / "none"):
        pass
