"""What a switch costs: a conversation changes its expert only if that gains more than the lost prompt cache costs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ir3de_gateway.config.conversations import SwitchConfig
from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.config.prices import apply_price_file
from ir3de_gateway.experts.snapshot import Snapshot
from ir3de_gateway.experts.switch import VALUE_TOKENS, build_rule
from ir3de_gateway.requests.client import NO_CONTROLS
from ir3de_gateway.requests.tokens import Beginning, count_before
from ir3de_gateway.stages.choice import Choice
from ir3de_gateway.stages.choose import choose_expert
from ir3de_gateway.stages.read import read_prompt
from ir3de_gateway.wire import FORMATS
from running_gateway import QUESTIONS, TEXTS, config_for, small_router
from test_chats import messages, said, snapshot

PRICE = {"input_per_1m": 3.0, "cached_input_per_1m": 0.3, "output_per_1m": 15.0}
SEEING = {"capabilities": ["chat", "tools", "vision"]}
PRICED = {name: {"price": PRICE, **SEEING} for name in TEXTS}
LONG = "The contract says a lot about this, and so does the statute. " * 6_000  # about 80,000 tokens
LAW, MATHS = QUESTIONS["law"], QUESTIONS["maths"]


def build_chat(answer: str, *more: str) -> list[dict[str, Any]]:
    """A chat about law, with an answer of some length, and then of another subject."""
    found = [said("user", LAW), said("assistant", answer), said("user", MATHS)]
    for text in more:
        found += [said("assistant", "Well."), said("user", text)]
    return found


def choose(messages: list[Any], **changes: Any) -> Choice:
    found = snapshot(**changes)
    weighs = found.switch_rule is not None
    prompt = read_prompt(FORMATS["chat/completions"], {"messages": messages}, "conversation", (), weighs_switch=weighs)
    return choose_expert(found, "auto", prompt, NO_CONTROLS, {})


# laws ----------------------------------------------------------------------------------------------------------------


@given(
    st.integers(0, 300_000),
    st.sampled_from([None, 1e-4, 0.01, 1.0]),
    st.floats(0, 1),
    st.sampled_from([*QUESTIONS.values(), "Is the egg void?"]),
)
@settings(max_examples=150, deadline=None)
def test_a_switch_is_never_made_whose_gain_is_not_above_its_price(
    tokens: int, value: float | None, margin: float, text: str
) -> None:
    experts = [ExpertConfig(name=name, base_url="http://a/v1", price=PRICE) for name in TEXTS]
    rule = build_rule(SwitchConfig(value=value, margin=margin), experts)
    assert rule is not None
    decision = small_router().route(text)
    qualities = dict(decision.quality)
    for before in TEXTS:
        switch = rule.weigh(decision, before, tokens)
        if decision.abstained or decision.expert == before:
            assert switch is None
            continue
        assert switch is not None and decision.expert is not None
        worth = VALUE_TOKENS * 3e-6 if value is None else value
        assert switch.gain == pytest.approx((qualities[decision.expert] - qualities[before] - margin) * worth)
        assert switch.price == pytest.approx(tokens * 2.7e-6)
        assert switch.has_moved == (switch.gain > switch.price)


@given(
    messages, st.sampled_from([{}, {"price": {"input_per_1m": 3.0}}, {"price": {**PRICE, "cached_input_per_1m": 3}}])
)
@settings(max_examples=60, deadline=None)
def test_without_prices_of_cached_tokens_nothing_changes(chat: list[Any], known: dict[str, Any]) -> None:
    if not any(one["role"] == "user" for one in chat):
        return
    off, on = (
        choose(chat, experts=experts, routing={"switch": {"active": active}})
        for experts, active in ((PRICED, False), ({name: {**SEEING, **known} for name in TEXTS}, True))
    )
    assert (off.first.name, off.why, off.decided, off.switch) == (on.first.name, on.why, on.decided, on.switch)
    assert on.switch is None


@given(messages)
@settings(max_examples=60, deadline=None)
def test_every_prefix_of_a_chat_was_decided_as_its_history_says(chat: list[Any]) -> None:
    """The expert that answers a turn is the one that the next turn finds as its own: no state is needed."""
    last = None
    for end, message in enumerate(chat, 1):
        if message["role"] != "user":
            continue
        choice = choose([said("user", LAW), said("assistant", LONG[:60_000]), *chat[:end]], experts=PRICED)
        if choice.switch is not None:
            assert choice.first.name == (choice.switch.wanted if choice.switch.has_moved else choice.switch.before)
            if last is not None and choice.routed is not None and not choice.routed.decision.abstained:
                assert choice.switch.before == last
        last = choice.first.name


def test_long_chats_stay_and_short_ones_move() -> None:
    short, long = choose(build_chat("Yes."), experts=PRICED), choose(build_chat(LONG), experts=PRICED)
    assert short.switch is not None and short.switch.has_moved and (short.first.name, short.why) == ("maths", "")
    assert long.switch is not None and not long.switch.has_moved
    assert (long.first.name, long.why, long.decided) == ("law", "too dear to switch", "maths")
    for more in ("thanks", MATHS):
        again = choose(build_chat(LONG, more), experts=PRICED)
        assert again.first.name == "law"  # what was too dear is dearer now
    dear = choose(build_chat(LONG), experts=PRICED, routing={"switch": {"value": 10.0}})
    assert dear.first.name == "maths"
    assert choose(build_chat(LONG), experts=PRICED, routing={"switch": {"active": False}}).switch is None


def test_prefill_time_takes_the_place_of_prices() -> None:
    seconds = {"switch": {"prefill": 4_000, "value": 5}}
    assert choose(build_chat("Yes."), routing=seconds).first.name == "maths"
    stayed = choose(build_chat(LONG), routing=seconds)
    assert stayed.first.name == "law" and stayed.switch is not None
    assert stayed.switch.price == pytest.approx(len(LONG) / 4.5 / 4_000, rel=0.01)


@pytest.mark.parametrize("given", [{"value": 0}, {"margin": 2}, {"prefill": 0}, {"value": "inf"}, {"price": 1}])
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SwitchConfig.model_validate(given)


def test_a_price_file_that_is_read_again_sets_the_price(tmp_path: Path) -> None:
    """With a reload comes another snapshot, and with it another rule."""
    path, found = tmp_path / "prices.json", list[bool]()
    for cached in (None, 0.3, 3.0):
        price = {**PRICE, "cached_input_per_1m": cached} if cached is not None else {"input_per_1m": 3.0}
        path.write_text(json.dumps(dict.fromkeys(TEXTS, price)))
        config = apply_price_file(config_for("http://127.0.0.1:1", tmp_path, prices=str(path)))
        found.append(Snapshot.from_config(config, small_router(), "0" * 64).switch_rule is not None)
    assert found == [False, True, False]


def test_tokens_before_a_turn_are_those_of_all_formats() -> None:
    chat = [said("user", "a" * 45), said("assistant", "b" * 45), said("user", "c")]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "x" * 9_000}}
    assert count_before({"messages": chat}, [0, 2], 3) == [0, 22]
    assert count_before({"messages": chat, "system": "s" * 45}, [1, 3], 4)[0] == 10
    assert count_before({"input": chat, "instructions": "s" * 45}, [1, 3], 4)[0] == 10
    with_picture = [said("user", [picture, {"type": "text", "text": "a" * 45}]), *chat[1:]]
    assert count_before({"messages": with_picture}, [0, 2], 3)[1] < 40
    assert count_before({"input": "one text"}, [0], 1) == [0]
    kept = [said("user", Beginning("a", 5_000)), said("assistant", "b"), said("user", "c")]
    assert count_before({"messages": kept}, [0, 2], 3)[1] >= 5_000  # most of a very long text is not kept


def test_an_expert_that_may_not_answer_keeps_no_conversation() -> None:
    found = snapshot(experts=PRICED)
    prompt = read_prompt(
        FORMATS["chat/completions"], {"messages": build_chat(LONG)}, "conversation", (), weighs_switch=True
    )
    choice = choose_expert(found, "auto", prompt, replace(NO_CONTROLS, deny=frozenset(["law"])), {})
    assert choice.first.name == "maths" and choice.switch is None
