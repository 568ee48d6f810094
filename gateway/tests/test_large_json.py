"""A large request is read in windows: the same objects are accepted, with the same places, and texts are kept."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

import tiny
from ir3de.routing.messages import parse_messages, shorten_turn
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.requests import kept_texts, large_json
from ir3de_gateway.requests.json_body import MAX_INLINE_BYTES, SMALL_BYTES, JsonBody, read_json
from ir3de_gateway.requests.kept_texts import MAX_END_CHARS, MAX_ITEMS, MAX_KEPT_CHARS, SHORT_CHARS
from ir3de_gateway.requests.large_json import MAX_MEMBERS, MAX_VALUES
from ir3de_gateway.requests.tokens import Beginning, estimate_tokens
from ir3de_gateway.stages.read import count_tokens
from running_gateway import running, small_router
from test_json_body import keys, spaces, strings, values

LAW = tiny.law_settings(suppress_health_check=list(HealthCheck))
DEPTH = 64
TRAILING_COMMA = "a value is missing" if sys.version_info < (3, 13) else "trailing comma"  # as Python says it


@pytest.fixture(params=[256, 1_000])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Small windows, so that short texts have many of them."""
    monkeypatch.setattr(large_json, "WINDOW_BYTES", request.param)
    return request.param


many = st.builds(
    lambda value, number, space, is_list: (
        f"[{f'{space},{space}'.join([value] * number)}]"
        if is_list
        else "{" + ",".join(f'"{place}":{value}' for place in range(number)) + "}"
    ),
    values,
    st.integers(0, 60),
    spaces,
    st.booleans(),
)
long_strings = st.builds(lambda text, number: '"' + text[1:-1] * number + '"', strings, st.integers(0, 400))
large_members = st.lists(
    st.tuples(keys, spaces, spaces, st.one_of(many, long_strings, values)),
    max_size=4,
    unique_by=lambda member: json.loads(member[0]),
)


def write(members: list[tuple[str, str, str, str]], outside: str) -> str:
    inside = ",".join(f"{key}{before}:{after}{value}" for key, before, after, value in members)
    return f"{outside}{{{outside}{inside}{outside}}}{outside}"


@LAW
@given(large_members, st.sampled_from(["", " ", "\n\t ", " " * 700]))
def test_members_are_found_where_they_are(window: int, members: list[tuple[str, str, str, str]], outside: str) -> None:
    content = write(members, outside).encode()
    found, expected = JsonBody.parse_large(content, DEPTH), JsonBody.parse(content, DEPTH)
    assert dict(found.members) == dict(expected.members)
    assert list(found.values) == list(expected.values)
    assert found.rewrite({"model": "law"}, drop="ir3de") == expected.rewrite({"model": "law"}, drop="ir3de")


@LAW
@given(large_members, st.data())
def test_what_is_no_object_is_refused(
    window: int, members: list[tuple[str, str, str, str]], data: st.DataObject
) -> None:
    content = write(members, "").encode()
    place = data.draw(st.integers(0, len(content)))
    damage = data.draw(st.sampled_from([b"", b",", b"[", b"]", b"}", b'"', b"\\", b"x", b"1", b"\xff", b":", b"\n"]))
    damaged = content[:place] + damage + content[place + data.draw(st.integers(0, 1)) :]
    try:
        expected = JsonBody.parse(damaged, DEPTH)
    except ApiError as error:
        with pytest.raises(ApiError) as found:
            JsonBody.parse_large(damaged, DEPTH)
        assert (found.value.status, found.value.code) == (error.status, error.code)
    else:
        assert dict(JsonBody.parse_large(damaged, DEPTH).members) == dict(expected.members)


texts = st.builds(lambda text, number: text * number, st.text(max_size=8), st.integers(0, 300))
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool"])},
        optional={
            "content": texts | st.none() | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": texts})),
            "tool_calls": st.lists(st.fixed_dictionaries({"id": texts, "function": st.just({"name": "f"})})),
            "name": texts,
        },
    ),
    min_size=1,
    max_size=12,
)


@LAW
@given(messages, st.booleans())
@example([{"role": "user", "content": "😀" * 500}], True)
def test_messages_are_read_as_those_of_a_small_request(window: int, messages: list[Any], ascii_only: bool) -> None:
    content = json.dumps({"model": "auto", "messages": messages}, ensure_ascii=ascii_only).encode(errors="replace")
    found = JsonBody.parse_large(content, DEPTH).values
    assert parse_messages(found["messages"]) == parse_messages(JsonBody.parse(content, DEPTH).values["messages"])


@pytest.mark.parametrize("more", [-1, 0, 1, MAX_END_CHARS - 1, MAX_END_CHARS, MAX_END_CHARS + 1, 400_000])
def test_of_a_long_text_the_beginning_and_the_end_are_kept_and_all_is_counted(more: int) -> None:
    text = ("Is this contract void? 法 " * 30_000)[: MAX_KEPT_CHARS + more]
    content = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    kept = JsonBody.parse_large(content, DEPTH).values["messages"][0]["content"]
    between = "\n\n" if more > MAX_END_CHARS else ""
    assert kept == text[:MAX_KEPT_CHARS] + between + text[max(MAX_KEPT_CHARS, len(text) - MAX_END_CHARS) :]
    assert estimate_tokens(kept) == pytest.approx(estimate_tokens(text), rel=0.01)


def test_what_is_left_out_is_counted(window: int) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"function": {"arguments": "void egg " * 500}}]}
    tools = [{"type": "function", "function": {"name": f"f{n}", "description": "boils eggs"}} for n in range(100)]
    body = {"messages": [message], "tools": tools, "metadata": {str(n): n for n in range(2_000)}, "n": 2}
    found = JsonBody.parse_large(json.dumps(body).encode(), DEPTH).values
    assert found["n"] == 2 and found["tools"] and isinstance(found["tools"], list) and found["metadata"]
    assert found["messages"][0]["role"] == "assistant" and found["messages"][0]["content"] is None
    assert estimate_tokens(found["messages"][0][""]) > 900
    assert count_tokens({"tools": found["tools"]}) == count_tokens({"tools": tools}) > 200
    assert {tool["type"] for tool in found["tools"]} == {"function"}


def test_the_first_and_the_last_texts_are_kept() -> None:
    said = [f"{place} " + "égg 🙂" * 1_000 for place in range(400)]
    content = json.dumps(
        {"messages": [{"role": "user", "content": text} for text in said]}, ensure_ascii=False
    ).encode()
    found = [message["content"] for message in JsonBody.parse_large(content, DEPTH, 0).values["messages"]]
    assert (found[:20], found[-20:]) == (said[:20], said[-20:])
    assert found[200] == said[200][:SHORT_CHARS] and estimate_tokens(found[200]) == estimate_tokens(said[200])
    assert sum(map(sys.getsizeof, found)) < 0.6 * len(content)


@pytest.mark.parametrize("role_first", [True, False])
@pytest.mark.parametrize("parts", [True, False])
def test_the_user_s_turns_are_kept_before_all_others(role_first: bool, parts: bool) -> None:
    messages: list[dict[str, Any]] = []
    for place in range(200):
        for role, text in (("user", f"{place} is the contract void? " * 10), ("tool", f"{place} boil " * 2_000)):
            content = [{"type": "text", "text": text}] if parts else text
            message = {"role": role, "content": content}
            messages.append(message if role_first else dict(reversed(message.items())))
        messages.append({"type": "function_call_output", "output": "egg " * 500})
    content = json.dumps({"messages": messages}).encode()
    found = JsonBody.parse_large(content, DEPTH, 0).values["messages"]
    for sent, kept in zip(messages, found, strict=True):
        if sent.get("role") == "user":
            assert kept["content"] == sent["content"]
    assert any(len(str(kept.get("content"))) < 200 for kept in found)


def test_of_the_user_s_long_turns_what_routing_reads_is_kept_last() -> None:
    long, short = "Is the contract void? " * 4_000, "Boil the egg. " * 100
    messages = [{"role": "user", "content": text} for text in [long, short] * 40]
    content = json.dumps({"messages": messages}).encode()
    found = [one["content"] for one in JsonBody.parse_large(content, DEPTH, 0).values["messages"]]
    assert found[1::2] == [short] * 40
    assert {*found[::2]} == {long, shorten_turn(long)} and found[-2] == long


def test_token_ids_are_no_text(window: int) -> None:
    found = JsonBody.parse_large(json.dumps({"input": [[n, 7] for n in range(3_000)]}).encode(), DEPTH).values["input"]
    assert isinstance(found, list) and found[0] == [0, 7]


# --- limits ---


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (b'{"input":[' + b"1," * MAX_VALUES + b"1]}", 413, f"more than {MAX_VALUES:,} values"),
        (b'{"a":[' + b"[]," * MAX_VALUES + b"[]]}", 413, f"more than {MAX_VALUES:,} values"),
        (b'{"messages":[' + b"{}," * MAX_ITEMS + b"{}]}", 413, f"more than {MAX_ITEMS:,} messages"),
        (json.dumps({str(n): n for n in range(MAX_MEMBERS + 1)}).encode(), 400, f"more than {MAX_MEMBERS:,} fields"),
        (b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}", 400, "deeper than 64"),
        (b'{"a":[' + b"1," * 99_999 + b'{"b":' * 64 + b"1" + b"}" * 64 + b"]}", 400, "deeper than 64"),
        (b'{"a":"' + b"x" * 99_999, 400, "does not end"),
        (b'{"a":"' + b"x" * 99_999 + b'\x01"}', 400, "control character"),
        (b'{"a":"' + b"x" * 99_999 + b'\xff"}', 400, f"byte {99_999 + 6} is invalid"),
        (b'{"a":"' + b"x" * 99_999 + b'\\uZZZZ"}', 400, "escape"),
        (b'{"' + b"x" * 99_999 + b'":1}', 400, "a name is too long"),
        (b'{"a":' + b"7" * 99_999 + b"}", 400, "this number cannot be read"),
        (b'{"a":[' + b"1," * 99_999 + b"NaN]}", 400, "this number cannot be read"),
        (b'{"a":[' + b"1," * 99_999 + b"]}", 400, TRAILING_COMMA),
        (b'{"a":[' + b"1," * 99_999 + b"1}}", 400, "line 1"),
        (b'{"a":1,\n' + b" " * 99_999 + b'"a":2}', 400, '"a" occurs twice (line 2, byte'),
    ],
)
def test_what_costs_too_much_or_is_no_json_is_refused(content: bytes, status: int, said: str) -> None:
    with pytest.raises(ApiError) as found:
        JsonBody.parse_large(content, DEPTH)
    assert found.value.status == status and said in found.value.message


def test_a_number_of_fields_is_too_many_for_a_small_request_too() -> None:
    with pytest.raises(ApiError, match=f"more than {MAX_MEMBERS:,} fields"):
        JsonBody.parse(json.dumps({str(n): n for n in range(MAX_MEMBERS + 1)}).encode(), DEPTH)


# --- the event loop ---


def test_others_are_served_while_a_large_request_is_read() -> None:
    unit = b"[" * 60 + b"]" * 60
    content = b'{"model":"auto","a":[' + b",".join([unit] * 8_000) + b"]}"

    async def count_turns() -> int:
        reading, turns = asyncio.ensure_future(read_json(content, DEPTH)), 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        assert (await reading).values["model"] == "auto"
        return turns

    assert asyncio.run(count_turns()) > len(content) // large_json.WINDOW_BYTES


def test_small_and_simple_requests_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("this request was read in a thread")

    monkeypatch.setattr(JsonBody, "parse_large", fail)
    for text, number in (("Is this contract void? " * 500, 1), ("word " * (MAX_INLINE_BYTES // 6), 1), ("a, b", 500)):
        messages = [{"role": "user", "content": text}] * number
        content = json.dumps({"messages": messages}).encode()
        assert asyncio.run(read_json(content, DEPTH)).values["messages"] == messages
    with pytest.raises(AssertionError, match="in a thread"):
        asyncio.run(read_json(b'{"a":[' + b"1," * SMALL_BYTES + b"1]}", DEPTH))


def test_a_beginning_is_a_str_to_everybody() -> None:
    assert Beginning("law", 7) == "law" and estimate_tokens(Beginning("law", 7)) == 7
    assert json.dumps(Beginning("law", 7)) == '"law"' and kept_texts.PART_FIELDS


def test_a_large_request_goes_on_byte_for_byte_and_is_routed_by_its_text(tmp_path: Path) -> None:
    """Also where its values are pruned: nothing but the model is different."""
    before = b'{ "messages" : [{"role":"system","content":"' + b"\\u0041 \\n" * 9_000 + b'"},'
    asked = (
        '{"role": "user" ,"content":"Is my contract void? 法\\ud83d\\ude42 '
        + "Can my landlord evict me? " * 40_000
        + '"}] ,\n'
    )
    after = b'"x":[' + b'{"a" : [1.50 , -0]},' * 2_000 + b'[]], "model":"auto","n":1.0 }\n'
    with running(tmp_path) as gateway:
        request = urllib.request.Request(
            f"{gateway.url}/v1/chat/completions", before + asked.encode() + after, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        sent = gateway.upstream.bodies[-1]
    decision = small_router().route(json.loads(asked.rpartition("}")[0] + "}")["content"])
    assert (found["ir3de"]["expert"], decision.expert) == ("law", "law")
    assert found["ir3de"]["confidence"] == pytest.approx(decision.confidence, abs=1e-3)
    model = json.dumps(found["model"]).encode()
    assert sent == before + asked.encode() + after.replace(b'"auto"', model)
