"""Pins: which conversation stays with which expert, and which expert has a stored response, file or batch.

A pin has a name and a value, and expires. An SQLite file in the state folder holds them for all workers of a machine.
The name of the client's key is a part of a pin's name, so another key's objects are unknown to it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from string import digits
from time import monotonic, sleep, time
from typing import Any

from ir3de.serving import PAGE_BYTES, WRITE_WAIT_S, close_with, open_database
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.store.contract import PinStore
from ir3de_gateway.store.workers import is_first_report

MAX_PINS = 100_000  # beyond this number the least recently used pins are dropped
MAX_UNWRITTEN = 10_000  # pins that are in memory alone while the file cannot be written
TIDY_INTERVAL_S = 2.0  # between two calls of `tidy`
PURGE_INTERVAL_S = 60.0  # between two purges of a file without new pins
UNUSED_AFTER_S = 3_600.0  # a file of another machine is no longer in use
WARN_INTERVAL_S = 60.0
BUSY_WAIT_S = 0.005  # for another worker, in the event loop
RETRY_S = 0.05  # after a write that failed
BATCH_ROWS = 200  # written or removed at a time, so that other workers do not wait long
BATCH_PAUSE_S = 0.005  # after a batch

_MAX_LOG_BYTES = 4_000_000  # of the write-ahead log; beyond it, writers wait until it is emptied
# the beginnings of the ids of what the gateway stores itself: responses, and files and batches of several experts
OWN_RESPONSE, OWN_FILE, OWN_BATCH = "resp_ir3de", "file-ir3de", "batch_ir3de"
MAX_OWN_BYTES = 4 << 20  # of one of them
_FILES_OF_BATCH = ("input_file_id", "output_file_id", "error_file_id")
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS pins (session BLOB PRIMARY KEY, expert TEXT, until REAL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS ends ON pins (until)",
)
_PUT = "INSERT OR REPLACE INTO pins VALUES (?, ?, ?)"

_log = logging.getLogger("ir3de.gateway")


class StoredPins:
    """Pins in an SQLite file, which outlive a restart; without a path, in memory.

    Each operation is one round trip, and other workers see it when it returns. A file holds only hashes of names. A pin
    that cannot be written at once, because another worker writes, is kept in memory and written with the next one, or
    by `tidy`.
    """

    def __init__(self, ttl: float, path: Path | None = None, clock: Callable[[], float] = time) -> None:
        self._ttl, self._path, self._clock = ttl, path, clock
        self._unwritten: dict[bytes, tuple[str, float]] = {}
        self._flushing = threading.Lock()
        self._retry_at, self._purge_at, self._warn_at, self._has_new = 0.0, 0.0, 0.0, True
        try:
            self._database = open_database(path, _SCHEMA)
        except sqlite3.DatabaseError as error:
            if path is None or isinstance(error, sqlite3.OperationalError):  # it cannot be opened or written
                raise
            _log.warning("%s is damaged, and pins begin anew: %s", path, error)
            _remove(path)
            self._database = open_database(path, _SCHEMA)
        close_with(self, self._database)
        self._database.execute(f"PRAGMA busy_timeout={round(BUSY_WAIT_S * 1_000)}")
        self.tidy()

    def get(self, name: str) -> str | None:
        """The value of a pin, unless it has expired."""
        key = hash_name(name)
        found = self._unwritten.get(key)
        if found is None:
            try:
                found = self._database.execute("SELECT expert, until FROM pins WHERE session = ?", (key,)).fetchone()
            except sqlite3.Error as error:
                self._warn("read", error)
        return str(found[0]) if found is not None and self._clock() < found[1] else None

    def put(self, name: str, value: str, seconds: float | None = None) -> None:
        """Set a pin for so long; by default for the time of conversations."""
        key, until = hash_name(name), self._clock() + (self._ttl if seconds is None else seconds)
        self._has_new = True
        if not self._write_at_once(key, value, until):
            self._unwritten.pop(key, None)  # it becomes the newest
            self._unwritten[key] = value, until
            if len(self._unwritten) > MAX_UNWRITTEN:
                del self._unwritten[next(iter(self._unwritten))]

    def _write_at_once(self, key: bytes, value: str, until: float) -> bool:
        if monotonic() < self._retry_at or not self._flushing.acquire(blocking=False):
            return False
        try:
            self._flush(self._database)
            self._database.execute(_PUT, (key, value, until))
            return True
        except sqlite3.Error as error:
            self._retry_at = monotonic() + RETRY_S
            self._warn("written", error)
            return False
        finally:
            self._flushing.release()

    def take(self, name: str) -> str | None:
        """The value, for the one caller of all workers that removes the pin; None for the others."""
        key = hash_name(name)
        if key in self._unwritten or (found := self.get(name)) is None:
            return None
        try:
            is_mine = self._database.execute("DELETE FROM pins WHERE session = ?", (key,)).rowcount == 1
        except sqlite3.Error:
            return None
        return found if is_mine else None

    def flush(self) -> None:
        """Write what could not be written at once."""
        with self._flushing:
            self._flush(self._database)

    def _flush(self, database: sqlite3.Connection) -> None:
        while self._unwritten:
            rows = [(key, *pin) for key, pin in list(self._unwritten.items())[:BATCH_ROWS]]
            with database:
                database.execute("BEGIN IMMEDIATE")
                database.executemany(_PUT, rows)
            for key, *pin in rows:
                if self._unwritten.get(key) == tuple(pin):  # otherwise it was put again meanwhile
                    del self._unwritten[key]

    def tidy(self) -> None:
        """Write the rest, remove what has expired and what is too much; copy the write-ahead log to the file.

        It may take a while: call it every few seconds, in a thread.
        """
        now = self._clock()
        if not self._has_new and now < self._purge_at:
            return
        self._has_new, self._purge_at = False, now + PURGE_INTERVAL_S
        try:
            if self._path is None:
                self._purge(self._database, now)
                return
            address = f"{self._path.absolute().as_uri()}?mode=rw"  # a deleted file is not created again
            with closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=WRITE_WAIT_S)) as database:
                with self._flushing:
                    self._flush(database)
                self._purge(database, now)
                (*_, pages, _) = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if pages * PAGE_BYTES > _MAX_LOG_BYTES:
                    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            os.utime(self._path)  # it is in use, even if nothing is written
        except (sqlite3.Error, OSError) as error:
            self._has_new = True
            self._warn("tidied", error)

    def _purge(self, database: sqlite3.Connection, now: float) -> None:
        while _delete(database, "WHERE until <= ? LIMIT ?", (now, BATCH_ROWS)) == BATCH_ROWS:
            sleep(BATCH_PAUSE_S)  # other workers have their turn
        (count,) = database.execute("SELECT count(*) FROM pins").fetchone()
        for too_many in range(count - MAX_PINS, 0, -BATCH_ROWS):
            _delete(database, "ORDER BY until LIMIT ?", (min(too_many, BATCH_ROWS),))
            sleep(BATCH_PAUSE_S)

    def close(self) -> None:
        with suppress(sqlite3.Error):  # what cannot be written by now is lost
            self._database.execute(f"PRAGMA busy_timeout={round(WRITE_WAIT_S * 1_000)}")
            self.flush()
        self._database.close()

    def _warn(self, what: str, error: Exception) -> None:
        """Log a warning that every request would repeat: at most once per interval."""
        if self._clock() >= self._warn_at:
            self._warn_at = self._clock() + WARN_INTERVAL_S
            _log.warning("pins cannot be %s: %s", what, error)


def create_pins(ttl: float, folder: Path | None, stored_ttl: float = 0.0) -> StoredPins:
    """Pins in a folder; in memory without one, if nothing is to be kept, or if the folder cannot be used."""
    longest = max(ttl, stored_ttl)
    if folder is not None and longest:
        try:
            return StoredPins(ttl, find_file(folder, longest))
        except (OSError, sqlite3.Error) as error:
            if is_first_report(f"pins cannot be stored in {folder}"):
                why = getattr(error, "strerror", None) or error
                _log.warning("pins cannot be stored in %s, so they end with this process: %s", folder, why)
    return StoredPins(ttl)


def find_file(folder: Path, ttl: float) -> Path:
    """The file for this machine's pins. Machines that share a folder must not share a file: SQLite cannot do that.

    A file that a machine of another name has closed, such as the container that this one replaces, is taken over. A
    file that was not used for long is removed: its pins have expired.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    machine = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
    path = folder / f"pins-{machine}.sqlite"
    for other in folder.glob("pins-*.sqlite"):
        if other == path:
            continue
        with suppress(OSError):  # another worker does the same
            log = other.with_name(f"{other.name}-wal")  # it exists while the file is in use, and after a crash
            if other.stat().st_mtime < time() - max(ttl, UNUSED_AFTER_S):
                _remove(other)
            elif not path.exists() and not log.exists():
                other.rename(path)
    return path


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _delete(database: sqlite3.Connection, which: str, values: tuple[float, ...]) -> int:
    """Delete some rows, and return their number."""
    return database.execute(f"DELETE FROM pins WHERE session IN (SELECT session FROM pins {which})", values).rowcount


def hash_name(name: str) -> bytes:
    return hashlib.sha256(name.encode(errors="replace")).digest()


# stored objects -------------------------------------------------------------------------------------------------


def scope_id(object_id: str, key: str) -> str:
    """The name of a pin for an object of a key.

    >>> scope_id("resp_1", ""), scope_id("resp_1", "alice"), scope_id("alice\\nresp_1", "")
    ('resp_1', 'alice\\nresp_1', 'aliceresp_1')
    """
    plain = object_id.replace("\n", "")
    return f"{key}\n{plain}" if key else plain


def scope_session(session: str, key: str) -> str:
    """The name of a pin for a session of a key; it is never that of a stored object.

    >>> scope_session("response resp_1", "alice")
    'session alice\\nresponse resp_1'
    """
    return f"session {key}\n{session}"


def name_thread(session: str, system: str) -> str:
    """The name of a pin for one agent of a session, which has a system prompt of its own.

    Sub-agents, and side requests such as for a title, then neither inherit the pin of the main conversation nor move
    it. Digits do not count, because a prompt may have the time in it.

    >>> name_thread("session a", ""), name_thread("session a", "Find a title.")
    ('session a', 'session a\\nsystem 9c3cdc7876bf6102')
    >>> name_thread("s", "It is 9:14 now.") == name_thread("s", "It is 9:15 now.")
    True
    """
    if not system:
        return session
    plain = system.encode(errors="replace").translate(None, digits.encode())
    return f"{session}\nsystem {hashlib.sha256(plain).hexdigest()[:16]}"


class StoredObjects:
    """The stored objects of one key; `replica` is the address that answers now, of an expert with several."""

    def __init__(self, pins: PinStore, key: str, seconds: float, replica: str = "") -> None:
        self._pins, self._key, self._seconds, self._replica = pins, key, seconds, replica

    async def find(self, kind: str, object_id: str) -> str | None:
        """The expert that has an object; None if the object is unknown, or another key's.

        An `ApiError` if that cannot be known now.
        """
        found = await self._look_up(kind, object_id)
        if found is None and self._pins.is_away:
            raise _build_away_error(f"who has the {kind} {object_id[:200]!r}")
        return found

    async def _look_up(self, kind: str, object_id: str) -> str | None:
        return await self._pins.get(f"{kind} {scope_id(object_id, self._key)}")

    async def find_replica(self, kind: str, object_id: str) -> str:
        """The replica that has an object; empty if its expert has one address."""
        return await self._pins.get(f"replica with {kind} {scope_id(object_id, self._key)}") or ""

    async def remember(self, kind: str, object_id: str, expert: str) -> None:
        if not self._seconds or object_id.startswith(OWN_RESPONSE):
            return
        name = f"{kind} {scope_id(object_id, self._key)}"
        if self._replica:
            await self._pins.put(f"replica with {name}", self._replica, self._seconds)
        await self._pins.put(name, expert, self._seconds)

    async def put_own(self, object_id: str, stored: Mapping[str, Any]) -> bool:
        """Store an object of the gateway's own; whether that was possible."""
        content = json.dumps(stored, separators=(",", ":"))
        if not self._seconds or len(content) > MAX_OWN_BYTES:
            return False
        await self._pins.put(self._name_own(object_id), content, self._seconds)
        return True

    async def get_own(self, object_id: str) -> dict[str, Any] | None:
        """An object that the gateway has stored for this key; None if there is none.

        An `ApiError` if that cannot be known now.
        """
        found = await self._pins.get(self._name_own(object_id))
        if found is None and self._pins.is_away:
            raise _build_away_error(f"what is stored as {object_id[:200]!r}")
        return None if found is None else json.loads(found)

    async def delete_own(self, object_id: str) -> bool:
        """Delete such an object; whether there was one."""
        return await self._pins.take(self._name_own(object_id)) is not None

    def _name_own(self, object_id: str) -> str:
        return f"own {scope_id(object_id, self._key)}"

    async def remember_charge(self, response_id: str, charge: Sequence[Any]) -> None:
        """Remember what was charged for a response before its usage was known."""
        if self._seconds:
            await self._pins.put(self._name_charge(response_id), json.dumps(charge[:3]), self._seconds)

    async def take_charge(self, response_id: str) -> list[float] | None:
        """What was charged for a response, for the one caller that settles it."""
        found = await self._pins.take(self._name_charge(response_id))
        return None if found is None else json.loads(found)

    def _name_charge(self, response_id: str) -> str:
        return f"charge of response {scope_id(response_id, self._key)}"

    async def remember_answer(self, kind: str, answer: dict[str, Any], expert: str) -> None:
        """Remember the object that an answer is, and the files that it names."""
        for found_kind, object_id in list_objects(kind, answer):
            if await self._look_up(found_kind, object_id) != expert:
                await self.remember(found_kind, object_id, expert)

    async def keep_own(self, kind: str, answer: dict[str, Any]) -> dict[str, Any]:
        """A list of objects without those of other keys: experts have one list for all."""
        found = [one for one in answer["data"] if isinstance(one, dict)]
        own = [one for one in found if await self.find(kind, str(one.get("id")))]
        ends = {"first_id": own[0]["id"] if own else None, "last_id": own[-1]["id"] if own else None}
        return {**answer, "data": own} | {name: value for name, value in ends.items() if name in answer}


def list_objects(kind: str, answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The kinds and ids of the objects that an answer names."""
    if isinstance(object_id := answer.get("id"), str):
        yield kind, object_id
    if kind == "batch":
        yield from (("file", found) for name in _FILES_OF_BATCH if isinstance(found := answer.get(name), str))


def _build_away_error(what: str) -> ApiError:
    """The error for an object that may exist, because the store does not answer."""
    message = f"{what} is unknown now: the gateway's store does not answer. Retry in a moment"
    return ApiError(503, message, "state_unavailable", retry_after=1.0)


def build_unknown_error(kind: str, object_id: str, param: str | None = None) -> ApiError:
    """The same error for an object that does not exist and for one of another key."""
    return ApiError(404, f"no {kind} {object_id[:200]!r}: it was not made here, or it no longer exists", param=param)


def build_delete_error(object_id: str) -> ApiError:
    """The error for an object that may exist after all, because the store could not be written."""
    message = f"{object_id[:200]!r} cannot be deleted now, or was deleted at the same time: retry in a second"
    return ApiError(503, message, "store_unavailable", retry_after=1.0)
