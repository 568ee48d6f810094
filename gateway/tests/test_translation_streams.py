"""Streams of one API as those of the other: the same as the whole answer, however the bytes are cut."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api_answers import CHAT_EVENTS, MESSAGE_EVENTS, SAID, TOOL_EVENTS
from ir3de_gateway.translation.answers import UnreadableAnswer, build_completion, build_message
from ir3de_gateway.translation.streams import ChatToMessages, MessagesToChat, StreamTranslator
from ir3de_gateway.wire.events import MAX_EVENT_BYTES, read_events

TOOL_USE = [
    {
        "type": "message_start",
        "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 7, "output_tokens": 1}},
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
    },
    {"type": "ping"},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"x": "é'}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '"}'}},
    {"type": "content_block_stop", "index": 1},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
    },
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]


def named(events: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events)


def chunks(*choices: dict[str, Any], usage: dict[str, Any] | None = None, done: bool = True) -> bytes:
    made = [{"id": "chatcmpl-1", "model": "m", "choices": [{"index": 0, **choice}]} for choice in choices]
    made += [{"id": "chatcmpl-1", "model": "m", "choices": [], "usage": usage}] if usage else []
    return b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in made) + b"data: [DONE]\n\n" * done


def calling(index: int, arguments: str, call_id: str = "", name: str = "") -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"delta": {"tool_calls": [{"index": index, **({"id": call_id} if call_id else {}), "function": function}]}}


def translate(stream: StreamTranslator, content: bytes, cuts: Sequence[int] = ()) -> bytes:
    places = [0, *sorted(cuts), len(content)]
    pieces = [content[start:end] for start, end in pairwise(places)]
    return b"".join([stream.feed(piece) for piece in pieces]) + stream.flush()


def read(content: bytes) -> list[dict[str, Any]]:
    found = [event.data for event in read_events(content) if event.data is not None]
    return [json.loads(data) for data in found if data != b"[DONE]"]


def gather_message(events: list[dict[str, Any]]) -> dict[str, Any]:
    """A message from its events, checked for their order."""
    assert [events[0]["type"], events[-2]["type"], events[-1]["type"]] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    message = {**events[0]["message"], **events[-2]["delta"], "usage": events[-2]["usage"]}
    blocks: list[dict[str, Any]] = []
    is_open = False
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert not is_open and event["index"] == len(blocks)
            blocks.append({**event["content_block"], "": ""})
        elif event["type"] == "content_block_delta":
            assert is_open and event["index"] == len(blocks) - 1
            blocks[-1][""] += next(value for name, value in event["delta"].items() if name != "type")
        is_open = event["type"] != "content_block_stop"
    assert not is_open
    for block in blocks:
        text, kind = block.pop(""), block["type"]
        block["input" if kind == "tool_use" else kind] = json.loads(text or "{}") if kind == "tool_use" else text
    return {**message, "content": blocks}


def gather_completion(found: list[dict[str, Any]]) -> dict[str, Any]:
    """A chat completion from its chunks."""
    message: dict[str, Any] = {"role": "assistant", "content": "", "refusal": None}
    calls: dict[int, dict[str, Any]] = {}
    finish = None
    for choice in (one["choices"][0] for one in found if one["choices"]):
        assert finish is None, "a chunk after the last one"
        finish, delta = choice["finish_reason"], choice["delta"]
        for name in ("content", "reasoning_content", "refusal"):
            if delta.get(name):
                message[name] = (message.get(name) or "") + delta[name]
        for call in delta.get("tool_calls", ()):
            known = calls.setdefault(call["index"], {"function": {"arguments": ""}})
            known |= {name: call[name] for name in ("id", "type") if name in call}
            arguments = known["function"]["arguments"] + call["function"]["arguments"]
            known["function"] = {**known["function"], **call["function"], "arguments": arguments}
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
        message["content"] = message["content"] or None
    usage = found[-1].get("usage")
    return {"id": found[0]["id"], "message": message, "finish_reason": finish, "usage": usage}


# any model's answer ---------------------------------------------------------------------------------------------------

words = st.text(max_size=6)
texts = st.builds(lambda parts: {"type": "text", "parts": parts}, st.lists(words, min_size=1, max_size=4))
inputs = st.dictionaries(words, st.none() | st.integers() | words, max_size=2)
calls = st.builds(lambda value: {"type": "tool_use", "name": "f", "input": value}, inputs)
stops = st.sampled_from([("end_turn", "stop"), ("max_tokens", "length"), ("refusal", "content_filter")])


@given(
    thought=words, said=st.lists(words, max_size=4), uses=st.lists(inputs, max_size=3), stop=stops,
    counts=st.tuples(*[st.integers(0, 999)] * 3), width=st.integers(1, 5),
    cuts=st.lists(st.integers(0, 4000), max_size=5), ending=st.sampled_from([b"\n", b"\r\n", b"\r"]),
)  # fmt: skip
def test_a_stream_says_what_the_whole_answer_says(
    thought: str, said: list[str], uses: list[dict[str, Any]], stop: tuple[str, str], counts: tuple[int, int, int],
    width: int, cuts: list[int], ending: bytes,
) -> None:  # fmt: skip
    written = [json.dumps(value) for value in uses]
    parts = [[text[n : n + width] for n in range(0, len(text), width)] for text in written]
    finish = "tool_calls" if uses else stop[1]
    usage = {
        "prompt_tokens": counts[0] + counts[2], "completion_tokens": counts[1],
        "total_tokens": sum(counts), "prompt_tokens_details": {"cached_tokens": counts[2]},
    }  # fmt: skip

    tool_calls = [
        {"id": f"t{n}", "type": "function", "function": {"name": "f", "arguments": text}}
        for n, text in enumerate(written)
    ]
    whole = {"role": "assistant", "content": "".join(said) or None, "reasoning_content": thought}
    answer = build_message(
        {"id": "chatcmpl-1", "model": "m", "usage": usage,
         "choices": [{"message": {**whole, "tool_calls": tool_calls}, "finish_reason": finish}]}
    )  # fmt: skip
    deltas = [{"delta": {"reasoning_content": thought}}, *({"delta": {"content": word}} for word in said)]
    for n, pieces in enumerate(parts):
        deltas += [calling(n, "", f"t{n}", "f"), *(calling(n, piece) for piece in pieces)]
    stream = chunks(*deltas, {"delta": {}, "finish_reason": finish}, usage=usage).replace(b"\n", ending)
    found = translate(ChatToMessages(), stream, [cut % len(stream) for cut in cuts])
    assert gather_message(read(found)) == answer

    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**answer, "content": []}}]
    for place, block in enumerate(answer["content"]):
        empty = {"tool_use": {"input": {}}, "text": {"text": ""}, "thinking": {"thinking": ""}}[block["type"]]
        events.append({"type": "content_block_start", "index": place, "content_block": {**block, **empty}})
        kind, name = {"tool_use": ("input_json", "partial_json"), "text": ("text", "text")}.get(
            block["type"], ("thinking", "thinking")
        )
        text = json.dumps(block["input"], ensure_ascii=False) if kind == "input_json" else block[block["type"]]
        events += [
            {
                "type": "content_block_delta",
                "index": place,
                "delta": {"type": f"{kind}_delta", name: text[n : n + width]},
            }
            for n in range(0, len(text), width)
        ]
        events.append({"type": "content_block_stop", "index": place})
    events.append({"type": "message_delta", "delta": {"stop_reason": answer["stop_reason"]}, "usage": answer["usage"]})
    stream = named([*events, {"type": "message_stop"}]).replace(b"\n", ending)
    translator = MessagesToChat(sends_usage=True)
    back = gather_completion(read(translate(translator, stream, [cut % len(stream) for cut in cuts])))
    expected = build_completion(answer)
    wanted = {**expected["choices"][0]["message"]}
    assert (back["message"], back["finish_reason"]) == (wanted, expected["choices"][0]["finish_reason"])
    assert back["usage"] == expected["usage"] == translator.usage


@pytest.mark.parametrize(
    ("create", "content"),
    [
        (ChatToMessages, b"".join(CHAT_EVENTS)),
        (ChatToMessages, b"".join(TOOL_EVENTS)),
        (ChatToMessages, chunks(calling(0, '{"a":', "t0", "f"), calling(1, "{}", "t1", "g"), calling(0, "1}"))),
        (MessagesToChat, b"".join(MESSAGE_EVENTS)),
        (MessagesToChat, b": hello\r\n\r\n" + named(TOOL_USE).replace(b"\n", b"\r\n")),
    ],
)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=8))
@example(cuts=list(range(10_000)))
def test_cuts_change_nothing(create: Callable[[], StreamTranslator], content: bytes, cuts: list[int]) -> None:
    whole = translate(create(), content)
    cut = translate(create(), content, [place for place in cuts if place < len(content)])
    assert without_time(cut) == without_time(whole)


def without_time(content: bytes) -> bytes:
    return re.sub(rb'"created":\d+', b'"created":0', content)


# what streams do ------------------------------------------------------------------------------------------------------


def test_events_do_not_wait_for_the_end() -> None:
    stream = ChatToMessages()
    begun = stream.feed(chunks({"delta": {"role": "assistant", "content": ""}}, done=False))
    assert [event["type"] for event in read(begun)] == ["message_start"]
    first = read(stream.feed(chunks({"delta": {"content": "He"}}, done=False)))
    assert [event["type"] for event in first] == ["content_block_start", "content_block_delta"]
    assert read(stream.feed(chunks({"delta": {"content": "llo"}}, done=False)))[0]["delta"]["text"] == "llo"
    called = read(stream.feed(chunks(calling(0, '{"x', "t0", "f"), done=False)))
    assert [event["type"] for event in called] == ["content_block_stop", "content_block_start", "content_block_delta"]
    back = MessagesToChat()
    told = [read(back.feed(named([event]))) for event in TOOL_USE]
    assert [len(one) for one in told] == [1, 0, 1, 0, 0, 1, 0, 0, 1, 1, 0, 1, 1, 1, 0]


def test_calls_that_go_to_and_fro_stay_apart() -> None:
    content = chunks(
        calling(0, '{"a":', "t0", "f"), calling(1, '{"b":', "t1", "g"), calling(0, "1"), calling(1, "2"),
        calling(0, "}"), calling(1, "}"), {"delta": {}, "finish_reason": "tool_calls"},
    )  # fmt: skip
    message = gather_message(read(translate(ChatToMessages(), content)))
    assert [(block["id"], block["input"]) for block in message["content"]] == [("t0", {"a": 1}), ("t1", {"b": 2})]


def test_calls_without_index_or_id_are_told_apart_by_what_they_have() -> None:
    def call(call_id: str, arguments: str) -> dict[str, Any]:
        return {"delta": {"tool_calls": [{"id": call_id, "function": {"name": "f", "arguments": arguments}}]}}

    message = gather_message(read(translate(ChatToMessages(), chunks(call("a", "{}"), call("b", '{"x": 1}')))))
    assert [(block["id"], block["input"]) for block in message["content"]] == [("a", {}), ("b", {"x": 1})]
    assert message["stop_reason"] == "tool_use"


def test_a_call_without_arguments_has_an_empty_object() -> None:
    stream = MessagesToChat(sends_usage=True)
    found = gather_completion(read(translate(stream, named(TOOL_USE))))
    assert [call["function"]["arguments"] for call in found["message"]["tool_calls"]] == ['{"x": "é"}', "{}"]
    assert found["message"]["reasoning_content"] == "Hm."
    assert (found["usage"]["prompt_tokens"], found["usage"]["completion_tokens"]) == (7, 9)


def test_usage_is_told_to_those_who_asked_and_known_anyway() -> None:
    stream = MessagesToChat()
    content = translate(stream, b"".join(MESSAGE_EVENTS))
    assert b"usage" not in content and content.endswith(b"data: [DONE]\n\n")
    assert (stream.usage["prompt_tokens"], stream.usage["completion_tokens"]) == (10, 5)
    assert gather_completion(read(content))["message"]["content"] == SAID
    assert content.count(b": ping\n\n") == 1


def test_a_stream_that_ends_early_has_no_final_event() -> None:
    cut = translate(ChatToMessages(), chunks({"delta": {"content": "He"}}, done=False))
    assert b"message_stop" not in cut and b"content_block_stop" not in cut
    assert b"[DONE]" not in translate(MessagesToChat(), named(TOOL_USE[:-1]))


def test_a_stream_without_done_ends_by_its_reason() -> None:
    content = chunks({"delta": {"content": "He"}}, {"delta": {}, "finish_reason": "length"}, done=False)
    assert gather_message(read(translate(ChatToMessages(), content.rstrip(b"\n"))))["stop_reason"] == "max_tokens"


def test_errors_within_streams_are_the_other_api_s() -> None:
    content = (
        chunks({"delta": {"content": "He"}}, done=False) + b'data: {"error":{"message":"out of memory","code":429}}\n\n'
    )
    told = translate(ChatToMessages(), content + chunks({"delta": {"content": "llo"}}))
    assert told.endswith(b"\n\n") and told.count(b"event: error\n") == 1 and b"llo" not in told
    error = read(told)[-1]
    assert (error["type"], error["error"]["type"], error["error"]["message"]) == (
        "error",
        "rate_limit_error",
        "out of memory",
    )
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    found = read(translate(MessagesToChat(), named([TOOL_USE[0], overloaded, TOOL_USE[-1]])))
    assert (found[-1]["error"]["message"], found[-1]["error"]["type"]) == ("Overloaded", "server_error")


def test_comments_pass() -> None:
    assert ChatToMessages().feed(b": keep-alive\n\n") == b": keep-alive\n\n"


@pytest.mark.parametrize(
    "content",
    [
        b"data: {broken\n\n",
        b"data: [1]\n\n",
        b'data: {"type": "message_stop"}\n\n',
        named([TOOL_USE[0], {**TOOL_USE[5], "index": []}]),
    ],
)
def test_what_is_no_stream_is_unreadable(content: bytes) -> None:
    with pytest.raises(UnreadableAnswer):
        MessagesToChat().feed(content)


def test_an_event_that_never_ends_is_rejected() -> None:
    with pytest.raises(UnreadableAnswer, match="more than 16 MB"):
        MessagesToChat().feed(b"data: " + b"x" * MAX_EVENT_BYTES)


# whatever an expert sends ---------------------------------------------------------------------------------------------

NAMES = (
    "type", "message", "content_block", "delta", "index", "usage", "choices", "error", "content", "tool_calls", "text",
    "function", "arguments", "name", "id", "input", "partial_json", "stop_reason", "finish_reason", "refusal", "model",
    "reasoning_content", "thinking", "stop_details", "code", "prompt_tokens", "prompt_tokens_details", "input_tokens",
)  # fmt: skip
KINDS = (
    "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
    "message_stop", "error", "text", "tool_use", "thinking", "text_delta", "input_json_delta", "tool_calls", "stop",
)  # fmt: skip
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 600) | st.sampled_from(KINDS) | st.just(""),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=15,
)
objects = st.dictionaries(st.sampled_from(NAMES), values, max_size=6)
begun = {"type": "message_start", "message": {"id": "m"}, "choices": [{"delta": {"content": "He"}}]}


@pytest.mark.parametrize("create", [ChatToMessages, MessagesToChat])
@given(events=st.lists(objects, max_size=6))
def test_any_events_are_translated_or_unreadable(
    create: Callable[[], StreamTranslator], events: list[dict[str, Any]]
) -> None:
    content = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in [begun, *events])
    try:
        found = translate(create(), content)
    except UnreadableAnswer:
        return
    assert all(isinstance(event, dict) for event in read(found))


@given(answer=objects)
def test_any_answer_is_translated_or_unreadable(answer: dict[str, Any]) -> None:
    for build in (build_message, build_completion):
        with suppress(UnreadableAnswer):
            assert json.dumps(build(answer))
