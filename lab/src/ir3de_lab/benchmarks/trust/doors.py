"""The parsers of the gateway, through its own door: a real `ir3de serve` gets changed requests and changed answers.

The law: every request ends in time, with an answer that is whole HTTP or with a closed connection; errors are OpenAI's
error objects; no 500, nothing but our own messages on standard error; and right requests are answered rightly after.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httptools

from ir3de_lab.benchmarks.gateway import processes
from ir3de_lab.benchmarks.gateway.heavy_requests import CAPABILITIES
from ir3de_lab.benchmarks.gateway.processes import Server, resident_mb, started
from ir3de_lab.benchmarks.gateway.rolling import TOKEN, TOKEN_VARIABLE
from ir3de_lab.benchmarks.trust.mutation import dice_for, mutate_bytes, mutate_json, to_json

NAMES = ("HTTP requests", "JSON bodies", "upstream answers")
AT_ONCE = 16
SILENCE_S = 0.2  # after which a client that sends raw bytes has no more to send
TIMEOUT_S = 20.0
GROWTH_MB = 200.0  # of the gateway over a campaign, from which on it is a finding
KEPT_FINDINGS = 20
CHECKS = 20  # right requests at the end

_TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Can my landlord keep the deposit?"}]
_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
_CONTROLS = {
    "allow": ["law", "medicine"],
    "deny": ["history"],
    "max_price": 1.0,
    "session": "a",
    "weights": {"price": 0.1},
}
_CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
BODIES: dict[str, list[dict[str, Any]]] = {
    "POST /v1/chat/completions": [
        {"model": "auto", "messages": _TURNS, "temperature": 0.5, "ir3de": _CONTROLS, "user": "me"},
        {"model": "law", "messages": _TURNS, "stream": True, "stream_options": {"include_usage": True}},
        {
            "messages": [*_TURNS, {"role": "assistant", "tool_calls": [_CALL]}, {"role": "tool", "content": "x"}],
            "tools": [_TOOL],
        },
        {
            "model": "auto",
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {"type": "image_url", "image_url": {"url": "data:,"}},
                    ],
                }
            ],
        },
    ],
    "POST /v1/completions": [
        {"model": "auto", "prompt": "Is it void?", "max_tokens": 3},
        {"prompt": ["a", "b"], "n": 2},
    ],
    "POST /v1/responses": [
        {
            "model": "auto",
            "input": "Is it void?",
            "instructions": "Be brief.",
            "previous_response_id": "resp_1",
            "store": False,
        },
        {
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "Is it void?"}]}],
            "stream": True,
            "background": False,
        },
    ],
    "POST /v1/messages": [
        {
            "model": "auto",
            "max_tokens": 9,
            "system": "Be brief.",
            "messages": [{"role": "user", "content": "Is it void?"}],
        },
        {
            "max_tokens": 9,
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "Is it?"}, {"type": "tool_result", "tool_use_id": "a"}],
                }
            ],
        },
    ],
    "POST /v1/messages/count_tokens": [{"model": "auto", "messages": [{"role": "user", "content": "Is it void?"}]}],
    "POST /v1/embeddings": [{"model": "auto", "input": ["a", "b"]}, {"input": "a", "dimensions": 3}],
    "POST /v1/route": [
        {"input": ["Is it void?", "Solve 3x = 12."], "explain": True, "flips": True},
        {"messages": _TURNS, "selector": "entropy", "k": 3, "scorer": "blend", "ir3de": _CONTROLS},
    ],
    "POST /admin/experts": [{"name": "x", "upstream": {"base_url": "http://127.0.0.1:9/v1"}, "domain": "keep"}],
    "PUT /admin/router": [{"path": "/nowhere"}],
    "POST /admin/reload": [{}],
    "DELETE /admin/experts/nobody": [{}],
}


@dataclass
class Campaign:
    """What was tried at one door, and what was found."""

    name: str
    seed: int
    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    findings: list[dict[str, Any]] = field(default_factory=list)

    def report(self, number: int, what: str, **more: Any) -> None:
        known = {finding["what"][:60] for finding in self.findings}
        if what[:60] not in known and len(known) < KEPT_FINDINGS:
            self.findings.append({"number": number, "what": what, **more})


def raw_request(seed: int, number: int) -> bytes:
    """Changed bytes of a request; sometimes of two in a row."""
    dice = dice_for(seed, NAMES[0], number)
    sources = [_request(dice.choice(sorted(BODIES)), dice) for _ in range(3)]
    chunked = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    chunked += b'5\r\n{"a":\r\n2\r\n1}\r\n0\r\nx: y\r\n\r\n'
    upgrade = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\n"
    upgrade += b"http2-settings: AAMAAABk\r\n\r\n"
    gets = [
        f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
        for path in ("/", "/livez", "/metrics", "/v1/models", "/page/app.js")
    ]
    return mutate_bytes([*sources, chunked, upgrade, *gets], dice)


def json_request(seed: int, number: int) -> bytes:
    """A right request with a changed body."""
    dice = dice_for(seed, NAMES[1], number)
    return _request(dice.choice(sorted(BODIES)), dice, change=True)


def answer_request(seed: int, number: int) -> bytes:
    """A right request to which the upstream gives a changed answer."""
    dice = dice_for(seed, "asks", number)
    path = dice.choice(("chat/completions", "chat/completions", "responses", "messages", "completions", "embeddings"))
    document = dict(BODIES[f"POST /v1/{path}"][0], user=f"fuzz-{number}", stream=dice.random() < 0.5, model="law")
    document.pop("ir3de", None)
    return _write(f"POST /v1/{path}", json.dumps(document).encode())


MAKERS = {NAMES[0]: raw_request, NAMES[1]: json_request, NAMES[2]: answer_request}


def _request(line: str, dice: random.Random, *, change: bool = False) -> bytes:
    document = dice.choice(BODIES[line])
    body = to_json(mutate_json(document, dice), dice) if change else json.dumps(document).encode()
    return _write(line, body)


def _write(line: str, body: bytes) -> bytes:
    token = f"authorization: Bearer {TOKEN}\r\n" if "/admin" in line else ""
    head = f"{line} HTTP/1.1\r\nhost: 127.0.0.1\r\n{token}connection: close\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


class _Answers:
    """The answers on one connection, as far as they are HTTP."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.bodies: list[bytearray] = []
        self.whole = 0

    def on_message_begin(self) -> None:
        self.bodies.append(bytearray())

    def on_headers_complete(self) -> None:
        self.statuses.append(self.parser.get_status_code())

    def on_body(self, data: bytes) -> None:
        self.bodies[-1] += data

    def on_message_complete(self) -> None:
        self.whole += 1

    def read(self, data: bytes) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.parser.feed_data(data)


async def exchange(port: int, request: bytes, silence_s: float | None = None) -> bytes:
    """Everything that comes back until the connection is closed, or until so many seconds without a byte.

    The client then says that it has no more to send: a request that is not whole would only wait for its time limit.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = bytearray()
    try:
        writer.write(request)
        await writer.drain()
        while True:
            try:
                async with asyncio.timeout(silence_s):
                    piece = await reader.read(65_536)
            except TimeoutError:
                writer.write_eof()
                silence_s = None
                continue
            if not piece:
                break
            received += piece
    except OSError:
        pass
    finally:
        writer.close()
    return bytes(received)


def judge(door: str, received: bytes) -> tuple[str, str]:
    """Whether an input was accepted, refused or is a finding, and what was found."""
    if not received:
        return ("refused", "") if door == NAMES[0] else ("finding", "no answer")
    answers = _Answers()
    try:
        answers.read(received)
    except httptools.HttpParserError as error:
        return "finding", f"not HTTP: {error}"
    if not answers.statuses:
        return "finding", "no status"
    for status, body in zip(answers.statuses, answers.bodies, strict=False):
        if status == 500 and door != NAMES[2]:
            return "finding", f"500: {bytes(body[:200])!r}"
        if status >= 400 and door == NAMES[1] and not _is_error(bytes(body)):
            return "finding", f"{status} without an error object: {bytes(body[:200])!r}"
    return ("accepted" if answers.statuses[0] < 400 else "refused"), ""


def _is_error(body: bytes) -> bool:
    try:
        return "error" in json.loads(body)
    except (ValueError, TypeError):
        return False


@contextmanager
def served(seed: int, folder: Path) -> Iterator[tuple[Server, Path]]:
    """A gateway in front of the upstream whose answers are changed, and the file of its messages."""

    def edit(config: dict[str, Any]) -> None:
        config["routing"] = {"fallbacks": 0}
        config["server"]["limits"] = {"header_seconds": 3, "body_seconds": 3}
        for expert in config["experts"]:
            expert["breaker"] = {"failures": 10_000}

    messages = folder / "messages.log"
    timeouts = {"first_token": 2.0, "idle": 2.0, "total": 10.0}
    arguments = ["-P", "-m", "ir3de_lab.benchmarks.trust.answers", f"--seed={seed}"]
    with (
        messages.open("wb") as stream,
        started(arguments, measured=False) as upstream,
        processes.gateway(
            folder,
            upstream.port,
            env={TOKEN_VARIABLE: TOKEN},
            edit=edit,
            stderr=stream.fileno(),
            timeouts=timeouts,
            capabilities=CAPABILITIES,
            serving=False,
        ) as gateway,
    ):
        yield gateway, messages


async def attack(campaign: Campaign, port: int, seconds: float, first: int = 0, count: int | None = None) -> None:
    """Send one input after the other for so many seconds."""
    make, end = MAKERS[campaign.name], time.monotonic() + seconds

    async def numbers() -> AsyncIterator[int]:
        number = first
        while time.monotonic() < end and (count is None or number < first + count):
            yield number
            number += 1

    source, silence = numbers(), SILENCE_S if campaign.name == NAMES[0] else None
    turn = asyncio.Lock()

    async def client() -> None:
        while True:
            async with turn:
                number = await anext(source, None)
            if number is None:
                return
            request = make(campaign.seed, number)
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    outcome, what = judge(campaign.name, await exchange(port, request, silence))
            except TimeoutError:
                outcome, what = "finding", "no end in time"
            except OSError as error:
                outcome, what = "finding", f"no connection: {error}"
            campaign.inputs += 1
            if outcome == "finding":
                campaign.report(number, what, request=request[:2_000].decode("latin-1"))
            else:
                setattr(campaign, outcome, getattr(campaign, outcome) + 1)

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))


def fuzz_door(name: str, seed: int, seconds: float, first: int = 0, count: int | None = None) -> Campaign:
    """A campaign at one door of a gateway of its own."""
    campaign = Campaign(name, seed)
    with tempfile.TemporaryDirectory() as place, served(seed, Path(place)) as (gateway, messages):
        before = resident_mb(gateway)
        asyncio.run(attack(campaign, gateway.port, seconds, first, count))
        asyncio.run(_check(campaign, gateway))
        if gateway.process.poll() is None and (grown := resident_mb(gateway) - before) > GROWTH_MB:
            campaign.report(-1, f"the gateway has grown by {grown:.0f} MB")
        text = messages.read_text("utf-8", "replace")
        for part in text.split("Traceback (most recent call last):")[1:]:
            last = next((line for line in part.splitlines()[1:] if line and not line.startswith(" ")), "")
            campaign.report(-1, f"a traceback on standard error: {last}"[:300], traceback=part[-3_000:])
    return campaign


async def _check(campaign: Campaign, gateway: Server) -> None:
    """Right requests after everything: all must be answered rightly, at the latest when the experts have rested."""
    end = time.monotonic() + TIMEOUT_S
    for number in range(CHECKS):
        body = {"model": "law", "messages": _TURNS, "user": f"check-{number}"}
        request = _write("POST /v1/chat/completions", json.dumps(body).encode())
        while True:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    received = await exchange(gateway.port, request)
            except (OSError, TimeoutError) as error:
                received = repr(error).encode()
            if f"check-{number} tok0 tok1 tok2".encode() in received:
                break
            if time.monotonic() > end:
                campaign.report(-1, f"a right request afterwards got {received[:300]!r}")
                return
            await asyncio.sleep(0.2)
