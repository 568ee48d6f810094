"""A process that is killed at any point of a promotion or a rollback: one of both routers serves, whole, and no more.

A child is forked for each point, and killed as it is about to write there. What it acknowledged must be in force.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ir3de_gateway.admin import candidate
from ir3de_gateway.admin.administration import Administration, Caller, open_admin_state
from ir3de_gateway.admin.changes import AdminState
from ir3de_gateway.admin.state import StateFolder
from ir3de_gateway.admin.versions import describe_versions
from ir3de_gateway.config.document import Config
from ir3de_gateway.experts.snapshot import LiveSnapshot
from running_gateway import config_for
from saved import first_router, second_router

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked and killed"),
]
WRITES = frozenset(("os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"))
MAX_POINTS = 500


def open_administration(config: Config, state: Path) -> Administration:
    folder = StateFolder(state)
    return Administration(LiveSnapshot(open_admin_state(config, None, folder)), lambda: config, folder)


def promote(administration: Administration) -> AdminState:
    return apply(administration, partial(candidate.promote, None, "me", "why"), "promote candidate")


def roll_back(administration: Administration) -> AdminState:
    return apply(administration, partial(candidate.roll_back, ""), "roll back")


def apply(administration: Administration, change: Any, action: str) -> AdminState:
    what = {"action": action, "why": "why"}
    now, found = administration._apply_change(change, Caller("me"), what, threading.Event())
    assert found is None, found
    return now


def kill_at(point: int, state: Path) -> None:
    """Kill this process as it is about to write to the state folder for the n-th time."""
    seen, inside = [0], str(state)

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        is_write = event in WRITES or (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE
        )
        if is_write and any(inside in os.fsdecode(one) for one in arguments if isinstance(one, (str, bytes, Path))):
            seen[0] += 1
            if seen[0] == point:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(note)


def is_acknowledged(act: Any, administration: Administration, point: int) -> bool:
    """Let a child make the change, and kill it at that point; whether it got to the end."""
    pid = os.fork()
    if pid == 0:
        try:
            kill_at(point, administration.folder.path)
            act(administration)
            os._exit(0)
        finally:
            os._exit(3)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


@pytest.fixture
def config(tmp_path: Path) -> Config:
    first_router().save(tmp_path / "router")
    second_router().save(tmp_path / "candidate")
    routing = {"candidate": {"router": str(tmp_path / "candidate")}}
    return config_for("http://127.0.0.1:9", tmp_path / "router", routing=routing, state=str(tmp_path / "state"))


@pytest.mark.parametrize("what", ["promote", pytest.param("roll back", marks=pytest.mark.nightly)])
def test_a_kill_at_any_point_leaves_one_whole_router(tmp_path: Path, config: Config, what: str) -> None:
    begun, state = tmp_path / "begun", tmp_path / "state"
    prepared = open_administration(config, begun)
    prepared.note_version()
    act, before = promote, prepared.current.digest
    if what == "roll back":
        act, before = roll_back, promote(prepared).digest
    after, served, points = "", list[str](), 0
    for point in range(1, MAX_POINTS):
        shutil.rmtree(state, ignore_errors=True)
        shutil.copytree(begun, state)
        is_done = is_acknowledged(act, open_administration(config, state), point)
        again = open_administration(config, state)  # a restart
        again.note_version()
        served.append(again.current.digest)
        rows = describe_versions(again.folder, again.current.digest)
        assert rows[0]["live"] and rows[0]["kept"], point  # in the history, whichever serves
        assert all(row["kept"] for row in rows), point  # and there is a way back
        if served[-1] != before:
            after = served[-1]
            assert (rows[0]["who"], rows[0]["why"], rows[1]["digest"]) == ("me", "why", before), point
        again = open_administration(config, state)
        target = act(again) if served[-1] == before else again.current  # it can be made again
        assert after in ("", target.digest), point
        if is_done:
            assert served[-1] == after, point
            points = point
            break
    assert points > 8 and set(served) == {before, after}
