"""Processor time, latency and memory of clients, against the stand-in upstream, one after the other in turn."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from ir3de_lab.benchmarks.transports.clients import CLIENTS, Client, Reply

PROMPT_CHARS = 600
AT_ONCE = 16
ROUNDS = 12
WHOLE, STREAMS = 300, 48  # requests of a round


def build_body(*, stream: bool) -> bytes:
    messages = [{"role": "user", "content": "x" * PROMPT_CHARS}]
    return json.dumps(
        {"model": "m", "user": "u", "messages": messages, **({"stream": True} if stream else {})}
    ).encode()


@contextmanager
def running_upstream(**options: float) -> Iterator[str]:
    """The stand-in in a process of its own."""
    raise_limit()
    given = [f"--{name}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "ir3de_lab.benchmarks.gateway.upstream", *given]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1/chat"
        finally:
            process.kill()


def raise_limit() -> None:
    """As many descriptors as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def ask(client: Client, url: str, body: bytes) -> None:
    reply = await client.ask(url, body)
    while await reply.read():
        pass
    await reply.close()
    assert reply.status == 200


async def measure_round(client: Client, url: str, body: bytes, requests: int, at_once: int) -> tuple[float, float]:
    """Microseconds of processor time for a request, and of its median latency."""
    latencies: list[float] = []
    left = iter(range(requests))

    async def work() -> None:
        for _ in left:
            began = time.perf_counter()
            await ask(client, url, body)
            latencies.append(time.perf_counter() - began)

    before = time.process_time()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return (time.process_time() - before) / requests * 1e6, median(latencies) * 1e6


async def measure_speed(names: list[str], rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """The least of many rounds, in which the clients take turns."""
    plans = {
        "whole": (build_body(stream=False), WHOLE, AT_ONCE),
        "whole_alone": (build_body(stream=False), WHOLE // 2, 1),
        "stream": (build_body(stream=True), STREAMS, AT_ONCE),
    }
    found: dict[str, dict[str, float]] = {name: {} for name in names}
    with running_upstream(latency=0, interval=0.002) as url:
        clients = {name: CLIENTS[name]() for name in names}
        for plan, (body, requests, at_once) in plans.items():
            for turn in range(rounds + 1):
                for name, client in clients.items():
                    cpu, latency = await measure_round(client, url, body, requests, at_once)
                    if turn:  # the first round opens the connections
                        for key, value in ((f"{plan}_cpu_us", cpu), (f"{plan}_p50_us", latency)):
                            found[name][key] = round(min(value, found[name].get(key, value)), 1)
        for client in clients.values():
            await client.stop()
    return found


async def hold_streams(name: str, streams: int) -> None:
    """Print the bytes that an idle stream takes. It ends the process: nobody waits for so many streams."""
    raise_limit()
    with running_upstream(latency=0, interval=3_000) as url:
        client, body, held = CLIENTS[name](), build_body(stream=True), []

        async def begin() -> None:
            reply = await client.ask(url, body)
            await reply.read()
            held.append((reply, asyncio.ensure_future(_wait(reply))))

        await asyncio.gather(*(begin() for _ in range(100)))
        before = _measure_memory()
        while len(held) < streams:
            await asyncio.gather(*(begin() for _ in range(100)))
        await asyncio.sleep(0.5)
        sys.stdout.write(f"{(_measure_memory() - before) / (len(held) - 100):.0f}\n")
        sys.stdout.flush()
    os._exit(0)


async def _wait(reply: Reply) -> None:
    with suppress(Exception):
        await reply.read()


def _measure_memory() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()


def measure_memory(name: str, streams: int) -> int | None:
    """Bytes of an idle stream, in a process of its own; None if it cannot hold so many."""
    command = [sys.executable, "-m", "ir3de_lab.benchmarks.transports", "--hold", name, "--streams", str(streams)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return None
    return int(done.stdout) if done.stdout.strip().isdigit() else None


def list_versions(names: list[str]) -> Mapping[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in (*names, "httptools", "h2", "uvloop"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
