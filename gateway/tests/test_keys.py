"""Named keys: who may do what, how much, and what is said of them in answers, logs and metrics."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from client_keys import bearer, describe, secret
from keyed_gateway import LAW, MESSAGES, PRICE, as_law, folder, gateway  # noqa: F401
from raw_sockets import Got, ask, chat, eventually, sent
from running_gateway import QUESTIONS, Running, answer

# who ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "status", "code", "words"),
    [
        ("nobody", 401, "invalid_api_key", "unknown API key"),
        ("old", 401, "invalid_api_key", "'old' has expired"),
        ("off", 401, "invalid_api_key", "'off' is disabled"),
        ("watcher", 403, "missing_scope", "'watcher' has no scope 'inference', only models"),
    ],
)
def test_a_key_that_may_not_ask_is_told_why_in_the_format_of_the_api(
    gateway: Running, name: str, status: int, code: str, words: str
) -> None:
    got = ask(gateway.url, LAW, **bearer(name))
    assert (got.status, got.error["code"]) == (status, code) and words in got.error["message"]
    assert secret(name) not in got.body.decode()
    told = ask(gateway.url, MESSAGES, "/v1/messages", **{"x-api-key": secret(name)})
    kind = {401: "authentication_error", 403: "permission_error"}[status]
    assert (told.status, told.json["type"], told.json["error"]["type"]) == (status, "error", kind)
    assert ask(gateway.url, LAW, **bearer("free")).status == 200


def test_scopes_say_what_a_key_may_do(gateway: Running) -> None:
    may = {
        name: [
            ask(gateway.url, LAW, **bearer(name)).status,
            ask(gateway.url, {"input": "Is it void?"}, "/v1/route", **bearer(name)).status,
            ask(gateway.url, path="/v1/models", **bearer(name)).status,
            ask(gateway.url, path="/v1/usage", **bearer(name)).status,
            ask(gateway.url, path="/admin/experts", **bearer(name)).status,
        ]
        for name in ("free", "watcher", "chief")
    }
    assert may == {
        "free": [200, 200, 200, 200, 403],
        "watcher": [403, 403, 200, 200, 403],
        "chief": [403, 403, 403, 200, 200],
    }
    assert ask(gateway.url, path="/admin/experts", authorization="Bearer root").status == 200
    assert ask(gateway.url, path="/admin/experts", authorization="Bearer wrong").status == 401
    assert ask(gateway.url, {}, "/admin/reload", **bearer("chief")).status == 200
    audit = ask(gateway.url, path="/admin/audit", **bearer("chief")).json["data"]
    assert audit[0]["who"] == "key chief"


def test_only_the_experts_of_a_key_answer_it(gateway: Running) -> None:
    assert ask(gateway.url, chat(QUESTIONS["law"]), **bearer("lawyer")).headers["x-ir3de-expert"] == "law"
    got = ask(gateway.url, chat(QUESTIONS["maths"]), **bearer("lawyer"))
    assert (got.status, got.error["code"], got.headers["x-ir3de-decided"]) == (400, "no_eligible_expert", "maths")
    assert ask(gateway.url, chat(QUESTIONS["law"], "law"), **bearer("lawyer")).status == 200
    refused = ask(gateway.url, chat(QUESTIONS["maths"], "maths"), **bearer("lawyer"))
    assert (refused.status, refused.error["param"]) == (403, "model")
    assert "may not use 'maths'" in refused.error["message"] and "cooking" not in refused.error["message"]
    told = ask(gateway.url, {**MESSAGES, "model": "maths"}, "/v1/messages", **bearer("lawyer"))
    assert (told.status, told.json["error"]["type"]) == (403, "permission_error")
    unknown = ask(gateway.url, chat("x", "surgery"), **bearer("lawyer"))
    assert (unknown.status, unknown.error["code"]) == (404, "model_not_found")
    both = {**chat(QUESTIONS["maths"]), "ir3de": {"allow": ["maths"]}}
    assert ask(gateway.url, both, **bearer("lawyer")).error["code"] == "no_eligible_expert"
    models = ask(gateway.url, path="/v1/models", **bearer("lawyer")).json["data"]
    assert [model["id"] for model in models] == ["auto", "ir3de/auto", "law"]
    assert ask(gateway.url, path="/v1/models/maths", **bearer("lawyer")).status == 404
    routed = ask(gateway.url, {"input": QUESTIONS["maths"], "target": True}, "/v1/route", **bearer("lawyer")).json
    assert (routed["data"][0]["expert"], routed["data"][0]["target"]["expert"]) == ("maths", None)
    assert "maths was chosen: not allowed for this API key" in routed["data"][0]["target"]["why"]


def test_keys_of_the_environment_go_on_working_and_are_called_as_their_variable(gateway: Running) -> None:
    for given in ("sk-plain-old", "sk-second"):
        assert ask(gateway.url, LAW, authorization=f"Bearer {given}").status == 200
    usage = ask(gateway.url, path="/v1/usage", authorization="Bearer sk-second").json
    assert usage["name"] == "IR3DE_API_KEY-2" and usage["used"]["requests"] == 1


# how much -------------------------------------------------------------------------------------------------------


def test_requests_per_minute_and_the_headers_of_openai(gateway: Running) -> None:
    async def tells_its_own(request: Request, asked: dict[str, Any]) -> Response:
        found = await answer(request, asked)
        found.headers["x-ratelimit-remaining-requests"] = "77"
        return found

    gateway.upstream.behaviour["law"] = tells_its_own
    answers = [ask(gateway.url, *as_law("three")[:1], **bearer("three")) for _ in range(4)]
    del gateway.upstream.behaviour["law"]
    assert [got.status for got in answers] == [200, 200, 200, 429]
    assert [got.headers["x-ratelimit-remaining-requests"] for got in answers] == ["2", "1", "0", "0"]
    last = answers[-1]
    assert last.headers["x-ratelimit-limit-requests"] == "3" and "x-ratelimit-limit-tokens" not in last.headers
    assert re.fullmatch(r"(\d+\.?\d*s|1m0s)", last.headers["x-ratelimit-reset-requests"])
    assert 1 <= int(last.headers["retry-after"]) <= 60
    assert last.error["code"] == "rate_limit_exceeded" and "3 requests within a minute" in last.error["message"]


def test_the_headers_of_anthropic(gateway: Running) -> None:
    def tell(body: dict[str, Any]) -> Got:
        return ask(gateway.url, body, "/v1/messages", **{"x-api-key": secret("anthropic")})

    first, second, third = tell(MESSAGES), tell(MESSAGES), tell(MESSAGES)
    assert [first.status, second.status, third.status] == [200, 200, 429]
    assert third.json["type"] == "error" and third.json["error"]["type"] == "rate_limit_error"
    assert first.headers["anthropic-ratelimit-requests-limit"] == "2"
    assert third.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert first.headers["anthropic-ratelimit-tokens-remaining"] == str(1_000 - 15)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", third.headers["anthropic-ratelimit-requests-reset"])
    assert not any(name.startswith("x-ratelimit") for name in first.headers)


def test_tokens_per_minute_are_what_the_expert_says(gateway: Running) -> None:
    body, headers = as_law("words")
    answers = [ask(gateway.url, body, **headers) for _ in range(3)]
    assert [got.status for got in answers] == [200, 200, 429]  # 15 tokens each, and 20 are the limit
    assert [got.headers["x-ratelimit-remaining-tokens"] for got in answers] == ["5", "0", "0"]
    assert "20 tokens within a minute" in answers[-1].error["message"]
    assert describe(gateway, "words")["used"]["tokens"] == 30


def test_requests_at_once(gateway: Running) -> None:
    goes_on = threading.Event()

    async def waits(request: Request, asked: dict[str, Any]) -> Response:
        while not goes_on.is_set():
            await asyncio.sleep(0.005)
        return await answer(request, asked)

    gateway.upstream.behaviour["law"] = waits
    body, headers = as_law("single")
    held = sent(gateway.url, json.dumps(body).encode(), **headers)
    try:
        assert eventually(lambda: describe(gateway, "single")["used"]["concurrent"] == 1)
        got = ask(gateway.url, body, **headers)
        assert (got.status, got.headers["retry-after"]) == (429, "1") and "1 concurrent" in got.error["message"]
        goes_on.set()
        assert held.recv(12) == b"HTTP/1.1 200"
        assert [ask(gateway.url, body, **headers).status for _ in range(3)] == [200] * 3
    finally:
        goes_on.set()
        held.close()
        del gateway.upstream.behaviour["law"]


def test_a_budget_that_is_used_up(gateway: Running) -> None:
    body, headers = as_law("poor", max_tokens=1)
    answers = [ask(gateway.url, body, **headers) for _ in range(3)]
    assert [got.status for got in answers] == [200, 200, 429]  # 0.02 each, over by less than a request
    last = answers[-1]
    assert (last.error["code"], last.error["type"]) == ("insufficient_quota", "insufficient_quota")
    assert last.headers["x-should-retry"] == "false" and int(last.headers["retry-after"]) >= 1
    told = ask(gateway.url, MESSAGES, "/v1/messages", **headers)
    assert (told.status, told.json["error"]["type"]) == (429, "rate_limit_error")
    assert describe(gateway, "poor")["used"]["day"] == {"requests": 2, "tokens": 30, "cost": 0.04}
    assert ask(gateway.url, LAW, **bearer("free")).status == 200


def test_counting_tokens_is_free(gateway: Running) -> None:
    async def counts(request: Request, asked: dict[str, Any]) -> Response:
        return Response('{"input_tokens": 7}', media_type="application/json")

    gateway.upstream.behaviour["law"] = counts
    before = describe(gateway, "plain")["used"]
    assert ask(gateway.url, MESSAGES, "/v1/messages/count_tokens", **bearer("plain")).status == 200
    gateway.upstream.behaviour.clear()
    after = describe(gateway, "plain")["used"]
    assert (after["requests"], after["tokens"], after["month"]["estimated"]) == (before["requests"] + 1, 0, 0)


def test_failures_cost_nothing(gateway: Running) -> None:
    async def fails(request: Request, asked: dict[str, Any]) -> Response:
        return Response('{"error": {"message": "no"}}', 400, media_type="application/json")

    gateway.upstream.behaviour["cooking"] = fails
    try:
        before = describe(gateway, "counted")["used"]
        assert ask(gateway.url, chat("x", "cooking"), **bearer("counted")).status == 400
        assert ask(gateway.url, b"{", **bearer("counted")).status == 400
        after = describe(gateway, "counted")["used"]
        assert (after["tokens"], after["concurrent"], after["day"]["cost"]) == (before["tokens"], 0, 0)
        assert after["day"]["requests"] == before["day"]["requests"] + 2
    finally:
        gateway.upstream.behaviour.clear()


def test_decisions_count_as_requests_and_cost_nothing_else(gateway: Running) -> None:
    asked = {"input": "Is it void?"}
    first, second, third = (ask(gateway.url, asked, "/v1/route", **bearer("decides")) for _ in range(3))
    assert (first.status, second.status, third.status) == (200, 200, 429)
    assert third.error["code"] == "rate_limit_exceeded" and "2 requests within a minute" in third.error["message"]
    assert (first.headers["x-ratelimit-remaining-requests"], third.headers["x-ratelimit-limit-requests"]) == ("1", "2")
    used = describe(gateway, "decides")
    assert (used["used"]["day"], used["used"]["concurrent"]) == ({"requests": 2, "tokens": 0, "cost": 0}, 0)
    assert used["by_expert"] == []
    for _ in range(3):  # a key without a budget left may still have decisions
        assert ask(gateway.url, asked, "/v1/route", **bearer("broke")).status == 200
    assert ask(gateway.url, LAW, **bearer("broke")).error["code"] == "insufficient_quota"


# what is said of them -------------------------------------------------------------------------------------------


def test_the_name_is_in_logs_and_metrics_and_the_key_is_nowhere(gateway: Running, folder: Path) -> None:
    assert ask(gateway.url, LAW, **bearer("counted"), **{"x-request-id": "named"}).status == 200
    ask(gateway.url, LAW, **bearer("nobody"), **{"x-request-id": "unnamed"})
    ask(gateway.url, path="/v1/models", **bearer("watcher"), **{"x-request-id": "listed"})

    def read_lines() -> dict[str, Any]:
        lines = map(json.loads, (folder / "access.log").read_text().splitlines())
        return {line["request_id"]: line for line in lines}

    assert eventually(lambda: {"named", "unnamed", "listed"} <= read_lines().keys())
    lines = read_lines()
    assert (lines["named"]["key"], lines["listed"]["key"]) == ("counted", "watcher")
    assert "key" not in lines["unnamed"] and lines["unnamed"]["error"] == "invalid_api_key"

    def read_decided() -> list[Any]:
        decided = map(json.loads, (folder / "decisions.log").read_text().splitlines())
        return [line.get("key") for line in decided if line["request_id"] == "named"]

    assert eventually(lambda: "counted" in read_decided())
    metrics = ask(gateway.url, path="/metrics").body.decode()
    assert 'ir3de_key_requests_total{expert="law",key="counted"}' in metrics
    assert 'ir3de_key_tokens_total{direction="prompt",expert="law",key="counted"}' in metrics
    assert 'ir3de_key_cost_total{expert="law",key="counted"}' in metrics
    assert re.search(r'ir3de_key_refusals_total\{code="missing_scope",key="watcher"\} [1-9]', metrics)
    written = metrics + (folder / "access.log").read_text() + (folder / "decisions.log").read_text()
    assert "sk-ir3de" not in written and "sk-plain" not in written


def test_admin_lists_every_key(gateway: Running, folder: Path) -> None:
    listed = ask(gateway.url, path="/admin/keys", authorization="Bearer root").json
    assert (listed["file"], listed["problem"]) == (str(folder / "keys.yaml"), None)
    row = next(row for row in listed["data"] if row["name"] == "lawyer")
    assert row["experts"] == ["law"] and row["scopes"] == ["inference", "models", "route"] and not row["disabled"]
    assert set(row["limits"]) == {
        "requests_per_minute", "tokens_per_minute", "concurrent", "budget_per_day", "budget_per_month",
    }  # fmt: skip
    assert set(row["used"]) == {"requests", "tokens", "concurrent", "day", "month"}
    assert set(row["resets"]) == {"requests", "tokens", "day", "month"}
    assert next(row for row in listed["data"] if row["name"] == "old")["expires"] == "2001-02-01T00:00:00Z"
    own = ask(gateway.url, path="/v1/usage", **bearer("lawyer")).json
    assert own["object"] == "usage" and {field: own[field] for field in ("name", "limits")} == {
        "name": "lawyer",
        "limits": row["limits"],
    }
