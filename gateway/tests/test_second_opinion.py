"""The encoder of a router behind a real gateway: it is asked in threads of its own, and only until a deadline."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from ir3de import Router
from ir3de.encoders import shared
from ir3de.encoders.installing import install
from ir3de.encoders.sources import find_source
from ir3de_gateway.stages import consult
from raw_sockets import ask, chat
from running_gateway import QUESTIONS, TEXTS, Running, running
from tiny_encoders import own_cache, write_encoder

pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_cache(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Router:
    """It asks its encoder about every prompt."""
    folder = str(write_encoder(tmp_path_factory.mktemp("encoders") / "tiny"))
    install(folder)
    return Router.fit(TEXTS, encoder=folder, encoder_share=1.0)


@pytest.fixture
def saved(router: Router, tmp_path: Path) -> Path:
    router.save(tmp_path / "router", serving=True)
    return tmp_path


def count(gateway: Running, outcome: str) -> int:
    text = ask(gateway.url, path="/metrics", method="GET").body.decode()
    lines = [line for line in text.splitlines() if line.startswith("ir3de_consultations_total")]
    return sum(int(float(line.split()[-1])) for line in lines if f'outcome="{outcome}"' in line)


def test_everything_that_reports_a_decision_reports_that_the_encoder_was_asked(router: Router, saved: Path) -> None:
    access, decisions = saved / "access.jsonl", saved / "decisions.jsonl"
    with running(saved, logs={"access": str(access), "decisions": str(decisions)}) as gateway:
        for text in QUESTIONS.values():
            decision = router.route(text)
            assert decision.consulted
            got = ask(gateway.url, chat(text))
            assert got.headers["x-ir3de-consulted"] == "true" and got.json["ir3de"]["consulted"] is True
            assert got.json["ir3de"]["expert"] == decision.best
            assert got.json["ir3de"]["confidence"] == round(decision.confidence or 0.0, 4)
            shown = ask(gateway.url, {"input": text, "explain": True, "target": True}, path="/v1/route").json["data"][0]
            assert shown["consulted"] and shown["confidence"] == round(decision.confidence or 0.0, 6)
            assert shown["target"]["expert"] == decision.best and len(shown["opinions"]) == len(TEXTS)
        assert count(gateway, "consulted") == len(QUESTIONS)
    for log in (access, decisions):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert sum(line.get("consulted", False) for line in lines) == len(QUESTIONS)


def test_chats_of_several_turns_named_models_and_a_deadline_of_zero_do_not_ask(saved: Path) -> None:
    text = QUESTIONS["law"]
    turns = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": text},
    ]
    with running(saved) as gateway:
        for body in ({"model": "auto", "messages": turns}, chat(text, model="law")):
            assert "x-ir3de-consulted" not in ask(gateway.url, body).headers
        assert count(gateway, "consulted") == 0
    with running(saved, routing={"encoder_deadline": 0}) as gateway:
        got = ask(gateway.url, chat(text))
        assert got.status == 200 and "x-ir3de-consulted" not in got.headers
        assert count(gateway, "consulted") == 0


def test_after_the_deadline_the_decision_of_the_table_stands_and_the_loop_never_waits(
    router: Router, saved: Path
) -> None:
    pool, busy = consult._start_threads(), Event()
    text = QUESTIONS["law"]
    with running(saved, routing={"encoder_deadline": 0.05}) as gateway:
        blocked = [pool.submit(busy.wait) for _ in range(pool._max_workers)]
        try:
            got = ask(gateway.url, chat(text))
            assert got.status == 200 and "x-ir3de-consulted" not in got.headers
            assert got.json["ir3de"]["expert"] == router.route(text, consult=False).best
            assert ask(gateway.url, path="/livez", method="GET").status == 200
            assert count(gateway, "late") == 1
        finally:
            busy.set()
        for future in blocked:
            future.result(20)
    with running(saved) as gateway:
        assert ask(gateway.url, chat(text)).headers["x-ir3de-consulted"] == "true"


@pytest.mark.filterwarnings("ignore:routing goes on by the table alone")
def test_without_the_encoder_the_table_decides(
    router: Router, saved: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert router.opinion is not None
    installed = find_source(router.opinion.encoder.name).installed
    monkeypatch.setattr(shared, "_encoders", {})
    monkeypatch.setattr(shared, "_missing", set())
    aside = shutil.move(installed, saved / "aside")
    try:
        with running(saved) as gateway:
            for text in QUESTIONS.values():
                got = ask(gateway.url, chat(text))
                assert got.json["ir3de"]["expert"] == router.route(text, consult=False).best
                assert "x-ir3de-consulted" not in got.headers
            assert count(gateway, "missing") == len(QUESTIONS)
        assert "the router's encoder cannot be used" in caplog.text
    finally:
        shutil.move(aside, installed)
