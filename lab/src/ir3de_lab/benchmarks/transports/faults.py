"""What clients make of servers that do wrong, or something unusual: each case on a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from ir3de_lab.benchmarks.transports.clients import Client

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
PATIENCE_S = 3.0  # longer is called hanging
MAX_BUFFERED_BYTES = 16 << 20  # of an answer that nobody reads, with what the kernel holds

Conduct = Callable[["Seen", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Seen:
    """What a server has seen."""

    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    left: int = 0
    sent: int = 0


@asynccontextmanager
async def serving(conduct: Conduct) -> AsyncIterator[tuple[str, Seen]]:
    seen, tasks = Seen(), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        seen.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await conduct(seen, reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat", seen
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def receive(seen: Seen, reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or b"0")
    seen.requests.append(head + await reader.readexactly(length))


def saying(answer: bytes, *, close: bool = False, reset: bool = False) -> Conduct:
    async def conduct(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await receive(seen, reader)
            writer.write(answer)
            await writer.drain()
            if reset:
                await asyncio.sleep(0.05)
                linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            if close or reset:
                return

    return conduct


async def ask(client: Client, url: str, body: bytes = b"{}") -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """A whole exchange."""
    async with asyncio.timeout(PATIENCE_S):
        reply = await client.ask(url, body)
        content = b""
        try:
            while piece := await reply.read():
                content += piece
        finally:
            await reply.close()
        return reply.status, reply.headers, content


Case = Callable[[Client], Awaitable[bool]]


def answers(answer: bytes, content: bytes = b"ok", *, close: bool = False, connections: int | None = 1) -> Case:
    """Three calls get this content, over so many connections."""

    async def case(client: Client) -> bool:
        async with serving(saying(answer, close=close)) as (url, seen):
            for _ in range(3):
                if (await ask(client, url))[2] != content:
                    return False
            return connections is None or seen.connections == connections

    return case


def fails(answer: bytes, *, reset: bool = False, close: bool = True) -> Case:
    """A call raises an error, and is sent once."""

    async def case(client: Client) -> bool:
        async with serving(saying(answer, close=close, reset=reset)) as (url, seen):
            try:
                await ask(client, url)
            except TimeoutError:
                return False
            except Exception:
                return len(seen.requests) == 1
            return False

    return case


async def keep_bytes_of_headers(client: Client) -> bool:
    value = "ä – \u00ff".encode() + b"\xff"
    async with serving(saying(OK.replace(b"\r\n\r\n", b"\r\nx-a: 1\r\nX-A: 2\r\nx-b: " + value + b"\r\n\r\n"))) as (
        url,
        _,
    ):
        _, headers, _ = await ask(client, url)
        return [pair for pair in headers if pair[0].startswith(b"x-")] == [
            (b"x-a", b"1"),
            (b"x-a", b"2"),
            (b"x-b", value),
        ]


async def ignore_trailers(client: Client) -> bool:
    async with serving(saying(CHUNKED + b"2\r\nok\r\n0\r\nx-trailer: 1\r\n\r\n")) as (url, _):
        _, headers, content = await ask(client, url)
        return content == b"ok" and all(name != b"x-trailer" for name, _ in headers)


async def bound_unread_answers(client: Client) -> bool:
    async def flood(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await receive(seen, reader)
        writer.write(CHUNKED)
        while True:
            writer.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
            await writer.drain()
            seen.sent += 1 << 16

    async with serving(flood) as (url, seen):
        reply = await client.ask(url, b"{}")
        await reply.read()
        await asyncio.sleep(0.3)
        sent = seen.sent
        await reply.close()
        return sent <= MAX_BUFFERED_BYTES


async def pass_pieces_on_at_once(client: Client) -> bool:
    go_on = asyncio.Event()

    async def conduct(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await receive(seen, reader)
        writer.write(CHUNKED + b"5\r\nfirst\r\n")
        await go_on.wait()
        writer.write(b"4\r\nlast\r\n0\r\n\r\n")

    async with serving(conduct) as (url, _):
        reply = await client.ask(url, b"{}")
        first = await reply.read()
        go_on.set()
        last = await reply.read()
        await reply.close()
        return (first, last) == (b"first", b"last")


def leave(*, begun: bool) -> Case:
    """A call that is given up is one whose server notices."""

    async def hold(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await receive(seen, reader)
        if begun:
            writer.write(CHUNKED + b"1\r\no\r\n")
        await reader.read()
        seen.left += 1

    async def case(client: Client) -> bool:
        async with serving(hold) as (url, seen):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    reply = await client.ask(url, b"{}")
            if begun:
                await reply.read()
                await reply.close()
            for _ in range(100):
                if seen.left:
                    return True
                await asyncio.sleep(0.01)
            return False

    return case


def after_a_kept_connection_closes(last_words: bytes, requests: int) -> Case:
    """The second call finds that its connection closes: how often may the server see a request?"""

    async def conduct(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await receive(seen, reader)
        writer.write(OK)
        if seen.connections == 1:
            await receive(seen, reader)
            writer.write(last_words)
            return
        while True:
            await receive(seen, reader)
            writer.write(OK)

    async def case(client: Client) -> bool:
        async with serving(conduct) as (url, seen):
            await ask(client, url)
            with suppress(Exception):
                await ask(client, url)
            return len(seen.requests) == requests

    return case


async def survive_early_answers(client: Client) -> bool:
    async def conduct(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await asyncio.sleep(PATIENCE_S)

    async with serving(conduct) as (url, _):
        return [(await ask(client, url, body))[2] for body in (bytes(32 << 20), b"{}")] == [b"ok", b"ok"]


async def stay_where_they_are(client: Client) -> bool:
    async with serving(saying(OK)) as (other, seen):
        answer = b"HTTP/1.1 307 X\r\nlocation: " + other.encode() + b"\r\ncontent-length: 2\r\n\r\nok"
        async with serving(saying(answer)) as (url, _):
            status, _, _ = await ask(client, url)
            return status == 307 and not seen.requests


async def keep_no_cookies(client: Client) -> bool:
    async with serving(saying(OK.replace(b"\r\n\r\n", b"\r\nset-cookie: a=b\r\n\r\n"))) as (url, seen):
        for _ in range(2):
            await ask(client, url)
        return b"cookie" not in seen.requests[-1].lower()


async def send_headers_as_given(client: Client) -> bool:
    async with serving(saying(OK)) as (url, seen):
        await ask(client, url)
        names = {
            line.partition(b":")[0].lower() for line in seen.requests[0].partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
        }
        given = {b"content-type", b"accept-encoding", b"x-request-id", b"authorization", b"user-agent", b"accept"}
        added = names - given - {b"x-stainless-lang", b"x-stainless-os", b"host", b"content-length", b"connection"}
        return given <= names and not added


CASES: dict[str, Case] = {
    "keeps the connection of an answer with a length": answers(OK),
    "keeps the connection of an answer in chunks": answers(CHUNKED + b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n"),
    "keeps the connection of 204": answers(b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "passes over 100 Continue": answers(b"HTTP/1.1 100 Continue\r\n\r\n" + OK),
    "passes over 103 Early Hints": answers(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK),
    "reads an answer that ends with its connection": answers(b"HTTP/1.1 200 OK\r\n\r\nok", close=True, connections=3),
    "closes where the server says so": answers(
        OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), close=True, connections=3
    ),
    "error: reset before the head": fails(b"", reset=True),
    "error: closed before the head": fails(b""),
    "error: closed in the head": fails(b"HTTP/1.1 200 OK\r\ncontent-le"),
    "error: reset in the body": fails(OK[:-1], reset=True),
    "error: body cut off": fails(OK[:-1]),
    "error: chunks cut off": fails(CHUNKED + b"2\r\nok\r\n"),
    "error: another protocol": fails(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
    "error: a status above 599": fails(b"HTTP/1.1 600 X\r\ncontent-length: 2\r\n\r\nok"),
    "error: noise": fails(b"\x00\xff\x16\x03" * 50),
    "error: a head of 120 kB": fails(b"HTTP/1.1 200 X\r\n" + b"x: y\r\n" * 20_000, close=False),
    "error: one header of 70 kB": fails(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000, close=False),
    "error: a chunk without a size": fails(CHUNKED + b"zz\r\nok\r\n"),
    "error: two lengths": fails(OK.replace(b"\r\n\r\n", b"\r\ncontent-length: 7\r\n\r\n")),
    "error: length and chunks disagree": fails(
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n" + b"ok"
    ),
    "error: 101 nobody asked for": fails(b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
    "a second answer is nobody's": answers(OK + OK.replace(b"ok", b"no"), connections=None),
    "trailers are no headers": ignore_trailers,
    "header values keep their bytes": keep_bytes_of_headers,
    "headers are sent as given, and no others": send_headers_as_given,
    "pieces come as they arrive": pass_pieces_on_at_once,
    "an answer that nobody reads is not held in memory": bound_unread_answers,
    "the server notices a call that is given up": leave(begun=False),
    "the server notices an answer that is given up": leave(begun=True),
    "an answer before the request has gone holds up no other": survive_early_answers,
    "not sent again after half an answer": after_a_kept_connection_closes(b"HTTP/1.1 200 OK\r\n", 2),
    "redirects are not followed": stay_where_they_are,
    "cookies are not kept": keep_no_cookies,
}


async def try_all(create: Callable[[], Client]) -> dict[str, bool]:
    """Which cases a client passes; each has a client of its own."""
    found = {}
    for name, case in CASES.items():
        client = create()
        try:
            async with asyncio.timeout(3 * PATIENCE_S):
                found[name] = await case(client)
        except Exception:
            found[name] = False
        with suppress(Exception):
            async with asyncio.timeout(PATIENCE_S):
                await client.stop()
    return found
