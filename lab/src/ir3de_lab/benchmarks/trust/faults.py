"""Faults as inputs: memory, descriptors, disk, names, logs, workers, files. A real gateway serves meanwhile.

The law: requests are answered during the fault or refused with an error object, never lost and never answered wrongly,
and afterwards all of them are answered.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from ir3de_lab.benchmarks.gateway import processes
from ir3de_lab.benchmarks.gateway.heavy_requests import SOME, ask, heavy_requests
from ir3de_lab.benchmarks.gateway.processes import Server, descriptors, highest_mb, module, started
from ir3de_lab.benchmarks.gateway.rolling import TOKEN, TOKEN_VARIABLE, put_router
from ir3de_lab.benchmarks.trust.traffic import Fault, Traffic, chats, eventually

MEMORY_BYTES = 512 << 20
FILES = 256
AFTER = 20  # chats after a fault, all of which must be answered
SILENT_READS = 3_000  # chats whose access lines nobody reads: more than a pipe holds


@contextmanager
def _served(folder: Path, **options: Any) -> Iterator[tuple[Server, Server]]:
    with (
        started(module("upstream", latency=0.001), measured=False) as upstream,
        processes.gateway(folder, upstream.port, env={TOKEN_VARIABLE: TOKEN}, **options) as gateway,
    ):
        yield upstream, gateway


def _after(fault: Fault, gateway: Server) -> None:
    kinds = chats(gateway.port, AFTER)
    fault.add(kinds)
    fault.expect(kinds["answered"] == AFTER, f"afterwards {dict(kinds)} of {AFTER}")
    fault.expect(gateway.process.poll() is None, "the gateway has ended")


def exhaust_memory(fault: Fault, folder: Path, rounds: int) -> None:
    """512 MiB, and requests that would like more."""
    with _served(folder, limits={"DATA": MEMORY_BYTES}) as (_, gateway), Traffic(gateway.port) as traffic:
        requests = [heavy.build() for heavy in heavy_requests() if heavy.name in SOME]
        for data in requests * rounds:
            ask(gateway.port, data)
            fault.injected += 1
        fault.expect(traffic.wait_for(10), "no chats are answered after heavy requests")
        fault.expect(highest_mb(gateway) < MEMORY_BYTES / 1e6, f"{highest_mb(gateway):.0f} MB were resident")
    fault.add(traffic.kinds)


def exhaust_files(fault: Fault, folder: Path, rounds: int) -> None:
    """256 descriptors, and more idle clients than that."""
    with _served(folder, limits={"NOFILE": FILES}) as (_, gateway), Traffic(gateway.port) as traffic:
        before = descriptors(gateway)
        for _ in range(rounds):
            with ExitStack() as idle:
                for _ in range(FILES + 100):
                    with suppress(OSError):
                        idle.enter_context(socket.create_connection(("127.0.0.1", gateway.port), timeout=1))
                        fault.injected += 1
                fault.expect(traffic.wait_for(50), "chats on kept connections stop while idle clients are there")
            fault.expect(eventually(lambda: descriptors(gateway) <= before + 10), "descriptors are not given back")
        _after(fault, gateway)
    fault.add(traffic.kinds)


def fill_disk(fault: Fault, folder: Path, rounds: int) -> None:
    """A full disk under the access log and the state folder."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        fault.skipped = "a file system of its own cannot be mounted here"
        return

    def edit(config: dict[str, Any]) -> None:
        config["state"] = str(disk / "state")
        config["logs"] = {"access": str(disk / "access.jsonl"), "decisions": str(disk / "decisions.jsonl")}

    try:
        with _served(folder, edit=edit, stderr=subprocess.DEVNULL) as (_, gateway), Traffic(gateway.port) as traffic:
            other = folder / "other"
            shutil.copytree(folder / "router", other)
            for _ in range(rounds):
                with suppress(OSError), (disk / "filling").open("wb", buffering=0) as stream:
                    while True:
                        stream.write(bytes(1 << 16))
                fault.injected += 1
                fault.expect(traffic.wait_for(50), "chats stop while the disk is full")
                answered = put_router(gateway, other)
                fault.expect(answered.startswith("error"), "a change was confirmed that cannot have been written")
                fault.expect("state_unusable" in answered, f"a change on a full disk: {answered}")
                (disk / "filling").unlink()
            changed = put_router(gateway, other)
            fault.expect(not changed.startswith("error"), f"no changes afterwards: {changed}")
            _after(fault, gateway)
        fault.add(traffic.kinds)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def break_names(fault: Fault, folder: Path, rounds: int) -> None:
    """An expert whose name does not resolve, or whose name server never answers, beside one addressed by name."""

    def edit(config: dict[str, Any]) -> None:
        for expert in config["experts"]:
            host = "no-such-host.invalid" if expert["name"] == "history" else "localhost"
            expert["base_url"] = expert["base_url"].replace("127.0.0.1", host)
        config["routing"] = {"fallbacks": 0}

    with (
        _served(folder, edit=edit, stderr=subprocess.DEVNULL) as (_, gateway),
        Traffic(gateway.port, model="law", fresh=True) as traffic,
        Traffic(gateway.port, model="history", clients=12) as nobody,
    ):
        fault.expect(traffic.wait_for(100 * rounds), "an expert addressed by name is not reached beside a broken name")
        fault.injected = max(1, nobody.statuses.total())
    fault.add(traffic.kinds)
    lost = nobody.kinds["lost"] + nobody.kinds["wrong"]
    fault.expect(not lost, f"{lost} requests to the expert without an address ended without an error object")


def stall_log_reader(fault: Fault, folder: Path, rounds: int) -> None:
    """The access log goes to a pipe that nobody reads."""
    reading, writing = os.pipe()
    try:
        with _served(
            folder, edit=lambda config: config["logs"].update(access="-"), stdout=writing, stderr=subprocess.DEVNULL
        ) as (_, gateway):
            with Traffic(gateway.port, clients=16) as traffic:
                fault.injected = 1
                count = SILENT_READS if rounds > 1 else SILENT_READS // 3
                fault.expect(traffic.wait_for(count, 60), "chats stop when nobody reads the access log")
            fault.add(traffic.kinds)
            with suppress(OSError):
                gateway.get("/livez")
            gateway.process.terminate()
            fault.expect(_ends(gateway), "SIGTERM does not end it while nobody reads the access log")
    finally:
        os.close(reading)
        os.close(writing)


def _ends(gateway: Server, seconds: float = 15.0) -> bool:
    with suppress(subprocess.TimeoutExpired):
        gateway.process.wait(seconds)
    return gateway.process.poll() is not None


def kill_workers(fault: Fault, folder: Path, rounds: int) -> None:
    """SIGKILL to one of two workers; what it had in its hands is lost with it, and nothing else."""
    with _served(folder, workers=2, stderr=subprocess.DEVNULL) as (_, gateway):
        with Traffic(gateway.port, fresh=True) as traffic:
            for _ in range(rounds):
                workers = gateway.tree[1:]
                os.kill(workers[-1], signal.SIGKILL)
                fault.injected += 1
                came = eventually(partial(_is_replaced, gateway, workers))
                fault.expect(came, "a killed worker is not replaced")
                fault.expect(traffic.wait_for(50), "chats stop after a worker was killed")
        in_hand = min(traffic.kinds["lost"] + traffic.kinds["cut"], 4 * fault.injected)
        traffic.kinds["lost"] -= in_hand  # at most one of each client, at each kill
        fault.add(traffic.kinds)
        _after(fault, gateway)


def _is_replaced(gateway: Server, workers: list[int]) -> bool:
    now = gateway.tree[1:]
    return len(now) >= len(workers) and workers[-1] not in now


def freeze_upstream(fault: Fault, folder: Path, rounds: int) -> None:
    """The experts' process is stopped for a second and goes on."""
    with _served(folder) as (upstream, gateway):
        with Traffic(gateway.port) as traffic:
            for _ in range(rounds):
                upstream.process.send_signal(signal.SIGSTOP)
                fault.injected += 1
                time.sleep(1.0)
                upstream.process.send_signal(signal.SIGCONT)
                fault.expect(traffic.wait_for(20), "chats stop after the upstream was frozen")
        fault.add(traffic.kinds)
        _after(fault, gateway)


def damage_router(fault: Fault, folder: Path, rounds: int) -> None:
    """Every file of the router is overwritten, cut and removed in place, and comes back."""
    with _served(folder, stderr=subprocess.DEVNULL) as (_, gateway):
        router, good = folder / "router", folder / "good"
        shutil.copytree(router, good)
        with Traffic(gateway.port) as traffic:
            for number in range(3 * rounds):
                for path in sorted(router.iterdir()):
                    _damage(path, number % 3)
                    fault.injected += 1
                time.sleep(0.5)
                put_router(gateway, router)  # refused; the current router stays
                shutil.copytree(good, router, dirs_exist_ok=True)
                fault.expect(traffic.wait_for(20), "chats stop while the router's files are damaged")
        fault.add(traffic.kinds)
        _after(fault, gateway)


def _damage(path: Path, way: int) -> None:
    if way == 0:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x10
        with path.open("r+b") as stream:
            stream.write(data)
    elif way == 1:
        with path.open("r+b") as stream:
            stream.truncate(path.stat().st_size // 2)
    else:
        path.unlink()


def leave_abruptly(fault: Fault, folder: Path, rounds: int) -> None:
    """Clients that send half a request, a byte at a time, or close with a reset."""
    with _served(folder, stderr=subprocess.DEVNULL) as (_, gateway), Traffic(gateway.port) as traffic:
        request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{"
        stop = threading.Event()

        def drip() -> None:
            with socket.create_connection(("127.0.0.1", gateway.port)) as slow, suppress(OSError):
                for byte in request * 20:
                    if stop.wait(0.05):
                        return
                    slow.sendall(bytes([byte]))

        slow = [threading.Thread(target=drip) for _ in range(8)]
        for thread in slow:
            thread.start()
        for number in range(300 * rounds):
            with socket.create_connection(("127.0.0.1", gateway.port)) as client, suppress(OSError):
                client.sendall(request[: 1 + number % len(request)])
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            fault.injected += 1
        fault.expect(traffic.wait_for(50), "chats stop beside clients that leave")
        stop.set()
        for thread in slow:
            thread.join()
    fault.add(traffic.kinds)


FAULTS: dict[str, Callable[[Fault, Path, int], None]] = {
    "512 MiB of memory, heavy requests": exhaust_memory,
    "256 descriptors, 356 idle clients": exhaust_files,
    "disk full": fill_disk,
    "a host name that does not resolve": break_names,
    "nobody reads the access log": stall_log_reader,
    "worker killed (SIGKILL)": kill_workers,
    "upstream frozen (SIGSTOP)": freeze_upstream,
    "router files overwritten, cut, removed": damage_router,
    "clients that leave or drip": leave_abruptly,
}
