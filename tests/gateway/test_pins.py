"""Pins: a conversation keeps its expert for a while, and no number of conversations fills the memory or the disk."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ir3de.gateway.requests import pins
from ir3de.gateway.requests.pins import MemoryPins, Pins, SharedPins, create_pins


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "shared"])
def both(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> Pins:
    return MemoryPins(60, clock) if request.param == "memory" else SharedPins(60, tmp_path / "pins.sqlite", clock)


def rows(path: Path) -> int:
    with sqlite3.connect(path) as database:
        (count,) = database.execute("SELECT count(*) FROM pins").fetchone()
    database.close()
    return int(count)


def test_a_pin_ends_when_the_conversation_was_silent_for_its_time(both: Pins, clock: Clock) -> None:
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


def test_sessions_of_any_length_are_told_apart(both: Pins) -> None:
    for length in (64, 65, 1_000):
        both.put("x" * length, str(length))
    assert [both.get("x" * length) for length in (64, 65, 1_000)] == ["64", "65", "1000"]
    both.close()


def test_beyond_the_limit_the_conversations_that_were_silent_longest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pins, "MAX_PINS", 3)
    memory = MemoryPins(60)
    for session in ("a", "b", "c"):
        memory.put(session, "law")
    assert [memory.get(session) for session in "abc"] == ["law"] * 3
    memory.put("a", "law")  # no longer the most silent one
    memory.put("d", "law")
    assert [memory.get(session) for session in "abcd"] == ["law", None, "law", "law"]
    memory.put("e", "law")
    assert [memory.get(session) for session in "abcde"] == ["law", None, None, "law", "law"]


def test_a_hundred_thousand_conversations_are_remembered_and_no_more() -> None:
    memory = MemoryPins(60)
    for number in range(100_000):
        memory.put(str(number), "law")
    assert memory.get("0") == "law"
    memory.put("one more", "law")
    assert memory.get("0") is None and memory.get("1") == "law" and memory.get("one more") == "law"


def test_what_has_expired_is_removed_from_the_file_when_it_is_opened(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "pins.sqlite"
    first = SharedPins(60, path, clock)
    first.put("old", "law")
    clock.now += 30
    first.put("new", "law")
    first.close()
    clock.now += 31
    second = SharedPins(60, path, clock)
    assert (rows(path), second.get("old"), second.get("new")) == (1, None, "law")
    second.close()


def test_what_has_expired_is_removed_from_the_file_while_it_is_used(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins, "PURGE_AFTER_PUTS", 10)
    path = tmp_path / "pins.sqlite"
    shared = SharedPins(60, path, clock)
    for number in range(9):
        shared.put(str(number), "law")
    clock.now += 61
    assert rows(path) == 9
    shared.put("tenth", "law")
    assert (rows(path), shared.get("tenth")) == (1, "law")
    for number in range(9):
        shared.put(str(number), "law")
    assert rows(path) == 10
    shared.put("twentieth", "law")
    assert rows(path) == 11  # nothing has expired
    shared.close()


def test_workers_share_their_pins_and_what_is_written_is_no_session(tmp_path: Path) -> None:
    one, other = create_pins(60, tmp_path), create_pins(60, tmp_path)
    one.put("a secret conversation", "law")
    assert other.get("a secret conversation") == "law"
    one.close(), other.close()
    assert b"secret" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert isinstance(create_pins(60, None), MemoryPins) and isinstance(create_pins(0, tmp_path), MemoryPins)
