"""What an expert may say on the way, and what a client may make it say, without harm to others."""

from __future__ import annotations

import gc
import json
import re
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api_answers import EVERYTHING
from raw_sockets import DONE, FIRST, GOOD, STREAM_HEAD, answer, ask, chat, dial, eventually, holds, receive, sent
from raw_upstream import LAW, RawGateway
from running_gateway import QUESTIONS, Running, running

LAST = b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
OWN_ERROR = b'data: {"error":{"message":"out of memory","type":"server_error","code":500}}\n\n'
FORGED = b'"ir3de":{"expert":"nobody"}'
MANY = 5  # more than failures open the breaker


def test_a_stream_that_ends_well_without_its_last_word_is_complete(raw_gateway: RawGateway) -> None:
    for _ in range(MANY):
        got = raw_gateway.ask("law", does=STREAM_HEAD + FIRST + LAST, stream=True)
        assert got.status == 200
        assert got.body.endswith(LAST)
        assert b"error" not in got.body
    assert raw_gateway.law.breaker.state == "closed"
    assert raw_gateway.ended("broken_stream") == 0


def test_a_stream_that_is_cut_after_its_finish_reason_is_not(raw_gateway: RawGateway) -> None:
    head = STREAM_HEAD.replace(b"connection: close", b"transfer-encoding: chunked")
    chunk = b"%x\r\n%b\r\n" % (len(FIRST + LAST), FIRST + LAST)
    got = raw_gateway.ask("law", does=head + chunk, stream=True)  # the last chunk is missing
    assert b"broke off its answer" in got.body


@pytest.mark.parametrize("ending", [b"", DONE])
def test_an_error_that_the_expert_tells_itself_is_told_once(raw_gateway: RawGateway, ending: bytes) -> None:
    before = raw_gateway.ended("broken_stream")
    for _ in range(MANY):
        got = raw_gateway.ask("law", does=STREAM_HEAD + FIRST + OWN_ERROR + ending, stream=True)
        assert got.body.count(b'"error"') == 1
        assert got.body.endswith(OWN_ERROR + ending)
    assert raw_gateway.ended("broken_stream") == before + MANY
    assert raw_gateway.law.breaker.state == "closed"  # the request may be to blame


def test_an_expert_that_cannot_stream_is_not_ill(raw_gateway: RawGateway) -> None:
    for _ in range(MANY):
        got = raw_gateway.ask("law", does=answer(200, GOOD), stream=True)
        assert (got.status, got.error["code"]) == (502, "upstream_invalid")
    assert raw_gateway.law.breaker.state == "closed"
    assert raw_gateway.ask("law").status == 200


def test_an_expert_that_lacks_an_endpoint_is_not_ill(raw_gateway: RawGateway) -> None:
    refused = {"error": {"message": "no embeddings here", "type": "t", "param": None, "code": 501}}
    for _ in range(MANY):
        got = raw_gateway.ask("law", does=answer(501, refused))
        assert (got.status, got.json) == (501, refused)
    assert raw_gateway.law.breaker.state == "closed"


def test_an_expert_cannot_say_who_answered(raw_gateway: RawGateway) -> None:
    said = {**GOOD, "ir3de": {"expert": "nobody"}, "metadata": {"ir3de": {"expert": "echo"}}, "n": 1.5}
    got = raw_gateway.ask("law", does=answer(200, said)).json
    assert got["ir3de"]["expert"] == "law"
    assert {key: value for key, value in got.items() if key != "ir3de"} == {
        key: value for key, value in said.items() if key != "ir3de"
    }

    echoed = {**GOOD, "metadata": {"ir3de": "mine"}}
    got = raw_gateway.ask("law", does=answer(200, echoed)).json
    assert (got["ir3de"]["expert"], got["metadata"]) == ("law", {"ir3de": "mine"})


def test_nor_in_any_event_of_a_stream(raw_gateway: RawGateway) -> None:
    forged = FIRST.replace(b'"id":"x"', b'"id":"x",' + FORGED)
    echoed = FIRST.replace(b'"id":"x"', b'"id":"x","metadata":{' + FORGED + b"}")
    for first in (forged, echoed):
        got = raw_gateway.ask("law", does=STREAM_HEAD + first + forged + echoed + LAST + DONE, stream=True)
        events = [json.loads(line[6:]) for line in got.body.split(b"\n\n") if line.startswith(b"data: {")]
        assert [event.get("ir3de", {}).get("expert") for event in events] == ["law", None, None, None]
        assert events[2]["metadata"] == {"ir3de": {"expert": "nobody"}}


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Experts that can do everything; they count tokens whatever is asked of them."""
    experts = {name: {"capabilities": list(EVERYTHING)} for name in QUESTIONS}
    with running(tmp_path_factory.mktemp("counting"), experts=experts) as it:

        async def count(request: Request, asked: dict[str, Any]) -> Response:
            return JSONResponse({"input_tokens": 7})

        it.upstream.behaviour["law"] = count
        yield it


@pytest.mark.parametrize("path", ["messages/count_tokens", "embeddings"])
def test_asking_for_a_stream_where_there_is_none_harms_nobody(counting: Running, path: str) -> None:
    body = {**chat(LAW, "law", stream=True), "input": LAW}
    for _ in range(2 * MANY):
        got = ask(counting.url, body, f"/v1/{path}")
        assert (got.status, got.json["input_tokens"]) == (200, 7)
    assert counting.gateway.live.snapshot.experts["law"].breaker.state == "closed"


def test_a_request_is_let_go_once_its_answer_has_begun(raw_gateway: RawGateway) -> None:
    """Streams last for minutes. What was asked is needed only until somebody answers."""
    size = 300_000
    body = json.dumps(chat("law " * (size // 4), "law", stream=True)).encode()
    raw_gateway.ask("law", stream=True, does=STREAM_HEAD + FIRST + DONE)  # everything is loaded
    raw_gateway.raw.does = holds(STREAM_HEAD, FIRST)
    gc.collect()
    tracemalloc.start()
    try:
        lines = [sent(raw_gateway.url, body) for _ in range(2)]
        for line in lines:
            got = b""
            while b"We" not in got:
                got += receive(line)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < size
    for line in lines:
        line.close()
    assert eventually(lambda: raw_gateway.quiet)  # that they have left is noticed, however large their requests were


def test_requests_on_one_connection_are_answered_in_their_order(raw_gateway: RawGateway) -> None:
    """Some clients send the next request before the answer to the first. A large one waits in the socket, not here."""
    models, more = ("law", "nobody", "law"), "law " * 40_000
    requests = [json.dumps(chat(f"{LAW} {more}", model)).encode() for model in models]
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n"
    line, got = dial(raw_gateway.url), b""
    sender = threading.Thread(target=line.sendall, args=(b"".join(head % len(one) + one for one in requests),))
    sender.start()
    while got.count(b'"request_id"') + got.count(b"model_not_found") < len(models):
        got += receive(line)
    sender.join()
    line.close()
    assert re.findall(rb"HTTP/1.1 (\d+)", got) == [b"200", b"404", b"200"]


def test_headers_for_the_gateway_alone_go_no_further(raw_gateway: RawGateway) -> None:
    secrets = ("x_goog_api_key", "x_auth_token", "cookie", "proxy_connection", "x_forwarded_for", "x_amz_signature")
    got = ask(
        raw_gateway.url,
        chat(LAW, "law"),
        **dict.fromkeys(secrets, "secret-value"),
        connection="close, X-Hop",
        x_hop="secret-value",
        x_team="mine",
        referer="secret-value",
        accept="text/html",
    )
    assert got.status == 200
    head = raw_gateway.raw.heads[-1].lower()
    assert b"secret-value" not in head
    assert b"x-team: mine" in head
    assert b"accept: application/json, text/event-stream\r\n" in head  # what can be relayed, whatever the client likes
