"""The tutorial to its end: a labelled file, a fit, real models behind `serve --demo`, and an answer that streams."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import ROOT, read_blocks
from page_files import make_file
from page_runner import GATEWAY

from commands import run
from ir3de.embedding import packaged_models
from ir3de_gateway.local import DEMO_MODEL

pytest.importorskip("xllamacpp")
pytest.importorskip("openai")

FIT, SERVE = "ir3de fit router train.csv --label team", "ir3de serve --demo --router router"


@pytest.mark.nightly
@pytest.mark.local
@pytest.mark.skipif(packaged_models.find(DEMO_MODEL) is None, reason="the model of the demo is not here")
def test_the_tutorial_ends_with_an_answer_that_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = read_blocks("tutorial")
    commands = [command for block in blocks if block.language == "console" for command in block.list_commands()]
    assert {FIT, SERVE} <= set(commands)
    monkeypatch.chdir(tmp_path)
    make_file(tmp_path / "train.csv")
    run(*FIT.split()[1:])
    command = [sys.executable, "-m", *SERVE.split(), "--port=0", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        try:
            address = json.loads(gateway.stdout.readline())["address"]
            (script,) = (block.text for block in blocks if block.language == "python")
            asked = [sys.executable, "-c", GATEWAY.sub(address, script)]
            asked_for = subprocess.run(asked, capture_output=True, text=True, encoding="utf-8", timeout=300, check=True)
        finally:
            gateway.send_signal(signal.SIGINT)
            gateway.wait(60)
    who, _, answer = asked_for.stdout.partition("\n")
    assert who.split()[0] == "law" and len(answer.split()) > 3
