"""Events on their way through: whole, in order, every byte as it came but for one signature."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.events import (
    _TAIL_BYTES,
    MAX_RELAYED_BYTES,
    AccountingRelay,
    EventRelay,
    add_member,
    remove_member,
)

CHAT = FORMATS["chat/completions"]
SIGNATURE = b'"ir3de":{"expert":"law"}'
USAGE = {"prompt_tokens": 70, "completion_tokens": 7}
USAGE_EVENTS = (
    'data: {"id":"1","choices":[],"usage":{"prompt_tokens":70,"completion_tokens":7}}',
    'event: x\ndata: {"usage": {"prompt_tokens": 70, "completion_tokens": 7}, "choices": []}',
)

objects = st.dictionaries(st.text("ab:", max_size=2), st.text("é\n{}:d [DONE]", max_size=8), max_size=2).map(
    lambda value: json.dumps(value, ensure_ascii=False)
)
lines = st.builds("data: {}".format, objects) | st.builds("data:{}".format, objects)
events = st.one_of(
    lines.map(lambda line: [line]),
    lines.map(lambda line: ["event: x", "id: 7", line]),
    st.sampled_from([[": ping"], ["data: [DONE]"], ["data: words"], ["data: {", 'data: "a":1}']]),
)


@given(
    st.lists(events, max_size=5),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 200), max_size=12),
    st.sampled_from([b"", b'data: {"half":', b": half"]),
)
@tiny.law_settings(times=2)
def test_any_cutting_gives_the_same_bytes_signed_once(
    told: list[list[str]], end: str, cuts: list[int], half: bytes
) -> None:
    parts = ["".join(line + end for line in event) + end for event in told]
    stream = "".join(parts).encode() + half
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    relay, sent = EventRelay(CHAT, SIGNATURE), b""
    for start, stop in pairwise(places):
        sent += relay.feed(stream[start:stop])
        assert sent == b"" or sent.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))  # never half an event
    sent += relay.flush()

    expected, signed = b"", False
    for event, part in zip(told, parts, strict=True):
        if not signed and event[-1].endswith("}"):
            before, _, after = part.rpartition("}")
            comma = "" if before.endswith("{") else ","
            part, signed = f"{before}{comma}{SIGNATURE.decode()}}}{after}", True
        expected += part.encode()
    assert sent == expected + half
    assert relay.is_done == any(event == ["data: [DONE]"] for event in told)


@given(
    st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=5), max_size=3), st.sampled_from(["", " "])
)
def test_a_member_is_added_to_any_object(value: dict[str, object], space: str) -> None:
    content = f"{json.dumps(value, indent=1 if space else None)}{space}\n".encode()
    found = add_member(content, SIGNATURE)
    assert json.loads(found) == value | {"ir3de": {"expert": "law"}}
    assert json.loads(remove_member(found, "ir3de")) == value
    assert remove_member(content, "ir3de") == content
    assert found.replace(b"," + SIGNATURE, b"").replace(SIGNATURE, b"") == content


def test_what_is_no_object_is_not_signed() -> None:
    for content in (b"", b"[1]", b"{", b"}", b"text"):
        assert add_member(content, SIGNATURE) == content


@pytest.mark.parametrize("content", ["say data: [DONE] now", "data: [DONE]"])
def test_an_answer_that_speaks_of_the_end_is_not_at_its_end(content: str) -> None:
    relay = EventRelay(CHAT)
    relay.feed(f"data: {json.dumps({'content': content})}\n\n".encode())
    assert not relay.is_done
    relay.feed(b"data:[DONE]\n\n")
    assert relay.is_done


def test_the_end_is_seen_without_a_last_blank_line() -> None:
    relay = EventRelay(CHAT)
    assert relay.feed(b'data: {"a":1}\n\ndata: [DONE]') == b'data: {"a":1}\n\n'
    assert not relay.is_done
    assert relay.flush() == b"data: [DONE]"
    assert relay.is_done


def test_an_event_too_large_to_be_held_goes_on_in_pieces() -> None:
    relay, large = EventRelay(CHAT, SIGNATURE), b'data: {"a":"' + b"x" * MAX_RELAYED_BYTES
    assert relay.feed(large) == large
    assert (
        relay.build_closing(b"data: error\n\n") == b"\n\ndata: error\n\n"
    )  # an event of its own, not a part of that one
    assert relay.feed(b'"}\n\ndata: {"b":1}\n\n') == b'"}\n\ndata: {"b":1,"ir3de":{"expert":"law"}}\n\n'
    assert relay.build_closing(b"data: error\n\n") == b"data: error\n\n"


@pytest.mark.parametrize(
    ("tail", "found"),
    [
        (b'data: {"usage":{"prompt_tokens":3}}\n\ndata: [DONE]\n\n', {"prompt_tokens": 3}),
        (b'data: {"usage": {"a": 1}}\n\ndata: {"usage":null}\n\n', {"a": 1}),
        (b'data: {"usage":{"a":1}}\n\ndata: {"usage": {"a": 2}}\n\n', {"a": 2}),
        (b'data: {"usage":{"a":{"b":[1,2]}},"x":1}\n\n', {"a": {"b": [1, 2]}}),
        (b'data: {"usage":null}\n\n', None),
        (b'data: {"usage":{broken\n\n', None),
        (b'data: {"usage":{"a":' + b"[" * 5_000 + b"\n\n", None),
        (b"data: [DONE]\n\n", None),
    ],
)
def test_usage_is_found_near_the_end(tail: bytes, found: object) -> None:
    relay = EventRelay(CHAT)
    for _ in range(50):
        relay.feed(b'data: {"choices":[{"delta":{"content":"' + b"x" * 300 + b'"}}]}\n\n')
    relay.feed(tail)
    assert relay.find_usage() == (found or {})


@pytest.mark.parametrize(("distance", "is_found"), [(8_192, True), (8_193, False)])
def test_usage_is_looked_for_in_the_last_eight_kilobytes_and_no_more_is_kept(distance: int, is_found: bool) -> None:
    assert _TAIL_BYTES == 8_192
    relay, usage = EventRelay(CHAT), b'"usage":{"prompt_tokens":3}'
    end = b"}\n\n: " + b"x" * (distance - len(usage) - len(b"}\n\n: ") - 2) + b"\n\n"
    relay.feed(b'data: {"a":1}\n\n' * 10_000)
    relay.feed(b'data: {"choices":[],' + usage + end)
    assert len(usage + end) == distance
    assert relay.find_usage() == ({"prompt_tokens": 3} if is_found else {})
    assert (len(relay.tail), len(relay.head)) == (8_192, 0)  # idle streams are many


@pytest.mark.parametrize("pieces", [1, 7])
def test_usage_and_end_are_found_however_they_are_cut(pieces: int) -> None:
    relay = EventRelay(CHAT)
    stream = b'data: {"usage":{"prompt_tokens":3}}\n\n' + b": ping\n\n" * 900 + b"data: [DONE]\n\n"
    step = -(-len(stream) // pieces)
    for start in range(0, len(stream), step):
        relay.feed(stream[start : start + step])
    assert (relay.find_usage(), relay.is_done, relay.is_ending) == ({"prompt_tokens": 3}, True, True)


@pytest.mark.parametrize("size", [100, 8_192, 20_000])
def test_a_last_event_of_any_length_ends_a_stream(size: int) -> None:
    """The word that ends OpenAI's responses comes first in its event, which repeats the whole answer."""
    relay = EventRelay(FORMATS["responses"])
    relay.feed(b'event: response.created\ndata: {"response":{"id":"resp_7"}}\n\n')
    assert not relay.is_done
    relay.feed(b'event: response.completed\ndata: {"text":"' + b"x" * size + b'","usage":{"input_tokens":3}}\n\n')
    assert relay.is_done
    assert (relay.find_usage(), relay.find_response_id()) == ({"input_tokens": 3}, "resp_7")
    relay = EventRelay(FORMATS["responses"])
    relay.feed(b'event: response.output_text.delta\ndata: {"text":"' + b"x" * size + b'"}\n\n')
    assert not relay.is_done


def test_messages_tell_the_tokens_of_the_prompt_at_the_beginning() -> None:
    relay = EventRelay(FORMATS["messages"])
    relay.feed(b'event: message_start\ndata: {"message":{"usage":{"input_tokens":25,"output_tokens":1}}}\n\n')
    for _ in range(100):
        relay.feed(b'event: content_block_delta\ndata: {"delta":{"text":"' + b"x" * 300 + b'"}}\n\n')
    relay.feed(b'event: message_delta\ndata: {"usage":{"output_tokens":15}}\n\nevent: message_stop\ndata: {}\n\n')
    assert (relay.find_usage(), relay.is_done) == ({"input_tokens": 25, "output_tokens": 15}, True)


def test_the_usage_of_a_message_has_both_parts_even_if_all_events_come_at_once() -> None:
    events = b'data: {"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}}\n\n'
    events += b'data: {"type": "message_delta", "usage": {"output_tokens": 15}}\n\n'
    relay = EventRelay(FORMATS["messages"])
    relay.feed(events)
    assert relay.find_usage() == {"input_tokens": 25, "output_tokens": 15}


# the usage that the gateway requested --------------------------------------------------------------------------------

others = st.sampled_from(
    [
        'data: {"choices":[{"delta":{"content":"the \\"usage\\":{} of words"}}],"usage":null}',
        'data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}',  # some servers tell it with the last words
        'data: {"choices":[],"prompt_filter_results":[]}',
        'data: {"choices":[],"usage":null}',
        ": ping",
        'data: {"usage": half',
        'data: [{"usage": {}}]',
    ]
)


@given(
    st.lists(others, max_size=4),
    st.sampled_from(USAGE_EVENTS),
    st.lists(others, max_size=2),
    st.sampled_from(["\n", "\r\n"]),
    st.lists(st.integers(0, 600), max_size=12),
)
@tiny.law_settings(times=2)
def test_however_it_is_cut_only_the_event_with_the_usage_is_missing(
    before: list[str], told: str, after: list[str], end: str, cuts: list[int]
) -> None:
    def write(events: list[str]) -> bytes:
        return "".join(event.replace("\n", end) + end + end for event in [*events, "data: [DONE]"]).encode()

    stream = write([*before, told, *after])
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    sent = b""
    relay = AccountingRelay(CHAT, drops_usage=True)
    for start, stop in pairwise(places):
        ready = relay.feed(stream[start:stop])
        assert relay.has_ended or b"[DONE]" not in ready  # it is known before the final event is sent on
        sent += ready
    assert sent + relay.flush() == write([*before, *after])
    assert relay.find_usage() == USAGE and relay.has_ended
    kept = AccountingRelay(CHAT)
    assert kept.feed(stream) + kept.flush() == stream


@pytest.mark.parametrize(
    ("given_options", "sent"),
    [
        ({}, {"include_usage": True}),
        ({"stream_options": None}, {"include_usage": True}),
        ({"stream_options": {"x": 1, "include_usage": False}}, {"x": 1, "include_usage": True}),
        ({"stream_options": {"include_usage": True}}, None),
        ({"stream_options": "odd"}, None),
        ({"stream": False}, None),
    ],
)
def test_what_is_asked_for(given_options: dict[str, Any], sent: dict[str, Any] | None) -> None:
    values = {"stream": True, **given_options}
    for path in ("chat/completions", "completions"):
        assert FORMATS[path].build_usage_options(values) == sent
    for path in ("messages", "responses", "embeddings"):
        assert FORMATS[path].build_usage_options(values) is None
    assert json.dumps(values) == json.dumps({"stream": True, **given_options})


@pytest.mark.parametrize("pieces", [1, 2])
def test_the_beginning_of_a_stream_is_read_after_comments(pieces: int) -> None:
    relay = EventRelay(FORMATS["messages"])
    first = b'data: {"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}\n\n'
    last = b'data: {"type":"message_delta","usage":{"output_tokens":6}}\n\n'
    for piece in (b": connected\n\n" + first,) if pieces == 1 else (b": connected\n\n", first):
        relay.feed(piece)
    relay.feed(b": ping\n\n" * 2000 + last)
    assert relay.find_usage() == {"input_tokens": 9, "output_tokens": 6}

    relay = EventRelay(FORMATS["responses"])
    relay.feed(b": connected\n\n")
    relay.feed(b'data: {"type":"response.created","response":{"id":"resp_1"}}\n\n')
    assert relay.find_response_id() == "resp_1"
