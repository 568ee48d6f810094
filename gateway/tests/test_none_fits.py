"""A prompt that fits no expert: somebody answers all the same, and everything that tells of it says that none fits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raw_sockets import ask, chat
from running_gateway import QUESTIONS, TEXTS, Running, running, small_router

STRANGE = "hi"


def ask_stranger(gateway: Running, **more: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The provenance and the headers of the answer to a prompt that fits nobody."""
    got = ask(gateway.url, chat(STRANGE, **more))
    assert got.status == 200
    return got.json["ir3de"], got.headers


def test_the_nearest_expert_answers_and_the_provenance_says_that_none_was_decided_on(tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    nearest = small_router().route(STRANGE).best
    with running(tmp_path, logs={"access": None, "decisions": str(log), "prompts": True}) as gateway:
        told, headers = ask_stranger(gateway)
        assert gateway.upstream.asked == [nearest] == [told["expert"]]
        assert (told["decided"], told["abstained"], told["why"]) == (None, True, "abstained")
        assert told["confidence"] == 0 and headers["x-ir3de-why"] == "abstained"
        assert headers["x-ir3de-expert"] == nearest
        streamed = ask(gateway.url, chat(STRANGE, stream=True)).body.decode()
        assert '"decided":null' in streamed.replace(" ", "")
        metrics = ask(gateway.url, path="/metrics", method="GET").body.decode()
        assert "ir3de_abstain_total 2.0" in metrics
    for line in map(json.loads, log.read_text(encoding="utf-8").splitlines()):
        assert (line["expert"], line["served"], line["abstained"]) == (None, nearest, True)
        assert (line["reason"], line["in_domain"]) == ("no content", 0.0)
        assert line["ranking"][0]["expert"] == nearest


def test_the_default_of_the_configuration_or_of_the_router_answers_first(tmp_path: Path) -> None:
    with running(tmp_path, routing={"default": "cooking"}) as gateway:
        told, headers = ask_stranger(gateway)
        assert (told["expert"], told["decided"], told["abstained"]) == ("cooking", "cooking", True)
        assert (told["reason"], told["instead"]) == ("no content", "default expert")
        assert (headers["x-ir3de-reason"], headers["x-ir3de-instead"]) == ("no content", "default expert")
    router = small_router().with_policy(small_router().policy, default="law")
    router.save(tmp_path / "named" / "router")
    with running(tmp_path / "named") as gateway:
        told, _ = ask_stranger(gateway)
        assert (told["expert"], told["decided"], told["abstained"]) == ("law", "law", True)
        assert (told["reason"], told["instead"]) == ("no content", "default expert")


def test_the_figures_are_those_of_the_default_expert_where_it_is_not_the_nearest(tmp_path: Path) -> None:
    router = small_router()
    decision = router.route(QUESTIONS["law"])
    with running(tmp_path, routing={"default": "cooking", "threshold": 1}) as gateway:
        got = ask(gateway.url, chat(QUESTIONS["law"])).json["ir3de"]
    assert (got["expert"], got["instead"], got["reason"]) == ("cooking", "default expert", "low confidence")
    assert got["confidence"] == round(dict(decision.quality)["cooking"], 4) < decision.confidence
    assert got["margin"] < 0


@pytest.mark.parametrize("default", [None, *list(TEXTS)[1:]])
def test_the_route_endpoint_says_who_is_the_default(tmp_path: Path, default: str | None) -> None:
    with running(tmp_path, routing={"default": default}) as gateway:
        found = ask(gateway.url, {"input": STRANGE, "explain": True, "flips": True}, path="/v1/route").json
    (row,) = found["data"]
    assert found["default"] == row["expert"] == default and row["abstained"] and row["reason"] == "no content"
    assert row["in_domain"] == 0 and row["flips"] == {"alone": [], "together": None}
