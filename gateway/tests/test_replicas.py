"""Several addresses of an expert behind a real gateway: shared, retried, checked, hedged; and a deadline."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from api_answers import never
from raw_sockets import ask, chat, closed_port, eventually, raw_expert, receive, says, sent
from replicated_expert import CALM, LAW, NAMES, fail_all, is_quiet, metric, replicas_of, replicated, states
from running_gateway import ANSWER, QUESTIONS, Behaviour, Running, Upstream, answer, failing, running, served


@pytest.fixture(scope="module")
def gateway_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with replicated(tmp_path_factory.mktemp("replicas"), {"breaker": {"failures": 10_000}}) as found:
        yield found


@pytest.fixture
def gateway(gateway_session: Running) -> Iterator[Running]:
    gateway_session.upstream.behaviour.clear()
    gateway_session.upstream.asked.clear()
    yield gateway_session
    assert eventually(lambda: is_quiet(gateway_session))


def test_requests_are_shared_and_say_nothing_of_addresses(gateway: Running) -> None:
    got = [ask(gateway.url, chat(LAW)) for _ in range(9)]
    assert {one.status for one in got} == {200} and Counter(gateway.upstream.asked) == dict.fromkeys(NAMES, 3)
    assert all(one.headers["x-ir3de-expert"] == "law" for one in got)
    assert not any("law-" in json.dumps(dict(one.headers)) + one.body.decode() for one in got)


def test_a_busy_replica_gets_nothing_while_others_are_free(gateway: Running) -> None:
    fail_all(gateway, never)
    with sent(gateway.url, json.dumps(chat(LAW)).encode()):
        assert eventually(lambda: len(gateway.upstream.asked) == 1)
        busy = gateway.upstream.asked.pop()
        fail_all(gateway, answer)
        for _ in range(6):
            assert ask(gateway.url, chat(LAW)).status == 200
        assert set(gateway.upstream.asked) == set(NAMES) - {busy}


@pytest.mark.parametrize("behaviour", [failing(500), failing(503), failing(429), failing(408)])
def test_a_failure_is_retried_on_another_replica_before_another_expert_is_asked(
    gateway: Running, behaviour: Behaviour
) -> None:
    for name in NAMES[:2]:
        gateway.upstream.behaviour[name] = behaviour
    for _ in range(3):
        got = ask(gateway.url, chat(LAW))
        assert (got.status, got.headers["x-ir3de-expert"], got.headers["x-ir3de-fallbacks"]) == (200, "law", "0")
        assert gateway.upstream.asked[-1] == "law-c"
        for replica in replicas_of(gateway):
            replica.breaker._cells[3] = 0.0  # none of them cools


def test_the_log_names_no_replica_of_an_expert_that_did_not_answer(tmp_path: Path) -> None:
    log = tmp_path / "access"
    with replicated(tmp_path, {"fallbacks": ["maths"]}, logs={"access": str(log)}) as gateway:
        fail_all(gateway, failing(500))
        got = ask(gateway.url, chat(LAW))
        assert got.status == 200 and got.headers["x-ir3de-fallbacks"] == "1"
    line = json.loads(log.read_text())
    assert line["expert"] != "law" and "replica" not in line


def test_streams_are_retried_until_they_begin(gateway: Running) -> None:
    for name in NAMES[:2]:
        gateway.upstream.behaviour[name] = failing(500)
    for _ in range(3):
        got = ask(gateway.url, chat(LAW, stream=True))
        assert got.status == 200 and got.body.count(b"[DONE]") == 1 and b"depends" in got.body


def test_an_answer_that_has_begun_is_never_begun_again(tmp_path: Path) -> None:
    begun = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    event = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"We"}}]}\n\n'
    with raw_expert() as one, raw_expert() as other:
        for raw in (one, other):
            raw.does = says(begun + event, reset=True)
        given = {"base_url": f"{one.url}/v1", "replicas": [f"{one.url}/v1", f"{other.url}/v1"], **CALM}
        with running(tmp_path, experts={"law": given}) as gateway:
            got = ask(gateway.url, chat(LAW, stream=True))
            assert got.status == 200 and b"We" in got.body and b"upstream_broken" in got.body
            assert len(one.heads) + len(other.heads) == 1


def test_a_request_that_may_have_arrived_and_must_not_be_repeated_goes_to_no_other_replica(tmp_path: Path) -> None:
    stored = {"model": "law", "input": LAW, "store": True}
    capable = {"capabilities": ["chat", "responses"]}
    with replicated(tmp_path, {**capable, "breaker": {"failures": 10_000}}) as gateway:
        fail_all(gateway, failing(500))
        assert ask(gateway.url, stored, "/v1/responses").status == 500
        assert len(gateway.upstream.asked) == 1
        gateway.upstream.asked.clear()
        assert ask(gateway.url, {**stored, "store": False}, "/v1/responses").status == 500
        assert len(gateway.upstream.asked) == 3
        gateway.upstream.asked.clear()
        fail_all(gateway, failing(429))  # turned away: it was not done
        assert ask(gateway.url, stored, "/v1/responses").status == 429
        assert len(gateway.upstream.asked) == 3


def test_a_request_that_never_arrived_may_go_to_another_replica_whatever_it_is(tmp_path: Path) -> None:
    stored = {"model": "law", "input": LAW, "store": True}
    with served(Upstream().app()) as gone:
        pass
    with replicated(tmp_path / "x", {"capabilities": ["chat", "responses"]}) as gateway:
        first = replicas_of(gateway)[0]
        first.config = first.config.model_copy(update={"base_url": f"{gone}/v1"})
        assert ask(gateway.url, stored, "/v1/responses").status == 200
        assert gateway.upstream.asked == ["law-b"]


def test_all_replicas_down_asks_the_next_expert_or_says_so_in_the_callers_format(tmp_path: Path) -> None:
    with ExitStack() as stack:
        ports = [stack.enter_context(closed_port()) for _ in range(2)]
        one, other = (f"http://127.0.0.1:{port}" for port in ports)
        given = {"replicas": [f"{one}/v1", f"{other}/v1"], "capabilities": ["chat", "messages"], "slow_start": 0}
        given |= {"base_url": f"{one}/v1", "retries": {"backoff": 0}, "health": {"unhealthy": 1, "down_interval": 0.05}}
        gateway = stack.enter_context(running(tmp_path, experts={"law": given}, routing={"default": "maths"}))
        got = ask(gateway.url, chat(LAW))
        assert (got.status, got.headers["x-ir3de-fallbacks"]) == (200, "1")
        for _ in range(2):  # the first finds out, or health checks do; the second knows
            got = ask(gateway.url, chat(LAW, "law"))
            assert got.status == 503 and int(got.headers["retry-after"]) >= 1
            assert (
                "no replica of 'law' is available" in got.error["message"] and "127.0.0.1" not in got.error["message"]
            )
        assert eventually(lambda: states(gateway) == ["down", "down"])
        client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="x", max_retries=0)
        with client, pytest.raises(openai.InternalServerError, match="no replica of 'law' is available: 2 down"):
            client.chat.completions.create(model="law", messages=[{"role": "user", "content": LAW}])
        got = ask(gateway.url, chat(LAW, "law", max_tokens=5), "/v1/messages")
        assert (got.status, got.json["type"], got.json["error"]["type"]) == (503, "error", "overloaded_error")
        assert ask(gateway.url, path="/readyz").status == 200  # others can answer
        assert ask(gateway.url, path="/health").json["replicas"] == {"law": ["down", "down"]}
        assert ask(gateway.url, chat(QUESTIONS["cooking"])).status == 200
        back = Upstream()
        stack.enter_context(served(_below(back), port=ports[1]))
        assert eventually(lambda: states(gateway)[1] == "up")
        assert ask(gateway.url, chat(LAW, "law")).json["choices"][0]["message"]["content"] == "".join(ANSWER)


def _below(upstream: Upstream) -> Any:
    from starlette.applications import Starlette
    from starlette.routing import Route

    async def respond(request: Request) -> Response:
        return await answer(request, json.loads(await request.body() or b"{}"))

    return Starlette(routes=[Route("/v1/{path:path}", respond, methods=["GET", "POST"])])


def test_health_checks_take_a_replica_out_and_bring_it_back(tmp_path: Path) -> None:
    checks = {"path": "models", "interval": 0.05, "down_interval": 0.05, "unhealthy": 2, "timeout": 5}
    with replicated(tmp_path, {"health": checks, "slow_start": 0.05}) as gateway:
        assert eventually(lambda: set(gateway.upstream.asked) == set(NAMES))
        gateway.upstream.behaviour["law-b"] = failing(503)
        assert eventually(lambda: states(gateway) == ["up", "down", "up"])
        assert ask(gateway.url, path="/health").json["status"] == "degraded"
        asked = [ask(gateway.url, chat(LAW)).status for _ in range(6)]
        assert asked == [200] * 6 and metric(gateway, 'ir3de_replica_requests_total{expert="law",outcome="failed"') == 0
        assert metric(gateway, 'ir3de_replica_up{expert="law",replica="law-b"}') == 0
        gateway.upstream.behaviour["law-b"] = failing(404)  # it has no such path, but it is there
        assert eventually(lambda: states(gateway) == ["up", "up", "up"])
        assert metric(gateway, 'ir3de_replica_up{expert="law",replica="law-b"}') == 1
        assert metric(gateway, 'ir3de_health_checks_total{expert="law",outcome="failed",replica="law-b"}') >= 2


def test_checks_carry_the_key_and_hang_no_longer_than_their_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAW_KEY", "sk-law")
    seen: list[tuple[str, str]] = []

    async def note(request: Request, asked: dict[str, Any]) -> Response:
        seen.append((request.method, request.headers.get("authorization", "")))
        return await never(request, asked)

    checks = {"interval": 0.05, "down_interval": 0.05, "unhealthy": 1, "timeout": 1}
    with replicated(tmp_path, {"health": checks, "api_key_env": "LAW_KEY"}) as gateway:
        fail_all(gateway, note)
        assert eventually(lambda: states(gateway) == ["down"] * 3)
        assert set(seen) == {("GET", "Bearer sk-law")}
        fail_all(gateway, answer)
        assert eventually(lambda: states(gateway) == ["up"] * 3)


def test_a_replica_rests_after_failures_of_its_own_while_the_others_serve(tmp_path: Path) -> None:
    with replicated(tmp_path, {"breaker": {"failures": 2, "rest": 600}}) as gateway:
        gateway.upstream.behaviour["law-a"] = failing(500)
        texts = [f"{LAW} {number}" for number in range(8)]  # of one request alone, a failure counts once
        assert [ask(gateway.url, chat(text, "law")).status for text in texts] == [200] * 8
        assert states(gateway) == ["open", "up", "up"]
        gateway.upstream.asked.clear()
        assert [ask(gateway.url, chat(LAW)).status for _ in range(4)] == [200] * 4
        assert "law-a" not in gateway.upstream.asked
        assert metric(gateway, 'ir3de_retries_total{expert="law"}') == 2
        assert metric(gateway, 'ir3de_replica_requests_total{expert="law",outcome="failed",replica="law-a"}') == 2


def test_a_deadline_for_all_attempts_together_is_a_504_and_nobodys_fault(tmp_path: Path) -> None:
    law = {"capabilities": ["chat", "messages"], "breaker": {"failures": 1, "rest": 600}}
    with replicated(tmp_path, law, routing={"deadline": 0.2}) as gateway:
        fail_all(gateway, never)
        got = ask(gateway.url, chat(LAW))
        assert (got.status, got.error["code"]) == (504, "deadline_exceeded") and "0.2 s" in got.error["message"]
        assert len(gateway.upstream.asked) == 1 and states(gateway) == ["up"] * 3
        got = ask(gateway.url, chat(LAW, "law", max_tokens=5), "/v1/messages")
        assert (got.status, got.json["type"], got.json["error"]["type"]) == (504, "error", "timeout_error")


def test_a_deadline_holds_in_the_queue_and_ends_with_the_beginning_of_a_stream(tmp_path: Path) -> None:
    began = threading.Event()

    async def slowly(request: Request, asked: dict[str, Any]) -> Response:
        async def events() -> Any:
            yield b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"We"}}]}\n\n'
            while not began.is_set():
                await asyncio.sleep(0.01)
            yield b"data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    law = {"concurrency": {"limit": 1, "queue": 5, "wait": 600}}
    with running(tmp_path, experts={"law": law}, routing={"deadline": 2, "fallbacks": 0}) as gateway:
        gateway.upstream.behaviour["law"] = slowly
        line = sent(gateway.url, json.dumps(chat(LAW, stream=True)).encode())
        assert eventually(lambda: gateway.gateway.live.snapshot.experts["law"].concurrency.in_use == 1)
        got = ask(gateway.url, chat(LAW))  # it waits in the queue, until its deadline
        assert (got.status, got.error["code"]) == (504, "deadline_exceeded")
        began.set()  # the stream has gone on for longer than that
        said = b""
        while b"[DONE]" not in said:
            said += receive(line)
        line.close()


def test_a_timer_that_ends_a_little_early_is_a_deadline_all_the_same(tmp_path: Path) -> None:
    """uvloop rounds timers to milliseconds, so about a third of them end before their time."""
    law = {"concurrency": {"limit": 1, "queue": 5, "wait": 600}}
    with running(tmp_path, experts={"law": law}, routing={"deadline": 0.05, "fallbacks": 0}) as gateway:
        gateway.gateway.live.snapshot.experts["law"].concurrency.try_acquire()  # nobody gives it back
        got = [ask(gateway.url, chat(LAW)) for _ in range(30)]
        assert {(one.status, one.error["code"]) for one in got} == {(504, "deadline_exceeded")}


def test_a_hedge_asks_a_second_replica_and_hangs_up_on_the_slower_one(tmp_path: Path) -> None:
    with replicated(tmp_path, {"hedge_after": 0.05}) as gateway:
        gateway.upstream.behaviour["law-a"] = never
        for stream in (False, True):
            for _ in range(4):
                got = ask(gateway.url, chat(LAW, stream=stream))
                assert got.status == 200 and b"depends" in got.body.replace(b" ", b"")
        assert metric(gateway, 'ir3de_hedges_total{expert="law",outcome="won"}') >= 1
        assert eventually(lambda: is_quiet(gateway)) and states(gateway) == ["up"] * 3


def test_hedges_lose_fail_and_spare_what_must_not_be_repeated(tmp_path: Path) -> None:
    law = {"hedge_after": 0.02, "capabilities": ["chat", "responses"], "timeouts": {"first_token": 2}}
    with replicated(tmp_path, {**law, "breaker": {"failures": 10_000}, "retries": {"others": 0}}) as gateway:
        fail_all(gateway, never)
        got = ask(gateway.url, chat(LAW, "law"))
        assert got.status == 504 and len(gateway.upstream.asked) == 2
        assert metric(gateway, 'ir3de_hedges_total{expert="law",outcome="lost"}') == 1
        gateway.upstream.asked.clear()
        assert ask(gateway.url, {"model": "law", "input": LAW, "store": True}, "/v1/responses").status == 504
        assert len(gateway.upstream.asked) == 1
        with sent(gateway.url, json.dumps(chat(LAW, "law")).encode()):
            assert eventually(lambda: len(gateway.upstream.asked) == 3)  # the client leaves both
        assert eventually(lambda: is_quiet(gateway))


def test_what_a_replica_has_stored_is_asked_of_it_alone(tmp_path: Path) -> None:
    law = {"hedge_after": 0.02, "capabilities": ["chat", "responses"], "timeouts": {"first_token": 2}}

    async def respond(request: Request, asked: dict[str, Any]) -> Response:
        return JSONResponse({"id": "resp_1", "object": "response", "status": "completed", "output": [], "usage": {}})

    with replicated(tmp_path, law) as gateway:
        fail_all(gateway, respond)
        assert ask(gateway.url, {"model": "law", "input": LAW}, "/v1/responses").status == 200
        keeper = gateway.upstream.asked.pop()
        follow_up = {"model": "law", "input": "And then?", "previous_response_id": "resp_1", "store": False}
        for _ in range(4):
            assert ask(gateway.url, follow_up, "/v1/responses").status == 200
        assert set(gateway.upstream.asked) == {keeper}
        fail_all(gateway, never)  # and nobody else is asked because it is slow, or fails
        gateway.upstream.asked.clear()
        assert ask(gateway.url, follow_up, "/v1/responses").status == 504
        assert gateway.upstream.asked == [keeper]
        replica = next(replica for replica in replicas_of(gateway) if replica.label == keeper)
        replica.set_drained(True)
        got = ask(gateway.url, follow_up, "/v1/responses")
        assert got.status == 503 and "that has what the request refers to is not available" in got.error["message"]


def test_a_limit_of_connections_for_each_replica(tmp_path: Path) -> None:
    law = {"max_connections": 1, "timeouts": {"connect": 1}}
    with replicated(tmp_path, law, routing={"fallbacks": 0}) as gateway:
        fail_all(gateway, never)
        held = [sent(gateway.url, json.dumps(chat(LAW)).encode()) for _ in range(3)]
        assert eventually(lambda: len(gateway.upstream.asked) == 3)
        got = ask(gateway.url, chat(LAW))
        assert got.status == 429 and "all connections to 'law' are in use" in got.error["message"]
        assert got.headers["retry-after"] == "1" and len(gateway.upstream.asked) == 3
        for line in held:
            line.close()
