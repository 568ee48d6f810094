"""Pins: a conversation keeps its expert for a while, and no number of conversations fills the memory or the disk."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

import pytest

import tiny
from ir3de_gateway.store import pins
from ir3de_gateway.store.pins import StoredPins, create_pins, find_file
from ir3de_gateway.store.workers import WorkerNotes
from running_gateway import Running, running
from saved import first_router


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "shared"])
def both(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> StoredPins:
    return StoredPins(60, None if request.param == "memory" else tmp_path / "pins.sqlite", clock)


def test_a_store_that_is_dropped_is_closed(tmp_path: Path) -> None:
    stored, notes = StoredPins(60, tmp_path / "pins.sqlite"), WorkerNotes(tmp_path)
    databases = stored._database, notes._database
    del stored, notes
    gc.collect()
    for database in databases:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            database.execute("SELECT 1")


def rows(path: Path) -> int:
    with sqlite3.connect(path) as database:
        (count,) = database.execute("SELECT count(*) FROM pins").fetchone()
    database.close()
    return int(count)


def test_a_pin_ends_when_the_conversation_was_silent_for_its_time(both: StoredPins, clock: Clock) -> None:
    both.put("monday", "law")
    clock.now += 59
    assert both.get("monday") == "law"
    both.put("monday", "maths")  # a new turn, another expert, another minute
    clock.now += 59
    assert both.get("monday") == "maths"
    clock.now += 1
    assert both.get("monday") is None
    assert both.get("tuesday") is None
    both.close()


def test_sessions_of_any_length_are_told_apart(both: StoredPins) -> None:
    for length in (64, 65, 1_000):
        both.put("x" * length, str(length))
    assert [both.get("x" * length) for length in (64, 65, 1_000)] == ["64", "65", "1000"]
    both.close()


def test_beyond_the_limit_the_pins_that_expire_first_are_dropped(
    both: StoredPins, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins, "MAX_PINS", 3)
    monkeypatch.setattr(pins, "BATCH_ROWS", 2)
    for session in ("a", "b", "c", "a", "d", "e"):
        clock.now += 1
        both.put(session, "law")
    both.tidy()
    assert [both.get(session) for session in "abcde"] == ["law", None, None, "law", "law"]
    both.close()


def test_what_has_expired_is_removed_from_the_file_when_it_is_opened(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "pins.sqlite"
    first = StoredPins(60, path, clock)
    first.put("old", "law")
    clock.now += 30
    first.put("new", "law")
    first.close()
    clock.now += 31
    second = StoredPins(60, path, clock)
    assert (rows(path), second.get("old"), second.get("new")) == (1, None, "law")
    second.close()


def test_what_has_expired_is_removed_while_the_file_is_used(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins, "BATCH_ROWS", 4)
    path = tmp_path / "pins.sqlite"
    stored = StoredPins(60, path, clock)
    for number in range(9):
        stored.put(str(number), "law")
    clock.now += 30
    stored.put("tenth", "law")
    clock.now += 31
    stored.tidy()
    assert (rows(path), stored.get("tenth")) == (1, "law")
    clock.now += 59  # nobody writes, and it is purged all the same
    stored.tidy()
    assert rows(path) == 1
    clock.now += 1
    stored.tidy()
    assert rows(path) == 0
    stored.close()


def test_what_cannot_be_written_is_kept_and_written_later(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pins, "RETRY_S", 0.0)
    monkeypatch.setattr(pins, "MAX_UNWRITTEN", 3)
    path = tmp_path / "pins.sqlite"
    one, other = StoredPins(60, path, clock), StoredPins(60, path, clock)
    one.put("first", "law")
    assert other.get("first") == "law"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")  # another worker writes, and does not end
        for number in range(5):
            one.put(str(number), "law")
        assert [one.get(str(number)) for number in range(5)] == [None] * 2 + ["law"] * 3
        assert other.get("4") is None
        assert len(caplog.records) == 1 and "pins cannot be written: database is locked" in caplog.text
        writer.execute("ROLLBACK")
    one.put("next", "law")  # and those before it
    assert [other.get(str(number)) for number in (*range(5), "next")] == [None] * 2 + ["law"] * 4
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        one.put("last", "law")
        writer.execute("ROLLBACK")
    one.close()
    assert other.get("last") == "law"
    other.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from ir3de_gateway.store.pins import create_pins
pins = create_pins(60, Path(sys.argv[1]))
for number in range(100):
    pins.put(str(number), "law")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals and permissions")
def test_pins_outlive_a_kill_and_nobody_else_may_read_them(tmp_path: Path) -> None:
    command, environment = tiny.python_command(KILLED, tmp_path)
    assert subprocess.run(command, env=environment).returncode == -9
    again = create_pins(60, tmp_path)
    assert [again.get(str(number)) for number in range(100)] == ["law"] * 100
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    again.close()


TOGETHER = """
import multiprocessing, os, sys
from pathlib import Path
from ir3de_gateway.store.pins import create_pins

def work(folder, together, done):
    together.wait()
    pins = create_pins(60, folder)
    pins.put(str(os.getpid()), "law")
    together.wait()
    pins.close()
    done.put(pins._path is not None)

context = multiprocessing.get_context("fork")
for number in range(5):
    folder, together, done = Path(sys.argv[1], str(number)), context.Barrier(6), context.Queue()
    workers = [context.Process(target=work, args=(folder, together, done)) for _ in range(6)]
    for worker in workers: worker.start()
    assert all([done.get() for _ in workers])
    for worker in workers: worker.join()
    pins = create_pins(60, folder)
    assert [pins.get(str(worker.pid)) for worker in workers] == ["law"] * 6
    pins.close()
"""


@pytest.mark.skipif(os.name != "posix", reason="processes that are forked")
def test_workers_that_start_and_stop_together_lose_nothing(tmp_path: Path) -> None:
    command, environment = tiny.python_command(TOGETHER, tmp_path)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_file_that_is_damaged_or_cannot_be_made_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    find_file(tmp_path, 60).write_bytes(b"this is no database" * 100)
    stored = create_pins(60, tmp_path)
    assert stored._path is not None and "is damaged, and pins begin anew" in caplog.text
    stored.put("monday", "law")
    assert stored.get("monday") == "law"
    stored.close()
    (tmp_path / "file").touch()
    memory = create_pins(60, tmp_path / "file" / "state")
    assert memory._path is None and "so they end with this process" in caplog.text


def test_machines_that_share_a_folder_have_a_file_each_and_leave_it_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(name: str) -> StoredPins:
        monkeypatch.setattr(pins.platform, "node", lambda: name)
        return create_pins(60, tmp_path)

    one, two = named("one"), named("two")
    one.put("monday", "law")
    assert two.get("monday") is None
    one.close()
    three = named("three")  # as a container that replaces another
    assert three.get("monday") == "law"
    two.put("tuesday", "law"), two.close(), three.close()
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    named("four").close()
    assert len(list(tmp_path.iterdir())) == 1  # what nobody has used for long is removed


def test_workers_share_their_pins_and_what_is_written_is_no_session(tmp_path: Path) -> None:
    one, other = (StoredPins(60, find_file(tmp_path, 60)) for _ in range(2))
    one.put("a secret conversation", "law")
    assert other.get("a secret conversation") == "law"
    one.close(), other.close()
    assert b"secret" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert create_pins(60, None)._path is create_pins(0, tmp_path)._path is None


def test_a_gateway_that_is_started_again_knows_its_conversations_and_who_gave_an_answer(tmp_path: Path) -> None:
    def ask(gateway: Running, path: str, headers: dict[str, str] | None = None, **body: object) -> str:
        content = json.dumps({"model": "auto", **body}).encode()
        request = UrlRequest(
            f"{gateway.url}/v1/{path}", content, {"content-type": "application/json", **(headers or {})}
        )
        with urlopen(request) as response:
            return str(json.load(response)["ir3de"]["expert"])

    router = first_router()
    router.save(tmp_path / "router")
    question = {router.route(text).best: text for text in tiny.mixed(20)}
    more = {name: {"capabilities": ["chat", "responses"]} for name in router.experts}
    session, vague = {"x-session-id": "monday"}, [{"role": "user", "content": "And then?"}]
    with running(tmp_path, experts=more, state=str(tmp_path / "state")) as gateway:
        assert ask(gateway, "responses", input=question["law"]) == "law"  # the answer's id is "x"
        assert (
            ask(gateway, "chat/completions", session, messages=[{"role": "user", "content": question["law"]}]) == "law"
        )
    with running(tmp_path, experts=more, state=str(tmp_path / "state")) as gateway:
        assert ask(gateway, "responses", input=question["maths"], previous_response_id="x") == "law"
        assert ask(gateway, "chat/completions", session, messages=vague) == "law"
        assert ask(gateway, "responses", input=question["maths"]) == "maths"


def test_what_is_put_is_taken_once(both: StoredPins, clock: Clock) -> None:
    both.put("charge", "15", 60.0)
    assert (both.take("charge"), both.take("charge"), both.get("charge")) == ("15", None, None)
    both.put("charge", "15", 60.0)
    clock.now += 61
    assert both.take("charge") is None


def test_of_two_workers_one_takes_it(tmp_path: Path, clock: Clock) -> None:
    with (
        closing(StoredPins(60, tmp_path / "pins", clock)) as one,
        closing(StoredPins(60, tmp_path / "pins", clock)) as two,
    ):
        one.put("charge", "15", 60.0)
        assert (two.take("charge"), one.take("charge")) == ("15", None)


def test_a_worker_that_saw_what_another_has_taken_takes_nothing(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        closing(StoredPins(60, tmp_path / "pins", clock)) as one,
        closing(StoredPins(60, tmp_path / "pins", clock)) as two,
    ):
        one.put("charge", "15", 60.0)
        monkeypatch.setattr(two, "get", lambda session: one.take(session))  # between its look and its removal
        assert two.take("charge") is None


def test_the_file_of_earlier_versions_is_read(tmp_path: Path, clock: Clock) -> None:
    """The format of 0.1: SHA-256 of the name, the value, and the second at which it expires."""
    path = find_file(tmp_path, 60)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE pins (session BLOB PRIMARY KEY, expert TEXT, until REAL) WITHOUT ROWID")
        database.execute("CREATE INDEX ends ON pins (until)")
        row = (hashlib.sha256(b"response resp_1").digest(), "law", clock.now + 10)
        database.execute("INSERT INTO pins VALUES (?, ?, ?)", row)
        database.commit()
    with closing(StoredPins(60, path, clock)) as stored:
        assert stored.get("response resp_1") == "law"
        clock.now += 10
        assert stored.get("response resp_1") is None
