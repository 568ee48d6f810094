"""The usage that the gateway asked for is taken out of a stream, and no other byte."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.usage_events import AccountingRelay

CHAT = FORMATS["chat/completions"]
USAGE = {"prompt_tokens": 70, "completion_tokens": 7}
USAGE_EVENTS = (
    'data: {"id":"1","choices":[],"usage":{"prompt_tokens":70,"completion_tokens":7}}',
    'event: x\ndata: {"usage": {"prompt_tokens": 70, "completion_tokens": 7}, "choices": []}',
)

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
@settings(max_examples=150, deadline=None)
def test_however_it_is_cut_only_the_event_with_the_usage_is_missing(
    before: list[str], told: str, after: list[str], end: str, cuts: list[int]
) -> None:
    def write(events: list[str]) -> bytes:
        return "".join(event.replace("\n", end) + end + end for event in [*events, "data: [DONE]"]).encode()

    stream = write([*before, told, *after])
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    ends: list[bytes] = []
    sent = b""
    relay = AccountingRelay(CHAT, drops_usage=True, on_end=lambda _: ends.append(sent))
    for start, stop in pairwise(places):
        sent += relay.feed(stream[start:stop])
    assert sent + relay.flush() == write([*before, *after])
    assert relay.find_usage() == USAGE
    assert len(ends) == 1 and b"[DONE]" not in ends[0]  # it was told before the final event was sent on
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
