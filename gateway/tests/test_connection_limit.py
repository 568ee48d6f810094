"""The limit of connections: idle ones make room, busy ones do not, and descriptors never run out."""

import asyncio
import fcntl
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from commands import ROOT
from ir3de_gateway.serving import connections
from ir3de_gateway.serving.connections import MAX_BURST, MAX_REJECTED_OPEN, choose_backlog, choose_connection_limit
from ir3de_gateway.serving.request_filter import build_request_filter
from ir3de_gateway.telemetry.counts import PROCESS_COUNTS
from raw_sockets import ask, chat, dial, eventually, sent
from running_gateway import Running, Upstream, answer, running, served, small_router

pytestmark = pytest.mark.skipif(os.name != "posix", reason="descriptors")

LIMIT = 3
CHAT = json.dumps(chat("?", "law")).encode()
PROBE = b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, {"http": build_request_filter(10, LIMIT)}) as found:
        yield found


@contextmanager
def waiting_expert(gateway: Running) -> Iterator[None]:
    """The expert for law does not answer in here."""
    go_on = threading.Event()

    async def wait(request: Request, asked: dict[str, Any]) -> Response:
        while not go_on.is_set():
            await asyncio.sleep(0.01)
        return await answer(request, asked)

    gateway.upstream.behaviour["law"] = wait
    try:
        yield
    finally:
        go_on.set()


def test_the_longest_idle_connection_makes_room(gateway: Running) -> None:
    before = PROCESS_COUNTS.connections_closed_idle
    with ExitStack() as stack:
        silent, kept, last = (stack.enter_context(dial(gateway.url)) for _ in range(LIMIT))
        assert eventually(lambda: PROCESS_COUNTS.connections_open == LIMIT)
        silent.sendall(PROBE)  # it was the first, and is now the one that was used last
        assert silent.recv(1_000).startswith(b"HTTP/1.1 200 ")
        assert ask(gateway.url, path="/livez").status == 200
        assert kept.recv(1) == b""  # closed
        for other in (silent, last):
            other.sendall(PROBE)
            assert other.recv(1_000).startswith(b"HTTP/1.1 200 ")
    assert PROCESS_COUNTS.connections_closed_idle == before + 1


def deliver(connection: socket.socket, data: bytes) -> None:
    """Send the data, and return when it has reached the other side's socket, where it may not have been read yet."""
    connection.sendall(data)
    while struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]:
        pass


def test_a_connection_whose_request_has_just_arrived_does_not_make_room(tmp_path: Path) -> None:
    """Its client could not know whether the request was processed."""
    filters = build_request_filter(10, LIMIT)
    admit, arriving = filters.connections.admit, [PROBE]

    def admit_late(connection: Any) -> bool:
        if PROCESS_COUNTS.connections_open == LIMIT and arriving:
            deliver(first, arriving.pop())
        return admit(connection)

    with running(tmp_path, {"http": filters}) as gateway, ExitStack() as stack:
        first, second, _ = (stack.enter_context(dial(gateway.url)) for _ in range(LIMIT))
        assert eventually(lambda: PROCESS_COUNTS.connections_open == LIMIT)
        filters.connections.admit = admit_late  # type: ignore[method-assign]
        assert ask(gateway.url, path="/livez").status == 200
        assert first.recv(1_000).startswith(b"HTTP/1.1 200 ") and not arriving
        assert second.recv(1) == b""  # the next one made room


def test_a_request_that_comes_as_its_connection_expires_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LAST_REQUEST_S", 60.0)  # however slow this machine is
    with running(tmp_path, {"http": build_request_filter(0.05, LIMIT)}) as gateway, dial(gateway.url) as client:
        threading.Event().wait(1)
        client.sendall(PROBE)
        assert client.recv(1_000).startswith(b"HTTP/1.1 200 ")


def test_busy_connections_stay_and_others_are_told_to_come_back(gateway: Running) -> None:
    before = PROCESS_COUNTS.connections_refused
    with ExitStack() as stack:
        with waiting_expert(gateway):
            busy = [stack.enter_context(sent(gateway.url, CHAT)) for _ in range(LIMIT)]
            assert eventually(lambda: len(gateway.upstream.asked) == LIMIT)
            refused = ask(gateway.url, path="/livez")
            assert (refused.status, refused.error["code"]) == (503, "unavailable")
            assert refused.headers["retry-after"] == "1" and refused.headers["connection"] == "close"
        assert [line.recv(100).partition(b"\r\n")[0] for line in busy] == [b"HTTP/1.1 200 OK"] * LIMIT
        assert PROCESS_COUNTS.connections_refused == before + 1
        assert ask(gateway.url, path="/livez").status == 200
        found = ask(gateway.url, path="/metrics").body.decode()
        assert "ir3de_connections_refused_total" in found and "ir3de_connections_closed_idle_total" in found


def test_refused_clients_do_not_pile_up(gateway: Running) -> None:
    with waiting_expert(gateway), ExitStack() as stack:
        for _ in range(LIMIT):
            stack.enter_context(sent(gateway.url, CHAT))
        assert eventually(lambda: len(gateway.upstream.asked) == LIMIT)
        before = PROCESS_COUNTS.connections_refused
        for _ in range(100):
            stack.enter_context(dial(gateway.url))
        assert eventually(lambda: PROCESS_COUNTS.connections_refused == before + 100)
        assert eventually(lambda: PROCESS_COUNTS.connections_open <= LIMIT + MAX_REJECTED_OPEN)


@pytest.mark.parametrize("descriptors", [64, 256, 1_024, 4_096, 65_536, 1_000_000])
def test_connections_leave_descriptors_for_experts(descriptors: int) -> None:
    limit = choose_connection_limit(descriptors)
    assert limit >= 8
    if descriptors >= 256:
        assert 2 * limit + MAX_REJECTED_OPEN + min(choose_backlog(descriptors), MAX_BURST) < descriptors


@pytest.mark.slow
@pytest.mark.nightly
def test_idle_clients_do_not_take_the_last_descriptor(tmp_path: Path) -> None:
    small_router().save(tmp_path / "router")
    with served(Upstream().app()) as upstream:
        experts = [{"name": "law", "base_url": f"{upstream}/law/v1"}]
        given = {
            "router": {"path": "router"},
            "experts": experts,
            "logs": {"access": None},
        }
        (tmp_path / "ir3de.yaml").write_text(json.dumps(given))
        command = [sys.executable, "-m", "ir3de", "serve", str(tmp_path / "ir3de.yaml"), "--port=0", "--json"]
        with subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)),
        ) as process:
            try:
                assert process.stdout is not None
                url = json.loads(process.stdout.readline())["address"]
                with ExitStack() as stack:
                    for _ in range(300):
                        stack.enter_context(dial(url))
                    for _ in range(20):
                        assert ask(url, chat("?", "law")).status == 200
                    for _ in range(100):
                        stack.enter_context(dial(url)).sendall(PROBE[:20])
                    assert ask(url, chat("?", "law")).status == 200
            finally:
                process.kill()
