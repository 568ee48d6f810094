"""The signal: one object in /v1/route and in the integrations, with the fields that its version promises."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from ir3de import Router
from ir3de.errors import InputError
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.integrations.decider import Decider, Settings, find_wire
from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.signal import VERSION, build_signal
from running_gateway import QUESTIONS, TEXTS, outcome_router, save_small_router, small_router

FIELDS = {"object", "version", "router", "expert", "confidence", "in_domain", "out_of_domain", "abstained", "reason"}
CHAT = FORMATS["chat/completions"]


@pytest.mark.parametrize("text", [*QUESTIONS.values(), "", "zzz", "\ud800"])
def test_fields_are_those_of_the_version(text: str) -> None:
    decision = small_router().route(text)
    found = json.loads(json.dumps(build_signal(decision, "ab")))
    assert VERSION == 1 and found.keys() == FIELDS | {"probabilities", "consulted"}
    assert found["expert"] == decision.expert and found["probabilities"].keys() == TEXTS.keys()
    assert sum(found["probabilities"].values()) == pytest.approx(found["in_domain"], abs=1e-5)
    assert max(found["probabilities"].values()) == found["confidence"]


def test_router_of_outcomes_has_expected_scores() -> None:
    found = build_signal(outcome_router().route(QUESTIONS["law"]), "ab")
    assert found["confidence"] is None and "probabilities" not in found
    assert max(found["expected_scores"], key=found["expected_scores"].__getitem__) == "law"


def decide(decider: Decider, text: str, *, chat: tuple[str, ...] = ()) -> str | None:
    messages = [{"role": "user", "content": one} for one in (*chat, text)]
    return asyncio.run(decider.decide(CHAT, {"messages": messages})).model


def test_decider_says_what_the_router_says_with_other_names(tmp_path: Path) -> None:
    save_small_router(tmp_path / "router")
    decider = Decider(str(tmp_path / "router"), Settings(models={"law": "llama-law-8b"}))
    assert [decide(decider, text) for text in QUESTIONS.values()] == ["maths", "llama-law-8b", "cooking"]
    assert decide(decider, "And why?", chat=(QUESTIONS["cooking"],)) == "cooking"  # a follow-up stays
    verdict = asyncio.run(decider.decide(CHAT, {"messages": [{"role": "user", "content": QUESTIONS["law"]}]}))
    assert verdict.signal == build_signal(small_router().route(QUESTIONS["law"]), decider.digest)


def test_default_takes_what_the_router_abstains_on(tmp_path: Path) -> None:
    save_small_router(tmp_path / "router")
    decider = Decider(str(tmp_path / "router"), Settings(default="cooking", threshold=1.0))
    assert {decide(decider, text) for text in (*QUESTIONS.values(), "", "zzz")} == {"cooking"}


def test_expert_that_the_router_does_not_have_is_named(tmp_path: Path) -> None:
    save_small_router(tmp_path / "router")
    for settings in (Settings(models={"laws": "x"}), Settings(default="laws")):
        with pytest.raises(InputError, match=r"no expert 'laws'.*law"):
            Decider(str(tmp_path / "router"), settings)


def test_new_router_is_taken_unless_its_experts_do_not_fit(tmp_path: Path) -> None:
    save_small_router(tmp_path / "router")
    decider = Decider(str(tmp_path / "router"), Settings(models={"law": "llama-law-8b"}))
    first = decider.digest
    assert not asyncio.run(decider.reload())
    publish(Router.fit({**TEXTS, "music": ["Who wrote this symphony?", "Tune my violin."]}), tmp_path)
    assert asyncio.run(decider.reload()) and decider.digest != first
    second = decider.digest
    publish(Router.fit({name: texts for name, texts in TEXTS.items() if name != "law"}), tmp_path)
    assert not asyncio.run(decider.reload()) and decider.digest == second


def publish(router: Router, folder: Path) -> None:
    shutil.rmtree(folder / "router")
    router.save(folder / "router")


def test_bad_request_is_an_error_that_names_the_field(tmp_path: Path) -> None:
    save_small_router(tmp_path / "router")
    decider = Decider(str(tmp_path / "router"), Settings())
    with pytest.raises(ApiError) as found:
        asyncio.run(decider.decide(CHAT, {"messages": 3}))
    assert found.value.param == "messages"


@pytest.mark.parametrize("path", ["", "/", "/v1/", "/v1/models", "/v1/embeddings", "/chat/completions", "/v1/files/x"])
def test_other_paths_are_not_routed(path: str) -> None:
    assert find_wire(path) is None
