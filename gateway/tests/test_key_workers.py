"""Keys over two real workers: exact limits, one file for all, and numbers that outlive a kill."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from client_keys import bearer, key, write_keys
from raw_sockets import ask, chat, eventually, sent
from running_gateway import QUESTIONS, Upstream, config_for, served, small_router
from test_shared_limits import Crowd, list_workers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="workers share no numbers on Windows"),
]
PRICE = {"input_per_1m": 1_000.0, "output_per_1m": 2_000.0}  # an answer costs 0.02


@contextmanager
def two_workers(folder: Path, upstream: str) -> Iterator[tuple[str, int]]:
    """`ir3de serve` with two workers and the keys of keys.yaml; it is killed at the end, and may be started again."""
    if not (folder / "router").exists():
        small_router().save(folder / "router")
    server = {"port": 0, "workers": 2, "keys_file": "keys.yaml"}
    config = config_for(upstream, folder / "router", experts={"law": {"price": PRICE}}, server=server)
    (folder / "ir3de.yaml").write_text(json.dumps(config.model_dump(mode="json", exclude_unset=True)))
    command = [sys.executable, "-m", "ir3de", "serve", str(folder / "ir3de.yaml"), "--json"]
    environment = {**os.environ, "IR3DE_ADMIN_TOKEN": "root"}
    environment.pop("IR3DE_API_KEY", None)
    with (folder / "log").open("ab") as log:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": log, "start_new_session": True}
        with subprocess.Popen(command, text=True, cwd=folder, env=environment, **pipes) as running:
            try:
                assert running.stdout is not None
                address = json.loads(running.stdout.readline())["address"]
                assert eventually(lambda: len(list_workers(running.pid)) == 2)
                yield address, running.pid
            finally:
                os.killpg(running.pid, signal.SIGKILL)


def describe(url: str, name: str) -> dict[str, Any]:
    listed = ask(url, path="/admin/keys", authorization="Bearer root").json
    return next(row for row in listed["data"] if row["name"] == name)


def test_limits_are_exact_over_both_and_outlive_a_kill(tmp_path: Path) -> None:
    upstream, crowd = Upstream(), Crowd()
    upstream.behaviour["cooking"] = crowd.answer
    rich = {f"key-{number}": 5 * number for number in range(1, 5)}
    limited = [key(name, requests_per_minute=limit) for name, limit in rich.items()]
    write_keys(tmp_path / "keys.yaml", *limited, key("poor", budget_per_day=0.1), key("single", concurrent=3))
    law = chat(QUESTIONS["law"], "law", max_tokens=5)
    with served(upstream.app()) as experts, ThreadPoolExecutor(24) as pool:
        with two_workers(tmp_path, experts) as (url, _):
            names = [*rich, "poor"] * 30
            statuses = pool.map(lambda name: (name, ask(url, law, **bearer(name)).status), names)
            found = Counter(statuses)
            for name, limit in rich.items():
                assert (found[name, 200], found[name, 429]) == (limit, 30 - limit)
            # five answers of 0.02; what was expected of others in flight may have kept some out meanwhile
            while describe(url, "poor")["used"]["day"]["cost"] < 0.1:
                assert ask(url, law, **bearer("poor")).status == 200
            assert ask(url, law, **bearer("poor")).status == 429
            assert describe(url, "poor")["used"]["day"]["cost"] <= 0.12

            body = json.dumps(chat("Wait.", "cooking", stream=True)).encode()
            lines = [sent(url, body, **bearer("single")) for _ in range(12)]
            heads = Counter(line.recv(12) for line in lines)
            assert heads == {b"HTTP/1.1 200": 3, b"HTTP/1.1 429": 9} and crowd.most == 3
            spent = describe(url, "poor")["used"]["month"]
            for line in lines:
                line.close()
        with two_workers(tmp_path, experts) as (url, _):  # it was killed, and starts again
            assert describe(url, "poor")["used"]["month"] == spent
            assert ask(url, law, **bearer("poor")).error["code"] == "insufficient_quota"
            assert describe(url, "single")["used"]["concurrent"] == 0
        crowd.open.set()


def test_a_killed_worker_gives_its_places_back_and_a_broken_file_is_told_once(tmp_path: Path) -> None:
    upstream, crowd = Upstream(), Crowd()
    upstream.behaviour["law"] = crowd.answer
    write_keys(tmp_path / "keys.yaml", key("ada", concurrent=4, budget_per_month=1_000))
    with served(upstream.app()) as experts, two_workers(tmp_path, experts) as (url, parent):
        (tmp_path / "keys.yaml").write_text("keys: [{name: ada, key: sk-plain}]")
        body = json.dumps(chat("Is it void?", "law", stream=True, max_tokens=100)).encode()
        lines = [sent(url, body, **bearer("ada")) for _ in range(4)]
        assert eventually(lambda: crowd.here == 4)
        assert ask(url, body, **bearer("ada")).status == 429
        expected = describe(url, "ada")["used"]["month"]
        for worker in list_workers(parent):
            os.kill(worker, signal.SIGKILL)
        assert eventually(lambda: crowd.here == 0)
        # workers start in their place with the keys that were in force, though the file is broken
        assert eventually(lambda: len(list_workers(parent)) == 2)
        assert eventually(lambda: describe(url, "ada")["used"]["concurrent"] == 0)
        assert "no keys in the file" in _get_problem(url)
        # the estimates stay, because nobody knows what the answers took
        assert describe(url, "ada")["used"]["month"] == expected and expected["tokens"] > 400
        for line in lines:
            line.close()
        crowd.open.set()
        write_keys(tmp_path / "keys.yaml", key("ada", concurrent=4), key("bea"))
        assert eventually(lambda: {ask(url, path="/v1/models", **bearer("bea")).status for _ in range(40)} == {200})
        # what was told is read in the log: an answer comes from either worker, and the other may not have looked yet
        log = tmp_path / "log"
        for times, name in enumerate(("one", "two"), start=1):
            (tmp_path / "keys.yaml").write_text(f"keys: [{{name: {name}}}]")
            assert eventually(lambda: log.read_text().count("needs either hash or key_env") == times)  # noqa: B023
            assert ask(url, path="/v1/models", **bearer("bea")).status == 200
            write_keys(tmp_path / "keys.yaml", key("bea"))
            assert eventually(lambda: log.read_text().count("loaded 1 keys") == times)  # noqa: B023
        assert eventually(lambda: not any(_get_problem(url) for _ in range(8)))
    assert log.read_text().count("needs either hash or key_env") == 2


def test_a_request_that_the_gateway_gave_up_costs_nothing(tmp_path: Path) -> None:
    begun, upstream = threading.Event(), Upstream()

    async def hang(request: Request, asked: dict[str, Any]) -> Response:
        begun.set()
        while not await request.is_disconnected():
            await asyncio.sleep(0.02)
        return Response(status_code=500)

    upstream.behaviour["law"] = hang
    write_keys(tmp_path / "keys.yaml", key("ada"))
    with served(upstream.app()) as experts, ThreadPoolExecutor(1) as pool:
        with two_workers(tmp_path, experts) as (url, parent):
            given_up = pool.submit(ask, url, chat(QUESTIONS["law"], "law"), **bearer("ada"))
            assert begun.wait(60)
            for _ in range(2):
                os.kill(parent, signal.SIGINT)
                threading.Event().wait(0.5)
            assert given_up.result().error["code"] == "stopping"
        with two_workers(tmp_path, experts) as (url, _):
            used = describe(url, "ada")["used"]["month"]
            assert (used["requests"], used["tokens"], used["cost"], used["estimated"]) == (1, 0, 0, 0)


def _get_problem(url: str) -> Any:
    return ask(url, path="/admin/keys", authorization="Bearer root").json["problem"]
