"""Who answers in place of an expert that cannot: its fallbacks, a candidate, the default expert, or nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api_answers import serving, without_provenance
from client_keys import bearer, key, write_keys
from ir3de import Router
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.experts.snapshot import Snapshot
from ir3de_gateway.requests.client import Controls
from ir3de_gateway.stages.choose import Choice, choose_expert
from ir3de_gateway.stages.read import read_prompt
from ir3de_gateway.store.pins import StoredPins
from ir3de_gateway.wire import FORMATS
from raw_sockets import ask, chat
from running_gateway import QUESTIONS, TEXTS, config_for, failing, outcome_router, running, small_router

LAW = QUESTIONS["law"]  # nobody but law is a candidate
MIXED = "Is my contract void if my dough does not rise?"  # law; cooking is a candidate
CAUSES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {  # of law: experts, request, controls
    "capability": ({"capabilities": ["chat"]}, {"tools": [{"type": "function"}]}, {}),
    "context": ({"context_window": 1}, {}, {}),
    "price": ({"price": {"output_per_1m": 2}}, {}, {"max_price": 1.0}),
    "key": ({}, {}, {"of_key": frozenset(["maths", "cooking"])}),
    "request": ({}, {}, {"deny": frozenset(["law"])}),
    "endpoint": ({}, {}, {}),
}
RULE: list[
    tuple[str, dict[str, Any], dict[str, Any], str, str]
] = [  # prompt, of law, routing, who answers, and as what
    (MIXED, {"fallbacks": ["maths"]}, {"default": "cooking"}, "maths", "fallback"),
    (MIXED, {}, {"default": "maths"}, "cooking", "candidate"),
    (LAW, {}, {"default": "maths"}, "maths", "default expert"),
    (LAW, {}, {}, "", ""),
]


def choose_for(prompt: str, cause: str, of_law: dict[str, Any], routing: dict[str, Any]) -> Choice:
    """The choice where law was decided on and cannot answer."""
    special, request, controls = CAUSES[cause]
    changes: dict[str, Any] = {"experts": {"law": {**special, **of_law}}, "routing": routing}
    config = config_for("http://127.0.0.1:1", Path("/nowhere"), **changes)
    if cause == "endpoint":
        config = config.model_copy(update={"experts": tuple(one for one in config.experts if one.name != "law")})
    messages = [{"role": "user", "content": prompt}]
    read = read_prompt(FORMATS["chat/completions"], {"messages": messages, **request}, "last_user", ())
    found = Snapshot.from_config(config, small_router(), "0" * 64)
    return choose_expert(found, "auto", read, Controls(**controls), StoredPins(60))


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize(("prompt", "of_law", "routing", "expert", "kind"), RULE)
def test_one_rule_says_who_answers_whatever_the_cause(
    cause: str, prompt: str, of_law: dict[str, Any], routing: dict[str, Any], expert: str, kind: str
) -> None:
    if cause == "endpoint" and of_law:
        return  # an expert that is not in the configuration has no fallbacks there
    if not expert:
        with pytest.raises(
            ApiError, match=r"law was chosen: .*(maths, cooking|cooking, maths) could answer"
        ) as problem:
            choose_for(prompt, cause, of_law, routing)
        assert (problem.value.status, problem.value.code) == (400, "no_eligible_expert")
        assert problem.value.headers["x-ir3de-decided"] == "law"
        return
    choice = choose_for(prompt, cause, of_law, routing)
    assert (choice.first.name, choice.decided, choice.why) == (expert, "law", "instead of law")
    assert choice.explain_instead(expert, [])[:2] == (kind, cause)


@pytest.mark.parametrize(("prompt", "of_law", "routing", "expert", "kind"), RULE)
def test_the_same_rule_says_who_answers_for_an_expert_that_fails(
    tmp_path: Path, prompt: str, of_law: dict[str, Any], routing: dict[str, Any], expert: str, kind: str
) -> None:
    with running(tmp_path, experts={"law": of_law}, routing=routing) as gateway:
        gateway.upstream.behaviour["law"] = failing(500)
        got = ask(gateway.url, chat(prompt))
        asked = gateway.upstream.asked
        counted = ask(gateway.url, path="/metrics", method="GET").body.decode()
    assert got.headers["x-ir3de-decided"] == "law"
    if not expert:
        assert (got.status, asked) == (500, ["law"])  # the last word is law's own
        assert "ir3de_instead_total{" not in counted
        return
    told = got.json["ir3de"]
    assert (asked, told["expert"], told["instead"], told["reason"]) == (["law", expert], expert, kind, "5xx")
    assert f'ir3de_instead_total{{answered="{expert}",decided="law",reason="5xx"}} 1.0' in counted


def test_what_an_anthropic_expert_cannot_take_goes_to_the_default_with_its_own_figures(tmp_path: Path) -> None:
    experts = {"law": {"capabilities": ["messages"]}, "cooking": {"model": "chef"}}
    ranked = dict(small_router().route(LAW).ranking)
    with running(tmp_path, experts=experts, routing={"default": "maths"}) as gateway:
        got = ask(gateway.url, chat(LAW, n=2))
        counted = ask(gateway.url, path="/metrics", method="GET").body.decode()
        plain = ask(gateway.url, {"input": LAW, "target": True}, path="/v1/route").json["data"][0]["target"]
    told, headers = got.json["ir3de"], got.headers
    assert (told["expert"], told["decided"], told["instead"], told["why"]) == (
        "maths", "law", "default expert", "instead of law",
    )  # fmt: skip
    assert told["reason"].startswith("n ") and headers["x-ir3de-reason"] == told["reason"]
    assert (told["confidence"], told["margin"]) == (
        round(ranked["maths"], 4), round(ranked["maths"] - ranked["law"], 4),
    )  # fmt: skip
    assert headers["x-ir3de-confidence"] == f"{ranked['maths']:.4f}" and headers["x-ir3de-decided"] == "law"
    assert 'ir3de_instead_total{answered="maths",decided="law",reason="translation"} 1.0' in counted
    assert plain["expert"] == plain["decided"] == "law"  # without n, law can


APIS: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": LAW}]},
    "completions": {"prompt": LAW},
    "responses": {"input": LAW},
    "messages": {"messages": [{"role": "user", "content": LAW}], "max_tokens": 9},
}


def test_every_api_tells_who_was_decided_on_and_who_answered(tmp_path: Path) -> None:
    with serving(tmp_path, routing={"default": "cooking"}) as gateway:
        for path, body in APIS.items():
            for stream in (False, True):
                asked = {"model": "auto", "stream": stream, **body}
                usual = ask(gateway.url, asked, path=f"/v1/{path}")
                assert usual.headers["x-ir3de-decided"] == usual.headers["x-ir3de-expert"] == "law"
                assert without_provenance(usual.body)[1]["decided"] == "law"
                gateway.upstream.behaviour["law"], before = failing(503), gateway.upstream.behaviour["law"]
                got = ask(gateway.url, asked, path=f"/v1/{path}")
                gateway.upstream.behaviour["law"] = before
                told = without_provenance(got.body)[1]
                assert (told["expert"], told["decided"], told["instead"]) == ("cooking", "law", "default expert")
                assert told["confidence"] < 0.2 and told["margin"] < 0
                assert got.headers["x-ir3de-instead"] == "default expert"
                named = ask(gateway.url, {**asked, "model": "maths"}, path=f"/v1/{path}")
                assert named.headers["x-ir3de-decided"] == named.headers["x-ir3de-expert"] == "maths"


def test_a_key_that_may_not_ask_the_decided_expert_gets_the_default_or_an_error(tmp_path: Path) -> None:
    file = write_keys(tmp_path / "keys.json", key("app", experts=["maths", "cooking"]), key("one", experts=["maths"]))
    settings: dict[str, Any] = {"server": {"keys_file": str(file)}, "routing": {"default": "cooking"}}
    with running(tmp_path, **settings) as gateway:
        got = ask(gateway.url, chat(LAW), **bearer("app"))
        assert (got.json["ir3de"]["expert"], got.json["ir3de"]["decided"]) == ("cooking", "law")
        got = ask(gateway.url, chat(LAW), **bearer("one"))
        assert (got.status, got.error["code"]) == (400, "no_eligible_expert")
        assert "law was chosen: not allowed for this API key" in got.error["message"]
        assert gateway.upstream.asked == ["cooking"]


def test_a_pinned_chat_has_the_figures_of_its_expert_and_the_decision_beside_it(tmp_path: Path) -> None:
    ranked = dict(small_router().route(LAW).ranking)
    with running(tmp_path, routing={"pinning": {"release": 1}}) as gateway:
        ask(gateway.url, chat(QUESTIONS["maths"]), x_session_id="monday")
        told = ask(gateway.url, chat(LAW), x_session_id="monday").json["ir3de"]
        counted = ask(gateway.url, path="/metrics", method="GET").body.decode()
    assert (told["expert"], told["decided"], told["why"]) == ("maths", "law", "pinned")
    assert told["confidence"] == round(ranked["maths"], 4) and "reason" not in told
    assert 'ir3de_instead_total{answered="maths",decided="law",reason="pinned"} 1.0' in counted


PINNED: list[
    tuple[list[str], dict[str, int], str, str | None, str | None]
] = [  # fallbacks of maths, status of who fails, who answers, and as what, why
    (["law"], {"maths": 500}, "law", None, None),  # the decided one, so nobody answers in its place
    ([], {"maths": 500}, "law", None, None),  # a candidate
    (["cooking"], {"maths": 500}, "cooking", "fallback", "5xx"),
    (["law", "cooking"], {"maths": 500, "law": 429}, "cooking", "fallback", "429"),  # why the decided one does not
]


@pytest.mark.parametrize(("fallbacks", "fail", "expert", "kind", "reason"), PINNED)
@pytest.mark.parametrize("is_shadow", [False, True])
def test_where_a_pinned_expert_fails_the_answer_tells_that_and_no_pin(
    tmp_path: Path, is_shadow: bool, fallbacks: list[str], fail: dict[str, int], expert: str, kind: str, reason: str
) -> None:
    if is_shadow and not fallbacks:
        return  # in the shadow there are no candidates
    routing = {"shadow": "maths"} if is_shadow else {"pinning": {"release": 1}}
    log, experts = tmp_path / "access.jsonl", {"maths": {"fallbacks": fallbacks}}
    with running(tmp_path, routing=routing, experts=experts, logs={"access": str(log)}) as gateway:
        ask(gateway.url, chat(QUESTIONS["maths"]), x_session_id="monday")
        gateway.upstream.behaviour.update({name: failing(status) for name, status in fail.items()})
        got = ask(gateway.url, chat(LAW), x_session_id="monday")
        counted = ask(gateway.url, path="/metrics", method="GET").body.decode()
    told, logged = got.json["ir3de"], json.loads(log.read_text().splitlines()[-1])
    for found in (told, logged, {name.removeprefix("x-ir3de-"): text for name, text in got.headers.items()}):
        assert (found["expert"], found["decided"], found["why"]) == (expert, "law", "instead of maths")
        assert (found.get("instead"), found.get("reason")) == (kind, reason)
    lines = [line for line in counted.splitlines() if line.startswith("ir3de_instead_total{")]
    label = f'ir3de_instead_total{{answered="{expert}",decided="law",reason="{reason}"}} 1.0'
    assert lines == ([label] if kind else [])


def test_an_expert_that_the_router_does_not_know_has_no_figures(tmp_path: Path) -> None:
    Router.fit({name: TEXTS[name] for name in ("maths", "law")}).save(tmp_path / "router")
    with running(tmp_path, routing={"default": "cooking"}) as gateway:
        gateway.upstream.behaviour["law"] = failing(500)
        got = ask(gateway.url, chat(LAW))
    told = got.json["ir3de"]
    assert (told["expert"], told["decided"], told["confidence"], told["margin"]) == ("cooking", "law", None, None)
    assert "x-ir3de-confidence" not in got.headers and "x-ir3de-margin" not in got.headers


def test_an_outcome_router_tells_the_expected_score_of_who_answered(tmp_path: Path) -> None:
    outcome_router().save(tmp_path / "router")
    decision = outcome_router().route(LAW)
    other = next(name for name, _ in decision.quality if name != decision.expert)
    with running(tmp_path, experts={decision.expert or "": {"fallbacks": [other]}}) as gateway:
        gateway.upstream.behaviour[decision.expert or ""] = failing(500)
        told = ask(gateway.url, chat(LAW)).json["ir3de"]
    assert (told["expert"], told["confidence"]) == (other, None)
    assert told["expected_score"] == round(dict(decision.quality)[other], 4)


def test_the_access_log_tells_who_was_decided_on(tmp_path: Path) -> None:
    log = tmp_path / "access.jsonl"
    with running(tmp_path, routing={"default": "cooking"}, logs={"access": str(log)}) as gateway:
        ask(gateway.url, chat(LAW))
        gateway.upstream.behaviour["law"] = failing(500)
        ask(gateway.url, chat(LAW))
    usual, other = (json.loads(line) for line in log.read_text().splitlines())
    ranked = dict(small_router().route(LAW).ranking)
    assert (usual["expert"], usual["decided"], usual["confidence"]) == ("law", "law", round(ranked["law"], 6))
    assert (other["expert"], other["decided"], other["instead"], other["reason"]) == (
        "cooking", "law", "default expert", "5xx",
    )  # fmt: skip
    assert other["confidence"] == round(ranked["cooking"], 6)
