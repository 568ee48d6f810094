"""The heaviest requests that the documented limits allow: what one of them takes, and how long others wait for it.

Each is sent to a gateway of its own that has answered some usual chats before. The memory is the kernel's record of
the highest resident memory (`VmHWM`, reset just before) minus the memory before. The stall is seen from outside:
another process asks `/livez` every 2 ms on a connection of its own, and the longest wait counts, minus the usual one.
A busy machine makes some waits longer, never shorter, so the stall of a request is the shortest of several runs.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from ir3de_lab.benchmarks.gateway import processes
from ir3de_lab.benchmarks.gateway.measuring import PATH, bodies
from ir3de_lab.benchmarks.gateway.processes import Server, highest_mb, module, pin, reset_highest, resident_mb, started
from ir3de_lab.benchmarks.gateway.wire import request_bytes
from ir3de_lab.benchmarks.measurement import Figure

BODY_BYTES = 20_000_000  # the gateway's own limit
HEADER_BYTES = 60_000
LEAST_BODY_BYTES = 1_000_000  # of a request whose growth is told as a multiple of its body
GROWTH_BAR = 3.0  # × its body
STALL_BAR_MS = 20.0
ANSWER_TIMEOUT_S = 120.0
AFTERMATH_S = 0.1  # after the answer, in which stalls still count
CAPABILITIES = ("chat", "completions", "responses", "messages", "embeddings", "tools", "vision")


CONTROL = "a usual chat, for comparison"  # its stall is the machine's own noise


@dataclass(frozen=True)
class Heavy:
    """A request by its name; it is built when it is sent."""

    name: str
    build: Callable[[], bytes]


def _chat(content: object, **more: object) -> bytes:
    return _post(PATH, {"model": "auto", "messages": [{"role": "user", "content": content}], **more})


def _post(path: str, document: object) -> bytes:
    return request_bytes(path, json.dumps(document, ensure_ascii=False).encode())


def _raw(path: str, before: str, piece: str, after: str, size: int = BODY_BYTES, joint: str = ",") -> bytes:
    """A body of that size that repeats one piece."""
    room = size - len((before + after).encode())
    count = room // len((piece + joint).encode())
    return request_bytes(path, (before + joint.join([piece] * count) + after).encode())


_START = '{"model":"auto","messages":[{"role":"user","content":'
_BASIS = '{"model":"auto","messages":[{"role":"user","content":"Is this contract void?"}],"metadata":'


def _trailers(size: int) -> bytes:
    body = json.loads(bodies(stream=False, count=1)[0])
    data = json.dumps(body).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n"
    )
    trailers = b"".join(b"x-t%d: %s\r\n" % (n, b"y" * 1000) for n in range(size // 1010))
    return head.encode() + b"\r\n%x\r\n%s\r\n0\r\n%s\r\n" % (len(data), data, trailers)


def _headers(size: int) -> bytes:
    data = bodies(stream=False, count=1)[0].encode()
    lines = b"".join(b"x-h%d: %s\r\n" % (n, b"y" * 90) for n in range(size // 100))
    return request_bytes(PATH, data).replace(b"content-type", lines + b"content-type", 1)


def _results(size: int) -> list[dict[str, Any]]:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [
        {"role": "user", "content": "Look it up."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "word " * (size // 5)},
    ]


def heavy_requests() -> list[Heavy]:
    """All of them."""
    nested = "[" * 59 + "]" * 59
    keys = json.dumps({f"key{n}": n for n in range(900_000)})
    tool = '{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}'
    usual = '{"role":"user","content":"Is it?"},{"role":"assistant","content":"Yes."}'
    turn = {"role": "user", "content": "What does the law say about deposits? " * 25}
    short = {"role": "user", "content": "My deposit?"}
    return [
        Heavy(CONTROL, lambda: request_bytes(PATH, bodies(stream=False, count=1)[0].encode())),
        Heavy("chat, 2 MB of digits", lambda: _chat("1234567890" * 200_000)),
        Heavy("chat, 20 MB in one word", lambda: _raw(PATH, _START + '"', "a", '"}]}', joint="")),
        Heavy("chat, 20 MB of words", lambda: _raw(PATH, _START + '"', "void contract ", '"}]}', joint="")),
        Heavy("chat, 20 MB of digits", lambda: _raw(PATH, _START + '"', "7", '"}]}', joint="")),
        Heavy("chat, 20 MB of escapes", lambda: _raw(PATH, _START + '"', "\\u00e4", '"}]}', joint="")),
        Heavy("chat, 20 MB of Chinese", lambda: _raw(PATH, _START + '"', "合同法", '"}]}', joint="")),
        Heavy("chat, 20 MB of emoji", lambda: _raw(PATH, _START + '"', "👩‍⚖️", '"}]}', joint="")),
        Heavy("chat, 20 MB of spaces", lambda: _raw(PATH, _START + '"a', " ", '"}]}', joint="")),
        Heavy("chat, 20 MB nested 60 deep", lambda: _raw(PATH, _BASIS + "[", nested, "]}")),
        Heavy("chat, 20 MB of small lists", lambda: _raw(PATH, _BASIS + "[", "[]", "]}")),
        Heavy("chat, 20 MB of numbers", lambda: _raw(PATH, _BASIS + "[", "1", "]}")),
        Heavy("chat, 20 MB of fractions", lambda: _raw(PATH, _BASIS + "[", "0.12345678901234567", "]}")),
        Heavy("chat, 16 MB of different keys", lambda: request_bytes(PATH, (_BASIS + keys + "}").encode())),
        Heavy("chat, 20 MB of tools", lambda: _raw(PATH, _BASIS[:-11] + '"tools":[', tool, "]}")),
        Heavy("chat, 20 MB of tiny messages", lambda: _raw(PATH, '{"model":"auto","messages":[', usual, "]}")),
        Heavy("chat, 1,000 messages", lambda: _post(PATH, {"model": "auto", "messages": [turn] * 1000})),
        Heavy("chat, 2,000 short turns", lambda: _post(PATH, {"model": "auto", "messages": [short] * 2000})),
        Heavy("chat, 9,900 turns, 10 MB", lambda: _post(PATH, {"model": "auto", "messages": [turn] * 9900})),
        Heavy("route, 9,900 turns", lambda: _post("/v1/route", {"messages": [turn] * 9900, "explain": True})),
        Heavy("chat, 400 kB of tool results", lambda: _post(PATH, {"model": "auto", "messages": _results(400_000)})),
        Heavy("chat, 20 MB image", lambda: _chat([_image(19_000_000), {"type": "text", "text": "What is this?"}])),
        Heavy("chat, 17,000 characters", lambda: _chat("What does the law say? " * 740)),
        Heavy("chat, an odd control character", lambda: _chat("What does \x1c the law say?")),
        Heavy("chat, 60 kB of headers", lambda: _headers(HEADER_BYTES)),
        Heavy("chat, 10 MB of trailers", lambda: _trailers(10_000_000)),
        Heavy(
            "completion, 20 MB", lambda: _raw("/v1/completions", '{"model":"auto","prompt":"', "word ", '"}', joint="")
        ),
        Heavy("response, 20 MB", lambda: _raw("/v1/responses", '{"model":"auto","input":"', "word ", '"}', joint="")),
        Heavy(
            "message, 20 MB",
            lambda: _raw("/v1/messages", _START.replace("{", '{"max_tokens":9,', 1) + '"', "word ", '"}]}', joint=""),
        ),
        Heavy("embeddings, 20 MB", lambda: _raw("/v1/embeddings", '{"model":"auto","input":[', '"word"', "]}")),
        Heavy("route, 10 MB", lambda: _post("/v1/route", {"input": "void contract " * 714_000})),
        Heavy("route, 10 MB of digits", lambda: _post("/v1/route", {"input": "1234567890" * 1_000_000})),
        Heavy("route, 1,000 prompts of 19 kB", lambda: _post("/v1/route", {"input": ["void contract " * 1400] * 1000})),
        Heavy(
            "route, 100 long prompts explained",
            lambda: _post("/v1/route", {"input": ["void contract " * 400] * 100, "explain": True, "flips": True}),
        ),
        Heavy(
            "route, another scorer",
            lambda: _post("/v1/route", {"input": "Is this contract void?", "scorer": "token-ridge"}),
        ),
    ]


SOME = (  # what a quick run sends
    CONTROL,
    "chat, 2 MB of digits",
    "chat, 20 MB in one word",
    "chat, 20 MB nested 60 deep",
    "chat, 20 MB of Chinese",
    "chat, 10 MB of trailers",
    "chat, 17,000 characters",
    "route, 10 MB",
)


def _image(size: int) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0K" * (size // 8)}}


@dataclass(frozen=True)
class Cost:
    """What one request took."""

    name: str
    request_bytes: int
    status: int  # 0: no answer
    growth_mb: float
    stall_ms: float
    cpu_s: float
    pings: int

    def to_dict(self) -> dict[str, Any]:
        return vars(self)


def measure_costs(repeats: int, names: Sequence[str] | None = None) -> Iterator[Cost]:
    """What each request takes, in a gateway of its own, as often as asked."""
    processes.require_extra()
    with (
        tempfile.TemporaryDirectory() as folder,
        started(module("upstream", latency=0.001), measured=False) as upstream,
    ):
        for heavy in heavy_requests():
            if names is None or heavy.name in names:
                data = heavy.build()
                found = [_measure_one(Path(folder), upstream, heavy.name, data) for _ in range(repeats)]
                best = min(found, key=lambda cost: cost.stall_ms)
                yield Cost(**{**vars(best), "growth_mb": round(max(cost.growth_mb for cost in found), 1)})


def _measure_one(folder: Path, upstream: Server, name: str, data: bytes) -> Cost:
    with processes.gateway(folder, upstream.port, capabilities=CAPABILITIES, serving=False) as gateway:
        for body in bodies(stream=False, count=20):
            ask(gateway.port, request_bytes(PATH, body.encode()))
        arguments = [sys.executable, *module("pinging", port=gateway.port)]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as pinger:
            pin(pinger.pid, measured=False)
            assert pinger.stdout is not None
            pinger.stdout.readline()  # it is under way
            reset_highest(gateway)
            before, spent = resident_mb(gateway), gateway.cpu_seconds
            status = ask(gateway.port, data)
            time.sleep(AFTERMATH_S)
            told, _ = pinger.communicate("\n")
        waits = json.loads(told)
        growth, spent = highest_mb(gateway) - before, gateway.cpu_seconds - spent
    stall = max(waits) - median(waits)
    return Cost(name, len(data), status, round(growth, 1), round(1e3 * stall, 1), round(spent, 2), len(waits))


def ask(port: int, request: bytes) -> int:
    """Send the request and read the whole answer; its status, 0 where none came."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S) as connection:
        with suppress(OSError):  # refused before the end: the answer may be there
            connection.sendall(request.replace(b"host:", b"connection: close\r\nhost:", 1))
        with suppress(OSError):
            while piece := connection.recv(65_536):
                answer = answer or piece
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0


def judge_costs(costs: Sequence[Cost]) -> list[Figure]:
    """The worst of them beside the bars."""
    raw = {"requests": [cost.to_dict() for cost in costs]}
    # below a megabyte, the pages that the allocator takes anyway are more than the request
    large = [cost for cost in costs if cost.request_bytes >= LEAST_BODY_BYTES] or costs
    growth = max(large, key=lambda cost: 1e6 * cost.growth_mb / cost.request_bytes)
    most, stall = max(costs, key=lambda cost: cost.growth_mb), max(costs, key=lambda cost: cost.stall_ms)
    ratio = 1e6 * growth.growth_mb / growth.request_bytes
    unanswered = sum(not cost.status for cost in costs)
    figures = [
        Figure(f"largest growth by one request, of its size ({growth.name})", ratio, "×", GROWTH_BAR, raw=raw),
        Figure(f"largest growth by one request ({most.name})", most.growth_mb, "MB", None),
        Figure(f"longest stall by one request ({stall.name})", stall.stall_ms, "ms", STALL_BAR_MS),
        Figure("heavy requests without an answer", unanswered, "", 0),
    ]
    return [replace(figure, higher_is_better=False) for figure in figures]
