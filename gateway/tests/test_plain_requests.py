"""Requests as the filter in front of uvicorn sees them: which pass as they came, and that cutting changes nothing."""

import asyncio
from itertools import pairwise
from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de_gateway.serving import request_filter
from ir3de_gateway.serving.connections import CONNECTION_HEADERS, is_plain_request
from ir3de_gateway.serving.request_filter import RequestFilter
from request_bytes import CHAT, JDK, LIVEZ, chunk, head


class Parsed:
    """What the parser says of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.messages, self.bodies, self.names, self.is_whole = 0, b"", [], True
        parser = httptools.HttpRequestParser(self)
        parser.feed_data(data)
        self.version, self.is_upgrade = parser.get_http_version(), parser.should_upgrade()

    def on_message_begin(self) -> None:
        self.messages, self.is_whole = self.messages + 1, False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.names.append(name.lower())

    def on_body(self, body: bytes) -> None:
        self.bodies += body

    def on_message_complete(self) -> None:
        self.is_whole = True


LINES = st.sampled_from(
    [
        b"host: a", b"Host:a", b"hOst : a", b"content-length: 3", b"Content-Length:\t3 ", b"content-length: 03",
        b"content-length: +3", b"content-length: 4", b"content-length:", b"transfer-encoding: chunked", b" folded",
        b"Transfer-Encoding : chunked", b"upgrade: h2c", b"connection: upgrade", b"connection: close", b"x", b"",
        b"te: trailers", b"x: y\nhost: b", b"x: y\rhost: b", b"x:\x00", b"expect: 100-continue", b"x-host: a",
        b"x: \nupgrade: h2c", b"trailer: x", b"content-length: 99999999999999999999", b"x: y",
    ]
)  # fmt: skip
STARTS = st.sampled_from(
    [
        b"GET / HTTP/1.1",
        b"POST /v1 HTTP/1.1",
        b"CONNECT / HTTP/1.1",
        b"GET / HTTP/1.0",
        b"GET  / HTTP/1.1",
        b"\r\nGET / HTTP/1.1",
    ]
)
BODIES = st.sampled_from([b"", b"abc", b"abcd", b"3\r\nabc\r\n0\r\n\r\n", b"abcGET / HTTP/1.1\r\nhost: a\r\n\r\n"])


@tiny.LAW
@given(STARTS, st.lists(LINES, max_size=5), BODIES)
def test_a_plain_request_is_one_whole_request_to_the_parser_too(start: bytes, lines: list[bytes], body: bytes) -> None:
    data = b"\r\n".join([start, *lines, b"", body])
    if not is_plain_request(data):
        return
    try:
        found = Parsed(data)
    except httptools.HttpParserError:
        return  # uvicorn refuses it too
    assert (found.messages, found.is_whole, found.version, found.is_upgrade) == (1, True, "1.1", False)
    assert found.names.count(b"host") == 1 and found.bodies == data.split(b"\r\n\r\n", 1)[1]
    assert not CONNECTION_HEADERS & set(found.names) and b"transfer-encoding" not in found.names


def test_usual_requests_are_plain() -> None:
    assert is_plain_request(LIVEZ + b"\r\n") and is_plain_request(head(b"Content-Length: %d" % len(CHAT)) + CHAT)


class Recorded:
    """A connection to a filter, without sockets: keeps what uvicorn would get, and what the client would."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.passed, self.written, self.is_closed = b"", b"", False
        loop = asyncio.new_event_loop()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(request_filter, "_get_uvicorn_protocol", lambda: lambda **arguments: self)
            patch.setattr(asyncio, "get_running_loop", lambda: loop)
            connection = RequestFilter()
            connection.connection_made(self)  # type: ignore[arg-type]
            for piece in pieces:
                connection.data_received(piece)
            connection.connection_lost(None)
        loop.close()

    def connection_made(self, transport: Any) -> None: ...
    def connection_lost(self, error: Any) -> None: ...
    def pause_reading(self) -> None: ...
    def abort(self) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_closed = True

    def data_received(self, data: bytes) -> None:
        self.passed += data

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


CHUNKED = head(b"Transfer-Encoding: chunked", b"x: y") + chunk(b"abc") + chunk(b"def") + b"0\r\nx-trailer: 1\r\n\r\n"
SEQUENCES = st.lists(
    st.sampled_from(
        [
            LIVEZ + b"\r\n",
            head(b"content-length: 3") + b"abc",
            CHUNKED,
            head(b"content-length: 3", JDK) + b"abc",
            b"GET http://127.0.0.1/livez?x HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
            LIVEZ + b"host: 127.0.0.1\r\n\r\n",
            b"\r\n",
            b"nonsense\r\n\r\n",
        ]
    ),
    min_size=1,
    max_size=4,
)


@tiny.LAW
@given(SEQUENCES, st.lists(st.integers(0, 900), max_size=6))
def test_how_requests_are_cut_into_pieces_changes_nothing(requests: list[bytes], cuts: list[int]) -> None:
    sent = b"".join(requests)
    ends = [0, *sorted(min(cut, len(sent)) for cut in cuts), len(sent)]
    whole, cut = Recorded([sent]), Recorded([sent[a:b] for a, b in pairwise(ends) if a < b])
    assert list_requests(cut.passed) == list_requests(whole.passed)
    assert (cut.written[:20], cut.is_closed) == (whole.written[:20], whole.is_closed)
    assert b"trailer" not in cut.passed and b"pgrade: h2c" not in cut.passed


def list_requests(passed: bytes) -> list[tuple[bytes, list[tuple[bytes, bytes]], bytes]]:
    """Each request that uvicorn would see: its URL, headers and body."""
    found: list[tuple[bytes, list[tuple[bytes, bytes]], bytes]] = []

    class Collector:
        def on_url(self, url: bytes) -> None:
            found.append((url, [], b""))

        def on_header(self, name: bytes, value: bytes) -> None:
            found[-1][1].append((name.lower(), value))

        def on_body(self, body: bytes) -> None:
            found[-1] = (*found[-1][:2], found[-1][2] + body)

    httptools.HttpRequestParser(Collector()).feed_data(passed)
    return found
