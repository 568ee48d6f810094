"""The examples of docs/integrations.md run with the real libraries, a real router, and a real gateway for the answers.

Each example runs in a Python of its own, followed by what its test asks of the objects that it made. LiteLLM wants
older versions of what the other libraries bring, so `IR3DE_LITELLM_PYTHON` may name the Python that has it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from running_gateway import ANSWER, Running, running
from surface import ROOT

EXAMPLES = ROOT / "examples" / "integrations"
SAID = "".join(ANSWER)
LITELLM_PYTHON = os.environ.get("IR3DE_LITELLM_PYTHON", sys.executable)
QUIET = {  # no library asks the network for anything
    "HAYSTACK_TELEMETRY_ENABLED": "False", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LANGSMITH_TRACING": "false",
}  # fmt: skip
CHAT = [
    {"role": "user", "content": "Can my landlord evict me?"},
    {"role": "assistant", "content": "Not without a court."},
    {"role": "user", "content": "ok, and how long does that take?"},
]
pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("integrations")
    with running(folder) as found, pytest.MonkeyPatch.context() as patch:
        for name, value in {**QUIET, "IR3DE_URL": f"{found.url}/v1", "IR3DE_ROUTER": str(folder / "router")}.items():
            patch.setenv(name, value)
        yield found


@cache
def is_installed(library: str, python: str) -> bool:
    find = f"from importlib.util import find_spec; assert find_spec({library!r})"
    return subprocess.run([python, "-c", find], capture_output=True).returncode == 0


def run_example(
    gateway: Running, path: Path, library: str, more: str = "", *, python: str = sys.executable
) -> tuple[list[str], Any]:
    """Run an example, then `more` with its names: the lines that the example printed, and `found` of `more`."""
    if not is_installed(library, python):
        pytest.skip(f"{library} is not installed")
    gateway.upstream.asked.clear()
    example = path.read_text(encoding="utf-8")
    script = f"{example}\nimport json\nfound = None\nCHAT = {CHAT!r}\n{more}\nprint(json.dumps(found))\n"
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    return lines, json.loads(last)


def test_LangChain_picks_a_chat_model(gateway: Running) -> None:
    more = """
import asyncio
from langchain_core.messages import AIMessage, HumanMessage

async def stream():
    return [piece async for piece in chain.astream({"question": "How do I boil an egg?"})]

chat = [HumanMessage(CHAT[0]["content"]), AIMessage(CHAT[1]["content"]), HumanMessage(CHAT[2]["content"])]
found = {
    "pieces": asyncio.run(stream()),
    "batch": [chain.batch([{"question": "Is it void?"}]), chain.batch([{"question": "Prove it for all integers."}])],
    "chat": RunnableLambda(pick_model).invoke(ChatPromptTemplate.from_messages(chat).invoke({})).content,
}
"""
    lines, found = run_example(gateway, EXAMPLES / "langchain_router.py", "langchain_openai", more)
    assert lines == [SAID, SAID]
    assert [piece for piece in found["pieces"] if piece] == ANSWER  # one by one, through the whole chain
    assert found["batch"] == [[SAID], [SAID]] and found["chat"] == SAID
    assert gateway.upstream.asked == ["law", "maths", "cooking", "law", "maths", "law"]  # the follow-up stays with law
    sent = json.loads(gateway.upstream.bodies[-1])
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]


def test_LlamaIndex_s_RouterQueryEngine_selects(gateway: Running) -> None:
    more = """
import asyncio
answer = asyncio.run(engine.aquery("How do I boil an egg?"))
few = RouterQueryEngine(RouterSelector(router), tools[:2], llm=MockLLM())
found = {"async": str(answer), "few": str(few.query("How do I boil an egg?"))}
try:
    RouterSelector(router).select([ToolMetadata("about art", name="art")], "?")
except ValueError as error:
    found["error"] = str(error)
"""
    lines, found = run_example(gateway, EXAMPLES / "llama_index_selector.py", "llama_index.core", more)
    assert [line.partition(":")[0] for line in lines] == ["law answers", "maths answers"]
    assert all(re.search(r"(law|maths): 0\.\d\d$", line) for line in lines)
    assert found["async"] == "cooking answers: How do I boil an egg?"
    assert found["few"].startswith(("law", "maths"))  # only what the engine has is selected
    assert "['art']" in found["error"] and "cooking" in found["error"]


def test_LiteLLM_s_Router_takes_the_strategy_and_LiteLLM_is_a_client(gateway: Running) -> None:
    client = (ROOT / "examples" / "clients" / "litellm_chat.py").read_text(encoding="utf-8")
    more = (
        f"""
{client}"""
        + """
import asyncio
answer = asyncio.run(deployments.acompletion("auto", CHAT))
found = {"async": answer.choices[0].message.content}
try:
    deployments.completion("nobody", CHAT)
except Exception as error:
    found["error"] = str(error)
"""
    )
    path = EXAMPLES / "litellm_strategy.py"
    lines, found = run_example(gateway, path, "litellm", more, python=LITELLM_PYTHON)
    assert lines == [SAID, SAID, SAID, "law", SAID] and found["async"] == SAID
    assert gateway.upstream.asked == ["law", "maths", "law", "law", "law"]
    assert "no deployment of 'nobody'" in found["error"]


def test_haystack_s_pipeline_branches(gateway: Running) -> None:
    more = """
from haystack.core.serialization import component_to_dict

asked, answered, more = (message["content"] for message in CHAT)
chat = [ChatMessage.from_user(asked), ChatMessage.from_assistant(answered), ChatMessage.from_user(more)]
saved = component_to_dict(pipeline.get_component("router"), "router")
found = {"chat": list(pipeline.run({"router": {"messages": chat}})), "saved": saved["init_parameters"]}
"""
    lines, found = run_example(gateway, EXAMPLES / "haystack_router.py", "haystack", more)
    assert lines == [f"law {SAID}", f"maths {SAID}"]
    assert found["chat"] == ["law"] and gateway.upstream.asked == ["law", "maths", "law"]
    assert found["saved"] == {"path": os.environ["IR3DE_ROUTER"]}
