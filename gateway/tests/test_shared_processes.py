"""Three gateways of two workers each, as processes, on one store that is killed and comes back under traffic."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from client_keys import bearer, key, write_keys
from raw_sockets import ask, chat, eventually
from redis_process import RedisProcess, needs_redis, running_redis
from running_gateway import Upstream, config_for, save_small_router, served

pytestmark = [pytest.mark.slow, pytest.mark.nightly, needs_redis]
KEYS = [f"key-{number}" for number in range(20)]
ROOT = {"authorization": "Bearer root"}


@contextmanager
def machine(folder: Path, config: Any) -> Iterator[str]:
    """`ir3de serve` with two workers: its address."""
    folder.mkdir()
    (folder / "ir3de.yaml").write_text(json.dumps(config.model_dump(mode="json", exclude_unset=True)))
    command = [sys.executable, "-m", "ir3de", "serve", str(folder / "ir3de.yaml"), "--json"]
    options: dict[str, Any] = {"env": {**os.environ, "IR3DE_ADMIN_TOKEN": "root"}, "start_new_session": True}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, **options) as running:
        try:
            assert running.stdout is not None
            yield json.loads(running.stdout.readline())["address"]
        finally:
            os.killpg(running.pid, signal.SIGKILL)


@contextmanager
def machines(folder: Path, store: RedisProcess, *keys: Any) -> Iterator[list[str]]:
    save_small_router(folder / "router")
    file = write_keys(folder / "keys.yaml", *keys)
    with ExitStack() as stack:
        experts = stack.enter_context(served(Upstream().app()))
        found = []
        for number in range(3):
            own = folder / f"machine-{number}"
            state = {"store": store.url, "folder": str(own / "state")}
            server = {"keys_file": str(file), "port": 0, "workers": 2}
            config = config_for(experts, folder / "router", state=state, server=server)
            found.append(stack.enter_context(machine(own, config)))
        yield found


def count_used(url: str, name: str) -> int:
    used = ask(url, path="/v1/usage", **bearer(name)).json
    return int(used["used"]["day"]["requests"]) if "used" in used else -1


def test_a_store_that_is_killed_under_traffic_loses_nothing_and_fails_no_request(tmp_path: Path) -> None:
    with (
        running_redis(tmp_path / "redis", {"appendfsync": "always"}) as store,
        machines(tmp_path, store, *map(key, KEYS)) as urls,
        ThreadPoolExecutor(12) as pool,
    ):
        stop, answered, failed = threading.Event(), Counter[str](), list[Any]()
        lock = threading.Lock()

        def send(number: int) -> None:
            while not stop.is_set():
                name = KEYS[number % len(KEYS)]
                got = ask(urls[number % 3], chat("x", "law"), **bearer(name))
                with lock:
                    answered[name] += got.status == 200
                    failed.extend([] if got.status == 200 else [(got.status, got.body[:200])])
                number += 7

        sending = [pool.submit(send, number) for number in range(12)]
        for _ in range(2):
            enough = sum(answered.values()) + 60
            assert eventually(lambda enough=enough: sum(answered.values()) >= enough)  # type: ignore[misc]
            store.kill()
            enough = sum(answered.values()) + 60
            assert eventually(lambda enough=enough: sum(answered.values()) >= enough)  # type: ignore[misc]
            store.start()
        enough = sum(answered.values()) + 60
        assert eventually(lambda: sum(answered.values()) >= enough)
        stop.set()
        for one in sending:
            one.result()
        assert failed == []
        for place, name in enumerate(KEYS):
            url = urls[place % 3]
            assert eventually(lambda url=url, name=name: count_used(url, name) == answered[name]), (  # type: ignore[misc]
                name, count_used(url, name), answered[name],
            )  # fmt: skip


def test_what_one_worker_learns_all_workers_of_all_machines_know_after_a_second(tmp_path: Path) -> None:
    with running_redis(tmp_path / "redis") as store, machines(tmp_path, store, key("ada")) as urls:
        session = {**bearer("ada"), "x-session-id": "monday"}
        first = ask(urls[0], chat("x", "auto"), **session).headers["x-ir3de-expert"]
        made = ask(urls[1], {"name": "bea"}, "/admin/keys", **ROOT)
        assert made.status == 201
        threading.Event().wait(1)
        for url in urls:  # each request is a connection of its own, to either worker
            asked = [ask(url, chat("x", "auto"), **session).headers["x-ir3de-expert"] for _ in range(6)]
            assert asked == [first] * 6
            given = {"authorization": f"Bearer {made.json['key']}"}
            assert [ask(url, chat("x", "law"), **given).status for _ in range(6)] == [200] * 6
