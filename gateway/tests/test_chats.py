"""A chat goes where `ir3de.Conversation` sends it, whatever its messages look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ir3de
import tiny
from ir3de import Router
from ir3de.errors import InputError
from ir3de.routing.messages import ENVELOPES
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.experts.snapshot import Snapshot
from ir3de_gateway.requests.client import NO_CONTROLS, Controls
from ir3de_gateway.stages.choice import MAX_INLINE_CHARS, MAX_INLINE_TURNS, Prompt
from ir3de_gateway.stages.choose import Choice, choose_expert, route_prompt
from ir3de_gateway.stages.read import read_prompt
from ir3de_gateway.store.pins import StoredPins
from ir3de_gateway.wire import FORMATS
from laws import shown
from running_gateway import QUESTIONS, TEXTS, config_for, small_router

FOLLOW_UP = "ok, and how long does that take?"
LANDLORD = "Can my landlord evict me?"
PICTURE = {"type": "image_url", "image_url": {"url": "data:,"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
PASTE = "The dough must rise, then the bread is baked in the oven with an egg. " * 20

texts = st.sampled_from(
    [
        *QUESTIONS.values(),
        LANDLORD,
        FOLLOW_UP,
        "thanks",
        "",
        " \n",
        "?",
        "and bread?",
        "<note>Boil an egg.</note>Is it void?",
        "<system-reminder>Solve x.</system-reminder>",
        f"Is my contract void?\n\n{PASTE}",
        PASTE,
        "Solve this: " * 2_000 + "\n\nIs the contract void?",
    ]
) | st.text(max_size=30)
parts = st.lists(
    st.one_of(
        texts.map(lambda text: {"type": "text", "text": text}),
        st.just(PICTURE),
        st.just({"type": "tool_result", "tool_use_id": "1", "content": "Solve x."}),
    ),
    max_size=3,
)
messages = st.lists(
    st.one_of(
        st.builds(lambda content: {"role": "user", "content": content}, texts | parts),
        st.builds(
            lambda role, content: {"role": role, "content": content},
            st.sampled_from(["system", "developer", "assistant", "tool"]),
            texts,
        ),
        st.just(CALLED),
    ),
    min_size=1,
    max_size=8,
)


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def read(messages: list[Any], envelopes: tuple[str, ...] = ENVELOPES, endpoint: str = "chat/completions") -> Prompt:
    name = "input" if endpoint == "responses" else "messages"
    return read_prompt(FORMATS[endpoint], {name: messages}, "conversation", envelopes)


def snapshot(router: Router | None = None, **changes: Any) -> Snapshot:
    config = config_for("http://127.0.0.1:1", Path("/nowhere"), **changes)
    return Snapshot.from_config(config, router or small_router(), "0" * 64)


def chosen(found: Snapshot, prompt: Prompt, pins: StoredPins | None = None, **controls: Any) -> Choice:
    return choose_expert(found, "auto", prompt, Controls(**controls), pins or StoredPins(60))


@pytest.mark.parametrize("envelopes", [ENVELOPES, ("<note>.*?</note>", "[?]"), ()])
@given(messages=messages)
@tiny.LAW
def test_the_decision_is_that_of_the_library_to_the_bit(envelopes: tuple[str, ...], messages: list[Any]) -> None:
    found = snapshot()
    routed = route_prompt(found, read(messages, envelopes), NO_CONTROLS)
    try:
        chat = ir3de.Conversation.from_messages(found.router, messages, envelopes=envelopes)
    except InputError as error:  # which the gateway routes as it always did
        assert "no words of the user" in str(error)
        assert shown(routed.decision) == shown(found.router.route(""))
        return
    assert shown(routed.decision) == shown(chat.decision)
    assert routed.decision._tally.tobytes() == chat.decision._tally.tobytes()
    assert routed.reason == (chat.find_reason() if len(chat) > 1 else None)
    explained = chat.explain()
    assert chat.find_reason() == (explained.turn, explained.decided, explained.why)


@pytest.mark.parametrize("text", [LANDLORD, "", PASTE.replace("\n", " "), "word " * 30_000])
def test_one_turn_without_a_paste_is_routed_as_a_prompt(text: str) -> None:
    assert not read([said("system", "Solve x."), said("user", text), CALLED, said("tool", "egg")]).turns


def test_a_follow_up_stays_and_a_new_subject_moves() -> None:
    found, chat = snapshot(), [said("system", "You boil eggs."), said("user", LANDLORD), said("assistant", "No.")]
    told = []
    for text in (FOLLOW_UP, "thanks", QUESTIONS["maths"], FOLLOW_UP):
        chat += [said("user", text)]
        choice = chosen(found, read(chat))
        assert choice.routed is not None
        told.append((choice.first.name, choice.routed.reason))
        chat += [CALLED, said("tool", QUESTIONS["cooking"] * 9), said("assistant", QUESTIONS["cooking"])]
    assert told == [
        ("law", (1, 0, "stayed")),
        ("law", (2, 0, "stayed")),
        ("maths", (3, 3, "new subject")),
        ("maths", (4, 3, "stayed")),
    ]


@pytest.mark.parametrize(
    ("endpoint", "loop"),
    [
        ("chat/completions", [CALLED, said("tool", PASTE)]),
        (
            "messages",
            [
                said("assistant", [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]),
                said("user", [{"type": "tool_result", "tool_use_id": "1", "content": PASTE}]),
            ],
        ),
        (
            "messages",
            [
                said("assistant", [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]),
                said(
                    "user",
                    [
                        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": PASTE}]},
                        {"type": "text", "text": f"<system-reminder>{PASTE}</system-reminder>"},
                    ],
                ),
            ],
        ),
        (
            "responses",
            [
                {"type": "reasoning", "summary": []},
                {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "1", "output": PASTE},
            ],
        ),
    ],
)
@pytest.mark.parametrize("turn", ["what says the subject", "a follow-up"])
def test_tool_loops_stay_with_the_turn_that_began_them(endpoint: str, loop: list[Any], turn: str) -> None:
    can = {"capabilities": ["chat", "messages", "responses"]}
    found, begun = snapshot(experts=dict.fromkeys(TEXTS, can)), [said("user", LANDLORD)]
    if turn == "a follow-up":
        begun += [said("assistant", "No."), said("user", FOLLOW_UP)]
    before = chosen(found, read(begun, endpoint=endpoint))
    for rounds in (1, 2, 9):
        after = chosen(found, read([*begun, *loop * rounds], endpoint=endpoint))
        assert before.routed is not None and after.routed is not None
        assert shown(after.routed.decision) == shown(before.routed.decision) and after.first.name == "law"


@pytest.mark.parametrize(
    "given",
    [
        [said("system", "S")],
        [said("robot", LANDLORD)],
        [said("assistant", LANDLORD)],
        [said("user", [{"type": "tool_result", "content": "7"}])],
        [said("user", [PICTURE])],
        [said("user", None)],
        [said("user", [])],
    ],
)
def test_a_chat_without_words_of_the_user_goes_where_it_went_before(given: list[Any]) -> None:
    found = snapshot(routing={"default": "cooking"}, experts={"cooking": {"capabilities": ["chat", "vision"]}})
    choice = chosen(found, read(given))
    assert (choice.first.name, choice.why, choice.instead) == ("cooking", "abstained", "default expert")


def test_unknown_roles_are_passed_over() -> None:
    chat = [said("user", LANDLORD), said("robot", QUESTIONS["maths"]), said("user", FOLLOW_UP)]
    assert chosen(snapshot(), read(chat)).first.name == "law"


def test_a_picture_stays_with_its_chat_and_goes_to_who_can_see() -> None:
    seeing = {"capabilities": ["chat", "vision"]}
    chat = [said("user", LANDLORD), said("assistant", "No."), said("user", [PICTURE])]
    found = snapshot(experts={"law": seeing, "maths": seeing})
    choice = chosen(found, read(chat))
    assert choice.routed is not None
    assert (choice.first.name, choice.routed.reason) == ("law", (1, 0, "stayed"))


def test_a_session_wins_and_follow_ups_do_not_move_it() -> None:
    found, pins = snapshot(routing={"pinning": {"release": 0.0}}), StoredPins(60)
    pins.put("monday", "cooking")
    chat = [said("user", LANDLORD), said("user", FOLLOW_UP)]
    choice = chosen(found, read(chat), pins, session="monday")
    assert (choice.first.name, choice.why) == ("cooking", "pinned")
    moved = chosen(found, read([*chat, said("user", QUESTIONS["maths"])]), pins, session="monday")
    assert (moved.first.name, moved.why) == ("maths", "")


def test_long_chats_are_told_from_those_that_are_routed_at_once() -> None:
    assert read([said("user", LANDLORD)] * MAX_INLINE_TURNS).is_quick
    assert not read([said("user", LANDLORD)] * (MAX_INLINE_TURNS + 1)).is_quick
    assert not read([said("user", "x" * MAX_INLINE_CHARS), said("user", LANDLORD)]).is_quick


# out of domain --------------------------------------------------------------------------------------------------------


@pytest.fixture
def strange(monkeypatch: pytest.MonkeyPatch) -> Router:
    """A router to which everything is out of domain."""
    router = small_router().with_policy(small_router().policy)
    found = router.route(LANDLORD)
    made = object.__new__(type(found))
    for name in type(found).__slots__:
        setattr(made, name, getattr(found, name, None))
    made._reason = "out of domain"
    monkeypatch.setattr(type(router), "route", lambda self, text, *, weights=None, consult=None: made)
    return router


def test_what_happens_out_of_domain_is_said(strange: Router) -> None:
    prompt = read([said("user", LANDLORD)])
    for routing, name, instead in (
        ({"default": "cooking"}, "cooking", "default expert"),
        ({}, "law", "nearest expert"),
    ):
        choice = chosen(snapshot(strange, routing=routing), prompt)
        assert (choice.first.name, choice.why, choice.instead) == (name, "abstained", instead)
    seeing = {"experts": {"maths": {"capabilities": ["chat", "vision"]}}}
    seen = read([said("user", [PICTURE, {"type": "text", "text": LANDLORD}])])
    with pytest.raises(ApiError, match=r"abstained \(out of domain\).* maths could answer, but none"):
        chosen(snapshot(strange, **seeing), seen)  # nothing speaks for maths
    choice = chosen(snapshot(strange, routing={"default": "maths"}, **seeing), seen)
    assert (choice.first.name, choice.instead) == ("maths", "default expert")


def test_out_of_domain_can_be_refused_but_a_session_wins(strange: Router) -> None:
    found, pins = snapshot(strange, routing={"out_of_domain": "refuse", "default": "cooking"}), StoredPins(60)
    prompt = read([said("user", LANDLORD)])
    choice = chosen(found, prompt)
    assert choice.build_rejection is not None and choice.why == "refused"
    refusal = choice.build_rejection()
    assert (refusal.status, refusal.code) == (422, "out_of_domain")
    pins.put("monday", "law")
    assert chosen(found, prompt, pins, session="monday").build_rejection is None
    assert choose_expert(found, "law", prompt, NO_CONTROLS, pins).build_rejection is None
    assert chosen(found, prompt, skip=True).build_rejection is None
    shadow = snapshot(strange, routing={"out_of_domain": "refuse", "shadow": "maths"})
    assert chosen(shadow, prompt).build_rejection is None


def test_other_reasons_to_abstain_are_not_refused() -> None:
    found = snapshot(routing={"out_of_domain": "refuse", "threshold": 1.0, "default": "cooking"})
    for text in ("", "hi", LANDLORD):
        choice = chosen(found, read([said("user", text)]))
        assert choice.build_rejection is None and choice.first.name == "cooking"
