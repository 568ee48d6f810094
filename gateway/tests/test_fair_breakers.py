"""A client's own request cannot open an expert's circuit breaker for everybody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import pytest

from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.experts.circuit_breaker import CircuitBreaker
from ir3de_gateway.experts.expert import create_expert
from ir3de_gateway.experts.retry import record_failure
from ir3de_gateway.experts.upstream import UpstreamFailure
from ir3de_gateway.stages import values
from raw_sockets import FIRST, STREAM_HEAD, Conduct, answer, ask, chat, eventually, receive, says, sent
from raw_upstream import LAW, RawGateway

FINISHED = b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
REFUSED = {"error": {"message": "roles must alternate", "type": "server_error", "param": None, "code": 500}}
OWN_ERROR = b'data: {"error":{"message":"too long","type":"invalid_request_error","code":400}}\n\n'
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"


async def answers_after_a_stream_flag(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An endpoint that has no streams: whatever the request says, its answer is whole."""
    writer.write(answer(200, {"input_tokens": 3}))


async def sends_for_ever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An expert that is asked for more tokens than it can give in time, and gives them one by one."""
    writer.write(STREAM_HEAD)
    while True:
        writer.write(FIRST)
        await writer.drain()
        await asyncio.sleep(0.05)


REQUESTS: dict[str, tuple[str, Mapping[str, Any], Conduct | bytes, Mapping[str, float]]] = {
    "count_tokens with a stream flag": (
        "/v1/messages/count_tokens",
        {"stream": True, "max_tokens": 1},
        answers_after_a_stream_flag,
        {},
    ),
    "an endpoint that the expert does not have": ("/v1/embeddings", {"input": "x"}, answer(501, REFUSED), {}),
    "the same bad request again and again": ("/v1/chat/completions", {}, answer(500, REFUSED), {}),
    "a stream that ends as older servers end it": (
        "/v1/chat/completions",
        {"stream": True},
        says(STREAM_HEAD, FIRST, FINISHED),
        {},
    ),
    "a stream that the expert ends with its own error": (
        "/v1/chat/completions",
        {"stream": True},
        says(STREAM_HEAD, FIRST, OWN_ERROR),
        {},
    ),
    "an error object instead of a stream": ("/v1/chat/completions", {"stream": True}, answer(200, REFUSED), {}),
    "more tokens than there is time for": (
        "/v1/chat/completions",
        {"stream": True, "max_tokens": 10**6},
        sends_for_ever,
        {"total": 1.0},
    ),
    "an answer larger than what is held": (
        "/v1/embeddings",
        {"input": ["x"] * 10},
        says(CHUNKED, *[b"100000\r\n" + b" " * (1 << 20) + b"\r\n"] * 65),
        {},
    ),
}


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_client_cannot_open_a_breaker_for_everybody(raw_gateway: RawGateway, request_: str) -> None:
    path, more, does, limits = REQUESTS[request_]
    raw_gateway.raw.does = says(does) if isinstance(does, bytes) else does
    raw_gateway.limit(**limits)
    for _ in range(3):  # so many failures open it
        body = more if "input" in more else chat(LAW, **more)
        ask(raw_gateway.url, {**body, "model": "law"}, path)
    assert raw_gateway.law.breaker.state == "closed"


def test_a_time_limit_that_ends_a_little_early_by_another_clock_is_one_all_the_same(
    raw_gateway: RawGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop's clock counts whole milliseconds, so about a third of its time limits end early by a finer clock."""
    monkeypatch.setattr(values, "perf_counter", lambda: perf_counter() - 0.005)
    raw_gateway.raw.does = sends_for_ever
    raw_gateway.limit(total=1.0)
    for _ in range(3):
        got = ask(raw_gateway.url, chat(LAW, "law", stream=True))
        assert got.status == 200 and FIRST.splitlines()[0] in got.body
    assert raw_gateway.law.breaker.state == "closed"


@pytest.mark.slow
@pytest.mark.nightly
def test_an_expert_that_gives_up_on_a_slow_reader_is_not_to_blame(
    raw_gateway: RawGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "SLOW_CLIENT_S", 0.2)
    gave_up = 0

    async def does_not_wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal gave_up
        writer.write(STREAM_HEAD)
        try:
            while True:
                writer.write(FIRST.replace(b"We", b"W" * 500_000))
                await asyncio.wait_for(writer.drain(), 0.5)
        except TimeoutError:
            writer.transport.abort()
            gave_up += 1

    raw_gateway.raw.does = does_not_wait
    for number in range(1, 4):
        with sent(raw_gateway.url, json.dumps(chat(LAW, "law", stream=True)).encode()) as line:
            assert eventually(lambda: gave_up == number)  # noqa: B023 - called at once
            received = b""
            while not received.endswith(b"\r\n0\r\n\r\n"):  # now it reads, to the end
                received = received[-10:] + receive(line, 1 << 20)
    assert raw_gateway.law.breaker.state == "closed"


def test_an_expert_that_fails_whatever_it_is_asked_is_still_found_out(raw_gateway: RawGateway) -> None:
    for number in range(3):
        raw_gateway.raw.does = says(answer(500, REFUSED))
        assert ask(raw_gateway.url, chat(f"{LAW} {number}", "law")).status == 500
    assert raw_gateway.law.breaker.state == "open"


def late(status: int = 504, reason: str = "timeout") -> UpstreamFailure:
    return UpstreamFailure(reason, "late", status)


@pytest.mark.parametrize(
    ("failure", "told", "state"),
    [
        (late(), {"seconds": 60.0}, "closed"),  # others were answered within that minute
        (late(), {"seconds": 20.0}, "open"),
        (late(reason="5xx"), {"seconds": 60.0}, "closed"),  # a proxy in front of it lost patience
        (late(408, "408"), {"seconds": 60.0}, "closed"),
        (late(reason="connect"), {"seconds": 60.0}, "open"),
        (late(500, "5xx"), {"seconds": 60.0}, "open"),
        (late(), {"seconds": 40.0, "has_begun": True}, "open"),  # it stopped in the middle
        (late(), {"seconds": 599.9, "has_begun": True, "is_out_of_time": True}, "closed"),  # it was still at it
        (late(reason="broken"), {"has_begun": True}, "open"),
        (late(reason="broken"), {"has_begun": True, "is_client_slow": True}, "closed"),
        (late(reason="broken"), {"is_client_slow": True}, "open"),
    ],
)
def test_what_counts_against_an_expert(failure: UpstreamFailure, told: dict[str, Any], state: str) -> None:
    config = ExpertConfig(name="law", base_url="http://127.0.0.1:1/v1")
    expert, now = create_expert(config), [100.0]
    expert.breaker = CircuitBreaker(1, 10.0, clock=lambda: now[0])
    expert.breaker.record_beginning()  # of somebody else's answer
    now[0] = 130.0
    record_failure(expert, failure, **told)
    assert expert.breaker.state == state
