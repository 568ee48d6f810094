"""The plug-in in a real LiteLLM proxy, with OpenAI's and Anthropic's clients. `IR3DE_LITELLM_PYTHON` has the proxy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_answers import SAID, answer_as_servers_do
from commands import run
from free_ports import find_free_port
from ir3de import Router
from ir3de.traffic import Journal, TrafficRecord
from raw_sockets import eventually
from running_gateway import QUESTIONS, TEXTS, Upstream, save_small_router, served

PYTHON = os.environ.get("IR3DE_LITELLM_PYTHON", sys.executable)
KEY = "sk-ir3de-test-0123456789abcdef0123456789abcdef0123456789"
PATIENCE_S = 180
ROOT = Path(__file__).parents[2]
MODULES = Path(os.environ.get("IR3DE_NODE_MODULES", "")) / "node_modules"
ENVIRONMENT = {
    **os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'gateway' / 'src'}",
    "LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}  # fmt: skip


def run_python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [PYTHON, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)


def has_proxy() -> bool:
    return run_python("import litellm.proxy.proxy_cli, fastapi, orjson, backoff").returncode == 0


pytestmark = pytest.mark.clients


@dataclass
class Proxy:
    url: str
    upstream: Upstream
    process: subprocess.Popen[bytes]
    log: Path

    def ask(self, values: Any, path: str = "/v1/chat/completions") -> tuple[int, dict[str, str], Any]:
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
        request = urllib.request.Request(self.url + path, json.dumps(values).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read()


def write_config(folder: Path, upstream: str, **settings: Any) -> Path:
    """The configuration of docs/litellm.md; the expert for law has a model group of another name."""
    groups = {"maths": "maths", "law": "llama-law-8b", "cooking": "cooking"}
    plugin = {"router": str(folder / "router"), "models": {"law": "llama-law-8b"}, **settings}
    config = {
        "model_list": [
            {
                "model_name": group,
                "litellm_params": {
                    "model": f"openai/{name}", "api_base": f"{upstream}/{name}/v1", "api_key": "none",
                },
            }
            for name, group in groups.items()
        ],
        "litellm_settings": {"callbacks": ["ir3de_gateway.litellm.router"], "num_retries": 0},
        "callback_settings": {"ir3de": plugin},
        "router_settings": {"disable_cooldowns": True},
    }  # fmt: skip
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def start_proxy(config: Path, log: Path) -> tuple[subprocess.Popen[bytes], str]:
    port = find_free_port()
    command = [PYTHON, "-c", "from litellm import run_server; run_server()", "--config", str(config)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--host", "127.0.0.1"], stdout=output, stderr=output, env=ENVIRONMENT
        )
    return process, f"http://127.0.0.1:{port}"


def wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text(errors="replace")[-3_000:]
        try:
            with urllib.request.urlopen(f"{url}/health/liveliness", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(log.read_text(errors="replace")[-3_000:])


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    if not has_proxy():
        pytest.skip("needs LiteLLM's proxy: pip install 'litellm[proxy]'")
    folder = tmp_path_factory.mktemp("litellm")
    save_small_router(folder / "router")
    upstream = Upstream(behaviour=dict.fromkeys(TEXTS, answer_as_servers_do))
    with served(upstream.app()) as experts:
        kept = {"folder": str(folder / "feedback"), "keep": "text"}
        process, url = start_proxy(write_config(folder, experts, feedback=kept), folder / "log")
        try:
            wait_until_ready(process, url, folder / "log")
            yield Proxy(url, upstream, process, folder / "log")
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "auto", "messages": [{"role": "user", "content": text}], **more}


@pytest.mark.parametrize("expert", QUESTIONS)
@pytest.mark.parametrize("stream", [False, True])
def test_each_prompt_reaches_the_model_group_of_its_expert(proxy: Proxy, expert: str, stream: bool) -> None:
    status, headers, body = proxy.ask(chat(QUESTIONS[expert], stream=stream))
    assert status == 200 and proxy.upstream.asked[-1] == expert and b"depends" in body
    assert headers["x-ir3de-expert"] == expert
    assert headers["x-ir3de-model"] == {"law": "llama-law-8b"}.get(expert, expert)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/v1/completions", {"model": "auto", "prompt": QUESTIONS["maths"]}),
        ("/v1/responses", {"model": "auto", "input": QUESTIONS["maths"]}),
        ("/v1/messages", {"max_tokens": 9, **chat(QUESTIONS["maths"])}),
    ],
)
def test_every_api_is_read(proxy: Proxy, path: str, values: dict[str, Any]) -> None:
    status, headers, body = proxy.ask(values, path)
    assert status == 200, body
    assert headers["x-ir3de-expert"] == "maths" and proxy.upstream.asked[-1] == "maths"


def test_follow_up_and_tool_loop_stay(proxy: Proxy) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": QUESTIONS["cooking"]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Solve 3x = 12. The contract is void."},
    ]
    assert proxy.ask({"model": "auto", "messages": messages})[1]["x-ir3de-expert"] == "cooking"


def test_named_model_groups_pass_untouched(proxy: Proxy) -> None:
    status, headers, _ = proxy.ask({**chat(QUESTIONS["maths"]), "model": "cooking"})
    assert status == 200 and proxy.upstream.asked[-1] == "cooking" and "x-ir3de-expert" not in headers


@pytest.mark.parametrize("stream", [False, True])
def test_journal_has_what_was_routed_and_takes_feedback(proxy: Proxy, stream: bool, tmp_path: Path) -> None:
    text = f"{QUESTIONS['law']} {'In a stream.' if stream else ''}".strip()
    status, headers, _ = proxy.ask(chat(text, stream=stream))
    assert status == 200
    call = headers["x-litellm-call-id"]
    with Journal.open(proxy.log.parent / "feedback") as journal:
        found = wait_for(lambda: journal.find(call))
        assert (found.decided, found.served, found.status) == ("law", "law", 200)
        assert found.prompt is not None and found.prompt.turns == (text,)
        assert found.completion_tokens and found.ranking[0][0] == "law"
    scores = tmp_path / "scores.csv"
    scores.write_text(f"traceId,name,value\n{call},quality,0.25\n", encoding="utf-8")
    run("feedback", "import", "--from", str(proxy.log.parent / "feedback"), str(scores))
    with Journal.open(proxy.log.parent / "feedback") as journal:
        given = journal.find(call)
        assert given is not None and [one.score for one in given.feedback] == [0.25]


def wait_for(find: Callable[[], TrafficRecord | None]) -> TrafficRecord:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if (found := find()) is not None:
            return found
        time.sleep(0.1)
    raise AssertionError("the request is not in the journal")


def test_bad_request_names_the_field(proxy: Proxy) -> None:
    status, _, body = proxy.ask({"model": "auto", "messages": [{"role": "user", "content": 3}]})
    assert status == 400 and json.loads(body)["error"]["param"] == "messages[0].content"


def test_official_clients_need_no_change(proxy: Proxy) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key=KEY, max_retries=0) as client:
        found = client.chat.completions.create(**chat(QUESTIONS["law"]))
        assert found.choices[0].message.content == SAID and proxy.upstream.asked[-1] == "law"
        pieces = client.chat.completions.create(**chat(QUESTIONS["cooking"]), stream=True)
        assert "".join(one.choices[0].delta.content or "" for one in pieces if one.choices) == SAID
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=proxy.url, api_key=KEY, max_retries=0) as client:
        client.messages.create(**chat(QUESTIONS["maths"]), max_tokens=9)
        assert proxy.upstream.asked[-1] == "maths"


def test_OpenAI_s_client_keeps_its_tools_formats_and_errors(proxy: Proxy) -> None:
    openai = pytest.importorskip("openai")
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key=KEY, max_retries=0) as client:
        called = client.chat.completions.create(**chat(QUESTIONS["law"]), tools=[tool])
        assert called.choices[0].message.tool_calls[0].function.name == "weather"
        assert proxy.upstream.asked[-1] == "law"
        assert client.responses.create(model="auto", input=QUESTIONS["cooking"]).output_text
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="no-such-group", messages=chat("x")["messages"])


def test_curl_streams(proxy: Proxy) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    command = ["curl", "-sN", "-i", f"{proxy.url}/v1/chat/completions", "-H", "content-type: application/json"]
    content = json.dumps(chat(QUESTIONS["maths"], stream=True))
    asked = [*command, "-H", f"authorization: Bearer {KEY}", "-d", content]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    assert "x-ir3de-expert: maths" in done and done.rstrip().endswith("data: [DONE]")


def test_LangChain_and_LlamaIndex_need_no_change(proxy: Proxy) -> None:
    langchain = pytest.importorskip("langchain_openai")
    httpx = pytest.importorskip("httpx")
    with httpx.Client() as own:
        model = langchain.ChatOpenAI(
            model="auto", base_url=f"{proxy.url}/v1", api_key=KEY, max_retries=0, http_client=own
        )
        assert model.invoke(QUESTIONS["law"]).content == SAID and proxy.upstream.asked[-1] == "law"
        assert "".join(chunk.content for chunk in model.stream(QUESTIONS["cooking"])) == SAID
    like = pytest.importorskip("llama_index.llms.openai_like")
    core = pytest.importorskip("llama_index.core.llms")
    model = like.OpenAILike(model="auto", api_base=f"{proxy.url}/v1", api_key=KEY, is_chat_model=True)
    assert model.chat([core.ChatMessage(role="user", content=QUESTIONS["maths"])]).message.content == SAID


@pytest.mark.node
@pytest.mark.skipif(not (MODULES / "openai").is_dir(), reason="needs node, and IR3DE_NODE_MODULES")
def test_OpenAI_for_JavaScript_needs_no_change(proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(MODULES.resolve())
    script = tmp_path / "ask.mjs"
    script.write_text(
        "import OpenAI from 'openai';\n"
        "const client = new OpenAI({ baseURL: process.env.URL, apiKey: process.env.KEY, maxRetries: 0 });\n"
        "const asked = { model: 'auto', messages: [{ role: 'user', content: process.argv[2] }] };\n"
        "const { data, response } = await client.chat.completions.create(asked).withResponse();\n"
        "console.log(response.headers.get('x-ir3de-expert'), data.choices[0].message.content);\n"
        "for await (const one of await client.chat.completions.create({ ...asked, stream: true }))\n"
        "  process.stdout.write(one.choices[0]?.delta?.content ?? '');\n",
        encoding="utf-8",
    )
    given = {**os.environ, "URL": f"{proxy.url}/v1", "KEY": KEY}
    command = ["node", str(script), QUESTIONS["law"]]
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout == f"law {SAID}\n{SAID}", done.stderr


def test_a_new_router_is_taken_while_the_proxy_serves(proxy: Proxy) -> None:
    """Within ten seconds of the next request."""

    def read_digest() -> str:
        return proxy.ask(chat(QUESTIONS["maths"]))[1]["x-ir3de-router"]

    before, folder = read_digest(), proxy.log.parent / "router"
    router = Router.load(folder)
    router.with_policy(replace(router.policy, threshold=router.policy.threshold / 2 + 0.001)).save(folder)
    assert eventually(lambda: read_digest() != before)


WRONG = [
    ({"router": "/no/such/folder"}, "/no/such/folder"),
    ({"models": {"laws": "x"}}, "no expert 'laws'"),
    ({"treshold": 0.5}, "treshold"),
    ({"router": None}, "router"),
]


def test_wrong_settings_end_the_proxy_with_a_reason(tmp_path: Path) -> None:
    """Without a server: LiteLLM asks for the callback when it reads its configuration."""
    save_small_router(tmp_path / "router")
    given = [{"router": str(tmp_path / "router"), **settings} for settings, _ in WRONG]
    program = (
        "import json, sys, litellm\nfrom ir3de.errors import IR3DEError\nimport ir3de_gateway.litellm as plugin\n"
        "for given in [None, *json.loads(sys.argv[1])]:\n"
        "    litellm.callback_settings = {} if given is None else {'ir3de': given}\n"
        "    try: plugin.router\n"
        "    except IR3DEError as error: print(error)\n"
    )
    done = run_python(program, json.dumps(given))
    if "No module named 'litellm'" in done.stderr:
        pytest.skip("needs LiteLLM")
    first, *others = done.stdout.splitlines()
    assert "callback_settings.ir3de" in first, done
    assert len(others) == len(WRONG) and all(said in line for line, (_, said) in zip(others, WRONG, strict=True)), (
        others
    )
