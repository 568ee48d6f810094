"""The price of a switch, and agents of one session, beside what else decides who answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from candidate_routers import trying
from client_keys import bearer, key, write_keys
from raw_sockets import ask
from replicated_expert import metric
from running_gateway import QUESTIONS, Running, failing, running
from test_chats import said
from test_switch import LAW, LONG, MATHS, PRICED, build_chat

STAYED = "too dear to switch"
MAIN, TITLE = "You are a coding agent. Today is 2026-11-18.", "Find a title for this chat."


def send(
    gateway: Running, messages: list[Any], path: str = "chat/completions", headers: Any = None, **more: Any
) -> Any:
    body = {"model": "auto", "messages": messages, **more}
    return ask(gateway.url, body, f"/v1/{path}", **(headers or {}))


def test_clients_metrics_and_logs_see_what_was_weighed(tmp_path: Path) -> None:
    log = tmp_path / "access.jsonl"
    with running(tmp_path, experts=PRICED, logs={"access": str(log), "format": "json"}) as gateway:
        stayed, moved = send(gateway, build_chat(LONG)), send(gateway, build_chat("Yes."))
        plain = send(gateway, [said("user", LAW)])
        assert (stayed.headers["x-ir3de-expert"], stayed.headers["x-ir3de-decided"]) == ("law", "maths")
        assert stayed.headers["x-ir3de-why"] == stayed.json["ir3de"]["why"] == STAYED
        assert stayed.headers["x-ir3de-switch"].startswith('stayed; from="law"; to="maths"; gain=')
        told = stayed.json["ir3de"]["switch"]
        assert (told["outcome"], told["from"], told["to"]) == ("stayed", "law", "maths")
        assert told["gain"] <= told["price"] == pytest.approx(len(LONG) / 4.5 * 2.7e-6, rel=0.01)
        assert moved.json["ir3de"]["switch"]["outcome"] == "switched" and moved.json["ir3de"]["expert"] == "maths"
        assert "switch" not in plain.json["ir3de"] and "x-ir3de-switch" not in plain.headers
        assert metric(gateway, 'ir3de_switches_total{outcome="stayed"}') == 1
        assert metric(gateway, 'ir3de_switches_total{outcome="switched"}') == 1
        assert metric(gateway, f'ir3de_instead_total{{answered="law",decided="maths",reason="{STAYED}"}}') == 1
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [row.get("switch", {}).get("outcome") for row in rows[:3]] == ["stayed", "switched", None]


@pytest.mark.parametrize(("text", "expert", "outcome"), [(LONG, "law", "stayed"), ("Yes.", "maths", "switched")])
def test_the_preview_says_the_same(tmp_path: Path, text: str, expert: str, outcome: str) -> None:
    with running(tmp_path, experts=PRICED) as gateway:
        body = {"messages": build_chat(text), "target": True, "signal": True}
        row = ask(gateway.url, body, "/v1/route").json["data"][0]
        answered = send(gateway, build_chat(text)).json["ir3de"]
    assert row["target"]["expert"] == answered["expert"] == expert
    assert row["target"]["switch"] == answered["switch"] and answered["switch"]["outcome"] == outcome
    assert row["signal"]["switch"] == answered["switch"]
    assert row["signal"]["expert"] == row["expert"] == "maths"  # the router's own decision


@pytest.mark.parametrize("more", [{"stream": True}, {"path": "messages", "max_tokens": 5}])
def test_streams_and_other_formats_stay_too(tmp_path: Path, more: dict[str, Any]) -> None:
    with running(tmp_path, experts=PRICED) as gateway:
        assert send(gateway, build_chat(LONG), **more).headers["x-ir3de-switch"].startswith("stayed")


def test_a_tool_loop_stays_where_its_turn_went(tmp_path: Path) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    with running(tmp_path, experts=PRICED) as gateway:
        moved = [*build_chat("Yes."), call, {"role": "tool", "tool_call_id": "1", "content": LONG}]
        for chat in (moved, [*moved, call, {"role": "tool", "tool_call_id": "2", "content": LONG}]):
            got = send(gateway, chat)
            assert got.headers["x-ir3de-expert"] == "maths" and "x-ir3de-switch" not in got.headers
        back = send(gateway, [*moved, said("assistant", "12."), said("user", LAW)])
        assert back.headers["x-ir3de-expert"] == "maths" and back.headers["x-ir3de-why"] == STAYED


def test_a_session_moves_if_it_is_clear_and_worth_its_price(tmp_path: Path) -> None:
    clear = {"release": 0.5}
    with running(tmp_path, experts=PRICED, routing={"pinning": clear}) as gateway:
        named = {"x_session_id": "monday"}
        assert send(gateway, [said("user", LAW)], headers=named).headers["x-ir3de-expert"] == "law"
        dear = send(gateway, build_chat(LONG), headers=named)
        assert (dear.headers["x-ir3de-expert"], dear.headers["x-ir3de-why"]) == ("law", STAYED)
        cheap = send(gateway, build_chat("Yes."), headers=named)
        assert cheap.headers["x-ir3de-expert"] == "maths" and cheap.headers["x-ir3de-switch"].startswith("switched")
        again = send(gateway, [said("user", LAW), said("assistant", LONG), said("user", "thanks")], headers=named)
        assert (again.headers["x-ir3de-expert"], again.headers["x-ir3de-why"]) == ("maths", "pinned")
    with running(tmp_path, experts=PRICED, routing={"pinning": {"release": 1.0}}) as gateway:
        send(gateway, [said("user", LAW)], headers=named)
        assert send(gateway, build_chat("Yes."), headers=named).headers["x-ir3de-why"] == "pinned"  # it never moves


def test_keys_breakers_fallbacks_and_names_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = write_keys(tmp_path / "keys.yaml", key("alice", experts=["maths", "cooking"]), key("bob"))
    experts = {**PRICED, "law": {**PRICED["law"], "fallbacks": ["maths"], "breaker": {"failures": 1, "rest": 1_000}}}
    with running(tmp_path, experts=experts, server={"keys_file": str(keys)}) as gateway:
        chat = build_chat(LONG)
        other = send(gateway, chat, headers=bearer("alice"))
        assert other.headers["x-ir3de-expert"] == "maths" and "x-ir3de-switch" not in other.headers
        assert send(gateway, chat, headers=bearer("bob")).headers["x-ir3de-expert"] == "law"
        named = ask(gateway.url, {"model": "maths", "messages": chat}, **bearer("bob"))
        assert named.headers["x-ir3de-expert"] == "maths" and "x-ir3de-switch" not in named.headers
        gateway.upstream.behaviour["law"] = failing(500)
        for _ in range(2):  # it fails; then its breaker is open
            got = send(gateway, chat, headers=bearer("bob"))
            assert (got.status, got.headers["x-ir3de-expert"]) == (200, "maths")
            assert got.headers["x-ir3de-why"] == "instead of law"


@pytest.mark.nightly
def test_a_canary_weighs_by_its_own_router_and_nothing_that_stays_is_explored(tmp_path: Path) -> None:
    with trying(tmp_path, mode="canary", share=0.5, changes={"experts": PRICED}) as gateway:
        found = set()
        for number in range(24):
            chat = [said("user", f"{LAW} Case {number}."), *build_chat(LONG)[1:]]
            got = send(gateway, chat)
            found.add((got.headers["x-ir3de-expert"], got.headers["x-ir3de-why"]))
        assert found == {("law", STAYED), ("cooking", STAYED)}  # the candidate takes law for cooking
    (tmp_path / "explore").mkdir()
    with running(tmp_path / "explore", experts=PRICED, routing={"explore": 0.5, "threshold": 0.0}) as gateway:
        whys = {send(gateway, build_chat(LONG)).headers["x-ir3de-why"] for _ in range(12)}
        assert whys == {STAYED}


def test_a_stored_response_stays_with_its_expert_whatever_a_switch_would_gain(tmp_path: Path) -> None:
    able = {name: {**more, "capabilities": ["chat", "responses"]} for name, more in PRICED.items()}
    with running(tmp_path, experts=able) as gateway:
        first = ask(gateway.url, {"model": "auto", "input": LAW}, "/v1/responses").json
        body = {"model": "auto", "input": build_chat("Yes."), "previous_response_id": first["id"]}
        got = ask(gateway.url, body, "/v1/responses")
        assert (got.headers["x-ir3de-expert"], got.headers["x-ir3de-why"]) == ("law", "pinned")
        assert "x-ir3de-switch" not in got.headers
        alone = ask(gateway.url, {"model": "auto", "input": build_chat(LONG)}, "/v1/responses")
        assert alone.headers["x-ir3de-why"] == STAYED


def test_gateways_agree_without_shared_state(tmp_path: Path) -> None:
    chats = [
        build_chat("x" * size, *more) for size in (10, 30_000, 300_000) for more in ((), ("thanks",), (LAW, MATHS))
    ]
    found = []
    for place in ("one", "other"):
        (tmp_path / place).mkdir()
        with running(tmp_path / place, experts=PRICED) as gateway:
            order = chats if place == "one" else chats[::-1]
            answers = [send(gateway, chat).headers["x-ir3de-expert"] for chat in order]
            found.append(answers if place == "one" else answers[::-1])
    assert found[0] == found[1] and set(found[0]) == {"law", "maths"}


# agents ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["chat/completions", "messages"])
def test_side_requests_of_a_session_neither_inherit_nor_move_its_pin(tmp_path: Path, path: str) -> None:
    clear = {"pinning": {"release": 0.5}}
    with running(tmp_path, routing=clear) as gateway:

        def ask_as(system: str, text: str, session: str = "agent") -> str:
            messages, more = [said("user", text)], dict[str, Any]()
            if path == "messages":
                more = {"max_tokens": 5, **({"system": system} if system else {})}
            elif system:
                messages.insert(0, said("system", system))
            got = send(gateway, messages, path, {"x_session_id": session}, **more)
            return str(got.headers["x-ir3de-expert"])

        assert ask_as(MAIN, LAW) == "law"
        assert ask_as("Explore the kitchen.", QUESTIONS["cooking"]) == "cooking"  # a sub-agent
        assert ask_as(TITLE, MATHS) == "maths"
        assert ask_as(MAIN, "And then?") == "law"  # nobody has moved it
        assert ask_as(MAIN.replace("18", "19"), "And then?") == "law"  # it is another day
        assert ask_as("Explore the kitchen.", "And then?") == "cooking"
        assert ask_as(TITLE, "And then?") == "maths"
        assert ask_as("", LAW) == "law" and ask_as("", "And then?") == "law"  # no system prompt is one of its own
        assert ask_as(MAIN, MATHS) == "maths" and ask_as(MAIN, "And then?") == "maths"  # it moves itself
