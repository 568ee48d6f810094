"""An expert on a bare socket that sends what a test tells it, HTTP or not; and a client that sees every byte."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

Conduct = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

GOOD = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "raw",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
FIRST = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"We"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


def answer(status: int, body: bytes | object, kind: str = "application/json", **headers: str) -> bytes:
    """A whole HTTP answer."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"content-type": kind, "content-length": str(len(content)), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + content


def says(*pieces: bytes | float, reset: bool = False) -> Conduct:
    """Send these pieces, pausing where a number stands; then hang up, politely or not."""

    async def conduct(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            else:
                writer.write(piece)
                await writer.drain()
        if reset:
            linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # closing discards what was not sent and resets
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    return conduct


def holds(*pieces: bytes) -> Conduct:
    """Send these pieces, then nothing more until the other side hangs up."""

    async def conduct(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await says(*pieces)(reader, writer)
        await reader.read()

    return conduct


@dataclass
class Raw:
    """Experts on one socket; `does` is how they behave, `hung_up` how often the other side left first."""

    url: str = ""
    does: Conduct = field(default_factory=lambda: says(answer(200, GOOD)))
    heads: list[bytes] = field(default_factory=list)
    hung_up: int = 0

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            self.heads.append(head)
            await self.does(reader, writer)
            self.hung_up += reader.at_eof()
        except (OSError, asyncio.IncompleteReadError):
            self.hung_up += 1
        finally:
            writer.close()


@contextmanager
def raw_expert() -> Iterator[Raw]:
    """Such an expert on a free port."""
    raw, loop, started = Raw(), asyncio.new_event_loop(), threading.Event()
    stop = asyncio.Event()

    async def serve() -> None:
        server = await asyncio.start_server(raw.meet, "127.0.0.1", 0)
        raw.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await stop.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield raw
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


@dataclass(frozen=True)
class Got:
    """An answer as a client has it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object, which has OpenAI's fields and no others."""
        error: dict[str, Any] = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error


def ask(url: str, body: object = None, path: str = "/v1/chat/completions", method: str = "", **headers: str) -> Got:
    """One request over a connection of its own."""
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method or ("GET" if body is None else "POST"), path, content, named)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Got(response.status, found, response.read())
    finally:
        connection.close()


def chat(content: object, model: str = "auto", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": content}], **more}


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses connections, and that no other program takes. A server that reuses addresses may have it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))  # it does not listen
        yield held.getsockname()[1]


def dial(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "", parts.port or 80), timeout=60)


def build_request(
    url: str, content: bytes, path: str = "/v1/chat/completions", method: str = "POST", **headers: str
) -> bytes:
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"{method} {path} HTTP/1.1\r\nhost: {urlsplit(url).netloc}\r\n{more}content-length: {len(content)}\r\n\r\n"
    return head.encode() + content


def sent(
    url: str, content: bytes, path: str = "/v1/chat/completions", method: str = "POST", **headers: str
) -> socket.socket:
    """A request on a socket that the test then holds."""
    line = dial(url)
    line.sendall(build_request(url, content, path, method, **headers))
    return line


def receive(line: socket.socket, most: int = 65_536) -> bytes:
    """What comes next; a closed connection fails the test, where a loop would read nothing for ever."""
    piece = line.recv(most)
    assert piece, "the connection was closed"
    return piece


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether it comes true within a minute: a busy machine may take long."""
    for _ in range(6_000):
        if condition():
            return True
        time.sleep(0.01)
    return False
