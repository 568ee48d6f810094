"""A gateway of two real workers, and an expert that counts who is with it: for tests of what all workers share."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from raw_sockets import build_request, dial, eventually
from running_gateway import Upstream, config_for, served, small_router


class Crowd:
    """An expert that counts who is with it at once, and holds everybody until `open` is set."""

    def __init__(self) -> None:
        self.came, self.most, self.open = 0, 0, threading.Event()
        self.guests: set[Request] = set()

    @property
    def here(self) -> int:
        return len(self.guests)

    async def answer(self, request: Request, asked: dict[str, Any]) -> Response:
        self.came += 1
        self.guests.add(request)
        self.most = max(self.most, self.here)

        async def events() -> AsyncIterator[bytes]:
            while not self.open.is_set():
                yield b": wait\n\n"
                await asyncio.sleep(0.01)
            yield b"data: [DONE]\n\n"
            self.guests.discard(request)  # before the answer ends: only then may the next one come

        crowd = self

        class Visit(StreamingResponse):
            async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
                try:
                    await super().__call__(scope, receive, send)
                finally:  # a client may have hung up, even before the first event
                    crowd.guests.discard(request)

        return Visit(events(), media_type="text/event-stream")


@contextmanager
def two_workers(folder: Path, upstream: Upstream, **expert: Any) -> Iterator[tuple[str, int]]:
    """`ir3de serve` with two workers: its address, and the process that runs them."""
    small_router().save(folder / "router")
    with served(upstream.app()) as upstream.url:
        config = config_for(upstream.url, folder / "router", experts={"law": expert}, server={"port": 0, "workers": 2})
        (folder / "ir3de.yaml").write_text(json.dumps(config.model_dump(mode="json", exclude_unset=True)))
        command = [sys.executable, "-m", "ir3de", "serve", str(folder / "ir3de.yaml"), "--json"]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "start_new_session": True}
        with subprocess.Popen(command, text=True, cwd=folder, **pipes) as running:
            try:
                assert running.stdout is not None
                yield json.loads(running.stdout.readline())["address"], running.pid
            finally:
                os.killpg(running.pid, signal.SIGKILL)


def list_workers(parent: int) -> list[int]:
    """Processes that the supervisor spawned to serve."""
    found = subprocess.run(["ps", "-ww", "-o", "pid=,args=", "--ppid", str(parent)], capture_output=True, text=True)
    return [int(line.split()[0]) for line in found.stdout.splitlines() if "spawn_main" in line]


def count_connections(pid: int, url: str, *, to: bool) -> int:
    """How many connections a process has to an address, or at it."""
    sockets = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    port = f":{int(url.rpartition(':')[2]):04X}"
    return sum(line[1 + to].endswith(port) and line[3] == "01" and f"socket:[{line[9]}]" in sockets for line in lines)


def send_to_both(parent: int, url: str, body: bytes, each: int) -> dict[int, list[socket.socket]]:
    """So many requests to each of the two workers, by their processes. The system chooses who gets a connection."""
    lines: dict[int, list[socket.socket]] = {}

    def are_sent() -> bool:
        if len(pids := list_workers(parent)) < 2:
            return False
        line = dial(url)
        own = f"http://127.0.0.1:{line.getsockname()[1]}"
        taken: list[int] = []

        def is_taken() -> bool:
            taken[:] = [pid for pid in pids if count_connections(pid, own, to=True)]
            return bool(taken)

        assert eventually(is_taken)
        mine = lines.setdefault(taken[0], [])
        if len(mine) == each:
            line.close()
        else:
            line.sendall(build_request(url, body))
            mine.append(line)
        return [len(sent) for sent in lines.values()] == [each, each]

    assert eventually(are_sent)
    return lines
