"""One reader of server-sent events: any cut of any stream gives the same events, for each of its users."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de_gateway.hooks.runner import AnswerTexts, StreamEvents
from ir3de_gateway.telemetry.gen_ai import AnswerFacts
from ir3de_gateway.translation.streams import ChatToMessages
from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.events import (
    MAX_EVENT_BYTES,
    AccountingRelay,
    EventReader,
    EventRelay,
    EventTooLargeError,
    read_events,
)

CHAT = FORMATS["chat/completions"]
BYTES = (
    b"data:",
    b"data: ",
    b"event: x",
    b": note",
    b"id: 7",
    b"\r",
    b"\n",
    b"\r\n",
    b"{}",
    b"\xef\xbb\xbf",
    b"\xc3\xa9",
    b"a:b",
)

streams = st.lists(st.sampled_from(BYTES), max_size=24).map(b"".join)
cuts = st.lists(st.integers(0, 100), max_size=12)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({0, len(stream), *(place for place in places if place < len(stream))})
    return [stream[start:stop] for start, stop in pairwise(ends)]


def dispatch(stream: bytes) -> list[tuple[str, bytes]]:
    """The algorithm of the standard, one character at a time, literally; the end of a stream ends its last event."""
    text = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + b"\n\n"
    found, name, data = list[tuple[str, bytes]](), b"", b""
    for line in text.split(b"\n"):
        field, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            found += [(name.decode(), data[:-1])] if data else []
            name = data = b""
        elif field == b"data":
            data += value + b"\n"
        elif field == b"event":
            name = value
    return found


def read_all(pieces: list[bytes]) -> list[tuple[str, bytes]]:
    reader = EventReader()
    events = [event for piece in pieces for event in reader.read(piece)] + list(read_events(reader.flush()))
    return [(event.name, event.data) for event in events if event.data is not None]


@given(streams, cuts)
@tiny.law_settings(times=3)
def test_any_cut_of_any_stream_gives_the_same_events(stream: bytes, places: list[int]) -> None:
    assert read_all(cut(stream, places)) == dispatch(stream)
    assert b"".join(event.raw for event in read_events(stream)) == stream


@given(streams, cuts)
@tiny.LAW
def test_relays_forward_the_same_bytes(stream: bytes, places: list[int]) -> None:
    for relay in (EventRelay(CHAT), AccountingRelay(CHAT)):
        assert b"".join(map(relay.feed, cut(stream, places))) + relay.flush() == stream
        assert isinstance(relay, AccountingRelay) is False or relay.events == len(dispatch(stream))


chunks = st.sampled_from(
    (
        b'data: {"id":"1","model":"m","choices":[{"delta":{"content":"Hi"}}]}',
        b'data: {"choices":[{"delta":{"content":" you"},\ndata: "finish_reason":"stop"}]}',
        b'\xef\xbb\xbfevent: x\ndata:{"choices":[{"index":0,"delta":{"content":"!"}}]}',
        b": ping",
        b"data: [DONE]",
    )
)


def translate(pieces: list[bytes]) -> bytes:
    translator = ChatToMessages()
    return b"".join(map(translator.feed, pieces)) + translator.flush()


def relay(pieces: list[bytes]) -> bytes:
    passed = EventRelay(CHAT, b'"ir3de":{}')
    return b"".join(map(passed.feed, pieces)) + passed.flush()


def read_facts(pieces: list[bytes]) -> list[Any]:
    content, facts = relay(pieces), AnswerFacts()
    facts.read_events(content, content)
    return [facts.model, facts.finish_reasons]


def read_texts(pieces: list[bytes]) -> list[str]:
    return AnswerTexts(list(StreamEvents.parse(relay(pieces)).objects.values())).texts


@pytest.mark.parametrize("use", [relay, translate, read_facts, read_texts])
@given(st.lists(chunks, max_size=5), st.sampled_from((b"\n", b"\r\n", b"\r")), cuts.map(lambda n: [9 * x for x in n]))
@tiny.LAW
def test_each_user_reads_a_stream_as_if_it_were_not_cut(
    use: Callable[[list[bytes]], Any], told: list[bytes], end: bytes, places: list[int]
) -> None:
    stream = b"".join(chunk.replace(b"\n", end) + end + end for chunk in told)
    assert use(cut(stream, places)) == use([stream])
    if use is read_texts:
        texts = [event["choices"][0]["delta"]["content"] for one in read_events(stream) if (event := one.parse())]
        assert use([stream]) == (["".join(texts)] if texts else [])


def test_an_event_that_never_ends_is_rejected() -> None:
    reader, piece = EventReader(), b"data: " + b"x" * (MAX_EVENT_BYTES // 4)
    with pytest.raises(EventTooLargeError, match="more than 16 MB"):
        for _ in range(5):
            reader.read(piece)


def test_lines_of_data_belong_together() -> None:
    (event, *_) = EventReader().read(b"id: 1\ndata: a\ndata:b\nretry: 3\n\n\n")
    assert (event.name, event.data) == ("", b"a\nb")
    assert event.replace_data(b"c\nd") == b"id: 1\ndata: c\ndata: d\nretry: 3\n\n"


def test_an_error_field_is_an_error_event() -> None:
    (event,) = read_events(b'error: {"code": 500}\n\n')
    assert (event.name, event.data, event.parse()) == ("error", b'{"code": 500}', {"code": 500})
