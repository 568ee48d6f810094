"""Feedback over two real workers that are killed: what was acknowledged is there, and every request is found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ir3de.traffic import Journal
from raw_sockets import ask, chat, eventually
from running_gateway import QUESTIONS, Upstream, config_for, served, small_router
from test_shared_limits import list_workers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="workers share no numbers on Windows"),
]
KILL_AFTER = (1, 40, 90)  # acknowledged feedbacks


@contextmanager
def two_workers(folder: Path, upstream: str, **changes: Any) -> Iterator[tuple[str, int]]:
    """`ir3de serve` with two workers and a journal: its address and process. It is killed at the end."""
    if not (folder / "router").exists():
        small_router().save(folder / "router")
    config = config_for(upstream, folder / "router", server={"port": 0, "workers": 2}, **changes)
    (folder / "ir3de.yaml").write_text(json.dumps(config.model_dump(mode="json", exclude_unset=True)))
    command = [sys.executable, "-m", "ir3de", "serve", str(folder / "ir3de.yaml"), "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "IR3DE_API_KEY"}
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


def give_until_dead(address: str, worker: int, acknowledged: dict[str, float], statuses: list[int]) -> None:
    """Route, and give feedback on it twice, until nobody answers."""
    try:
        while True:
            request_id = ask(address, chat(QUESTIONS["law"])).headers["x-request-id"]
            for score in (0.5, worker / 10):
                body = {"request_id": request_id, "score": score}
                statuses.append(ask(address, body, "/v1/feedback").status)
                if statuses[-1] == 200:
                    acknowledged[request_id] = score
    except (OSError, ConnectionError):  # killed
        return
    except Exception as error:  # a response that was cut off
        assert "http.client" in type(error).__module__, error


def test_acknowledged_feedback_survives_a_kill_at_any_point(tmp_path: Path) -> None:
    feedback = {"folder": str(tmp_path / "kept"), "keep": "text"}
    acknowledged: dict[str, float] = {}
    statuses: list[int] = []
    with served(Upstream().app()) as experts:
        for enough in KILL_AFTER:
            with two_workers(tmp_path, experts, feedback=feedback) as (address, pid), ThreadPoolExecutor(4) as pool:
                already = len(acknowledged)
                giving = [pool.submit(give_until_dead, address, n, acknowledged, statuses) for n in range(4)]
                assert eventually(lambda: len(acknowledged) >= already + enough)  # noqa: B023 - it is called now
                os.killpg(pid, signal.SIGKILL)
                for one in giving:
                    one.result()
    with Journal.open(tmp_path / "kept") as journal:
        kept = {record.id: [one.score for one in record.feedback] for record in journal.read()}
    assert len(acknowledged) >= sum(KILL_AFTER)
    # one that was written, but not acknowledged any more, may be in the place of an acknowledged one
    lost = {name: kept.get(name) for name, score in acknowledged.items() if not _is_kept(score, kept.get(name))}
    assert lost == {}
    assert set(statuses) == {200}  # whichever worker had answered


def _is_kept(score: float, found: list[float | None] | None) -> bool:
    return bool(found) and (score == 0.5 or found == [score])


@pytest.mark.nightly
def test_processes_that_start_together_make_one_journal(tmp_path: Path) -> None:
    code = "import sys; from ir3de.traffic import *; j = Journal.create(sys.argv[1]); "
    code += "j.append([TrafficRecord(sys.argv[2] + str(n), 1.0) for n in range(50)])"
    made = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "kept"), f"p{n}-"]) for n in range(6)]
    assert [one.wait(120) for one in made] == [0] * 6
    with Journal.open(tmp_path / "kept") as journal:
        assert journal.count() == 300


@pytest.mark.nightly
def test_a_signal_switches_feedback_on_and_off(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    with served(Upstream().app()) as experts, two_workers(tmp_path, experts) as (address, pid):
        request = {"request_id": "r", "score": 1}
        assert ask(address, request, "/v1/feedback").error["code"] == "feedback_off"
        path = tmp_path / "ir3de.yaml"
        off = path.read_text()
        path.write_text(json.dumps({**json.loads(off), "feedback": {"folder": "kept"}}))  # next to the file
        os.kill(pid, signal.SIGHUP)

        def is_taken() -> bool:  # by new workers, which replace the old ones one after another
            request_id = ask(address, chat(QUESTIONS["law"])).headers["x-request-id"]
            return ask(address, {"request_id": request_id, "thumb": "up"}, "/v1/feedback").status == 200

        assert eventually(is_taken)
        path.write_text(off)
        os.kill(pid, signal.SIGHUP)
        assert eventually(lambda: ask(address, request, "/v1/feedback").error["code"] == "feedback_off")
    with Journal.open(folder) as journal:
        assert [one.score for row in journal.read() for one in row.feedback] == [1.0]
