"""A real redis-server on a free port, with persistence on: it can be killed, started again and filled."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from free_ports import find_free_port
from raw_sockets import eventually

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")
HAS_CLIENT = find_spec("redis") is not None
needs_redis = pytest.mark.skipif(
    PROGRAM is None or not HAS_CLIENT, reason="needs redis-server (Debian's package) and ir3de-gateway[redis]"
)


class RedisProcess:
    """One server, and its data in a folder."""

    def __init__(self, folder: Path, **options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.options, self.port = folder, options, find_free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        assert PROGRAM is not None
        options = {"appendonly": "yes", "appendfsync": "everysec", "save": "", **self.options}
        if "cluster-enabled" in options:  # else its second port is this one and 10,000, which may be above all ports
            options["cluster-port"] = str(find_free_port())
        more = [word for name, value in options.items() for word in (f"--{name}", value)]
        command = [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), *more]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        if not eventually(self.is_up):
            self.kill()
            raise AssertionError(f"redis-server at port {self.port} does not answer")

    def is_up(self) -> bool:
        import redis

        try:
            with self.connect() as client:
                return bool(client.ping())
        except redis.exceptions.AuthenticationError:
            return True
        except redis.exceptions.RedisError:
            return False

    def connect(self, **options: Any) -> Any:
        import redis

        return redis.Redis.from_url(self.url, **options)

    def kill(self) -> None:
        """As kill -9 does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def running_redis(folder: Path, options: Mapping[str, str] | None = None) -> Iterator[RedisProcess]:
    server = RedisProcess(folder, **(options or {}))
    server.start()
    try:
        yield server
    finally:
        server.kill()
