"""Clients that already exist, each installed or left out: curl, Anthropic's, LangChain's, and the examples for all."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from api_answers import (
    CHAT_EVENTS,
    MESSAGE_EVENTS,
    PARSED,
    SAID,
    WORDS,
    breaking_off,
    saying,
    serving,
    tell_all,
    without_provenance,
)
from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.events import EventRelay
from running_gateway import QUESTIONS, Running

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "clients"
NEEDS = {"openai": "openai", "anthropic": "anthropic", "langchain": "langchain_openai", "litellm": "litellm"}
LAW = [{"role": "user", "content": QUESTIONS["law"]}]

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@pytest.fixture(scope="module")
def one_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("clients")) as gateway:
        yield gateway


@pytest.fixture
def gateway(one_gateway: Running) -> Running:
    tell_all(one_gateway)
    return one_gateway


# curl ---------------------------------------------------------------------------------------------------------------


def curl(gateway: Running, *arguments: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    json_header = ("-H", "content-type: application/json")
    address = f"{gateway.url}/v1/chat/completions"
    return subprocess.run(
        ["curl", "-sS", "--max-time", "30", address, *json_header, *arguments], input=given, capture_output=True
    )


def chat(**fields: Any) -> str:
    return json.dumps({"model": "auto", "messages": LAW, **fields})


@needs_curl
def test_curl_gets_the_stream_s_bytes_to_the_end(gateway: Running) -> None:
    done = curl(gateway, "-N", "-d", chat(stream=True))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(b"\n\ndata: [DONE]\n\n")
    assert without_provenance(done.stdout)[0] == b"".join(CHAT_EVENTS)


@needs_curl
def test_events_are_not_held_back(gateway: Running) -> None:
    seen = threading.Event()

    async def wait_for_reader(request: Request, asked: Any) -> Response:
        async def events() -> Any:
            yield CHAT_EVENTS[1]
            assert await asyncio.to_thread(seen.wait, 20), "the first event did not arrive before the second was sent"
            yield b"".join(CHAT_EVENTS[2:])

        return StreamingResponse(events(), media_type="text/event-stream")

    gateway.upstream.behaviour["law"] = wait_for_reader
    command = ["curl", "-sSN", "--max-time", "30", f"{gateway.url}/v1/chat/completions", "-d", chat(stream=True)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()[len(b"data: ") :])["choices"][0]["delta"]["content"] == WORDS[0]
        seen.set()
        assert process.stdout.read().endswith(b"data: [DONE]\n\n")
    assert process.returncode == 0


@needs_curl
@pytest.mark.parametrize(
    "arguments", [("--http1.0",), ("--compressed",), ("-H", "transfer-encoding: chunked")], ids=lambda found: found[-1]
)
def test_curl_s_other_ways_of_asking(gateway: Running, arguments: tuple[str, ...]) -> None:
    for stream in (False, True):
        done = curl(gateway, "--fail-with-body", *arguments, "-d", chat(stream=stream))
        assert done.returncode == 0, done.stderr
        assert b'"expert":"law"' in done.stdout
    assert "accept-encoding" not in gateway.upstream.headers[0] or (
        gateway.upstream.headers[0]["accept-encoding"] == "identity"
    )


@needs_curl
def test_a_body_large_enough_for_curl_to_ask_first(gateway: Running) -> None:
    body = chat(padding="x" * 2_000_000).encode()
    done = curl(gateway, "-v", "--data-binary", "@-", given=body)
    assert b"< HTTP/1.1 100 Continue" in done.stderr
    assert gateway.upstream.bodies == [body.replace(b'"auto"', b'"law-v1"')]


@needs_curl
def test_curl_sees_errors_as_such(gateway: Running) -> None:
    for body, status in ((chat(model="nobody"), "404"), ("{", "400")):
        done = curl(gateway, "--fail-with-body", "-w", "\n%{http_code}", "-d", body)
        said, _, code = done.stdout.decode().rpartition("\n")
        assert (done.returncode, code) == (22, status)
        assert set(json.loads(said)["error"]) == {"message", "type", "param", "code"}


# Anthropic ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def claude(gateway: Running) -> Iterator[Any]:
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=gateway.url, api_key="any", max_retries=0) as client:
        yield client


@pytest.mark.clients
def test_anthropic_s_messages(gateway: Running, claude: Any) -> None:
    answer = claude.messages.create(model="auto", max_tokens=9, system="Boil an egg.", messages=LAW)
    assert answer.content[0].text == SAID
    assert answer.ir3de["expert"] == "law"
    events = list(claude.messages.create(model="auto", max_tokens=9, messages=LAW, stream=True))
    named = [re.match(rb"event: (\w+)", event).group(1).decode() for event in MESSAGE_EVENTS]  # type: ignore[union-attr]
    assert [event.type for event in events] == [name for name in named if name != "ping"]
    assert events[0].ir3de["expert"] == "law"
    with claude.messages.stream(model="auto", max_tokens=9, messages=LAW) as stream:
        assert "".join(stream.text_stream) == SAID
        assert stream.get_final_message().usage.output_tokens == 5
    assert gateway.upstream.asked == ["law"] * 3
    assert "anthropic-version" in gateway.upstream.headers[0]
    assert "x-api-key" not in gateway.upstream.headers[0]  # the gateway's, not the expert's


@pytest.mark.clients
def test_anthropic_s_tokens_are_counted_by_the_expert(gateway: Running, claude: Any) -> None:
    gateway.upstream.behaviour["law"] = saying(b'{"input_tokens": 7}')
    assert claude.messages.count_tokens(model="auto", messages=LAW).input_tokens == 7


def test_messages_tell_the_prompt_s_tokens_first_and_the_answer_s_last() -> None:
    relay = EventRelay(FORMATS["messages"])
    for event in MESSAGE_EVENTS:
        relay.feed(event)
    assert relay.find_usage() == {"input_tokens": 10, "output_tokens": 5}


@pytest.mark.clients
def test_anthropic_s_errors(gateway: Running, claude: Any) -> None:
    import anthropic

    with pytest.raises(anthropic.NotFoundError) as unknown:
        claude.messages.create(model="nobody", max_tokens=9, messages=LAW)
    assert unknown.value.body["type"] == "error"
    assert unknown.value.body["error"]["type"] == "not_found_error"
    gateway.upstream.behaviour["law"] = breaking_off(MESSAGE_EVENTS[:5])
    with pytest.raises(anthropic.APIStatusError, match="ended its stream in the middle"):
        list(claude.messages.create(model="law", max_tokens=9, messages=LAW, stream=True))


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    """Closes every client of a test."""
    with ExitStack() as found:
        yield found


def close_clients(program: Mapping[str, object]) -> None:
    """Close the clients that an example leaves to the end of its process."""
    for value in program.values():
        client = getattr(value, "root_client", value)  # LangChain's models have the client of OpenAI inside
        if type(client).__module__.startswith(("openai", "anthropic")) and hasattr(client, "close"):
            client.close()


# LangChain ----------------------------------------------------------------------------------------------------------


@pytest.mark.clients
def test_LangChain_s_ChatOpenAI(gateway: Running, clients: ExitStack) -> None:
    langchain = pytest.importorskip("langchain_openai")
    import httpx
    from pydantic import BaseModel

    class Value(BaseModel):
        value: int

    def weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    own = clients.enter_context(httpx.Client())  # its own default is kept, open, for the whole process
    model = langchain.ChatOpenAI(
        model="auto", base_url=f"{gateway.url}/v1", api_key="any", max_retries=0, http_client=own
    )
    assert model.invoke(QUESTIONS["law"]).content == SAID
    assert "".join(chunk.content for chunk in model.stream(QUESTIONS["law"])) == SAID
    called = model.bind_tools([weather]).invoke(QUESTIONS["law"])
    assert [(call["name"], call["args"]) for call in called.tool_calls] == [("weather", {"city": "Zürich"})]
    gateway.upstream.behaviour["law"] = saying(PARSED)
    assert model.with_structured_output(Value).invoke(QUESTIONS["law"]) == Value(value=4)
    assert gateway.upstream.asked == ["law"] * 4


# examples and the page about them -----------------------------------------------------------------------------------


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name.startswith("openai_") else pytest.mark.clients)
        for name in sorted(path.name for path in EXAMPLES.glob("*.py"))
    ],
)
def test_examples_in_python_run(
    gateway: Running, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = NEEDS.get(name.partition("_")[0], "llama_index.llms.openai_like")
    if not is_installed(needed):
        pytest.skip(f"{needed} is not installed")
    monkeypatch.setenv("IR3DE_URL", f"{gateway.url}/v1")
    program: dict[str, object] = {"__name__": "__main__"}
    exec(compile((EXAMPLES / name).read_text(encoding="utf-8"), name, "exec"), program)
    close_clients(program)
    said = capsys.readouterr().out
    assert {"openai_structured.py": "value=4", "openai_controls.py": "model_not_found"}.get(name, SAID) in said
    assert "law" in said or name in ("openai_structured.py", "openai_tools.py")


@needs_curl
@pytest.mark.skipif(shutil.which("sh") is None, reason="there is no shell")
def test_the_example_for_curl_runs(gateway: Running) -> None:
    given = {"IR3DE_URL": f"{gateway.url}/v1", "PATH": "/usr/bin:/bin:/usr/local/bin"}
    done = subprocess.run(
        ["sh", "-e", str(EXAMPLES / "chat.sh")], env=given, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "data: [DONE]" in done.stdout
    assert "x-ir3de-expert: law" in done.stdout


def test_the_page_about_clients_shows_the_examples_as_they_are() -> None:
    page = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:python|js|sh)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    files = {path.read_text(encoding="utf-8"): path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert sorted(files[block] for block in blocks) == sorted(files.values())
