"""Very many streams at once that say nothing: how many the gateway holds, and what each of them takes of its memory.

    python -m ir3de_lab.benchmarks.gateway.holding --port 8100 --streams 9900

opens the streams, writes how many have had their first token, waits for a line, writes how many are still open.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from ir3de_lab.benchmarks.gateway import processes
from ir3de_lab.benchmarks.gateway.measuring import PATH, bodies
from ir3de_lab.benchmarks.gateway.processes import Server, module, pin, resident_mb, started
from ir3de_lab.benchmarks.gateway.soaking import settled
from ir3de_lab.benchmarks.gateway.upstream import HELD
from ir3de_lab.benchmarks.gateway.wire import Client, request_bytes, run
from ir3de_lab.benchmarks.measurement import Figure

STREAMS = 9_900
BYTES_BAR = 20_000.0  # of each stream
SPARE_FILES = 200  # of the gateway, beside the two sockets of each stream
AT_ONCE = 100  # streams that are being opened at the same time
PATIENCE_S = 120.0
HOUR_S = 3_600.0


class Holder:
    """The clients of the streams."""

    def __init__(self, port: int) -> None:
        self._port, self._gate = port, asyncio.Semaphore(AT_ONCE)
        self._chats = [json.loads(body)["messages"] for body in bodies(stream=False, count=100)]
        self.clients: list[Client] = []

    async def open(self, streams: int) -> int:
        """Open so many streams; how many have had their first token."""
        found = await asyncio.gather(*(self._one(number) for number in range(streams)))
        return sum(found)

    @property
    def open_now(self) -> int:
        return sum(client.open and not client.answer.end for client in self.clients)

    async def _one(self, number: int) -> bool:
        async with self._gate:
            try:
                client = await Client.connect(self._port)
            except OSError:
                return False
            self.clients.append(client)
            chat = self._chats[number % len(self._chats)]
            body = {"model": "auto", "user": f"stream-{number}{HELD}", "stream": True, "messages": chat}
            client.ask(request_bytes(PATH, json.dumps(body).encode()), lambda *_: None)
            end = asyncio.get_running_loop().time() + PATIENCE_S
            while not client.answer.first and not client.answer.end and asyncio.get_running_loop().time() < end:
                await asyncio.sleep(0.005)
            return bool(client.answer.first)

    def leave(self) -> None:
        for client in self.clients:
            client.leave()


async def hold(port: int, streams: int) -> None:
    """Open the streams, and keep them until a line comes."""
    processes.raise_file_limit()
    holder = Holder(port)
    _say(await holder.open(streams))
    await asyncio.to_thread(sys.stdin.readline)
    _say(holder.open_now)
    holder.leave()


def _say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def measure_streams(streams: int = STREAMS) -> list[Figure]:
    """Hold the streams, and read the gateway's memory before, with them and after."""
    processes.require_extra()
    streams = min(streams, (processes.raise_file_limit() - SPARE_FILES) // 2)
    timeouts = {"first_token": PATIENCE_S, "idle": HOUR_S, "total": HOUR_S}
    with (
        tempfile.TemporaryDirectory() as folder,
        started(module("upstream", latency=0.001), measured=False) as upstream,
        processes.gateway(Path(folder), upstream.port, timeouts=timeouts, concurrency=50_000) as gateway,
    ):
        hold_streams(gateway, min(streams, 200))  # what is loaded once does not count
        before = resident_mb(gateway)
        opened, kept, during = hold_streams(gateway, streams)
        in_flight, _ = settled(gateway, 0, 0.0)
        after = resident_mb(gateway)
    raw = {
        "asked": streams,
        "opened": opened,
        "open_at_the_end": kept,
        "before_mb": round(before, 1),
        "during_mb": round(during, 1),
        "after_mb": round(after, 1),
        "in_flight_after": in_flight,
    }
    each = 1e6 * (during - before) / max(1, kept)
    return [
        Figure(f"idle streams held, of {streams:,}", kept, "", streams, raw=raw),
        Figure("memory of an idle stream", each, "bytes", BYTES_BAR, higher_is_better=False, raw=raw),
    ]


def hold_streams(gateway: Server, streams: int) -> tuple[int, int, float]:
    """How many were opened, how many were open to the end, and the gateway's megabytes meanwhile."""
    arguments = [sys.executable, *module("holding", port=gateway.port, streams=streams)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        pin(holder.pid, measured=False)
        assert holder.stdin is not None and holder.stdout is not None
        opened = int(holder.stdout.readline() or 0)
        megabytes = resident_mb(gateway)
        holder.stdin.write("\n")
        holder.stdin.flush()
        kept = int(holder.stdout.readline() or 0)
    return opened, kept, megabytes


def main() -> None:
    parser = argparse.ArgumentParser(description="Streams that stay open.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--streams", type=int, default=STREAMS)
    given = parser.parse_args()
    run(hold(given.port, given.streams))


if __name__ == "__main__":
    main()
