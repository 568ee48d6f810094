"""OpenAI's own client for JavaScript, and Anthropic's, unchanged but for their baseURL.

npm install --prefix DIR openai @anthropic-ai/sdk
IR3DE_NODE_MODULES=DIR pytest -m node
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from api_answers import CHAT, CHAT_EVENTS, SAID, WORDS, breaking_off, saying, serving
from running_gateway import Running

ROOT = Path(__file__).parents[2]
MODULES = Path(os.environ.get("IR3DE_NODE_MODULES", "")) / "node_modules"
pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(
        shutil.which("node") is None or not (MODULES / "openai").is_dir(),
        reason="needs node, and IR3DE_NODE_MODULES=DIR after npm install --prefix DIR openai",
    ),
]


def run(script: Path, folder: Path, gateway: Running) -> str:
    """What a script prints; it finds its modules beside itself."""
    (folder / "node_modules").symlink_to(MODULES.resolve())
    copy = shutil.copy(script, folder)
    given = {**os.environ, "IR3DE_URL": f"{gateway.url}/v1"}
    done = subprocess.run(["node", copy], env=given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_client_for_javascript(tmp_path: Path) -> None:
    with serving(tmp_path) as gateway:
        gateway.upstream.behaviour["maths"] = breaking_off(CHAT_EVENTS[:3])
        gateway.upstream.behaviour["cooking"] = refusing_twice(gateway)
        found = json.loads(run(Path(__file__).parent / "node" / "client.mjs", tmp_path, gateway))
    assert found == {
        "chat": [SAID, "law", 15],
        "headers": ["law", "12", "mine-2", "mine-2"],
        "stream": ["law", *WORDS],
        "tools": [{"city": "Zürich"}, SAID, {"city": "Zürich"}],
        "responses": SAID,
        "embeddings": [0.5, -1, 0.001],
        "models": ["auto", "ir3de/auto", "maths", "law", "cooking"],
        "unknown": ["NotFoundError", 404, "model_not_found"],
        "empty": ["BadRequestError", 400, "empty_messages"],
        "broken": ["APIError", None, "upstream_broken"],
        "limited": ["RateLimitError", 429, None],
        "retried": SAID,
    }
    sent = json.loads(gateway.upstream.bodies[0])
    assert sent["unknown"] == 1
    assert "ir3de" not in sent
    assert gateway.upstream.headers[0]["x-stainless-lang"] == "js"


def refusing_twice(gateway: Running) -> Any:
    async def refuse(request: Any, asked: Any) -> Any:
        if gateway.upstream.asked.count("cooking") > 2:
            return await saying(CHAT)(request, asked)
        return await saying(b'{"error": {"message": "slowly"}}', 429, retry_after_ms="1")(request, asked)

    return refuse


def test_the_example_for_javascript(tmp_path: Path) -> None:
    with serving(tmp_path) as gateway:
        said = run(ROOT / "examples" / "clients" / "chat.mjs", tmp_path, gateway).splitlines()
    assert said[0] == said[2] == SAID
    assert said[1].startswith("law ")


@pytest.mark.skipif(not (MODULES / "@anthropic-ai" / "sdk").is_dir(), reason="needs npm install @anthropic-ai/sdk")
def test_anthropic_s_client_for_javascript_and_an_expert_of_openai_s_api(tmp_path: Path) -> None:
    with serving(tmp_path, experts={"law": {"capabilities": ["chat", "tools"]}}) as gateway:
        found = json.loads(run(Path(__file__).parent / "node" / "anthropic.mjs", tmp_path, gateway))
    assert found == {
        "whole": [SAID, "end_turn", 10, 5],
        "streamed": [SAID, "end_turn", 10, 5],
        "tools": ["tool_use", "weather", {"city": "Zürich"}],
        "refused": ["BadRequestError", 400, "container"],
    }
