"""What an expert is asked and what it says, byte by byte; and clients that speak HTTP in their own way."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import socket
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from api_answers import (
    CHAT,
    CHAT_EVENTS,
    MESSAGE_EVENTS,
    RESPONSE_EVENTS,
    answer_for,
    breaking_off,
    saying,
    serving,
    tell_all,
    without_provenance,
)
from ir3de_gateway.headers import HeaderFilter
from running_gateway import Running

REQUESTS = {
    "chat/completions": b'"messages": [{"role":"user","content":"Is my contr\\u0061ct void?"}]',
    "completions": b'"prompt":"Is my contract void?"',
    "responses": b'"input" :"Is my contract void?"',
    "messages": b'"max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"Is a contract void?"}]}]',
    "embeddings": b'"input":["Is my contract void?"]',
}
ODD = b'"seed":12345678901234567890123, "top_p" : 1.0e-0 ,"caf\xc3\xa9":"\\u00e9\\ud83d\\ude00\\/", "x":{"ir3de":[ ]}'


@pytest.fixture(scope="module", params=[["headers", "body"], []], ids=["signed", "unsigned"])
def each_gateway(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("fidelity")
    with serving(folder, routing={"provenance": request.param}) as gateway:
        gateway.signs = bool(request.param)  # type: ignore[attr-defined]
        yield gateway


@pytest.fixture
def gateway(each_gateway: Running) -> Running:
    tell_all(each_gateway)
    return each_gateway


@pytest.fixture
def connection(gateway: Running) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(urlsplit(gateway.url).netloc, timeout=30)
    yield connection
    connection.close()


def post(connection: Any, path: str, body: Any, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection.request("POST", f"/v1/{path}", body, {"content-type": "application/json", **headers})
    response = connection.getresponse()
    return response, response.read()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", REQUESTS)
def test_bytes_pass_as_they_are(gateway: Any, connection: Any, path: str, stream: bool) -> None:
    before, after = (b'{ "model" : "%s" ,' + REQUESTS[path] + b", " + ODD for _ in range(2))
    if stream:
        before, after = before + b',"stream":true', after + b',"stream":true'
    response, content = post(connection, path, before % b"auto" + b',"ir3de":{"deny":["maths"]}}')
    assert response.status == 200
    assert gateway.upstream.bodies == [after % f"{gateway.upstream.asked[0]}-v1".encode() + b"}"]
    if gateway.signs:
        content, said = without_provenance(content)
        assert said["expert"] == response.headers["x-ir3de-expert"] == gateway.upstream.asked[0]
    else:
        assert not [name for name in response.headers if name.startswith("x-ir3de")]
    said = answer_for(f"/v1/{path}", {"stream": stream, **json.loads(after + b"}")})
    assert content == (said if isinstance(said, bytes) else b"".join(said))
    assert response.headers["openai-organization"] == "org-upstream"
    assert len(response.headers.get_all("content-type")) == len(response.headers.get_all("date")) == 1


def chat(model: str = "law", **fields: Any) -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": "x"}], **fields}).encode()


def test_one_connection_serves_many_requests(gateway: Running, connection: Any) -> None:
    connection.connect()
    port = connection.sock.getsockname()[1]
    for body in (chat(), chat(stream=True), chat("nobody"), b"{", chat()):
        post(connection, "chat/completions", body)
        assert connection.sock.getsockname()[1] == port
    assert gateway.upstream.asked == ["law"] * 3


def test_headers_that_occur_twice_stay_two(gateway: Running, connection: Any) -> None:
    async def twice(request: Request, asked: Any) -> Response:
        response = Response(CHAT, headers={"content-type": "application/json"})
        response.headers.append("x-note", "one")
        response.headers.append("x-note", "two")
        return response

    gateway.upstream.behaviour["law"] = twice
    connection.putrequest("POST", "/v1/chat/completions")
    for name, value in {"x-tag": "a", "X-Tag": "b", "content-length": str(len(chat()))}.items():
        connection.putheader(name, value)
    connection.endheaders(chat())
    response = connection.getresponse()
    response.read()
    assert response.headers.get_all("x-note") == ["one", "two"]
    assert gateway.upstream.headers[0].getlist("x-tag") == ["a", "b"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name",
    [
        "idempotency-key",
        "openai-organization",
        "openai-project",
        "x-remote-user",
        "x-original-url",
        "x-rewrite-url",
        "x-http-method-override",
    ],
)
def test_headers_that_stand_for_another_client_path_or_account_are_forwarded_by_their_full_name_only(
    gateway: Running, connection: Any, name: str
) -> None:
    post(connection, "chat/completions", chat(), **{name: "x", "x-team": "y", "openai-beta": "z"})
    sent = gateway.upstream.headers[0]
    assert (sent.get(name), sent["x-team"], sent["openai-beta"]) == (None, "y", "z")
    assert HeaderFilter(["x-*", name]).keeps(name.encode())


def test_the_query_is_forwarded(gateway: Running, connection: Any) -> None:
    asked = []

    async def note(request: Request, _: Any) -> Response:
        asked.append(request.url.query)
        return Response(CHAT, media_type="application/json")

    gateway.upstream.behaviour["law"] = note
    post(connection, "chat/completions?api-version=2026-01-01&beta=a%20b", chat())
    assert asked == ["api-version=2026-01-01&beta=a%20b"]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_an_answer_that_comes_packed_is_unpacked(gateway: Any, connection: Any, coding: str) -> None:
    large = CHAT.rstrip()[:-1] + b',"more":"' + b"x" * 10_000 + b'"}'
    packed = {"gzip": gzip.compress, "deflate": zlib.compress}[coding]
    gateway.upstream.behaviour["law"] = saying(packed(large), content_encoding=coding)
    response, content = post(connection, "chat/completions", chat())
    assert response.status == 200
    assert "content-encoding" not in response.headers
    assert (without_provenance(content)[0] if gateway.signs else content) == large
    gateway.upstream.behaviour["law"] = saying(packed(b'{"error": {"message": "no"}}'), 400, content_encoding=coding)
    response, content = post(connection, "chat/completions", chat())
    assert (response.status, content) == (400, b'{"error": {"message": "no"}}')


def test_a_packed_stream_is_unpacked(gateway: Any, connection: Any) -> None:
    async def stream(request: Request, _: Any) -> Response:
        packer = zlib.compressobj(wbits=31)

        async def packed() -> Any:
            for event in CHAT_EVENTS:
                yield packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)
            yield packer.flush()

        return StreamingResponse(packed(), headers={"content-encoding": "gzip"}, media_type="text/event-stream")

    gateway.upstream.behaviour["law"] = stream
    response, content = post(connection, "chat/completions", chat(stream=True))
    assert "content-encoding" not in response.headers
    assert (without_provenance(content)[0] if gateway.signs else content) == b"".join(CHAT_EVENTS)


@pytest.mark.parametrize(
    ("path", "events"),
    [("responses", RESPONSE_EVENTS), ("messages", MESSAGE_EVENTS), ("chat/completions", CHAT_EVENTS[:-2])],
)
def test_a_stream_that_ends_too_early_says_so_in_the_endpoint_s_words(
    gateway: Any, connection: Any, path: str, events: list[bytes]
) -> None:
    gateway.upstream.behaviour["law"] = breaking_off(events[:-1])
    _, content = post(connection, path, b'{"model":"law","stream":true,' + REQUESTS[path] + b"}")
    last = content.split(b"\n\n")[-2]
    named, data = re.fullmatch(rb"(event: error\n)?data: (.*)", last).groups()  # type: ignore[union-attr]
    assert json.loads(data)["error"]["message"] == "'law' ended its stream in the middle"
    assert (named is None) == (path == "chat/completions")
    assert json.loads(data).get("type") == (None if named is None else "error")


def test_the_end_of_a_stream_is_seen_however_large_its_last_event_is(gateway: Any, connection: Any) -> None:
    large = RESPONSE_EVENTS[-1].replace(b'"metadata": {}', b'"metadata": {"x": "' + b"y" * 20_000 + b'"}')
    gateway.upstream.behaviour["law"] = breaking_off([*RESPONSE_EVENTS[:-1], large])
    _, content = post(connection, "responses", b'{"model":"law","stream":true,' + REQUESTS["responses"] + b"}")
    assert content.endswith(large)


def test_an_expert_that_sends_elsewhere_is_not_followed(gateway: Running, connection: Any) -> None:
    gateway.upstream.behaviour["law"] = saying(b"", 307, location="http://127.0.0.1:9/v1")
    response, content = post(connection, "chat/completions", chat())
    assert response.status == 502
    assert "location" not in response.headers
    assert "base_url" in json.loads(content)["error"]["message"]


def test_waits_survive_where_the_words_do_not(gateway: Running, connection: Any) -> None:
    waits = {"retry_after": "3", "retry_after_ms": "3000", "x_should_retry": "false", "x_ratelimit_reset_tokens": "6m"}
    gateway.upstream.behaviour["law"] = saying(b"<html>busy</html>", 429, **waits)
    response, content = post(connection, "chat/completions", chat())
    assert response.status == 429
    assert json.loads(content)["error"]["type"] == "rate_limit_error"
    for name, value in waits.items():
        assert response.headers.get_all(name.replace("_", "-")) == [value]


def test_packed_requests_are_refused_as_such(gateway: Running, connection: Any) -> None:
    response, content = post(connection, "chat/completions", gzip.compress(chat()), **{"content-encoding": "gzip"})
    assert response.status == 415
    assert "gzip" in json.loads(content)["error"]["message"]


def test_methods(connection: Any) -> None:
    for method, path, status in [
        ("HEAD", "/v1/models", 200),
        ("HEAD", "/v1/chat/completions", 405),
        ("GET", "/v1/chat/completions", 405),
        ("OPTIONS", "/v1/chat/completions", 405),
        ("GET", "/v1/nothing", 404),
    ]:
        connection.request(method, path)
        response = connection.getresponse()
        content = response.read()
        assert response.status == status
        assert (content == b"") == (method == "HEAD")
        if content:
            assert set(json.loads(content)["error"]) == {"message", "type", "param", "code"}
        if status == 405:
            assert response.headers["allow"] == "POST"


def test_HTTP_1_0_without_a_host(gateway: Running) -> None:
    content = talk(gateway, b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(chat()) + chat())
    head, _, body = content.partition(b"\r\n\r\n")
    assert b" 200 " in head.splitlines()[0]
    assert b"chunked" not in head
    assert json.loads(body)["object"] == "chat.completion"


def test_a_body_in_chunks_after_100_continue(gateway: Running) -> None:
    host = urlsplit(gateway.url).netloc.encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: " + host + b"\r\nexpect: 100-continue\r\nconnection: close\r\n"
    first, second = chat()[:10], chat()[10:]
    with socket.create_connection(("127.0.0.1", urlsplit(gateway.url).port or 0), timeout=30) as line:
        line.sendall(head + b"transfer-encoding: chunked\r\n\r\n")
        assert line.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.sendall(b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(first), first, len(second), second))
        content = b"".join(iter(lambda: line.recv(1 << 16), b""))
    assert content.startswith(b"HTTP/1.1 200 ")
    assert gateway.upstream.bodies == [chat().replace(b'"law"', b'"law-v1"')]
    assert "expect" not in gateway.upstream.headers[0]


def talk(gateway: Running, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", urlsplit(gateway.url).port or 0), timeout=30) as line:
        line.sendall(request)
        return b"".join(iter(lambda: line.recv(1 << 16), b""))
