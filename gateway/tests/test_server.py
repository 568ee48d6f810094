"""`ir3de serve` as a process: it starts, drains, hurries, and keeps slow and talkative clients at bay."""

import ast
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from commands import ROOT
from ir3de.errors import InputError
from ir3de_gateway.server import bind_socket, read_log_level
from raw_sockets import eventually
from running_gateway import ANSWER, Upstream, answer, event, served, small_router

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")


class Slow(Upstream):
    """Experts that wait for a word before they answer, or before they end their stream."""

    def __init__(self) -> None:
        super().__init__({"law": self._later, "maths": self._in_two_parts})
        self.word, self.begun = threading.Event(), threading.Semaphore(0)

    async def _wait(self) -> None:
        import asyncio

        self.begun.release()
        while not self.word.is_set():
            await asyncio.sleep(0.02)

    async def _later(self, request: Request, asked: dict[str, Any]) -> Response:
        await self._wait()
        return await answer(request, asked)

    async def _in_two_parts(self, request: Request, asked: dict[str, Any]) -> Response:
        async def parts() -> Any:
            yield event({"choices": [{"index": 0, "delta": {"content": "first"}}]})
            await self._wait()
            yield event({"choices": [{"index": 0, "delta": {"content": "last"}}]}) + b"data: [DONE]\n\n"

        return StreamingResponse(parts(), media_type="text/event-stream")


class Served:
    """A gateway process, and clients that wait for its answers."""

    def __init__(self, process: subprocess.Popen[str], clients: ThreadPoolExecutor) -> None:
        self.process, self.clients = process, clients
        assert process.stdout is not None
        self.said = json.loads(process.stdout.readline())
        self.port = int(self.said["address"].rpartition(":")[2])

    def ask(self, model: str, **more: Any) -> Future[tuple[int, str]]:
        return self.clients.submit(self._ask, {"model": model, "messages": [{"role": "user", "content": "?"}], **more})

    def _ask(self, body: dict[str, Any]) -> tuple[int, str]:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as client:
            client.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
            with client.getresponse() as response:
                return response.status, response.read().decode()

    def send(self, *pieces: bytes) -> bytes:
        """Send that, and wait until the other side hangs up."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            for piece in pieces:
                connection.sendall(piece)
            found = b""
            while more := connection.recv(65_536):
                found += more
            return found

    def wait_until_refused(self) -> None:
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=60).close()
            except ConnectionRefusedError:
                return
            threading.Event().wait(0.02)


@contextmanager
def serving(
    folder: Path,
    upstream: str,
    *options: str,
    header_seconds: float = 10.0,
    drain: float = 30.0,
    access: str | None = None,
    **settings: Any,
) -> Iterator[Served]:
    """`ir3de serve` with the experts of `upstream`."""
    small_router().save(folder / "router")
    experts = [{"name": name, "base_url": f"{upstream}/{name}/v1"} for name in ("law", "maths", "cooking")]
    config = folder / "ir3de.yaml"  # JSON is YAML
    config.write_text(
        json.dumps(
            {
                "router": {"path": "router"},
                "experts": experts,
                "server": {"limits": {"header_seconds": header_seconds}, "drain": drain},
                "logs": {"access": access},
                "state": "state",
                **settings,
            }
        )
    )
    command = [sys.executable, "-m", "ir3de", "serve", str(config), "--port", "0", "--json", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(folder)}
    with (
        ThreadPoolExecutor(4) as clients,
        subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,  # of a terminal, SIGHUP is the end
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        ) as process,
    ):
        try:
            yield Served(process, clients)
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_stop_lets_requests_in_flight_end_and_no_new_ones_in(tmp_path: Path, workers: int) -> None:
    slow = Slow()
    with served(slow.app()) as upstream, serving(tmp_path, upstream, f"--workers={workers}") as gateway:
        assert gateway.said["workers"] == workers and gateway.said["experts"] == ["law", "maths", "cooking"]
        assert gateway.ask("cooking").result()[0] == 200
        whole, stream = gateway.ask("law"), gateway.ask("maths", stream=True)
        slow.begun.acquire(), slow.begun.acquire()
        gateway.process.terminate()
        gateway.wait_until_refused()
        assert not whole.done() and not stream.done()
        slow.word.set()
        assert json.loads(whole.result()[1])["choices"][0]["message"]["content"] == "".join(ANSWER)
        assert "first" in stream.result()[1] and stream.result()[1].rstrip().endswith("[DONE]")
        assert gateway.process.wait(60) == 0
        assert gateway.process.stderr is not None and gateway.process.stderr.read() == ""
    assert not list(tmp_path.glob("ir3de-*"))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_the_second_interrupt_does_not_wait(tmp_path: Path, workers: int) -> None:
    slow = Slow()
    waiting = r"2 requests|the requests of (1 worker|2 workers)"
    with served(slow.app()) as upstream, serving(tmp_path, upstream, f"--workers={workers}") as gateway:
        whole, stream = gateway.ask("law"), gateway.ask("maths", stream=True)
        slow.begun.acquire(), slow.begun.acquire()
        gateway.process.send_signal(signal.SIGINT)
        assert gateway.process.stderr is not None
        said = gateway.process.stderr.readline()  # what it waits for, and how not to
        assert re.search(
            f"stopping: waiting for ({waiting}) to finish, at most 30 s. A second Ctrl-C stops at once", said
        )
        gateway.process.send_signal(signal.SIGINT)
        try:
            assert gateway.process.wait(60) == 130
            check_given_up(whole.result(), stream.result())
            assert gateway.process.stderr.read() == ""
        finally:
            slow.word.set()


def check_given_up(whole: tuple[int, str], stream: tuple[int, str]) -> None:
    """A client without an answer gets a status, and a stream that has begun ends with an error event."""
    status, body = whole
    assert status == 503 and json.loads(body)["error"]["code"] == "stopping"
    status, events = stream
    first, last = events.strip().split("\n\n")
    assert status == 200 and "first" in first
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "stopping"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_clients_are_told_when_the_time_to_end_is_over(tmp_path: Path, workers: int) -> None:
    slow = Slow()
    with served(slow.app()) as upstream, serving(tmp_path, upstream, f"--workers={workers}", drain=0.5) as gateway:
        whole, stream = gateway.ask("law"), gateway.ask("maths", stream=True)
        slow.begun.acquire(), slow.begun.acquire()
        gateway.process.terminate()
        try:
            assert gateway.process.wait(60) == 0
            check_given_up(whole.result(), stream.result())
        finally:
            slow.word.set()
        assert gateway.process.stderr is not None
        said = gateway.process.stderr.read()
        counts = re.findall(r"WARNING server.drain is over: cancelled requests: (\d)\n", said)
        assert sum(map(int, counts)) == 2 and said.count("\n") == len(counts)


@pytest.mark.slow
def test_an_interrupt_without_requests_says_nothing(tmp_path: Path) -> None:
    with served(Upstream().app()) as upstream, serving(tmp_path, upstream) as gateway:
        with closing(HTTPConnection("127.0.0.1", gateway.port, timeout=60)) as idle:
            idle.request("GET", "/livez")
            assert idle.getresponse().read()
            gateway.process.send_signal(signal.SIGINT)
            assert gateway.process.wait(60) == 0
        assert gateway.process.stderr is not None and gateway.process.stderr.read() == ""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_an_access_log_that_nobody_reads_stops_nothing(tmp_path: Path, workers: int) -> None:
    """A pipe holds some hundred lines."""
    with (
        served(Upstream().app()) as upstream,
        serving(tmp_path, upstream, f"--workers={workers}", access="-") as gateway,
    ):
        for path, requests in (("/version", 1_000), ("/livez", 1)):
            with closing(HTTPConnection("127.0.0.1", gateway.port, timeout=60)) as client:
                for _ in range(requests):
                    client.request("GET", path)
                    with client.getresponse() as response:
                        assert response.status == 200 and response.read()
        assert gateway.ask("law").result()[0] == 200
        gateway.process.terminate()
        assert gateway.process.wait(60) == 0


def find_workers(supervisor: int) -> set[int]:
    """The worker processes of a supervisor."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    commands = [(pid, Path(f"/proc/{pid}/cmdline")) for pid in children]
    return {int(pid) for pid, command in commands if command.exists() and b"spawn_main" in command.read_bytes()}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_workers_outlive_a_router_that_is_away_but_not_their_supervisor(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    note = f"import os\n\n\ndef note(request):\n    open(f'{seen}/{{os.getpid()}}', 'w').close()\n"
    (tmp_path / "hooks.py").write_text(note)
    hooks = {"before": [{"call": "hooks.py:note"}]}
    with served(Upstream().app()) as upstream, serving(tmp_path, upstream, "--workers=2", hooks=hooks) as gateway:
        supervisor = gateway.process.pid
        while len(list(seen.iterdir())) < 2:  # both have read the router, and serve
            assert gateway.ask("cooking").result()[0] == 200
        first, second = find_workers(supervisor)
        (tmp_path / "router").rename(tmp_path / "away")
        os.kill(first, signal.SIGKILL)
        assert eventually(lambda: len(find_workers(supervisor) - {first}) == 2)  # another one tries
        assert eventually(lambda: find_workers(supervisor) == {second})  # in vain
        assert gateway.ask("law").result()[0] == 200
        (tmp_path / "away").rename(tmp_path / "router")
        assert eventually(lambda: len(find_workers(supervisor)) == 2)
        assert gateway.ask("law").result()[0] == 200
        gateway.process.kill()
        gateway.wait_until_refused()


@pytest.mark.slow
def test_heads_that_never_end(tmp_path: Path) -> None:
    begin = b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    with served(Upstream().app()) as upstream, serving(tmp_path, upstream, header_seconds=3) as gateway:
        endless = ((b"",), (b"\r\n",), (begin, b"x: y\r\n"), (begin + b"\r\n" + begin,))
        silent, empty, slow, second = gateway.clients.map(lambda pieces: gateway.send(*pieces), endless)
        assert silent == b"" == empty  # hung up on
        assert slow.startswith(b"HTTP/1.1 408 ") and b'"code": "request_timeout"' in slow
        assert second.startswith(b"HTTP/1.1 200 ") and b"HTTP/1.1 408 " in second
        for end in (b"\r\n\r\n", b""):
            large = gateway.send(begin + b"x: " + b"y" * 100_000 + end)
            assert large.startswith(b"HTTP/1.1 431 ") and b'"code": "headers_too_large"' in large
        nonsense = gateway.send(b"nonsense\r\n\r\n")
        assert nonsense.startswith(b"HTTP/1.1 400 ") and b'"code": "invalid_http"' in nonsense
        large_body = " " * 200_000  # larger than a head may be
        assert gateway.ask("law", user=large_body).result()[0] == 200


@pytest.mark.slow
def test_the_rest_of_a_refused_body_is_no_part_of_the_next_head(tmp_path: Path) -> None:
    refused = b"POST /v1/route HTTP/1.1\r\nhost: 127.0.0.1\r\norigin: http://x\r\ncontent-length: 200000\r\n\r\n"
    with (
        served(Upstream().app()) as upstream,
        serving(tmp_path, upstream) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as connection,
    ):
        connection.sendall(refused)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 403 ")
        for piece in (b" " * 200_000, b"GET /livez HTTP/1.1\r\n", b"host: 127.0.0.1\r\n\r\n"):
            connection.sendall(piece)
            threading.Event().wait(0.1)  # each comes for itself
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_only_documented_names_of_uvicorn_are_used() -> None:
    """Others may change with any version."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "gateway/src/ir3de_gateway").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    imported |= {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    assert {name for name in imported if name.startswith("uvicorn")} == {"uvicorn"}
    used = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "uvicorn"
    }
    assert used == {"Config", "Server"}


def test_a_place_that_is_taken() -> None:
    with bind_socket("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(InputError, match=r"cannot listen on 127.0.0.1:\d+: .*--port"):
            bind_socket("127.0.0.1", taken.getsockname()[1])
    for elsewhere in ("no.such.host.invalid", "192.0.2.1"):  # an address that no interface has
        with pytest.raises(InputError, match=r"cannot listen on .*correct server\.host \(--host\)$"):
            bind_socket(elsewhere, 0)


def test_the_level_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    from ir3de_gateway.config.document import Config

    given = {"router": {"path": "r"}, "experts": [{"name": "a", "base_url": "http://x"}], "logs": {"level": "error"}}
    config = Config.model_validate(given)
    monkeypatch.delenv("IR3DE_LOG_LEVEL", raising=False)
    assert read_log_level(config) == "error"
    monkeypatch.setenv("IR3DE_LOG_LEVEL", "DEBUG")
    assert read_log_level(config) == "debug"
    monkeypatch.setenv("IR3DE_LOG_LEVEL", "loud")
    with pytest.raises(InputError, match="IR3DE_LOG_LEVEL is 'loud'"):
        read_log_level(config)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_sighup_reads_the_file_and_names_what_only_a_restart_changes(tmp_path: Path, workers: int) -> None:
    with served(Upstream().app()) as upstream, serving(tmp_path, upstream, f"--workers={workers}") as gateway:
        assert gateway.process.stderr is not None
        file, said = tmp_path / "ir3de.yaml", gateway.process.stderr
        settings = json.loads(file.read_text())
        settings["server"] |= {"drain": 20, "workers": 3}  # --workers overrides that one
        settings["routing"] = {"provenance": []}
        assert "ir3de" in json.loads(gateway.ask("law").result()[1])
        file.write_text(json.dumps(settings))
        gateway.process.send_signal(signal.SIGHUP)
        while "has been" not in (line := said.readline()):
            assert "SIGHUP: replacing 2 workers" in line
        assert "only a restart changes server.drain\n" in said.readline()
        assert "ir3de" not in json.loads(gateway.ask("law").result()[1])  # no old worker is left
        file.write_text("experts: [")
        gateway.process.send_signal(signal.SIGHUP)
        while "this is not YAML" not in (line := said.readline()):
            assert "SIGHUP: replacing 2 workers" in line
        assert re.search(r"The configuration stays as it was|The old ones continue", line)
        assert gateway.ask("law").result()[0] == 200
