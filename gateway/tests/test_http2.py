"""HTTP/2 with experts, against a real server."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes

from http2_server import Act, Asked, Http2Server
from ir3de_gateway.config.experts import TlsFiles
from ir3de_gateway.transport import ConnectionClosedError, Destination, InvalidResponseError, http2, pool
from ir3de_gateway.transport.http1 import MAX_BUFFERED_BYTES, Http1Connection
from ir3de_gateway.transport.http2 import Http2Answer, Http2Connection
from ir3de_gateway.transport.pool import HttpTransport
from test_tls_and_proxies import server_context, tunnel
from transport_servers import ANSWER, BODY, TLS, call_to, exchange, listening, never, replies, run, usual_environment  # noqa: F401

TRUSTED = TlsFiles(ca=str(TLS / "localhost.pem"))


@asynccontextmanager
async def serving(
    act: Act, protocols: tuple[str, ...] = ("h2",)
) -> AsyncIterator[tuple[Destination, list[Http2Server]]]:
    """A server that does so with every request; its connections."""
    servers: list[Http2Server] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        servers.append(Http2Server(act))
        await servers[-1].serve(reader, writer)

    context = server_context()
    context.set_alpn_protocols(["h2"])
    async with listening(serve, context) as port:
        yield Destination(f"https://localhost:{port}/v1", http2=True, tls=TRUSTED), servers


async def say_ok(server: Http2Server, asked: Asked) -> None:
    server.start(asked, ("content-type", "application/json"), ("x-twice", "1"), ("x-twice", "2"))
    await server.send(asked, b"ok", end=True)


def test_many_requests_share_a_connection() -> None:
    async def work(transport: HttpTransport) -> None:
        async with serving(say_ok) as (there, servers):
            answers = await asyncio.gather(*(exchange(transport, there) for _ in range(20)))
            assert answers == [(200, b"ok")] * 20
            answer = await transport.send(call_to(there))
            assert answer.headers == [(b"content-type", b"application/json"), (b"x-twice", b"1"), (b"x-twice", b"2")]
            answer.close()
            transport.close()
        asked = servers[0].asked[1]
        assert len(servers) == 1
        assert asked.body == BODY
        assert asked.headers[b":path"] == b"/v1/chat/completions"
        assert asked.headers[b"x-request-id"] == b"1"
        assert asked.headers[b"content-length"] == str(len(BODY)).encode()

    run(work)


def test_a_server_without_it_gets_HTTP_1() -> None:
    async def work(transport: HttpTransport) -> None:
        async with listening(replies(ANSWER), server_context()) as port:
            there = Destination(f"https://localhost:{port}/v1", http2=True, tls=TRUSTED)
            for _ in range(3):
                answer = await transport.send(call_to(there))
                assert isinstance(answer, Http1Connection)
                assert await answer.read(never()) == b"ok"
                answer.close()

    run(work)


def test_bodies_larger_than_the_windows() -> None:
    large = bytes(range(256)) * (1 << 13)  # 2 MB

    async def echo(server: Http2Server, asked: Asked) -> None:
        server.start(asked)
        await server.send(asked, asked.body, end=True)

    async def work(transport: HttpTransport) -> None:
        async with serving(echo) as (there, _):
            assert await exchange(transport, there, body=large) == (200, large)
            transport.close()

    run(work)


class _Line:
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False


async def send_by_hand() -> tuple[Http2Connection, H2Connection, asyncio.Task[Http2Answer]]:
    """A request that a server has read; what the server answers is handed over by the test."""
    line, server = _Line(), H2Connection(H2Configuration(client_side=False))
    connection = Http2Connection()
    connection.connection_made(line)  # type: ignore[arg-type]
    sending = asyncio.create_task(connection.send("a", "/v1", b"", b"{}", never()))
    await asyncio.sleep(0)
    server.initiate_connection()
    server.receive_data(line.written)
    return connection, server, sending


def test_frames_arrive_in_any_pieces_and_more_than_one_window_of_them() -> None:
    content = bytes(range(256)) * 2

    async def exchange_in_pieces(cut: int) -> bytes:
        connection, server, sending = await send_by_hand()
        server.send_headers(1, [(":status", "200")])
        for place in range(0, len(content), 128):
            server.send_data(1, content[place : place + 128], end_stream=place + 128 >= len(content))
        data = server.data_to_send()
        connection.data_received(data[:cut])
        connection.data_received(data[cut:])
        answer, body = await sending, b""
        while piece := await answer.read(never()):
            body += piece
        return body

    async def work(transport: HttpTransport) -> None:
        for cut in range(1, 700, 7):
            assert await exchange_in_pieces(cut) == content

    run(work)


def test_a_status_that_does_not_exist_is_no_answer() -> None:
    async def work(transport: HttpTransport) -> None:
        connection, server, sending = await send_by_hand()
        server.send_headers(1, [(":status", "600")])
        connection.data_received(server.data_to_send())
        with pytest.raises(InvalidResponseError, match="there is no status 600"):
            await sending

    run(work)


def test_a_connection_carries_more_than_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "CONNECTION_WINDOW_BYTES", 1 << 16)

    async def answer_much(server: Http2Server, asked: Asked) -> None:
        server.start(asked)
        await server.send(asked, bytes(1 << 18), end=True)

    async def work(transport: HttpTransport) -> None:
        async with serving(answer_much) as (there, servers):
            for _ in range(3):
                assert await exchange(transport, there) == (200, bytes(1 << 18))
            assert len(servers) == 1
            transport.close()

    run(work)


def test_a_stream_that_nobody_reads_waits_and_holds_up_no_other() -> None:
    sent = 0

    async def flood(server: Http2Server, asked: Asked) -> None:
        nonlocal sent
        server.start(asked)
        while asked.stream == 1 and asked.stream not in server.resets:
            await server.send(asked, bytes(1 << 14))
            sent += 1 << 14
        await server.send(asked, b"ok", end=True)

    async def work(transport: HttpTransport) -> None:
        async with serving(flood) as (there, servers):
            unread = await transport.send(call_to(there))
            assert await exchange(transport, there) == (200, b"ok")
            for _ in range(3):
                assert await unread.read(never())
            unread.close()
            assert await exchange(transport, there) == (200, b"ok")
            while not servers[0].resets:  # the server is told that nobody wants the rest
                await asyncio.sleep(0.01)
            assert sent <= 6 * MAX_BUFFERED_BYTES
            transport.close()

    run(work)


@pytest.mark.parametrize("may_resend", [True, False])
def test_what_a_server_refuses_to_handle_is_sent_again_once(may_resend: bool) -> None:
    async def refuse_once(server: Http2Server, asked: Asked) -> None:
        if asked.stream == 1:
            server.h2.reset_stream(asked.stream, ErrorCodes.REFUSED_STREAM)
            server.flush()
        else:
            await say_ok(server, asked)

    async def work(transport: HttpTransport) -> None:
        async with serving(refuse_once) as (there, servers):
            if may_resend:
                answer = await transport.send(call_to(there))
                assert isinstance(answer, Http2Answer)
                assert (answer.resends, await answer.read(never())) == (1, b"ok")
                answer.close()
            else:
                with pytest.raises(ConnectionClosedError):
                    await transport.send(call_to(there, may_resend=False))
            assert len(servers[0].asked) == 1 + may_resend
            transport.close()

    run(work)


@pytest.mark.parametrize("may_resend", [True, False])
def test_a_request_on_an_idle_connection_that_closes_is_sent_again_once(
    may_resend: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "CLOSE_DETECTION_S", 60.0)

    async def answer_once(server: Http2Server, asked: Asked) -> None:
        if asked.stream == 1:
            await say_ok(server, asked)
        else:
            server.writer.close()

    async def work(transport: HttpTransport) -> None:
        async with serving(answer_once) as (there, servers):
            assert await exchange(transport, there) == (200, b"ok")
            if may_resend:
                answer = await transport.send(call_to(there))
                assert (answer.resends, await answer.read(never())) == (1, b"ok")
                answer.close()
            else:
                with pytest.raises(ConnectionClosedError):
                    await transport.send(call_to(there, may_resend=False))
            assert [len(server.asked) for server in servers] == ([2, 1] if may_resend else [2])
            transport.close()

    run(work)


def test_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []

    async def work(transport: HttpTransport) -> None:
        async with (
            serving(say_ok) as (there, servers),
            listening(lambda reader, writer: tunnel(reader, writer, heads)) as proxy,
        ):
            monkeypatch.setenv("all_proxy", f"http://u:p%20w@127.0.0.1:{proxy}")
            assert await asyncio.gather(*(exchange(transport, there) for _ in range(3))) == [(200, b"ok")] * 3
            assert (len(heads), len(servers)) == (1, 1)
            transport.close()

    run(work)


def test_a_server_that_goes_away_finishes_what_it_began() -> None:
    async def leave(server: Http2Server, asked: Asked) -> None:
        server.start(asked)
        await server.send(asked, b"o")
        server.writer.write(struct.pack(">HBBBI", 0, 8, 7, 0, 0) + struct.pack(">II", asked.stream, 0))  # GOAWAY
        await server.send(asked, b"k", end=True)

    async def work(transport: HttpTransport) -> None:
        async with serving(leave) as (there, servers):
            assert await exchange(transport, there) == (200, b"ok")
            assert await exchange(transport, there) == (200, b"ok")
            assert [len(server.asked) for server in servers] == [1, 1]  # the second on a new connection
            transport.close()

    run(work)


async def _cut_off(server: Http2Server, asked: Asked) -> None:
    server.start(asked)
    await server.send(asked, b"o")
    server.writer.close()


async def _reset(server: Http2Server, asked: Asked) -> None:
    server.start(asked)
    await server.send(asked, b"o")
    server.h2.reset_stream(asked.stream, ErrorCodes.INTERNAL_ERROR)
    server.flush()


async def _talk_nonsense(server: Http2Server, asked: Asked) -> None:
    server.writer.write(b"\x00\x00\x04\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00")  # RST_STREAM of stream 0


async def _send_a_giant(server: Http2Server, asked: Asked) -> None:
    server.writer.write(b"\xff\xff\xff\x00\x00\x00\x00\x00\x01")


async def _leave(server: Http2Server, asked: Asked) -> None:
    server.writer.close()


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (_cut_off, ConnectionClosedError),
        (_reset, ConnectionClosedError),
        (_leave, ConnectionClosedError),
        (_talk_nonsense, InvalidResponseError),
        (_send_a_giant, InvalidResponseError),
    ],
)
def test_what_is_no_answer_is_an_error_and_is_not_sent_again(act: Act, error: type[OSError]) -> None:
    async def work(transport: HttpTransport) -> None:
        async with serving(act) as (there, servers):
            with pytest.raises(error):
                await exchange(transport, there)
            assert sum(len(server.asked) for server in servers) == 1
            transport.close()

    run(work)


def test_a_silent_server_is_not_waited_for_long() -> None:
    async def be_silent(server: Http2Server, asked: Asked) -> None:
        if asked.stream > 1:
            server.start(asked)

    async def work(transport: HttpTransport) -> None:
        async with serving(be_silent) as (there, _):
            soon = asyncio.get_running_loop().time() + 0.1
            with pytest.raises(TimeoutError):
                await transport.send(call_to(there, deadline=max(soon, asyncio.get_running_loop().time() + 0.5)))
            answer = await transport.send(call_to(there))
            with pytest.raises(TimeoutError):
                await answer.read(asyncio.get_running_loop().time() + 0.05)
            answer.close()
            transport.close()

    run(work)
