"""What experts do wrong: the error that fits, within the time limits, and the gateway goes on serving."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ir3de_gateway.transport import Destination, UpstreamCall
from ir3de_gateway.transport.http1 import MAX_BUFFERED_BYTES, Http1Connection
from ir3de_gateway.transport.pool import HttpTransport
from raw_sockets import (
    DONE,
    FIRST,
    GOOD,
    STREAM_HEAD,
    Conduct,
    answer,
    ask,
    chat,
    eventually,
    holds,
    says,
    sent,
)
from raw_upstream import LAW, SECRET, RawGateway
from running_gateway import failing, running

# the experts' faults --------------------------------------------------------------------------------------------

HTML = answer(200, b"<html>It works!</html>", "text/html")
BROKEN: dict[str, tuple[Conduct | bytes, int, str]] = {
    "resets before the head": (says(reset=True), 502, "upstream_broken"),
    "hangs up before the head": (says(), 502, "upstream_broken"),
    "hangs up in the head": (says(b"HTTP/1.1 200 OK\r\ncontent-"), 502, "upstream_broken"),
    "resets after the head": (says(answer(200, GOOD)[:90], 0.05, reset=True), 502, "upstream_broken"),
    "stops in the body": (says(answer(200, GOOD)[:-5]), 502, "upstream_broken"),
    "sends what is not HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", 502, "upstream_invalid"),
    "sends noise": (b"\x00\xff\x16\x03" * 50, 502, "upstream_invalid"),
    "answers with HTML": (HTML, 502, "upstream_invalid"),
    "answers with a list": (answer(200, [1, 2]), 502, "upstream_invalid"),
    "answers with half an object": (answer(200, b'{"choices": ['), 502, "upstream_invalid"),
    "answers with nothing": (answer(200, b""), 502, "upstream_invalid"),
    "answers with other bytes": (answer(200, b"\xff\xfe\x00"), 502, "upstream_invalid"),
    "nests without end": (answer(200, b'{"a":' + b"[" * 100_000), 502, "upstream_invalid"),
    "points elsewhere": (answer(307, b"", location="http://127.0.0.1:1/"), 502, "upstream_invalid"),
    "says it is compressed": (answer(200, GOOD, content_encoding="gzip"), 502, "upstream_invalid"),
    "switches to another protocol": (
        b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        502,
        "upstream_invalid",
    ),
    "never ends its head": (b"HTTP/1.1 200 X\r\n" + b"x: y\r\n" * 20_000, 502, "upstream_invalid"),
    "gives two lengths": (
        answer(200, GOOD, content_length_="7").replace(b"length-:", b"length:"),
        502,
        "upstream_invalid",
    ),
    "never answers": (holds(), 504, "upstream_timeout"),
    "never goes on": (holds(answer(200, GOOD)[:-5]), 504, "upstream_timeout"),
    "answers with a stream, asked for a whole": (says(STREAM_HEAD, FIRST + DONE), 502, "upstream_invalid"),
    "is ill and says so in HTML": (answer(503, b"<html>", "text/html", retry_after="7"), 503, "unavailable"),
}
STREAMS: dict[str, tuple[Conduct | bytes, int, str]] = {
    "answers whole, asked for a stream": (answer(200, GOOD), 502, "upstream_invalid"),
    "ends a stream before it begins": (STREAM_HEAD, 502, "upstream_broken"),
    "holds a stream before it begins": (holds(STREAM_HEAD), 504, "upstream_timeout"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", BROKEN)
def test_an_expert_that_is_asked_by_name_and_fails(raw_gateway: RawGateway, fault: str) -> None:
    does, status, code = BROKEN[fault]
    if status == 504:
        raw_gateway.limit(first_token=0.5, idle=0.5)
    got = raw_gateway.ask("law", does=does)
    assert (got.status, got.error["code"]) == (status, code)
    assert "law" in got.error["message"]
    assert got.headers["x-ir3de-expert"] == "law"
    assert got.headers.get("retry-after") == ("7" if status == 503 else None)
    for kept_quiet in (LAW, SECRET, "Bearer", "127.0.0.1"):
        assert kept_quiet.encode() not in got.body


@pytest.mark.parametrize("fault", BROKEN | STREAMS)
def test_the_default_expert_answers_for_one_that_fails(raw_gateway: RawGateway, fault: str) -> None:
    does, status, _ = (BROKEN | STREAMS)[fault]
    if status == 504:
        raw_gateway.limit(first_token=0.5, idle=0.5)
    got = raw_gateway.ask(does=does, stream=fault in STREAMS)
    assert got.status == 200
    assert got.headers["x-ir3de-fallbacks"] == "1"
    assert [got.headers["x-ir3de-expert"]] == raw_gateway.gateway.upstream.asked
    assert raw_gateway.law.breaker.state == ("cooling" if status == 503 else "closed")


@pytest.mark.parametrize("fault", STREAMS)
def test_a_stream_that_fails_before_it_begins_is_an_error_as_any_other(raw_gateway: RawGateway, fault: str) -> None:
    does, status, code = STREAMS[fault]
    if status == 504:
        raw_gateway.limit(first_token=0.5, idle=0.5)
    got = raw_gateway.ask("law", does=does, stream=True)
    assert (got.status, got.error["code"]) == (status, code)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_an_expert_that_says_it_cannot_is_replaced_or_has_the_last_word(raw_gateway: RawGateway, status: int) -> None:
    word = {"error": {"message": "no", "type": "t", "param": None, "code": "c"}}
    does = answer(status, word, retry_after="9", x_other="kept")
    got = raw_gateway.ask(does=does)
    assert (got.status, got.headers["x-ir3de-fallbacks"]) == (200, "1")
    raw_gateway.gateway.upstream.behaviour["cooking"] = failing(501)
    raw_gateway.now += 9  # as long as it wants to be left alone
    assert raw_gateway.ask(does=does).status == 501  # of two that failed, the last one's
    raw_gateway.now += 9
    got = raw_gateway.ask("law", does=does)
    assert (got.status, got.json, got.headers["retry-after"], got.headers["x-other"]) == (status, word, "9", "kept")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/html"])
def test_what_the_request_is_to_blame_for_is_passed_on_as_it_is(
    raw_gateway: RawGateway, status: int, kind: str
) -> None:
    words = b'{"error":  "yours"}\n'
    got = raw_gateway.ask(does=answer(status, words, kind), stream=kind == "text/event-stream")
    assert (got.status, got.body, got.headers["content-type"]) == (status, words, kind)
    assert raw_gateway.gateway.upstream.asked == []


@pytest.mark.slow
@pytest.mark.nightly
def test_nobody_is_asked_after_the_first_byte(raw_gateway: RawGateway) -> None:
    for does, limits, code in (
        (says(STREAM_HEAD, FIRST, b'data: {"half'), {}, "upstream_broken"),
        (says(STREAM_HEAD.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\n")
              + b"%x\r\n" % len(FIRST) + FIRST + b"\r\n"), {}, "upstream_broken"),
        (says(STREAM_HEAD, FIRST, 0.05, reset=True), {}, "upstream_broken"),
        (holds(STREAM_HEAD, FIRST, b": half"), {"idle": 0.5}, "upstream_timeout"),
        (says(STREAM_HEAD, *[FIRST, 0.2] * 1_000), {"total": 3.0}, "upstream_timeout"),
    ):  # fmt: skip
        raw_gateway.law.breaker.record_success()
        raw_gateway.limit(**limits)
        got = raw_gateway.ask(does=does, stream=True)
        events = got.body.split(b"\n\n")
        assert got.status == 200
        assert b'"We"' in events[0]
        assert json.loads(events[-2].removeprefix(b"data: "))["error"]["code"] == code
        assert b"half" not in got.body
        assert events[-1] == b""
        assert raw_gateway.gateway.upstream.asked == []


@pytest.mark.slow
def test_a_stream_is_complete_once_it_says_so(raw_gateway: RawGateway) -> None:
    for does in (says(STREAM_HEAD, FIRST, DONE), holds(STREAM_HEAD, FIRST, DONE), says(STREAM_HEAD, FIRST + DONE[:-2])):
        got = raw_gateway.ask("law", does=does, stream=True)
        assert got.body.rstrip().endswith(b"data: [DONE]")
        assert b"error" not in got.body
        assert b'"ir3de":{"expert":"law"' in got.body


@pytest.mark.slow
def test_a_stream_whose_connection_stays_open_is_not_waited_for(raw_gateway: RawGateway) -> None:
    async def never_closes(request: Request, asked: object) -> Response:
        async def events() -> AsyncIterator[bytes]:
            yield FIRST + DONE
            await asyncio.sleep(3600)

        return StreamingResponse(events(), media_type="text/event-stream")

    raw_gateway.gateway.upstream.behaviour["maths"] = never_closes  # whose limits are minutes
    got = ask(raw_gateway.url, chat(LAW, "maths", stream=True))
    assert got.body.endswith(DONE)


def test_an_answer_that_is_compressed_unasked_is_read(raw_gateway: RawGateway) -> None:
    packed = gzip.compress(json.dumps(GOOD).encode())
    got = raw_gateway.ask("law", does=answer(200, packed, content_encoding="gzip"))
    assert (got.status, got.json["usage"], "content-encoding" in got.headers) == (200, GOOD["usage"], False)


def test_an_answer_in_an_encoding_that_cannot_be_read_says_what_to_install(
    raw_gateway: RawGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "brotli", None)
    got = raw_gateway.ask("law", does=answer(200, b"...", content_encoding="br"))
    assert (got.status, got.error["code"]) == (502, "upstream_invalid")
    assert "pip install 'brotli>=1.2'" in got.error["message"]


def test_gzip_of_several_members_is_read_and_one_that_is_cut_off_is_broken(raw_gateway: RawGateway) -> None:
    content = json.dumps(GOOD).encode()
    packed = gzip.compress(content[:20]) + gzip.compress(content[20:])
    got = raw_gateway.ask("law", does=answer(200, packed, content_encoding="gzip"))
    assert (got.status, got.json["usage"]) == (200, GOOD["usage"])
    got = raw_gateway.ask("law", does=answer(200, packed[:-9], content_encoding="gzip"))
    assert (got.status, got.error["code"]) == (502, "upstream_broken")


def test_words_before_an_answer_are_passed_over_and_words_after_it_are_no_part_of_it(
    raw_gateway: RawGateway,
) -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    got = raw_gateway.ask("law", does=says(early + answer(200, GOOD) + answer(200, {"stolen": 1}, x_stolen="1")))
    assert (got.status, got.json["usage"]) == (200, GOOD["usage"])
    assert "stolen" not in str(got)
    assert "link" not in got.headers
    assert raw_gateway.ask("law").json["model"] == "raw"


@pytest.mark.parametrize("size", [10, MAX_BUFFERED_BYTES + 1_000])
def test_an_answer_that_was_not_read_is_nobody_elses(raw_gateway: RawGateway, size: int) -> None:
    """Also one that has come to its last byte, of which nobody wanted to know: its connection is not used again."""

    async def exchange() -> bytes:
        pool, later = HttpTransport(), asyncio.get_running_loop().time() + 60
        call = UpstreamCall(Destination(raw_gateway.raw.url), "v1/x", b"", b"", 60.0, later)
        first = await pool.send(call)
        assert isinstance(first, Http1Connection)
        while len(first._pieces) < 1 or (size > MAX_BUFFERED_BYTES and not first._paused):
            await asyncio.sleep(0.01)
        assert first._ended
        first.close()
        second = await pool.send(call)
        said = await second.read(later)
        assert second is not first
        second.close()
        pool.close()
        await asyncio.sleep(0.01)  # closing takes a turn of the loop
        return said

    raw_gateway.raw.does = holds(answer(200, b"x" * size))
    assert set(asyncio.run(asyncio.wait_for(exchange(), 60))) == {ord("x")}


def test_numbers_of_tokens_that_are_none_do_no_harm(raw_gateway: RawGateway) -> None:
    for usage in (
        7,
        [],
        {"prompt_tokens": 10**400},
        {"prompt_tokens": "x", "completion_tokens": -1},
        {"prompt_tokens": True},
    ):
        assert raw_gateway.ask("law", does=answer(200, GOOD | {"usage": usage})).status == 200


def test_an_expert_that_is_not_there(raw_gateway: RawGateway, tmp_path_factory: pytest.TempPathFactory) -> None:
    nobody = {"base_url": "http://127.0.0.1:1/v1"}
    gone: dict[str, Any] = {"law": {**nobody, "fallbacks": ["maths"]}, "maths": nobody}
    with running(tmp_path_factory.mktemp("refused"), experts=gone, routing={"default": "cooking"}) as it:
        got = ask(it.url, chat(LAW, "law"))
        assert (got.status, got.error["code"]) == (502, "upstream_unreachable")
        got = ask(it.url, chat(LAW))
        assert (got.status, got.headers["x-ir3de-expert"]) == (200, "cooking")
        assert got.headers["x-ir3de-fallbacks"] == "2"


def test_why_an_expert_cannot_be_reached_is_in_the_log_and_not_in_the_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path, experts={"law": {"base_url": "http://127.0.0.1:1/v1"}}) as it:
        got, *_ = (ask(it.url, chat(LAW, "law")) for _ in range(3))
    assert b"127.0.0.1" not in got.body
    told = [line.getMessage() for line in caplog.records if line.name == "ir3de.gateway"]
    assert len(told) == 1 and told[0].startswith("'law' at http://127.0.0.1:1/v1: ")
    assert "refused" in told[0].lower() or "errno" in told[0].lower()
    assert LAW not in told[0]


# health, and places in line -------------------------------------------------------------------------------------


def test_an_expert_that_keeps_failing_rests_and_is_tried_again(raw_gateway: RawGateway) -> None:
    for number in range(3):
        assert raw_gateway.ask("law", does=answer(500, {}), user=str(number)).status == 500
    asked = len(raw_gateway.raw.heads)
    got = raw_gateway.ask("law")
    assert (got.status, got.error["code"], got.headers["retry-after"]) == (503, "unavailable", "1")
    assert raw_gateway.ask().status == 200  # somebody else's
    assert len(raw_gateway.raw.heads) == asked
    raw_gateway.now += 0.3
    assert raw_gateway.law.breaker.state == "half-open"
    assert raw_gateway.ask("law", does=answer(500, {})).status == 500  # the probe, which fails
    assert raw_gateway.ask("law").status == 503
    raw_gateway.now += 0.3
    assert raw_gateway.law.breaker.state == "half-open"
    assert raw_gateway.ask("law", does=answer(200, GOOD)).status == 200
    assert eventually(lambda: raw_gateway.law.breaker.state == "closed")  # the client may have read its answer before


def test_refusing_and_being_busy_is_no_illness(raw_gateway: RawGateway) -> None:
    for _ in range(5):
        assert raw_gateway.ask("law", does=answer(429, {})).status == 429
        raw_gateway.now += 1
        assert raw_gateway.ask("law", does=answer(400, {})).status == 400
    assert raw_gateway.law.breaker.state == "closed"


@pytest.mark.parametrize("status", [429, 503])
def test_an_expert_that_has_too_much_to_do_is_left_alone_as_long_as_it_asks(
    raw_gateway: RawGateway, status: int
) -> None:
    before = len(raw_gateway.raw.heads)
    raw_gateway.raw.does = says(answer(status, {"error": {"message": "slow down"}}, retry_after="20"))
    others = [raw_gateway.ask().headers["x-ir3de-expert"] for _ in range(5)]
    assert "law" not in others
    assert len(raw_gateway.raw.heads) == before + 1  # five chats, one request
    raw_gateway.now += 7.5
    got = raw_gateway.ask("law")
    assert (got.status, got.error["type"], got.headers["retry-after"]) == (429, "rate_limit_error", "13")
    assert ask(raw_gateway.url, path="/health").json["experts"]["law"] == "cooling"
    assert 'ir3de_breaker_state{expert="law"} 3.0' in ask(raw_gateway.url, path="/metrics").body.decode()
    assert len(raw_gateway.raw.heads) == before + 1
    raw_gateway.now += 12.5
    assert raw_gateway.ask("law", does=answer(200, GOOD)).status == 200


def test_an_expert_that_is_ill_and_does_not_say_for_how_long_has_failed(raw_gateway: RawGateway) -> None:
    for number in range(3):
        assert raw_gateway.ask("law", does=answer(503, {}), user=str(number)).status == 503
    assert raw_gateway.law.breaker.state == "open"


def test_an_expert_is_back_when_its_probe_begins_to_answer(raw_gateway: RawGateway) -> None:
    for _ in range(3):
        assert raw_gateway.ask("law", does=says()).status == 502
    raw_gateway.now += 0.3
    raw_gateway.raw.does = holds(STREAM_HEAD, FIRST)
    with sent(raw_gateway.url, json.dumps(chat(LAW, "law", stream=True)).encode()) as probe:
        assert eventually(lambda: raw_gateway.law.breaker.state == "closed")  # its stream never ends
        assert raw_gateway.ask("law", does=answer(200, GOOD)).status == 200
        probe.close()


def test_beyond_the_line_the_next_expert_is_asked_or_the_client_comes_back(raw_gateway: RawGateway) -> None:
    raw_gateway.raw.does = holds()
    before = len(raw_gateway.raw.heads)
    lines = [sent(raw_gateway.url, json.dumps(chat(LAW, "law")).encode()) for _ in range(2)]
    assert eventually(lambda: len(raw_gateway.raw.heads) == before + 2)
    raw_gateway.law.concurrency.wait = 0.2
    got = raw_gateway.ask("law")  # waits its turn in vain
    assert (got.status, got.error["type"], got.headers["retry-after"]) == (429, "rate_limit_error", "1")
    assert raw_gateway.ask().headers["x-ir3de-expert"] != "law"
    for line in lines:
        line.close()
