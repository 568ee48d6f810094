"""/admin of several workers: they agree, and what was acknowledged outlives a kill."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

import pytest

from admin_client import ENDPOINT, HISTORY, TOKEN, config, token  # noqa: F401
from saved import first_router


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    first_router().save(tmp_path / "router")
    return tmp_path


@dataclass
class Process:
    """`ir3de serve`."""

    running: subprocess.Popen[str]
    address: str

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask it, by a new connection each time."""
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        with urlopen(UrlRequest(self.address + path, content, headers, method=method), timeout=60) as response:
            return json.load(response)

    def kill(self) -> None:
        os.killpg(self.running.pid, signal.SIGKILL)


@contextmanager
def process(folder: Path, workers: int, server: dict[str, Any] | None = None, **changes: Any) -> Iterator[Process]:
    settings = {"port": 0, "workers": workers, **(server or {})}
    given = config(folder, server=settings, **changes).model_dump(mode="json", exclude_unset=True)
    (folder / "ir3de.yaml").write_text(json.dumps(given))  # JSON is YAML
    command = [sys.executable, "-m", "ir3de", "serve", str(folder / "ir3de.yaml"), "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "cwd": folder, "start_new_session": True}
    with subprocess.Popen(command, text=True, **pipes) as running:
        try:
            yield Process(running, json.loads(running.stdout.readline())["address"])
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.nightly
def test_workers_agree_and_what_was_answered_outlives_a_kill(folder: Path) -> None:
    def known(gateway: Process) -> list[bool]:
        return ["history" in [row["id"] for row in gateway.ask("GET", "/v1/models")["data"]] for _ in range(16)]

    with process(folder, 2) as gateway:
        assert not any(known(gateway))
        assert gateway.ask("POST", "/admin/experts", {"name": "history", "upstream": ENDPOINT})["name"] == "history"
        while not all(known(gateway)):  # the other worker looks every second
            pass
        assert gateway.ask("DELETE", "/admin/experts/law?domain=keep")["removed"]
        gateway.kill()
    with process(folder, 1) as gateway:
        found = [row["name"] for row in gateway.ask("GET", "/admin/experts")["data"]]
        assert found == ["maths", "cooking", "history", "law"]  # the last one is known to the router alone
        actions = [line["action"] for line in gateway.ask("GET", "/admin/audit")["data"]]
        assert actions == ["remove expert", "add expert"]
        gateway.kill()
