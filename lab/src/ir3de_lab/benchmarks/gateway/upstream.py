"""A stand-in for an expert's endpoint: answers after a fixed time, fails as often as told, remembers what it did.

    python -m ir3de_lab.benchmarks.gateway.upstream --latency 0.01

writes its port on standard output and serves until it is stopped. Any POST is a chat completion, streamed where the
body says so; the body's "user" is the request's id, and the answer repeats it. GET /counts and GET /seen tell. SIGUSR1
makes all its answers slow, SIGUSR2 fast again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import signal
import socket
import struct
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import cast

import httptools

from ir3de_lab.benchmarks.gateway.wire import run

WAYS = ("500", "429", "reset", "half", "garbage", "silent")  # of failing
SLOW = "-slow"  # how the ids of requests end that take long
HELD = "-held"  # how the ids of streams end that stay open after their first token
REST = "retry-after-ms: 20"  # what it asks for when it fails with an error: short, since it fails at random
GARBAGE = b"\x00\x01\x02 this is not HTTP \xff\xfe\r\n\r\n"
_USER = re.compile(rb'"user":\s*"([^"]*)"')
_STREAM = re.compile(rb'"stream":\s*true')


@dataclass(frozen=True)
class Behaviour:
    """How the stand-in answers; times are seconds."""

    latency: float = 0.01
    tokens: int = 20
    interval: float = 0.005  # between the tokens of a stream
    slow: float = 0.4  # latency of requests whose id ends in -slow; between their tokens a tenth of it
    failing: float = 0.0  # share of requests
    ways: tuple[str, ...] = WAYS
    seed: int = 0


@dataclass
class Ledger:
    """What was asked and what came of it."""

    counts: Counter[str] = field(default_factory=Counter)
    seen: dict[str, list[str]] = field(default_factory=dict)  # id: how each attempt ended, in their order
    is_slow: bool = False

    def begin(self, identity: str) -> tuple[list[str], int]:
        attempts = self.seen.setdefault(identity, [])
        attempts.append("begun")
        self.counts["requests"] += 1
        return attempts, len(attempts) - 1


def answer_json(identity: str, tokens: int) -> bytes:
    """A chat completion."""
    content = " ".join([identity, *(f"tok{n}" for n in range(tokens))])
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": tokens, "total_tokens": 100 + tokens}
    given = {"id": f"chatcmpl-{identity}", "object": "chat.completion", "created": 0, "model": "stand-in"}
    return json.dumps({**given, "choices": [choice], "usage": usage}).encode()


def event(identity: str, delta: dict[str, str], finish: str | None = None) -> bytes:
    """A piece of a streamed chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    given = {"id": f"chatcmpl-{identity}", "object": "chat.completion.chunk", "created": 0, "model": "stand-in"}
    return b"data: " + json.dumps({**given, "choices": [choice]}).encode() + b"\n\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def whole(status: int, body: bytes, *headers: str) -> bytes:
    lines = (f"HTTP/1.1 {status} X", "content-type: application/json", f"content-length: {len(body)}", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Connection(asyncio.Protocol):
    """One client; a client asks one thing at a time."""

    def __init__(self, behaviour: Behaviour, ledger: Ledger, dice: random.Random) -> None:
        self._behaviour, self._ledger, self._dice = behaviour, ledger, dice
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._body = bytearray()
        self._url = b""
        self._due: asyncio.TimerHandle | None = None  # what is still to be sent
        self._place: tuple[list[str], int] = ([""], 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ledger.counts["connections"] += 1

    def connection_lost(self, error: Exception | None) -> None:
        if self._due is not None:
            self._due.cancel()
            self._end("left")

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def on_message_begin(self) -> None:
        self._body.clear()

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        if self._parser.get_method() != b"POST":
            told = self._ledger.seen if self._url.endswith(b"/seen") else self._ledger.counts
            self._transport.write(whole(200, json.dumps(told).encode()))
            return
        found = _USER.search(self._body)
        identity = found[1].decode() if found else ""
        self._place = self._ledger.begin(identity)
        stream = _STREAM.search(self._body) is not None
        failing = self._behaviour.failing and self._dice.random() < self._behaviour.failing
        way = self._dice.choice(self._behaviour.ways) if failing else ""
        slow = self._ledger.is_slow or identity.endswith(SLOW)
        wait = self._behaviour.slow if slow else self._behaviour.latency
        if way == "silent":
            self._end(way)
        elif wait <= 0:
            self._answer(identity, way, stream, slow)
        else:
            self._due = self._loop.call_later(wait, self._answer, identity, way, stream, slow)

    def _end(self, outcome: str) -> None:
        self._due = None
        attempts, place = self._place
        attempts[place] = outcome
        self._ledger.counts[outcome] += 1

    def _answer(self, identity: str, way: str, stream: bool, slow: bool) -> None:
        if way in ("500", "429"):
            error = {"message": f"the stand-in fails as told: {identity}", "type": "server_error", "code": None}
            self._transport.write(whole(int(way), json.dumps({"error": error}).encode(), REST))
        elif way == "reset":
            linger = struct.pack("ii", 1, 0)  # close with a reset
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._transport.abort()
        elif way == "garbage":
            self._transport.write(GARBAGE)
            self._transport.close()
        elif stream:
            begun = STREAM_HEAD + chunk(event(identity, {"role": "assistant", "content": ""}))
            self._transport.write(begun + chunk(event(identity, {"content": "tok0 "})))
            if identity.endswith(HELD):
                self._end("held")
                return
            interval = self._behaviour.slow / 10 if slow else self._behaviour.interval
            self._later(identity, 1, interval, self._behaviour.tokens // 2 if way == "half" else None)
            return
        else:
            answer = whole(200, answer_json(identity, self._behaviour.tokens))
            self._transport.write(answer[: len(answer) - 40] if way == "half" else answer)
            if way == "half":
                self._transport.close()
        self._end(way or "served")

    def _later(self, identity: str, token: int, interval: float, stop: int | None) -> None:
        self._due = self._loop.call_later(interval, self._token, identity, token, interval, stop)

    def _token(self, identity: str, token: int, interval: float, stop: int | None) -> None:
        if stop is not None and token >= stop:
            self._transport.close()
            self._end("half")
        elif token < self._behaviour.tokens:
            self._transport.write(chunk(event(identity, {"content": f"tok{token} "})))
            self._later(identity, token + 1, interval, stop)
        else:
            last = chunk(event(identity, {}, "stop")) + chunk(b"data: [DONE]\n\n")
            self._transport.write(last + b"0\r\n\r\n")
            self._end("served")


async def serve(behaviour: Behaviour, port: int) -> None:
    """Serve until stopped; the port is written on standard output."""
    ledger, dice = Ledger(), random.Random(behaviour.seed)
    loop = asyncio.get_running_loop()
    for name, is_slow in (("SIGUSR1", True), ("SIGUSR2", False)):
        if number := getattr(signal, name, None):  # not on Windows
            loop.add_signal_handler(number, setattr, ledger, "is_slow", is_slow)
    server = await loop.create_server(lambda: Connection(behaviour, ledger, dice), "127.0.0.1", port)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def main() -> None:
    usual = Behaviour()
    parser = argparse.ArgumentParser(description="A stand-in for an expert's endpoint.")
    parser.add_argument("--port", type=int, default=0)
    for name in ("latency", "interval", "slow", "failing"):
        parser.add_argument(f"--{name}", type=float, default=getattr(usual, name))
    for name in ("tokens", "seed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(usual, name))
    parser.add_argument("--ways", default=",".join(WAYS), help=f"of failing, out of {','.join(WAYS)}")
    given = vars(parser.parse_args())
    port, ways = given.pop("port"), tuple(given.pop("ways").split(","))
    run(serve(Behaviour(**given, ways=ways), port))


if __name__ == "__main__":
    main()
