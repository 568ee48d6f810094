"""The programs of a measurement: started, watched and stopped, each in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ir3de import Router
from ir3de.corpora import examples as demo
from ir3de.errors import InputError, MissingExtraError

NEEDED = ("starlette", "uvicorn", "httptools", "aiohttp", "pydantic", "yaml", "prometheus_client")
STARTING = 60.0  # seconds that a server may take


@dataclass(frozen=True)
class Server:
    """A server under way."""

    process: subprocess.Popen[str]
    port: int

    @property
    def tree(self) -> list[int]:
        """Its process and those it has started."""
        found = [self.process.pid]
        for pid in found:
            with suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split())
        return found

    @property
    def cpu_seconds(self) -> float:
        """The processor time of all its processes so far."""
        ticks = 0
        for pid in self.tree:
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def get(self, path: str) -> str:
        """What it answers there, as text."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            text: str = answer.read().decode()
        return text


def require_extra() -> None:
    """Complain about the first package that is missing."""
    for package in NEEDED:
        if find_spec(package) is None:
            raise MissingExtraError(package, "serve", "measuring the gateway")


def split_cores() -> tuple[set[int], set[int]] | None:
    """The core of the server that is measured, and those of the load and the upstream; None where there is but one."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    first, *others = sorted(os.sched_getaffinity(0))
    return ({others[-1]}, {first, *others[:-1]}) if others else None


def pin(pid: int, measured: bool) -> None:
    """Keep a process to its cores, so that the scheduler's moves are not what is measured."""
    if (kept := split_cores()) is not None:
        with suppress(OSError):
            os.sched_setaffinity(pid, kept[0 if measured else 1])


@contextmanager
def started(
    arguments: Sequence[str],
    *,
    measured: bool,
    port: int | None = None,
    env: Mapping[str, str] | None = None,
    limits: Mapping[str, int] | None = None,
    program: str = sys.executable,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Iterator[Server]:
    """A program that serves, Python by default; without `port` it writes its own on its first line.

    `limits` are resource limits by the name of their constant: {"NOFILE": 256}.
    """
    told = stdout if stdout is not None else subprocess.DEVNULL if port else subprocess.PIPE
    environment = None if env is None else {**os.environ, **env}
    process = subprocess.Popen([program, *arguments], stdout=told, stderr=stderr, text=True, env=environment)
    try:
        pin(process.pid, measured)
        limit_resources(process.pid, limits or {})
        if port is None and process.stdout is not None:
            port = int(process.stdout.readline() or 0)
        if not port:
            raise InputError(f"{' '.join(arguments)} ended with exit code {process.wait()}: its messages are above")
        yield Server(process, port)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def limit_resources(pid: int, limits: Mapping[str, int]) -> None:
    """Set the resource limits of a process that was just started, and so of its children."""
    if limits:
        import resource

        for name, value in limits.items():
            resource.prlimit(pid, getattr(resource, f"RLIMIT_{name}"), (value, value))


def raise_file_limit() -> int:
    """Let this process and its children open as many files as the system allows them; how many that is."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def module(name: str, **options: object) -> list[str]:
    """The arguments that run a module of this package, with options."""
    return [
        "-P",
        "-m",
        f"ir3de_lab.benchmarks.gateway.{name}",
        *(f"--{option}={value}" for option, value in options.items()),
    ]


@contextmanager
def gateway(
    folder: Path,
    upstream: int,
    *,
    env: Mapping[str, str] | None = None,
    limits: Mapping[str, int] | None = None,
    edit: Callable[[dict[str, Any]], object] = lambda config: None,
    stdout: int | None = None,
    stderr: int | None = None,
    **changes: Any,
) -> Iterator[Server]:
    """`ir3de serve` with the demo's router and its five experts, all of them at the one upstream.

    `edit` changes its configuration; `stdout` and `stderr` are descriptors.
    """
    config = configuration(folder, upstream, **changes)
    edit(config)
    path = folder / "gateway.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    port = config["server"]["port"]
    arguments = ["-m", "ir3de", "serve", str(path), "--quiet"]
    with started(arguments, measured=True, port=port, env=env, limits=limits, stdout=stdout, stderr=stderr) as server:
        wait_for(server)
        yield server


def configuration(
    folder: Path,
    upstream: int,
    *,
    workers: int = 1,
    timeouts: Mapping[str, float] | None = None,
    concurrency: int = 1_000,
    capabilities: Sequence[str] = ("chat", "completions", "tools"),
    serving: bool = True,
) -> dict[str, Any]:
    """A gateway as it is run for real: access log into a file, metrics on, provenance everywhere."""
    router = folder / "router"
    if not router.exists():
        Router.fit(demo.prompts()).save(router, serving=serving)
    expert = {
        "timeouts": dict(timeouts or {}),
        "concurrency": {"limit": concurrency, "queue": 1_000},
        "capabilities": list(capabilities),
    }
    experts = [{"name": name, "base_url": f"http://127.0.0.1:{upstream}/{name}/v1", **expert} for name in demo.DOMAINS]
    return {
        "version": 1,
        "router": {"path": str(router)},
        "experts": experts,
        "server": {"port": free_port(), "workers": workers},
        "logs": {"access": str(folder / "access.jsonl"), "level": "warning"},
        "state": str(folder / "state"),
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


def wait_for(server: Server, path: str = "/readyz") -> None:
    """Come back when it is ready."""
    end = time.monotonic() + STARTING
    while time.monotonic() < end and server.process.poll() is None:
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            server.get(path)
            return
        time.sleep(0.05)
    code = server.process.poll()
    found = f"not ready after {STARTING:.0f} s" if code is None else f"ended with exit code {code}"
    raise InputError(f"the gateway is {found}: its messages are above")


def memory(pid: int) -> dict[str, float]:
    """Resident and proportional memory in megabytes, as Linux counts them."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()[1:]
    found = {row.split(":")[0]: int(row.split()[1]) / 1000 * 1.024 for row in rows}
    return {"rss_mb": found["Rss"], "pss_mb": found["Pss"]}


def resident_mb(server: Server) -> float:
    """The resident memory of all its processes, in megabytes."""
    return sum(_status(pid, "VmRSS") for pid in server.tree)


def highest_mb(server: Server) -> float:
    """The most resident memory that its processes had, in megabytes, as the kernel has kept it."""
    return sum(_status(pid, "VmHWM") for pid in server.tree)


def reset_highest(server: Server) -> None:
    """Let the kernel's record of the highest memory start again from what the processes have now."""
    for pid in server.tree:
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def _status(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return next((int(line.split()[1]) / 1000 * 1.024 for line in lines if line.startswith(f"{field}:")), 0.0)


def descriptors(server: Server) -> int:
    """Open files and sockets of all its processes."""
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in server.tree)
