"""The text to route on: whose words, and which of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir3de.routing.messages import Turn
from ir3de_gateway.config.document import Routing
from ir3de_gateway.stages.choice import Prompt
from ir3de_gateway.stages.read import extract_text, read_prompt
from ir3de_gateway.wire import FORMATS

PICTURE = {"type": "image_url", "image_url": {"url": "data:,"}}
ENVELOPES = Routing().envelopes


def read(*messages: dict[str, Any], how: Any = "last_user", **more: Any) -> Prompt:
    return read_prompt(FORMATS["chat/completions"], {"messages": list(messages), **more}, how, ENVELOPES)


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


CHAT = (said("system", "S"), said("user", "one"), said("assistant", None), said("user", [PICTURE]))


@pytest.mark.parametrize(("how", "text"), [("last_user", "one"), ("all_user", "one"), ("full", "S\none")])
def test_whose_words_are_routed_on(how: str, text: str) -> None:
    assert read(*CHAT, how=how).text == text


def test_the_newest_turn_with_words_counts_and_envelopes_do_not() -> None:
    around = "<system-reminder>be brief\n</system-reminder>"
    assert read(said("user", "old"), said("user", f"{around}new{around}")).text == "new"
    assert read(said("user", "old"), said("user", around)).text == "old"
    parts = [{"type": "text", "text": "a"}, PICTURE, {"type": "input_audio"}, "b", {"type": "text", "text": "c"}]
    assert read(said("user", parts)).text == "a\nb\nc"


def test_what_a_request_needs() -> None:
    assert read(said("user", "x")).needs == {"chat"}
    assert read(said("user", "x"), tools=[], functions=None).needs == {"chat"}
    assert read(said("user", [PICTURE]), said("user", "x"), tools=[{}]).needs == {"chat", "tools", "vision"}


def test_loops_of_tools() -> None:
    result = {"type": "tool_result", "tool_use_id": "1", "content": "7"}
    assert read(said("user", "x"), said("tool", "7")).tool_loop
    assert read(said("user", "x"), said("user", [result])).tool_loop
    assert not read(said("user", [result, {"type": "text", "text": "and now?"}])).tool_loop
    assert read(said("user", "x"), said("tool", "7")).text == "x"
    given = [{"role": "user", "content": "x"}, {"type": "function_call_output", "output": "7"}]
    prompt = read_prompt(FORMATS["responses"], {"input": given, "instructions": "S"}, "last_user", ())
    assert (prompt.text, prompt.tool_loop) == ("x", True)


@pytest.mark.parametrize(
    ("endpoint", "values", "text"),
    [
        ("completions", {"prompt": "a"}, "a"),
        ("completions", {"prompt": ["a", "b"]}, "a\nb"),
        ("completions", {"prompt": [1, 2]}, ""),
        ("responses", {"input": "a", "instructions": "S"}, "a"),
        ("messages", {"system": [{"type": "text", "text": "S"}], "messages": [said("user", "a")]}, "a"),
        ("embeddings", {"input": "a"}, "a"),
    ],
)
def test_other_endpoints(endpoint: Any, values: dict[str, Any], text: str) -> None:
    assert read_prompt(FORMATS[endpoint], values, "last_user", ENVELOPES).text == text


@given(st.lists(st.sampled_from(["<a>", "</a>", "x", "\n", "<", "a>"]), max_size=12).map("".join))
@settings(max_examples=80, deadline=None)
def test_envelopes_are_taken_off_as_their_patterns_say(text: str) -> None:
    """Those of the usual form are searched for without `re`; nobody may see a difference."""
    expected = re.sub(r"<a>.*?</a>", "", text, flags=re.DOTALL)
    assert extract_text([Turn("user", text)], "all_user", ["<a>.*?</a>"]) == (expected if expected.strip() else "")
    assert extract_text([Turn("user", text)], "all_user", ["(?:<a>).*?</a>"]) == (expected if expected.strip() else "")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Please answer the following request.\n\n", "\n\nThank you for your help!"),
        ('You are an assistant. Rules:\n1. Be brief (and safe).\nThe message:\n"""\n', '\n"""\n\nReply [now].'),
    ],
)
def test_boilerplate_that_is_named_as_an_envelope_leaves_the_prompt_alone(before: str, after: str) -> None:
    prompt = "Is a {verbal} contract\n binding?"
    turn = Turn("user", f"{before}{prompt}{after}")
    assert extract_text([turn], "last_user", [re.escape(before), re.escape(after)]) == prompt


def test_envelopes_that_never_close_take_no_longer() -> None:
    text = "<system-reminder>" * 200_000  # by the square of it: hours
    assert extract_text([Turn("user", text)], "last_user", ENVELOPES) == text


@pytest.mark.parametrize(
    ("values", "least"),
    [
        ({"messages": [said("tool", "x" * 400_000)]}, 88_000),
        (
            {"messages": [said("user", [{"type": "tool_result", "content": [{"type": "text", "text": "x" * 400}]}])]},
            88,
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "x" * 400}}]}]}, 88),
        ({"messages": [said("user", "法" * 8_000)]}, 8_000),
        ({"messages": [said("user", "x")], "tools": [{"function": {"description": "x" * 400}}]}, 88),
        ({"messages": [said("user", "x")], "max_tokens": 1_000}, 1_000),
    ],
)
def test_everything_a_model_reads_counts_for_its_context(values: dict[str, Any], least: int) -> None:
    assert read_prompt(FORMATS["chat/completions"], values, "last_user", ()).tokens >= least


def test_pictures_are_not_counted_by_their_letters() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    assert read(said("user", [picture, {"type": "text", "text": "What is this?"}])).tokens < 100
