"""What a gateway says of an outcome router: expected scores, and never a confidence."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import exchange_records as made
from ir3de import Conversation, Router
from ir3de.policies import Policy, StrongShare
from ir3de_gateway.telemetry.gen_ai import build_decision_attributes
from running_gateway import QUESTIONS, outcome_router, running, small_router

QUESTION = QUESTIONS["law"]


def serve(
    folder: Path, router: Router, *, asked: Any = None, **settings: Any
) -> tuple[Any, dict[str, Any], list[dict[str, Any]], str]:
    """Headers and body of an answer, the lines of both logs, and the metrics."""
    router.save(folder / "router")
    logs = [folder / "access.jsonl", folder / "decisions.jsonl"]
    with running(folder, logs={"access": str(logs[0]), "decisions": str(logs[1])}, **settings) as gateway:
        messages = [{"role": "user", "content": QUESTION}]
        body = json.dumps({"model": "auto", "messages": messages, **(asked or {})}).encode()
        request = urllib.request.Request(f"{gateway.url}/v1/chat/completions", body)
        with urllib.request.urlopen(request, timeout=30) as answer:
            headers, told = answer.headers, json.load(answer)["ir3de"]
        with urllib.request.urlopen(f"{gateway.url}/metrics", timeout=30) as answer:
            metrics = answer.read().decode()
    return headers, told, [json.loads(log.read_text()) for log in logs], metrics


def test_an_outcome_router_has_expected_scores(tmp_path: Path) -> None:
    expected = outcome_router().route(QUESTION).expected_score
    headers, told, lines, metrics = serve(tmp_path, outcome_router())
    assert expected is not None and expected > 1
    assert headers["x-ir3de-expected-score"] == f"{expected:.4f}" and headers["x-ir3de-confidence"] is None
    assert headers["x-ir3de-margin"] is not None and headers["x-ir3de-expert"] == "law"
    for found in (told, *lines):
        assert found["confidence"] is None and round(found["expected_score"], 4) == round(expected, 4)
    assert all(set(row) == {"expert", "expected_score"} for row in lines[1]["ranking"])
    assert "ir3de_confidence_count 0.0" in metrics and "ir3de_route_seconds_count 1.0" in metrics


def test_another_router_has_probabilities(tmp_path: Path) -> None:
    confidence = small_router().route(QUESTION).confidence
    headers, told, lines, metrics = serve(tmp_path, small_router())
    assert headers["x-ir3de-confidence"] == f"{confidence:.4f}" and headers["x-ir3de-expected-score"] is None
    for found in (told, *lines):
        assert "expected_score" not in found and round(found["confidence"], 4) == round(confidence or 0, 4)
    assert all(set(row) == {"expert", "probability"} for row in lines[1]["ranking"])
    assert "ir3de_confidence_count 1.0" in metrics


def test_a_trace_has_one_of_them() -> None:
    decision = outcome_router().route(QUESTION)
    scored = build_decision_attributes(
        made.record(decision=decision, confidence=decision.confidence, expected_score=decision.expected_score)
    )
    assert scored["ir3de.confidence"] is None and scored["ir3de.expected_score"] == decision.expected_score
    assert build_decision_attributes(made.record())["ir3de.expected_score"] is None


def test_the_gateway_keeps_to_the_share_of_strong_calls(tmp_path: Path) -> None:
    router = outcome_router()
    weak = next(name for name in router.experts if name != "law")
    never = StrongShare("law", weak, 0.5, 100.0)  # no expected difference is as large
    shared = router.with_policy(Policy(strong_share=never))
    headers, *_ = serve(tmp_path, shared, routing={"threshold": 0.5})  # other settings leave it alone
    assert headers["x-ir3de-expert"] == weak


def test_a_client_does_not_override_the_share_of_strong_calls(tmp_path: Path) -> None:
    router = outcome_router()
    weak = next(name for name in router.experts if name != "law")
    policy = Policy(strong_share=StrongShare("law", weak, 0.5, 100.0), costs={weak: {"price": 9.0}})
    headers, *_ = serve(tmp_path, router.with_policy(policy), asked={"ir3de": {"weights": {"price": 1.0}}})
    assert headers["x-ir3de-expert"] == weak


def test_no_turn_of_a_chat_begins_a_new_subject() -> None:
    """Expected scores are no odds, which would show a change: each turn is added to those before."""
    router = outcome_router()
    chat, alone = Conversation(router), [router.route(text) for text in QUESTIONS.values()]
    assert len({decision.expert for decision in alone}) == 3
    turns = [chat.route(text) for text in QUESTIONS.values()]
    assert all(turn.counted > one.counted for turn, one in zip(turns[1:], alone[1:], strict=True))
