"""The filter in front of uvicorn: what it lets through, rewrites and refuses, byte by byte."""

import asyncio
import json
import logging
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from ir3de_gateway.serving import connections
from ir3de_gateway.serving.connections import MAX_HEAD_BYTES, MAX_HEADERS, is_plain_request
from ir3de_gateway.serving.request_filter import MAX_PIPELINED, RequestFilter
from ir3de_gateway.telemetry.counts import PROCESS_COUNTS
from raw_sockets import ask, dial, eventually
from request_bytes import CHAT, JDK, LIVEZ, chunk, head
from running_gateway import Running, running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("filter"), {"http": RequestFilter}) as found:
        yield found


def send(gateway: Running, *pieces: bytes) -> bytes:
    """Send the pieces, each by itself, and read until the other side closes."""
    found = b""
    with dial(gateway.url) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
        if not pieces:
            connection.shutdown(socket.SHUT_WR)
        try:
            while more := connection.recv(65_536):
                found += more
        except ConnectionResetError:
            pass
    return found


def error(found: bytes) -> tuple[int, str]:
    status, content = found.split(b"\r\n\r\n", 1)
    return int(status.split(b" ")[1]), json.loads(content)["error"]["code"]


def statuses(found: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", found)]


def test_trailers_reach_nobody(gateway: Running) -> None:
    trailers = b"x-trailer: secret\r\nauthorization: Bearer other\r\n"
    opening = head(b"transfer-encoding: chunked", b"trailer: x-trailer", b"connection: close", b"te: trailers")
    found = send(gateway, opening + chunk(CHAT[:5]) + chunk(CHAT[5:]) + b"0\r\n" + trailers + b"\r\n")
    assert statuses(found) == [200]
    seen = gateway.upstream.headers[-1]
    assert "x-trailer" not in seen and "trailer" not in seen and seen.get("authorization") != "Bearer other"
    assert json.loads(gateway.upstream.bodies[-1])["messages"] == json.loads(CHAT)["messages"]


@pytest.mark.parametrize("trailers", [b"x: " + b"y" * 10_000, b"x: y\r\n" * 2_000, b";x" * 5_000])
def test_trailers_without_end_are_refused(gateway: Running, trailers: bytes) -> None:
    """A quarter of a megabyte may arrive at once; then everything counts."""
    is_extension = trailers.startswith(b";")
    begin = head(b"transfer-encoding: chunked") + (b"5" if is_extension else b"0\r\n")
    found = b""
    with dial(gateway.url) as connection, suppress(ConnectionResetError):
        with suppress(BrokenPipeError, ConnectionResetError):
            for piece in (begin, *[trailers] * 100):
                connection.sendall(piece)
        while more := connection.recv(65_536):
            found += more
    assert error(found) == (431, "headers_too_large")


def test_trailers_are_not_kept(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    monkeypatch.setattr(RequestFilter, "on_message_complete", lambda self: kept.append(len(self._headers)))
    with dial(gateway.url) as connection:
        connection.sendall(head(b"transfer-encoding: chunked", path=b"/livez") + b"0\r\n" + b"x: y\r\n" * 100 + b"\r\n")
        assert eventually(lambda: bool(kept))
    assert kept == [2]


@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_an_upgrade_is_answered_as_plain_http(gateway: Running, pieces: int, is_chunked: bool) -> None:
    framing = b"transfer-encoding: chunked" if is_chunked else b"content-length: %d" % len(CHAT)
    whole = (
        head(framing, JDK) + (chunk(CHAT) + b"0\r\n\r\n" if is_chunked else CHAT) + LIVEZ + b"connection: close\r\n\r\n"
    )
    cuts = [0, *(whole.index(b"HTTP2-S") + 5, whole.index(CHAT[:9]) + 9)[: pieces - 1], len(whole)]
    found = send(gateway, *(whole[cuts[i] : cuts[i + 1]] for i in range(len(cuts) - 1)))
    assert statuses(found) == [200, 200] and b'"content": "Well, it depends."' in found.replace(b'":"', b'": "')
    assert not {"upgrade", "http2-settings"} & set(gateway.upstream.headers[-1])


def test_a_websocket_and_a_tunnel_are_refused(gateway: Running) -> None:
    asked = LIVEZ + b"connection: upgrade, close\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\r\n"
    assert statuses(send(gateway, asked)) == [200]  # a server may ignore it
    assert error(send(gateway, b"CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n")) == (405, "method_not_allowed")


@pytest.mark.parametrize("hosts", [(), (b"host: 127.0.0.1", b"Host: evil.example"), (b"host: a", b"host: a")])
def test_a_request_has_one_host(gateway: Running, hosts: tuple[bytes, ...]) -> None:
    assert error(send(gateway, head(*hosts, b"content-length: 0", host=b""))) == (400, "invalid_host")


def test_an_old_client_needs_no_host(gateway: Running) -> None:
    assert statuses(send(gateway, b"GET /livez HTTP/1.0\r\n\r\n")) == [200]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"nonsense\r\n\r\n", (400, "invalid_http")),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (400, "invalid_http")),  # TLS
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, "invalid_http")),
        (head(b"transfer-encoding: gzip, chunked"), (501, "unsupported_transfer_encoding")),
        (head(b"transfer-encoding: chunked", b"content-length: 3"), (400, "invalid_http")),
        (head(b"content-length: 3", b"content-length: 4"), (400, "invalid_http")),
        (head(b"a: b", b" c"), (400, "invalid_http")),
        (LIVEZ + b"a: b\nc: d\r\n\r\n", (400, "invalid_http")),
        (head(b"transfer-encoding: chunked") + b"zz\r\n", (400, "invalid_http")),
        (head(b"x: " + b"y" * MAX_HEAD_BYTES), (431, "headers_too_large")),
        (head(*[b"x: y"] * MAX_HEADERS), (431, "headers_too_large")),
        (b"GET http://[::1 HTTP/1.1\r\nhost: a\r\n\r\n", (400, "invalid_http")),
    ],
)
def test_what_is_no_request_gets_an_error_object(gateway: Running, sent: bytes, expected: tuple[int, str]) -> None:
    assert error(send(gateway, sent)) == expected


def test_what_is_refused_twice_is_answered_once(gateway: Running, caplog: pytest.LogCaptureFixture) -> None:
    """The filter refuses the body while the application refuses the host."""
    caplog.set_level(logging.ERROR, "uvicorn.error")
    opening = head(b"transfer-encoding: chunked", host=b"host: elsewhere.example")
    assert statuses(send(gateway, opening + b"zz\r\n")) == [400]
    assert statuses(send(gateway, LIVEZ + b"connection: close\r\n\r\n")) == [200]
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("pieces", [[LIVEZ] + [b"x: " + b"y" * 8_000 + b"\r\n"] * 50, [LIVEZ + b"x: " + b"y" * 99_000]])
def test_a_head_without_end_is_refused(gateway: Running, pieces: list[bytes]) -> None:
    found = b""
    with dial(gateway.url) as connection, suppress(ConnectionResetError):
        with suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces:
                connection.sendall(piece)
        while more := connection.recv(65_536):
            found += more
    assert error(found) == (431, "headers_too_large")


def test_requests_before_nonsense_are_answered(gateway: Running) -> None:
    assert statuses(send(gateway, LIVEZ + b"\r\n" + LIVEZ + b"\r\nnonsense\r\n\r\n")) == [200, 200]


def test_requests_may_come_together_but_not_too_many(gateway: Running) -> None:
    last = LIVEZ + b"connection: close\r\n\r\n"
    assert statuses(send(gateway, (LIVEZ + b"\r\n") * (MAX_PIPELINED - 1) + last)) == [200] * MAX_PIPELINED
    assert statuses(send(gateway, (LIVEZ + b"\r\n") * 1_000)) == [200] * MAX_PIPELINED


@pytest.mark.parametrize("url", [b"http://127.0.0.1/livez", b"/livez?x=1", b"http://127.0.0.1/livez?x=1"])
def test_absolute_urls(gateway: Running, url: bytes) -> None:
    assert statuses(send(gateway, b"GET %b HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n" % url)) == [200]


def test_a_body_in_a_thousand_chunks(gateway: Running) -> None:
    body = CHAT + b" " * 1_000
    sent = head(b"transfer-encoding: chunked", b"connection: close")
    sent += b"".join(chunk(body[i : i + 1]) for i in range(len(body))) + b"0\r\n\r\n"
    assert statuses(send(gateway, sent[:3_000], sent[3_000:])) == [200]
    assert json.loads(gateway.upstream.bodies[-1])["messages"] == json.loads(CHAT)["messages"]


def test_a_client_that_asks_first_may_continue(gateway: Running) -> None:
    with dial(gateway.url) as connection:
        connection.sendall(head(b"content-length: %d" % len(CHAT), b"expect: 100-continue", b"connection: close"))
        assert connection.recv(1_000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(CHAT)
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200 OK\r\n")


def test_head_and_body_of_an_answer_come_in_one_write(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    class Recorder:
        """The socket's transport, which keeps what is written."""

        def __init__(self, transport: asyncio.Transport) -> None:
            self._transport = transport

        def write(self, data: bytes) -> None:
            written.append(data)
            self._transport.write(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._transport, name)

    made = RequestFilter.connection_made
    monkeypatch.setattr(RequestFilter, "connection_made", lambda self, transport: made(self, Recorder(transport)))
    assert ask(gateway.url, path="/livez").status == 200
    assert len(written) == 1 and b"\r\n\r\n" in written[0]


JAVA = """
import java.net.URI;
import java.net.http.*;

public class Ask {
    public static void main(String[] given) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(given[0] + "/v1/chat/completions"))
            .header("content-type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(given[1])).build();
        HttpResponse<String> response = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(response.statusCode() + " " + response.version() + " " + response.body());
    }
}
"""


@pytest.mark.slow
@pytest.mark.skipif(which("java") is None, reason="needs a JDK")
def test_the_client_of_the_jdk(gateway: Running, tmp_path: Path) -> None:
    (tmp_path / "Ask.java").write_text(JAVA)
    command = ["java", str(tmp_path / "Ask.java"), gateway.url, CHAT.decode()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("200 HTTP_1_1 ") and "Well, it depends." in done.stdout, done.stderr


def test_closed_connections_are_not_counted(gateway: Running) -> None:
    assert eventually(lambda: PROCESS_COUNTS.connections_open == 0)
    with dial(gateway.url):
        assert eventually(lambda: PROCESS_COUNTS.connections_open == 1)
    assert eventually(lambda: PROCESS_COUNTS.connections_open == 0)


def test_a_plain_request_that_uvicorn_refuses_gets_an_error_object(gateway: Running) -> None:
    sent = LIVEZ + b"x\x00y: z\r\n\r\n"
    assert is_plain_request(sent)
    assert error(send(gateway, sent)) == (400, "invalid_http")
    assert statuses(send(gateway, LIVEZ + b"\r\n", sent)) in ([200], [200, 400])


@pytest.mark.parametrize("unread", [0, 1_000])
def test_a_client_that_does_not_read_its_answer_is_not_waited_for_for_ever(unread: int) -> None:
    class Unread:
        """A transport of a client that does not read, and a loop that keeps what is asked of it."""

        def __init__(self) -> None:
            self.is_closed, self.later = False, []

        def close(self) -> None:
            self.is_closed = True

        def abort(self) -> None: ...
        def get_write_buffer_size(self) -> int:
            return unread

        def call_later(self, seconds: float, callback: Any) -> None:
            self.later.append((seconds, callback))

    client: Any = Unread()
    connections.HeadBufferingTransport(client, client).close()
    assert client.is_closed and client.later == [(connections.CLOSE_TIMEOUT_S, client.abort)][: bool(unread)]
