"""Pins: which conversation stays with which expert, until when."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Protocol

_log = logging.getLogger("ir3de.gateway")

PURGE_AFTER_PUTS = 10_000  # of one worker, between two purges of the shared file
MAX_PINS = 100_000  # beyond this number the least recently used pins are dropped


class Pins(Protocol):
    """Sessions and their experts. A file holds only hashes of sessions."""

    def get(self, session: str) -> str | None:
        """The expert of a conversation, unless the pin has expired."""
        ...

    def put(self, session: str, expert: str) -> None:
        """Keep the conversation with this expert from now on."""
        ...

    def close(self) -> None: ...


class MemoryPins:
    """For one worker.

    >>> now = [0.0]
    >>> pins = MemoryPins(ttl=60, clock=lambda: now[0])
    >>> pins.put("monday", "law"); pins.get("monday")
    'law'
    >>> now[0] = 61.0; pins.get("monday")
    """

    def __init__(self, ttl: float, clock: Callable[[], float] = time) -> None:
        self._ttl, self._clock = ttl, clock
        self._pins: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def get(self, session: str) -> str | None:
        found = self._pins.get(_shorten(session))
        return found[0] if found is not None and self._clock() < found[1] else None

    def put(self, session: str, expert: str) -> None:
        key = _shorten(session)
        self._pins[key] = expert, self._clock() + self._ttl
        self._pins.move_to_end(key)
        if len(self._pins) > MAX_PINS:
            self._pins.popitem(last=False)

    def close(self) -> None:
        self._pins.clear()


def create_pins(ttl: float, shared: Path | None) -> Pins:
    """Pins of one worker, or of all workers that share a folder."""
    return MemoryPins(ttl) if shared is None or not ttl else SharedPins(ttl, shared / "pins.sqlite")


class SharedPins:
    """For several workers of one machine: an SQLite file. While it cannot be used, nothing is pinned."""

    def __init__(self, ttl: float, path: Path, clock: Callable[[], float] = time) -> None:
        self._ttl, self._clock = ttl, clock
        self._database = sqlite3.connect(path, isolation_level=None, timeout=0.1)  # it blocks the event loop
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=OFF")  # pins may be lost with the machine's power
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS pins (session TEXT PRIMARY KEY, expert TEXT, until REAL) WITHOUT ROWID"
        )
        self._puts = 0
        self._purge()

    def get(self, session: str) -> str | None:
        question = "SELECT expert FROM pins WHERE session = ? AND until > ?"
        try:
            found = self._database.execute(question, (_hash(session), self._clock())).fetchone()
        except sqlite3.Error as error:
            _log.warning("pins cannot be read: %s", error)
            return None
        return None if found is None else str(found[0])

    def put(self, session: str, expert: str) -> None:
        row = _hash(session), expert, self._clock() + self._ttl
        try:
            self._database.execute("INSERT OR REPLACE INTO pins VALUES (?, ?, ?)", row)
            self._puts += 1
            if self._puts % PURGE_AFTER_PUTS == 0:
                self._purge()
        except sqlite3.Error as error:
            _log.warning("pins cannot be written: %s", error)

    def close(self) -> None:
        self._database.close()

    def _purge(self) -> None:
        """Remove the pins that have expired."""
        self._database.execute("DELETE FROM pins WHERE until < ?", (self._clock(),))


def _shorten(session: str) -> str:
    """A client may send a session of any length; a long one is kept as its hash."""
    return session if len(session) <= 64 else _hash(session)


def _hash(session: str) -> str:
    return hashlib.sha256(session.encode(errors="replace")).hexdigest()
