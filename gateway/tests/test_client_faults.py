"""What clients do wrong, and that they leave: the error that fits, and the gateway goes on serving."""

from __future__ import annotations

import gzip
import json

import pytest

from raw_sockets import (
    FIRST,
    GOOD,
    STREAM_HEAD,
    answer,
    ask,
    chat,
    dial,
    eventually,
    holds,
    sent,
)
from raw_upstream import LAW, RawGateway

# the client's faults --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"", "invalid_json", None),
        (b"{", "invalid_json", None),
        (b"\xff\xfe", "invalid_json", None),
        (b'{"messages": "\x00"}', "invalid_json", None),
        (b"[]", "invalid_json", None),
        (b'"auto"', "invalid_json", None),
        (b"[" * 50_000, "invalid_json", None),
        (b'{"model": "a", "model": "b"}', "invalid_json", None),
        ({}, "invalid_type", "messages"),
        ({"messages": None}, "invalid_type", "messages"),
        ({"messages": []}, "empty_messages", "messages"),
        ({"messages": {}}, "invalid_type", "messages"),
        ({"messages": ["hello"]}, "invalid_type", "messages[0]"),
        ({"messages": [{}]}, "invalid_type", "messages[0].role"),
        ({"messages": [{"role": 1}]}, "invalid_type", "messages[0].role"),
        ({"messages": [{"role": "user", "content": 1}]}, "invalid_type", "messages[0].content"),
        ({"messages": [{"role": "user", "content": [1]}]}, "invalid_type", "messages[0].content[0]"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "invalid_type",
            "messages[0].content[0].text",
        ),
        (chat("hi", 7), "invalid_type", "model"),  # type: ignore[arg-type]
        (chat("hi", ""), "invalid_type", "model"),
        (chat("hi", stream="yes"), "invalid_type", "stream"),
        (chat("hi", ir3de=7), "invalid_type", "ir3de"),
        (chat("hi", ir3de={"deny": ["law", "maths", "cooking"]}), "no_eligible_expert", "model"),
        (chat([{"type": "image_url", "image_url": {"url": "data:,"}}]), "no_eligible_expert", "model"),
    ],
)
def test_what_cannot_be_answered_is_refused_and_says_where(
    raw_gateway: RawGateway, body: object, code: str, param: str | None
) -> None:
    got = ask(raw_gateway.url, body)
    assert (got.status, got.error["code"], got.error["param"]) == (400, code, param)
    assert got.error["type"] == "invalid_request_error"
    assert raw_gateway.gateway.upstream.asked == []


@pytest.mark.parametrize("path", ["completions", "responses", "embeddings", "messages"])
@pytest.mark.parametrize("wrong", [None, 7, {}, []])
def test_other_endpoints_want_their_text_too(raw_gateway: RawGateway, path: str, wrong: object) -> None:
    field = {"completions": "prompt", "messages": "messages"}.get(path, "input")
    got = ask(raw_gateway.url, {field: wrong}, f"/v1/{path}")
    assert (got.status, got.error["param"]) == (400, field)


def test_an_unknown_model_is_not_found(raw_gateway: RawGateway) -> None:
    got = raw_gateway.ask("gpt-9")
    assert (got.status, got.error["code"], got.error["param"]) == (404, "model_not_found", "model")


def test_unusual_texts_are_answered(raw_gateway: RawGateway) -> None:
    for content in ("", "\x00", "\ud800", "😀" * 1000, "\u2028", " \n", "<system-reminder>" * 5_000, LAW * 6_000):
        assert ask(raw_gateway.url, chat(content, ir3de={"deny": ["law"]})).status == 200
        assert json.loads(raw_gateway.gateway.upstream.bodies[-1])["messages"][0]["content"] == content


def test_a_body_too_large_is_refused_before_it_has_come(raw_gateway: RawGateway) -> None:
    with dial(raw_gateway.url) as line:
        line.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50000000\r\n\r\n")
        assert line.recv(12) == b"HTTP/1.1 413"


def test_a_client_that_sends_it_all_the_same_reads_the_refusal(raw_gateway: RawGateway) -> None:
    got = ask(raw_gateway.url, b"x" * 10_000_000)
    assert (got.status, got.error["code"]) == (413, "request_too_large")


def test_a_body_without_a_length_is_cut_off_at_the_limit(raw_gateway: RawGateway) -> None:
    with dial(raw_gateway.url) as line:
        line.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(41):
            line.sendall(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
        assert line.recv(12) == b"HTTP/1.1 413"


@pytest.mark.slow
@pytest.mark.parametrize("begun", [b"", b'{"messages"'])
def test_a_body_that_never_arrives_is_not_waited_for(raw_gateway: RawGateway, begun: bytes) -> None:
    raw_gateway.limit_body(0.5)
    with dial(raw_gateway.url) as line:
        line.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n" + begun)
        assert line.recv(12) == b"HTTP/1.1 408"


def test_a_compressed_body_is_refused_by_that_name(raw_gateway: RawGateway) -> None:
    got = ask(raw_gateway.url, gzip.compress(json.dumps(chat(LAW)).encode()), content_encoding="gzip")
    assert (got.status, got.error["code"]) == (415, "unsupported_media_type")


def test_two_hundred_bad_requests_and_then_a_good_one(raw_gateway: RawGateway) -> None:
    bad: list[object] = [
        b"{",
        b"\x00",
        {},
        {"messages": [7]},
        chat(LAW, "nobody"),
        chat(LAW, ir3de=1),
        b"x" * 500_000,
        [],
    ]
    for number in range(200):
        assert 400 <= ask(raw_gateway.url, bad[number % len(bad)]).status < 500
    assert raw_gateway.ask().status == 200


# clients that leave ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "begun"), [(False, []), (True, []), (True, [STREAM_HEAD]), (True, [STREAM_HEAD, FIRST])]
)
def test_when_the_client_leaves_the_expert_is_told(raw_gateway: RawGateway, stream: bool, begun: list[bytes]) -> None:
    before, left, cancelled = len(raw_gateway.raw.heads), raw_gateway.raw.hung_up, raw_gateway.ended("cancelled")
    raw_gateway.raw.does = holds(*begun)
    line = sent(raw_gateway.url, json.dumps(chat(LAW, "law", stream=stream)).encode())
    assert eventually(lambda: len(raw_gateway.raw.heads) == before + 1)
    if len(begun) == 2:
        assert line.recv(5) == b"HTTP/"
    line.close()
    assert eventually(lambda: raw_gateway.raw.hung_up == left + 1)
    assert eventually(lambda: raw_gateway.quiet and raw_gateway.ended("cancelled") == cancelled + 1)
    assert raw_gateway.law.breaker.state == "closed"
    assert raw_gateway.ask("law", does=answer(200, GOOD)).status == 200


def test_a_client_that_leaves_the_line_gives_up_its_place(raw_gateway: RawGateway) -> None:
    raw_gateway.raw.does = holds()
    lines = [sent(raw_gateway.url, json.dumps(chat(LAW, "law")).encode()) for _ in range(3)]
    assert eventually(lambda: (raw_gateway.law.concurrency.in_use, raw_gateway.law.concurrency.waiting) == (2, 1))
    for line in lines:
        line.close()
    assert eventually(lambda: raw_gateway.quiet)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_client_that_does_not_read_is_not_held_against_the_expert(raw_gateway: RawGateway) -> None:
    for number in range(2):
        raw_gateway.ask("law", does=answer(500, {}), user=str(number))
    before = len(raw_gateway.raw.heads)
    raw_gateway.limit(idle=3.0)
    raw_gateway.raw.does = holds(STREAM_HEAD, FIRST.replace(b"We", b"W" * 500_000) * 40)
    with sent(raw_gateway.url, json.dumps(chat(LAW, "law", stream=True)).encode()):
        assert eventually(lambda: len(raw_gateway.raw.heads) == before + 1)
        assert eventually(lambda: raw_gateway.quiet)
    assert raw_gateway.law.breaker.state == "closed"  # a third failure would have opened it
