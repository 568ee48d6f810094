"""`ir3de serve` as a process of its own: what is done to its files, and what it leaves behind, while it serves."""

import base64
import gzip
import json
import signal
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import sleep
from urllib.parse import urlsplit

import pytest

from admin_client import ENDPOINT, TOKEN, token  # noqa: F401
from test_admin_workers import Process, folder, process  # noqa: F401


@pytest.mark.parametrize("name", ["router", pytest.param("state", marks=pytest.mark.slow)])
def test_a_router_that_is_copied_over_itself_while_it_serves_harms_nobody(folder: Path, name: str) -> None:  # noqa: F811
    with process(folder, 1, router={"path": str(folder / "router"), "follow": 0.02}) as gateway:
        if name == "state":  # the router that serves is a changed one, in the state folder
            gateway.ask("DELETE", "/admin/experts/law")
        asked = {"input": "Is this contract void?", "explain": True}  # an explanation reads the table, too
        before = gateway.ask("POST", "/v1/route", asked)["data"]
        for path in [path for path in (folder / name).glob("**/*") if path.is_file() and "cache" not in path.parts]:
            content = path.read_bytes()
            with path.open("wb") as file:  # as `cp` does: the file is empty for a while
                for _ in range(5):
                    assert gateway.ask("POST", "/v1/route", asked)["data"] == before
                file.write(content)
        assert gateway.running.poll() is None


def find_fit(gateway: Process) -> int:
    """The process that fits for a gateway; waits until there is one."""
    for _ in range(6_000):
        assert gateway.running.poll() is None, "the gateway ended"
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int(path.joinpath("stat").read_text().rpartition(")")[2].split()[1])
                if parent == gateway.running.pid and b"fit_process" in path.joinpath("cmdline").read_bytes():
                    return int(path.name)
        sleep(0.01)
    raise AssertionError("no process fits")


def wait_for_end(pid: int) -> None:
    """Wait until a process has ended; nobody may have asked for its status yet."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for _ in range(3_000):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
            sleep(0.01)
        raise AssertionError(f"process {pid} goes on")


@cache
def pack_much() -> bytes:
    """Texts whose counting does not end while a test runs."""
    return gzip.compress(b"Why did the war begin in 1618?\n" * 5_000_000, 1)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found as Linux shows them")
@pytest.mark.parametrize(
    "end",
    [
        "the client leaves",
        pytest.param("SIGTERM", marks=pytest.mark.slow),
        pytest.param("SIGKILL", marks=pytest.mark.nightly),
    ],
)
def test_a_fit_ends_when_nobody_waits_for_it_any_more(folder: Path, end: str) -> None:  # noqa: F811
    file = {"name": "history.txt.gz", "content": base64.b64encode(pack_much()).decode()}
    body = json.dumps({"name": "history", "upstream": ENDPOINT, "file": file}).encode()
    head = f"POST /admin/experts HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {TOKEN}\r\n"
    head += f"content-length: {len(body)}\r\n\r\n"
    with process(folder, 1, server={"drain": 0.1}) as gateway:
        address = urlsplit(gateway.address)
        with socket.create_connection((address.hostname, address.port)) as client:
            client.sendall(head.encode() + body)
            fitting = find_fit(gateway)
            if end != "the client leaves":
                gateway.running.send_signal(getattr(signal, end))
                gateway.running.wait(60)
        wait_for_end(fitting)
        if end == "the client leaves":
            gateway.ask("POST", "/admin/experts", {"name": "history", "upstream": ENDPOINT})
            assert [line["outcome"] for line in gateway.ask("GET", "/admin/audit")["data"]] == ["done", "refused"]
