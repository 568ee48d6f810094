"""The access log at a terminal: one aligned line a request, colours, and nothing that clients could do to it."""

from __future__ import annotations

import json
import os
import pty
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import exchange_records as made
import raw_sockets
import running_gateway
import tiny
from ir3de_gateway.config.document import Logs
from ir3de_gateway.exchange_record import Instead
from ir3de_gateway.telemetry.log_lines import format_terminal_line
from ir3de_gateway.telemetry.metrics import OUTCOMES
from ir3de_gateway.telemetry.observer import Observer
from running_gateway import QUESTIONS

ANYTHING = st.text(max_size=200) | st.sampled_from(["\n", "\x1b[31m", "\ud800", "字🙂", "\u2028", "a" * 5_000])
SECONDS = st.none() | st.floats(0, 1e6)


@tiny.LAW
@given(
    st.fixed_dictionaries(
        {
            "expert": ANYTHING,
            "why": ANYTHING,
            "error": ANYTHING,
            "outcome": st.sampled_from(OUTCOMES),
            "status": st.integers(0, 599),
            "first_seconds": SECONDS,
            "total_seconds": st.floats(0, 1e6),
            "prompt_tokens": st.none() | st.integers(0, 10**9),
            "stream": st.booleans(),
            "fallbacks": st.lists(st.tuples(ANYTHING, ANYTHING, ANYTHING), max_size=20),
        }
    ),
    st.booleans(),
)
def test_any_record_is_one_line_that_cannot_move_the_cursor(fields: dict[str, Any], colours: bool) -> None:
    line = format_terminal_line(made.record(**fields, text="secret", session="secret"), colours=colours).decode()
    assert line.endswith("\n") and line.count("\n") == 1 and "secret" not in line
    plain = re.sub("\x1b\\[[0-9]+m", "", line) if colours else line
    assert plain[:-1].isprintable() and len(plain) < 250


def test_lines_are_aligned_and_say_what_is_unusual() -> None:
    usual = format_terminal_line(made.record(started=0)).decode()
    odd = made.record(
        started=0, expert="maths", why="asked by name", confidence=None, decision=None, total_seconds=12.3456,
        status=504, outcome="upstream_error", error="upstream_timeout", fallbacks=[("law", "maths", "timeout")],
        prompt_tokens=None, completion_tokens=None, retries=2, key="team",
        replica="gpu-2:80",
    )  # fmt: skip
    unusual = format_terminal_line(odd).decode()
    assert usual.index(" ms") == unusual.index(" ms")
    assert re.fullmatch(r"\d\d:\d\d:\d\d 200 law +routed \d\.\d\d +500 ms 10 \+ 5 tokens\n", usual)
    after = "after law timeout, 2 retries, upstream_error, upstream_timeout, replica gpu-2:80, key team"
    assert re.fullmatch(rf"\d\d:\d\d:\d\d 504 maths +asked by name +12 346 ms +{after}\n", unusual)


def test_an_abstention_is_told_by_its_reason() -> None:
    decision = running_gateway.small_router().route("hi")
    assert decision.reason == "no content"
    nearest = Instead("nearest expert")
    abstained = made.record(started=0, why="abstained", decision=decision, confidence=0.95, instead=nearest)
    line = format_terminal_line(abstained).decode()
    assert re.search(r" no content 0\.95 .* nearest expert$", line) and "abstained" not in line
    stays = made.record(started=0, why="pinned", decision=decision, instead=Instead(text=decision.reason))
    pinned = format_terminal_line(stays).decode()
    assert re.search(r" pinned .* no content$", pinned)


def show(logs: dict[str, Any], *, terminal: bool) -> str:
    """What a request leaves on this process' standard output, which is a terminal or a pipe."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    before = os.dup(1)
    os.dup2(theirs, 1)
    try:
        observer = Observer(made.live(Logs.model_validate(logs)))
        observer.observe(made.record())
        observer.close()
        return os.read(ours, 65_536).decode()
    finally:
        os.dup2(before, 1)
        for file in (before, ours, theirs):
            os.close(file)


def test_a_terminal_gets_text_and_programs_get_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[32m200\x1b[0m" in show({}, terminal=True)
    assert json.loads(show({"format": "json"}, terminal=True))["expert"] == "law"
    assert json.loads(show({}, terminal=False))["expert"] == "law"
    assert " 200 law " in (text := show({"format": "text"}, terminal=False)) and "\x1b" not in text
    monkeypatch.setenv("NO_COLOR", "1")
    assert " 200 law " in (plain := show({}, terminal=True)) and "\x1b" not in plain


def test_a_file_may_be_text_too(tmp_path: Path) -> None:
    observer = Observer(made.live(Logs(access=str(tmp_path / "log"), format="text")))
    observer.observe(made.record())
    observer.close()
    assert " 200 law " in (tmp_path / "log").read_text()


def test_files_and_polling_have_no_lines_but_failures_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", "sesame")
    access = tmp_path / "access.jsonl"
    admin, page = {"authorization": "Bearer sesame"}, {"sec-fetch-site": "same-origin"}
    with running_gateway.running(tmp_path, logs={"access": str(access)}) as gateway:

        def ask(path: str, body: object = None, status: int = 200, **headers: str) -> None:
            assert raw_sockets.ask(gateway.url, body, path, **headers).status == status, path

        for quiet in ("/", "/page/app.js", "/livez", "/readyz", "/health", "/metrics", "/version", "/openapi.json"):
            ask(quiet)
        ask("/admin/experts", **admin)
        ask("/v1/route", {"input": QUESTIONS["law"]}, **page)  # as the page does while somebody types
        ask("/v1/models", **page)
        ask("/v1/route", {"input": QUESTIONS["law"]})
        ask("/v1/models")
        ask("/v1/route", {"input": 7}, 400, **page)
        ask("/page/nothing.js", status=404)
        ask("/admin/experts", status=401)
    told = [(line["endpoint"], line["status"]) for line in map(json.loads, access.read_text().splitlines())]
    assert told == [
        ("/v1/route", 200), ("/v1/models", 200), ("/v1/route", 400), ("/page/nothing.js", 404), ("/admin/experts", 401),
    ]  # fmt: skip
