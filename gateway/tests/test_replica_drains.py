"""Replicas through the admin API: drained, listed, and given without a secret."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from raw_sockets import ask, chat, eventually, sent
from replicated_expert import LAW, NAMES, fail_all, metric, replicas_of, replicated, states
from running_gateway import Running, answer, running

TOKEN = "let-me-in-3141592653"


def change(gateway: Running, label: str, body: object, expert: str = "law", **headers: str) -> Any:
    path = f"/admin/experts/{expert}/replicas/{label}"
    return ask(gateway.url, body, path, "PUT", authorization=f"Bearer {TOKEN}", **headers)


def test_a_replica_is_drained_by_admin_and_its_requests_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
    state = {"state": str(tmp_path / "state")}
    with replicated(tmp_path, {"slow_start": 600}, **state) as gateway:
        gate = threading.Event()

        async def wait(request: Request, asked: dict[str, Any]) -> Response:
            while not gate.is_set():
                await asyncio.sleep(0.01)
            return await answer(request, asked)

        fail_all(gateway, wait)
        line = sent(gateway.url, json.dumps(chat(LAW)).encode())
        assert eventually(lambda: len(gateway.upstream.asked) == 1)
        busy = gateway.upstream.asked.pop()
        drained = change(gateway, busy, {"drain": True})
        assert drained.status == 200 and drained.headers["etag"]
        assert {name: drained.json[name] for name in ("name", "state", "drained", "in_flight", "breaker")} == {
            "name": busy, "state": "drained", "drained": True, "in_flight": 1, "breaker": "closed"
        }  # fmt: skip
        fail_all(gateway, answer)
        assert {ask(gateway.url, chat(LAW)).status for _ in range(6)} == {200}
        assert busy not in gateway.upstream.asked
        gate.set()
        assert b"depends" in line.recv(65_536)
        line.close()
        listed = ask(gateway.url, path="/admin/experts", authorization=f"Bearer {TOKEN}").json["data"]
        rows = {row["name"]: row["replicas"] for row in listed}
        assert [row["state"] for row in rows["law"]].count("drained") == 1
        assert rows["maths"][0]["state"] == "up" and len(rows["maths"]) == 1
        assert metric(gateway, f'ir3de_replica_up{{expert="law",replica="{busy}"}}') == 0
    with replicated(tmp_path, {"slow_start": 600}, **state) as gateway:
        assert [replica.label for replica in replicas_of(gateway) if replica.state == "drained"] == [busy]
        assert change(gateway, busy, {"drain": False}).json["state"] == "warming"
        history = ask(gateway.url, path="/admin/audit", authorization=f"Bearer {TOKEN}").json["data"]
        done = [(row["action"], row["expert"], row["replica"], row["outcome"]) for row in history]
        assert done == [("undrain replica", "law", busy, "done"), ("drain replica", "law", busy, "done")]


def test_drains_that_cannot_be_are_refused_and_all_drained_is_a_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
    with replicated(tmp_path) as gateway:
        for label, body, expert, status, code in (
            ("law-x", {"drain": True}, "law", 404, "replica_not_found"),
            ("law-a", {"drain": True}, "medicine", 404, "expert_not_found"),
            ("law-a", {"drain": True}, "maths", 409, "no_replicas"),
            ("law-a", {"drain": 1}, "law", 422, "invalid_field"),
            ("law-a", {}, "law", 422, "invalid_field"),
            ("law-a", {"drain": True, "now": True}, "law", 422, "invalid_field"),
        ):
            got = change(gateway, label, body, expert)
            assert (got.status, got.error["code"]) == (status, code), got.body
        assert change(gateway, "law-a", {"drain": True}, if_match='"other"').status == 412
        path = "/admin/experts/law/replicas/law-a"
        assert ask(gateway.url, {"drain": True}, path, "PUT").status == 401
        assert states(gateway) == ["up"] * 3
        for name in NAMES:
            assert change(gateway, name, {"drain": True}).status == 200
        got = ask(gateway.url, chat(LAW, "law"))
        assert got.status == 503 and got.headers["retry-after"] == "1"
        assert got.error["message"] == "no replica of 'law' is available: 3 drained"
        assert ask(gateway.url, chat(LAW)).status == 503  # nobody else is a candidate


def test_an_expert_with_replicas_comes_by_admin_but_no_secret_goes_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
    monkeypatch.setenv("IR3DE_EXPERT_KEY", "sk-history")
    with running(tmp_path) as gateway:
        base = gateway.gateway.live.snapshot.config.experts[0].base_url.rpartition("/maths/")[0]
        addresses = [f"{base}/history-a/v1", {"base_url": f"{base}/history-b/v1", "api_key_env": "IR3DE_EXPERT_KEY"}]

        def add(replicas: list[Any]) -> Any:
            upstream = {"replicas": replicas, "health": {"active": False}, "affinity": 0}
            body = {"name": "history", "upstream": upstream}
            return ask(gateway.url, body, "/admin/experts", authorization=f"Bearer {TOKEN}")

        refused = add([addresses[0], {"base_url": "http://evil/v1", "api_key_env": "IR3DE_ADMIN_TOKEN"}])
        assert (refused.status, refused.error["param"]) == (422, "upstream.replicas")
        assert add(["nonsense"]).error["code"] == "invalid_field"
        added = add(addresses)
        assert added.status == 201 and [row["state"] for row in added.json["replicas"]] == ["up", "up"]
        gateway.upstream.asked.clear()
        gateway.upstream.headers.clear()
        assert {ask(gateway.url, chat("When did Rome fall?", "history")).status for _ in range(4)} == {200}
        keys = {
            name: headers.get("authorization")
            for name, headers in zip(gateway.upstream.asked, gateway.upstream.headers, strict=True)
        }
        assert keys == {"history-a": None, "history-b": "Bearer sk-history"}
