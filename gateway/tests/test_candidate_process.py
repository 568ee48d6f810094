"""A candidate over two real workers: they agree who serves, a stop reaches both and survives a kill."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from admin_client import TOKEN
from candidate_routers import save_candidate
from ir3de.traffic import Feedback, Journal
from raw_sockets import ask, chat, eventually
from running_gateway import QUESTIONS, Upstream, served
from test_feedback_process import two_workers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="workers share no numbers on Windows"),
]
LAW = QUESTIONS["law"]


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)


def state_of(address: str) -> Any:
    return ask(address, path="/admin/candidate", authorization=f"Bearer {TOKEN}").json


@pytest.mark.nightly
def test_two_workers_try_one_candidate_and_stop_it_together(tmp_path: Path) -> None:
    save_candidate(tmp_path)
    feedback = {"folder": str(tmp_path / "kept"), "keep": "statistics"}
    routing = {"candidate": {"router": "candidate", "mode": "canary", "share": 0.5}, "threshold": 0.0}
    with served(Upstream().app()) as experts:
        with two_workers(tmp_path, experts, feedback=feedback) as (address, pid):
            assert state_of(address) == {"object": "candidate", "state": "none"}
            path = tmp_path / "ir3de.yaml"
            path.write_text(json.dumps({**json.loads(path.read_text()), "routing": routing}))
            os.kill(pid, signal.SIGHUP)
            assert eventually(lambda: all(state_of(address)["state"] == "trial" for _ in range(8)))
            found: dict[str, set[str]] = {}
            for number in range(120):  # each conversation three times, by connections of their own: to both workers
                text = f"{LAW} Case {number % 40}."
                got = ask(address, chat(text), x_request_id=f"id-{number}").headers
                found.setdefault(text, set()).add(got["x-ir3de-expert"])
            assert all(len(experts) == 1 for experts in found.values())  # whichever worker was asked
            assert set.union(*found.values()) == {"law", "cooking"}
            with Journal.open(tmp_path / "kept") as journal:
                assert eventually(lambda: journal.count() == 120)
                rows = list(journal.read())
                journal.put_all((row.id, Feedback("a", row.time, score=float(row.served == "law"))) for row in rows)
            assert eventually(lambda: all(state_of(address)["state"] == "stopped" for _ in range(8)))
            assert all("x-ir3de-candidate" not in ask(address, chat(LAW)).headers for _ in range(8))
            test = state_of(address)["test"]
            assert (test["requests"], test["observed"]) == (120, 40)  # a conversation counts once
            scraped = ask(address, path="/metrics").body.decode()
            assert "ir3de_candidate_state 3.0" in scraped
            os.killpg(pid, signal.SIGKILL)
        (tmp_path / "ir3de.yaml").unlink()
        with two_workers(tmp_path, experts, feedback=feedback, routing=routing) as (address, _):
            assert state_of(address)["state"] == "stopped"
            assert "x-ir3de-candidate" not in ask(address, chat(LAW)).headers
    log = (tmp_path / "log").read_text()
    assert log.count("was stopped: the candidate is worse") == 1


@pytest.mark.nightly
def test_a_candidate_that_cannot_be_loaded_leaves_all_as_it_was(tmp_path: Path) -> None:
    with served(Upstream().app()) as experts, two_workers(tmp_path, experts) as (address, pid):
        path = tmp_path / "ir3de.yaml"
        path.write_text(json.dumps({**json.loads(path.read_text()), "routing": {"candidate": {"router": "nowhere"}}}))
        got = ask(address, {}, "/admin/reload", authorization=f"Bearer {TOKEN}")
        assert got.status == 422 and "no router at" in got.error["message"]
        os.kill(pid, signal.SIGHUP)
        assert eventually(lambda: "nowhere" in (tmp_path / "log").read_text())
        assert ask(address, chat(LAW)).status == 200 and state_of(address)["state"] == "none"
