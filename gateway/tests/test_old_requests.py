"""Requests that began before an expert's circuit breaker opened say nothing about the expert now."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

import ir3de_gateway.stages.ask as asking
from ir3de_gateway.experts.circuit_breaker import CircuitBreaker
from raw_sockets import ask, chat, eventually, sent
from replicated_expert import fail_all, replicated
from running_gateway import Running, answer, event, failing, running


class Expert:
    """Law, which does what the prompt says; its circuit breaker has a clock of its own."""

    def __init__(self, gateway: Running) -> None:
        self.gateway, self.now = gateway, 0.0
        self.old_goes_on, self.probe_goes_on = threading.Event(), threading.Event()
        self.lines: list[socket.socket] = []
        self.law = gateway.gateway.live.snapshot.experts["law"]
        self.law.breaker = CircuitBreaker(2, 10.0, clock=lambda: self.now)
        gateway.upstream.behaviour["law"] = self.behave

    async def behave(self, request: Request, asked: dict[str, Any]) -> Response:
        told = asked["messages"][0]["content"].split()[0]
        if told == "fail":
            return await failing(500)(request, asked)
        if told == "stream":
            return StreamingResponse(self.stream(), media_type="text/event-stream")
        gate = {"old": self.old_goes_on, "probe": self.probe_goes_on}.get(told)
        while gate is not None and not gate.is_set() and not await request.is_disconnected():
            await asyncio.sleep(0.005)
        return await answer(request, asked)

    async def stream(self) -> Any:
        yield event({"choices": [{"index": 0, "delta": {"content": "Well"}}]})
        while not self.old_goes_on.is_set():
            await asyncio.sleep(0.005)
        yield b"data: [DONE]\n\n"

    def begin(self, prompt: str, **more: Any) -> socket.socket:
        """Send a request, and wait until law has it."""
        before = len(self.gateway.upstream.asked)
        line = sent(self.gateway.url, json.dumps(chat(prompt, "law", **more)).encode())
        self.lines.append(line)
        assert eventually(lambda: len(self.gateway.upstream.asked) > before)
        return line

    def open_breaker(self) -> socket.socket:
        """Let two requests fail, rest, and begin the probe."""
        for number in range(2):
            assert ask(self.gateway.url, chat(f"fail {number}", "law")).status == 500
        assert self.law.breaker.state == "open"
        self.now = 10.0
        return self.begin("probe")

    def end_probe(self, probe: socket.socket) -> None:
        self.probe_goes_on.set()
        assert probe.recv(4096).startswith(b"HTTP/1.1 200")
        assert eventually(lambda: self.law.breaker.state == "closed")


@pytest.fixture
def expert(tmp_path: Path) -> Iterator[Expert]:
    with running(tmp_path) as gateway:
        found = Expert(gateway)
        yield found
        for gate in (found.old_goes_on, found.probe_goes_on):
            gate.set()
        for line in found.lines:
            line.close()


@pytest.mark.parametrize(("prompt", "stream"), [("stream", True), ("old", False)])
def test_one_that_ends_well_does_not_close_the_breaker_during_a_probe(
    expert: Expert, prompt: str, stream: bool
) -> None:
    expert.begin(prompt, stream=stream)
    probe = expert.open_breaker()
    expert.old_goes_on.set()
    assert eventually(lambda: expert.law.concurrency.in_use == 1)  # the probe alone
    assert expert.law.breaker.state == "half-open"
    assert ask(expert.gateway.url, chat("hi", "law")).status == 503
    expert.end_probe(probe)


def test_one_whose_client_leaves_does_not_free_a_second_probe(expert: Expert) -> None:
    old = expert.begin("old")
    probe = expert.open_breaker()
    old.close()
    assert eventually(lambda: expert.law.concurrency.in_use == 1)
    assert ask(expert.gateway.url, chat("hi", "law")).status == 503
    expert.end_probe(probe)


def test_one_that_fails_does_not_end_the_probe() -> None:
    now = [0.0]
    breaker = CircuitBreaker(1, 10.0, clock=lambda: now[0])
    assert breaker.allow_request()
    old = breaker.ticket
    breaker.record_failure()
    now[0] = 10.0
    assert breaker.allow_request() and breaker.ticket > old
    probe = breaker.ticket
    breaker.record_failure(old)
    assert breaker.state == "half-open"
    now[0] = 20.0  # nothing was heard of the probe, so there is a second one
    assert breaker.allow_request()
    breaker.record_abandoned(probe)
    assert not breaker.allow_request()
    breaker.record_beginning(probe)  # slower than the rest, but an answer
    assert breaker.state == "closed"


def test_after_the_last_replica_the_fallback_is_asked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept, choose = [], asking.choose_backoff
    monkeypatch.setattr(asking, "choose_backoff", lambda *given: slept.append(given) or choose(*given) * 0)
    law = {"retries": {"others": 5}, "fallbacks": ["maths"]}
    with replicated(tmp_path, law) as gateway:
        fail_all(gateway, failing(500))
        got = ask(gateway.url, chat("Is my contract void?", "law"))
        assert (got.status, got.headers["x-ir3de-expert"]) == (200, "maths")
        assert len(gateway.upstream.asked) == 4 and len(slept) == 2
