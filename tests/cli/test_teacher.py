"""--teacher and --unlabelled of fit, add and tune."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ir3de
from commands import ROOT, complaint, run, run_json, wrong_call
from ir3de.corpora import examples
from ir3de.encoders.installing import install
from tiny_encoders import write_encoder

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("plain_terminal")

PROMPTS = {name: texts[:50] for name, texts in examples.prompts().items() if name in ("law", "coding", "history")}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six labelled prompts of each expert, traffic, and an encoder with random weights."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    install(str(write_encoder(tmp_path / "tiny")))
    rows = [json.dumps({"text": text, "team": name}) for name, own in PROMPTS.items() for text in own[:6]]
    (tmp_path / "few.jsonl").write_text("\n".join(rows))
    (tmp_path / "traffic.txt").write_text("\n".join(text for own in PROMPTS.values() for text in own[3:]))
    return tmp_path


def call(data: Path, *more: str | Path) -> list[str | Path]:
    few = ["fit", data / "router", data / "few.jsonl", "--label", "team", "--no-proof"]
    return [*few, "--unlabelled", data / "traffic.txt", "--teacher", data / "tiny", *more]


def test_fit_reports_what_the_teacher_brought(data: Path) -> None:
    found = run_json(*call(data))["teaching"]
    assert found["texts"] == 141 and found["labelled"] == 9 and found["held_out"] == 18
    assert found["gain_low"] <= found["gain"] <= found["gain_high"]
    assert not (data / "router.answers.jsonl").exists()
    shown = run(*call(data, "--force")).stdout
    assert "the teacher" in shown and "labelled by people" in shown and "points (" in shown
    router = ir3de.Router.load(data / "router")
    assert (router.teaching is not None) == found["is_used"]


@pytest.mark.nightly
def test_answers_under_a_given_name_stay(data: Path) -> None:
    run(*call(data, "--answers", data / "kept.jsonl", "--quiet"))
    kept = (data / "kept.jsonl").read_bytes()
    assert kept.count(b"\n") == 1 + 18 + 132
    run(*call(data, "--answers", data / "kept.jsonl", "--force", "--quiet"))
    assert (data / "kept.jsonl").read_bytes() == kept


@pytest.mark.nightly
def test_add_and_tune_take_a_teacher(data: Path) -> None:
    taught = ("--unlabelled", data / "traffic.txt", "--teacher", data / "tiny")
    (data / "cooking.txt").write_text("How long do I boil an egg?\nA recipe for bread, please.\nBake a cake.")
    run(*call(data))
    before = ir3de.Router.load(data / "router")
    found = run_json("add", data / "router", f"cooking={data / 'cooking.txt'}", *taught)
    assert set(found["teaching"]["taught"]) <= {"cooking"}
    found = run_json("tune", data / "router", *taught, "--output", data / "tuned")
    assert found["teaching"]["texts"] == 141 and found["saved"]
    assert ir3de.Router.load(data / "tuned").experts == (*before.experts, "cooking")


def test_wrong_calls_are_named_before_anything_is_read(data: Path) -> None:
    few = ("fit", data / "router", data / "few.jsonl", "--label", "team")
    assert "--teacher needs texts to label" in wrong_call(*few, "--teacher", "minilm-l6")
    assert "--unlabelled needs a teacher" in wrong_call(*few, "--unlabelled", data / "traffic.txt")
    assert "unknown teacher 'minilm-7'" in complaint(
        *few, "--unlabelled", data / "traffic.txt", "--teacher", "minilm-7"
    )
    missing = complaint(*few, "--unlabelled", data / "trafic.txt", "--teacher", data / "tiny")
    assert "trafic.txt" in missing
    (data / "empty.txt").write_text("")
    empty = complaint(*few, "--unlabelled", data / "empty.txt", "--teacher", data / "tiny")
    assert "no text is left for the teacher" in empty or "empty" in empty
    outcomes = wrong_call("fit", data / "other", "--outcomes", data / "few.jsonl", "--teacher", "minilm-l6")
    assert "--teacher cannot be combined with --outcomes" in outcomes
    assert not (data / "router").exists()


@pytest.mark.nightly
def test_a_stopped_fit_says_how_to_go_on(data: Path) -> None:
    """Ctrl-C while a model that never answers is asked."""
    program = (
        "import socket, threading, sys\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "print(server.getsockname()[1], flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as silent:
        assert silent.stdout is not None
        port = silent.stdout.readline().strip()
        given = [str(one) for one in call(data, "--yes")]
        given[given.index("--teacher") + 1] = f"http://127.0.0.1:{port}/v1#tiny"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        with subprocess.Popen(
            [sys.executable, "-m", "ir3de", *given],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
        ) as fit:
            assert fit.stderr is not None
            for shown in fit.stderr:
                if "requests" in shown:
                    break
            time.sleep(0.5)
            fit.send_signal(signal.SIGINT)
            assert "run the same again, and it continues" in fit.communicate(timeout=60)[1]
        silent.communicate("")
    assert fit.returncode == 130
