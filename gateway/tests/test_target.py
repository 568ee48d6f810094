"""The target that POST /v1/route names is the expert that then answers."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from client_keys import bearer, key, write_keys
from ir3de_gateway.config.document import Config
from running_gateway import QUESTIONS, Running, running, small_router

TEXTS = [
    *QUESTIONS.values(),
    "hi",
    "Is my contract void if my dough does not rise?",
    "What is a contract, an egg and an integer?",
]
SETTINGS: list[dict[str, Any]] = [{}, {"selector": "all"}, {"selector": "entropy", "k": 1}]


def post(url: str, body: object, **headers: str) -> tuple[Any, str]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response), response.headers.get("x-ir3de-expert", "")


def check(gateway: Running) -> list[dict[str, Any]]:
    """Every prompt under every setting goes where it was said to go; return the targets."""
    found = []
    for text in TEXTS:
        messages = [{"role": "user", "content": text}]
        for settings in SETTINGS:
            row = post(f"{gateway.url}/v1/route", {"messages": messages, "target": True, **settings})[0]["data"][0]
            target = row["target"]
            body, expert = post(f"{gateway.url}/v1/chat/completions", {"model": target["model"], "messages": messages})
            assert expert == target["expert"], (text, settings)
            assert (target["model"] == "auto") is (settings == {})
            found.append({**target, "decided": row["expert"], "said": body["ir3de"]["why"]})
    return found


def test_it_is_the_expert_that_answers(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        targets = check(gateway)
        assert {target["why"] for target in targets} == {"routed", "abstained", "asked by name"}
        assert all(target["why"] == target["said"] and not target["failing"] for target in targets)
        # another selector decides otherwise somewhere, so the test would notice if it were asked in vain
        served, others = targets[:: len(SETTINGS)], targets[2 :: len(SETTINGS)]
        assert [one["expert"] for one in served] != [one["expert"] for one in others]
        plain = post(f"{gateway.url}/v1/route", {"input": TEXTS})[0]["data"]
        assert all("target" not in row for row in plain)


def test_it_is_the_default_expert_or_the_one_that_gets_everything(tmp_path: Path) -> None:
    with running(tmp_path, routing={"default": "cooking", "threshold": 0.999}) as gateway:
        assert {target["expert"] for target in check(gateway) if target["why"] == "abstained"} == {"cooking"}
    with running(tmp_path, routing={"shadow": "maths"}) as gateway:
        assert {target["expert"] for target in check(gateway) if target["model"] == "auto"} == {"maths"}


def test_an_expert_without_an_endpoint_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    validate = Config.model_validate

    def leave_out_law(given: dict[str, Any]) -> Config:
        return validate({**given, "experts": [one for one in given["experts"] if one["name"] != "law"]})

    monkeypatch.setattr(Config, "model_validate", leave_out_law)
    with running(tmp_path, routing={"default": "maths"}) as gateway:
        targets = check(gateway)
        assert "law" in {target["decided"] for target in targets} - {target["expert"] for target in targets}
        passed = [target for target in targets if target["why"] == "instead of law"]
        assert {target["expert"] for target in passed} == {"maths", "cooking"}  # the default expert, and a candidate
        assert {target["instead"] for target in passed} == {"default expert", "candidate"}
        assert {target["reason"] for target in passed} == {"has no endpoint (experts)"}


def test_an_expert_that_fails_is_passed_over_and_named(tmp_path: Path) -> None:
    with running(tmp_path, routing={"default": "maths"}) as gateway:
        breaker = gateway.gateway.live.snapshot.experts["law"].breaker
        for _ in range(5):
            breaker.record_failure()
        assert breaker.state == "open"
        asked = {"input": "Is my contract void?", "target": True}
        target = post(f"{gateway.url}/v1/route", asked)[0]["data"][0]["target"]
        assert target["failing"] == ["law"] and (target["decided"], target["expert"]) == ("law", "maths")
        assert (target["reason"], target["instead"]) == ("resting", "default expert")
        messages = [{"role": "user", "content": asked["input"]}]
        assert (
            post(f"{gateway.url}/v1/chat/completions", {"model": "auto", "messages": messages})[1] == target["expert"]
        )


def test_nobody_is_named_where_nobody_may_answer(tmp_path: Path) -> None:
    small = {name: {"context_window": 1} for name in small_router().experts}
    with running(tmp_path, experts=small) as gateway:
        target = post(f"{gateway.url}/v1/route", {"input": "Is my contract void?", "target": True})[0]["data"][0][
            "target"
        ]
        assert target["expert"] is None and "do not fit its context of 1" in target["why"]


def test_a_key_that_may_not_ask_everybody_is_told_whom_it_will_reach(tmp_path: Path) -> None:
    file = write_keys(tmp_path / "keys.json", key("app", experts=["maths", "cooking"]), key("nobody", experts=[]))
    with running(tmp_path, server={"keys_file": str(file)}, routing={"default": "maths"}) as gateway:
        for settings in SETTINGS:
            asked = {"input": "Is my contract void?", "target": True, **settings}
            row = post(f"{gateway.url}/v1/route", asked, **bearer("app"))[0]["data"][0]
            body = {"model": row["target"]["model"], "messages": [{"role": "user", "content": asked["input"]}]}
            expert = post(f"{gateway.url}/v1/chat/completions", body, **bearer("app"))[1]
            assert row["expert"] == "law" and row["target"]["expert"] == expert != "law"
            nobody = post(f"{gateway.url}/v1/route", asked, **bearer("nobody"))[0]["data"][0]["target"]
            assert (nobody["expert"] is None and "not allowed" in nobody["why"]) or "may not use" in nobody["why"]
