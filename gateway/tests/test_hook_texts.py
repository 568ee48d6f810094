"""The texts that hooks see: whole in every format, however a stream cuts them, and replaced wherever they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir3de_gateway.hooks.runner import AnswerTexts, StreamEvents
from ir3de_gateway.requests.model_texts import list_request_slots

CUTS = st.lists(st.text(alphabet='ab @"\\\n\u00e9\U0001f600', max_size=5), min_size=1, max_size=6)


def build_stream(kind: str, cuts: list[str]) -> list[dict[str, Any]]:
    """The events of a stream that says a text in these pieces."""
    whole = "".join(cuts)
    if kind == "chat":
        return [{"choices": [{"index": 0, "delta": {"content": cut}, "logprobs": {"content": []}}]} for cut in cuts]
    if kind == "completions":
        return [{"choices": [{"index": 0, "text": cut}]} for cut in cuts]
    if kind == "messages":
        return [{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": c}} for c in cuts]
    parts = [
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": cut, "logprobs": []}
        for cut in cuts
    ]
    output = [{"type": "message", "content": [{"type": "output_text", "text": whole}]}]
    return [*parts, {"type": "response.output_text.done", "text": whole}, {"response": {"output": output}}]


def write(events: list[dict[str, Any]], line_end: str = "\n") -> bytes:
    blocks = [f"event: x{line_end}data: {json.dumps(event)}{line_end * 2}" for event in events]
    return ("".join(blocks) + f"data: [DONE]{line_end * 2}").encode()


@pytest.mark.parametrize("kind", ["chat", "completions", "messages", "responses"])
@given(cuts=CUTS, new=st.text(max_size=6), line_end=st.sampled_from(["\n", "\r\n"]))
def test_a_stream_says_the_new_text_and_no_longer_the_old_one(
    kind: str, cuts: list[str], new: str, line_end: str
) -> None:
    stream = StreamEvents.parse(write(build_stream(kind, cuts), line_end))
    texts = AnswerTexts(list(stream.objects.values()))
    assert texts.texts == ["".join(cuts)]
    texts.replace([new])
    again = StreamEvents.parse(stream.build())
    assert len(again.all) == len(stream.all)
    assert AnswerTexts(list(again.objects.values())).texts == [new]
    whole = "".join(cuts)
    if kind == "responses" and whole:
        assert list(again.objects.values())[-1]["response"]["output"][0]["content"][0]["text"] == new
    assert again.all[-1].data == b"[DONE]"


@pytest.mark.parametrize("gap", ["\n\n", "\r\n\r\n", "\r\r", "\n\r\n", "\r\n\n", "\r\r\n", "\n\n\n"])
def test_events_are_seen_however_their_lines_end(gap: str) -> None:
    content = "".join(f"data: {json.dumps(event)}{gap}" for event in build_stream("chat", ["12", "345"]))
    assert AnswerTexts(list(StreamEvents.parse(content.encode()).objects.values())).texts == ["12345"]


@given(cuts=CUTS)
def test_what_no_hook_changes_is_the_same(cuts: list[str]) -> None:
    content = write(build_stream("chat", cuts))
    stream = StreamEvents.parse(content)
    assert [event.parse() for event in stream.all[:-1]] == list(stream.objects.values())
    assert StreamEvents.parse(stream.build()).objects == stream.objects


def test_other_fields_with_the_same_word_stay() -> None:
    events = [*build_stream("responses", ["st", "op"]), {"type": "stop", "status": "stop"}]
    AnswerTexts(events).replace(["go"])
    assert events[-1] == {"type": "stop", "status": "stop"}


def test_log_probabilities_of_a_changed_text_are_gone() -> None:
    events = build_stream("chat", ["secret"])
    texts = AnswerTexts(events)
    texts.replace(["[redacted]"])
    assert events[0]["choices"][0]["logprobs"] is None


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ({"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]}, ["a", "b"]),
        ({"messages": [{"content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]}]}, ["a"]),
        ({"system": [{"type": "text", "text": "a"}], "messages": [{"content": "b"}]}, ["a", "b"]),
        ({"messages": [{"content": [{"type": "tool_result", "content": [{"text": "a"}]}]}]}, ["a"]),
        ({"instructions": "a", "input": [{"role": "user", "content": "b"}, {"output": "c"}]}, ["a", "b", "c"]),
        ({"input": ["a", "b"]}, ["a", "b"]),
        ({"prompt": ["a", "b"]}, ["a", "b"]),
        ({"query": "a", "documents": ["b", {"text": "c"}]}, ["a", "b", "c"]),
        ({"messages": 3, "prompt": None, "input": {"x": "y"}}, ["y"]),
    ],
)
def test_texts_of_requests(body: dict[str, Any], texts: list[str]) -> None:
    slots = list(list_request_slots(body))
    assert [slot.text for slot in slots] == texts
    for slot in slots:
        slot.put("new")
    assert [slot.text for slot in list_request_slots(body)] == ["new"] * len(texts)
