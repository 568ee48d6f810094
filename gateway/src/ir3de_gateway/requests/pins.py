"""Pins: which conversation stays with which expert, until when; and who gave an answer that others refer to."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from time import sleep, time
from typing import Protocol
from urllib.parse import quote

from ir3de_gateway.workers.folder import is_first_to_say

_log = logging.getLogger("ir3de.gateway")

MAX_PINS = 100_000  # beyond this number the least recently used pins are dropped
MAX_UNWRITTEN = 10_000  # pins that are in memory alone while the file cannot be written
TIDY_INTERVAL_S = 2.0  # between two calls of `tidy`
PURGE_INTERVAL_S = 60.0  # between two purges of a file that nobody writes to
UNUSED_AFTER_S = 3_600.0  # a file of another machine is no longer in use
COMPLAINT_INTERVAL_S = 60.0  # between two warnings
READ_WAIT_S = 0.005  # the event loop waits, too; readers hardly ever wait
WRITE_WAIT_S = 1.0  # for another worker
CLOSE_WAIT_S = 2.0  # until everything is written
LINGER_S = 0.001  # several pins are written together
OPEN_ATTEMPTS = 100
OPEN_PAUSE_S = 0.05  # between two attempts
BATCH_ROWS = 200  # written or removed at a time, so that no other worker waits long
BATCH_PAUSE_S = 0.005  # after a batch, and after a write that failed

_PAGE_BYTES = 4_096
_MAX_LOG_BYTES = 4_000_000  # of the write-ahead log; beyond it, writers wait until it is emptied


class Pins(Protocol):
    """Sessions and their experts. A file holds only hashes of sessions."""

    def get(self, session: str) -> str | None:
        """The expert of a conversation, unless the pin has expired."""
        ...

    def put(self, session: str, expert: str, seconds: float | None = None) -> None:
        """Keep the conversation with this expert from now on, for so long; by default for the time of all pins."""
        ...

    def put_at_once(self, session: str, expert: str, seconds: float) -> None:
        """The same, and other workers know it when this returns, unless the file is busy: then a little later."""
        ...

    def take(self, session: str) -> str | None:
        """What was put, for the one caller of all workers that removes it; None for the others, or if it is busy."""
        ...

    def tidy(self) -> None:
        """Drop what has expired. It may take a while: call it every few seconds, in a thread."""
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
        key = _shorten(session)
        expert, until = self._pins.get(key, (None, 0.0))
        if expert is not None and self._clock() >= until:
            del self._pins[key]
            return None
        return expert

    def put(self, session: str, expert: str, seconds: float | None = None) -> None:
        key, now = _shorten(session), self._clock()
        self._pins[key] = expert, now + (self._ttl if seconds is None else seconds)
        self._pins.move_to_end(key)
        for _ in range(2):  # of equally long pins the one that ends first comes first; two leave for one that comes
            if len(self._pins) > MAX_PINS or next(iter(self._pins.values()))[1] < now:
                self._pins.popitem(last=False)

    def put_at_once(self, session: str, expert: str, seconds: float) -> None:
        self.put(session, expert, seconds)

    def take(self, session: str) -> str | None:
        found = self.get(session)
        self._pins.pop(_shorten(session), None)
        return found

    def tidy(self) -> None:
        """Nothing is left to do: `put` drops what has expired."""

    def close(self) -> None:
        self._pins.clear()


def create_pins(ttl: float, folder: Path | None, longest: float = 0.0) -> Pins:
    """Pins of one worker, or of all workers of this machine that share a folder; some are kept for `longest`."""
    longest = max(ttl, longest)
    if folder is None or not longest:
        return MemoryPins(ttl)
    try:
        return StoredPins(ttl, find_file(folder, longest))
    except (OSError, sqlite3.Error) as error:
        if is_first_to_say(f"pins cannot be stored in {folder}"):
            why = getattr(error, "strerror", None) or error
            _log.warning("pins cannot be stored in %s, so they end with this process: %s", folder, why)
        return MemoryPins(ttl)


def find_file(folder: Path, ttl: float) -> Path:
    """The file for this machine's pins. Machines that share a folder must not share a file: SQLite cannot do that.

    A file that a machine of another name has closed, such as the container that this one replaces, is taken over. One
    that nobody has used for long is removed: its pins have expired.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    machine = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
    path = folder / f"pins-{machine}.sqlite"
    for other in folder.glob("pins-*.sqlite"):
        if other == path:
            continue
        with suppress(OSError):  # another worker does the same
            log = other.with_name(f"{other.name}-wal")  # it is there while the file is in use, and after a crash
            if other.stat().st_mtime < time() - max(ttl, UNUSED_AFTER_S):
                _remove(other)
            elif not path.exists() and not log.exists():
                other.rename(path)
    return path


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


class StoredPins:
    """For the workers of one machine: an SQLite file. Its pins outlive a restart.

    A thread writes them, so that requests do not wait for the disk. Until then they are in memory.
    """

    def __init__(self, ttl: float, path: Path, clock: Callable[[], float] = time) -> None:
        self._ttl, self._path, self._clock = ttl, path, clock
        self._unwritten: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        self._changed = threading.Condition()  # guards what is unwritten
        self._writer: threading.Thread | None = None
        self._closed = False
        self._purge_at, self._complain_at, self._puts = 0.0, 0.0, 0
        try:
            self._database = self._connect(READ_WAIT_S)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # it cannot be opened or written
                raise
            _log.warning("%s is damaged, and pins begin anew: %s", path, error)
            _remove(path)
            self._database = self._connect(READ_WAIT_S)
        self.tidy()

    def _connect(self, wait_s: float) -> sqlite3.Connection:
        _make_private(self._path)
        for attempt in range(OPEN_ATTEMPTS):
            database = sqlite3.connect(self._path, isolation_level=None, timeout=WRITE_WAIT_S, check_same_thread=False)
            try:
                _prepare(database)
                database.execute(f"PRAGMA busy_timeout={round(wait_s * 1000)}")
                return database
            except BaseException as error:
                database.close()
                is_locked = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
                if not is_locked or attempt == OPEN_ATTEMPTS - 1:
                    raise
            sleep(OPEN_PAUSE_S)  # workers that start together make the file together
        raise AssertionError("the last attempt returns or raises")

    def get(self, session: str) -> str | None:
        key = _hash(session)
        found = self._unwritten.get(key)
        if found is None:
            try:
                found = self._database.execute("SELECT expert, until FROM pins WHERE session = ?", (key,)).fetchone()
            except sqlite3.Error as error:
                self._complain("read", error)
        return str(found[0]) if found is not None and self._clock() < found[1] else None

    def put(self, session: str, expert: str, seconds: float | None = None) -> None:
        key = _hash(session)
        with self._changed:
            self._unwritten[key] = expert, self._clock() + (self._ttl if seconds is None else seconds)
            self._unwritten.move_to_end(key)
            if len(self._unwritten) > MAX_UNWRITTEN:
                self._unwritten.popitem(last=False)
            self._puts += 1
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_behind, name="pins", daemon=True)
                self._writer.start()
            if len(self._unwritten) == 1:  # else the thread is at work
                self._changed.notify_all()

    def put_at_once(self, session: str, expert: str, seconds: float) -> None:
        row = _hash(session), expert, self._clock() + seconds
        try:
            self._database.execute("INSERT OR REPLACE INTO pins VALUES (?, ?, ?)", row)  # no disk is waited for
            self._puts += 1
        except sqlite3.Error:
            self.put(session, expert, seconds)

    def take(self, session: str) -> str | None:
        key = _hash(session)
        if key in self._unwritten or (found := self.get(session)) is None:
            return None
        try:
            is_mine = self._database.execute("DELETE FROM pins WHERE session = ?", (key,)).rowcount == 1
        except sqlite3.Error:
            return None
        return found if is_mine else None

    def flush(self, seconds: float) -> bool:
        """Wait until everything is written; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unwritten, seconds)

    def _write_behind(self) -> None:
        """Write what is put, until closed."""
        while not (self._closed and not self._unwritten):
            try:
                with closing(self._connect(WRITE_WAIT_S)) as database:
                    self._write_to(database)
            except (sqlite3.Error, OSError) as error:
                self._complain("written", error)
                sleep(BATCH_PAUSE_S)

    def _write_to(self, database: sqlite3.Connection) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unwritten or self._closed)
            sleep(LINGER_S)
            with self._changed:
                rows = [(key, *pin) for key, pin in islice(self._unwritten.items(), BATCH_ROWS)]
            if not rows:
                return
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT OR REPLACE INTO pins VALUES (?, ?, ?)", rows)
            database.commit()
            with self._changed:
                for key, *pin in rows:
                    if self._unwritten.get(key) == tuple(pin):  # else it was put again meanwhile
                        del self._unwritten[key]
                self._changed.notify_all()

    def tidy(self) -> None:
        """Remove what has expired, and what is too much; copy the write-ahead log to the file."""
        now = self._clock()
        if not self._puts and now < self._purge_at:
            return
        self._puts, self._purge_at = 0, now + PURGE_INTERVAL_S
        try:
            address = f"file:{quote(str(self._path))}?mode=rw"  # it is not made anew if it was deleted
            with closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=WRITE_WAIT_S)) as database:
                while _delete(database, "WHERE until <= ? LIMIT ?", (now, BATCH_ROWS)) == BATCH_ROWS:
                    sleep(BATCH_PAUSE_S)  # other workers have their turn
                (count,) = database.execute("SELECT count(*) FROM pins").fetchone()
                for too_many in range(count - MAX_PINS, 0, -BATCH_ROWS):
                    _delete(database, "ORDER BY until LIMIT ?", (min(too_many, BATCH_ROWS),))
                    sleep(BATCH_PAUSE_S)
                (*_, pages, _) = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if pages * _PAGE_BYTES > _MAX_LOG_BYTES:
                    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            os.utime(self._path)  # it is in use, even if nobody writes to it
        except (sqlite3.Error, OSError) as error:
            self._complain("tidied", error)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._writer is not None:
            self._writer.join(CLOSE_WAIT_S)
            self._unwritten.clear()  # what cannot be written by now is lost
        self._database.close()

    def _complain(self, what: str, error: Exception) -> None:
        """Log a warning that every request would repeat: at most once per interval."""
        if self._clock() >= self._complain_at:
            self._complain_at = self._clock() + COMPLAINT_INTERVAL_S
            _log.warning("pins cannot be %s: %s", what, error)


def _make_private(path: Path) -> None:
    """Make the file, unless it is there: SQLite would let others read it.

    A file that is there is not opened: closing it again would release the locks that SQLite has on it in this process.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    path.chmod(0o600)


def _prepare(database: sqlite3.Connection) -> None:
    database.execute(f"PRAGMA page_size={_PAGE_BYTES}")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")  # only `tidy` waits for the disk
    database.execute("PRAGMA wal_autocheckpoint=0")
    database.execute(
        "CREATE TABLE IF NOT EXISTS pins (session BLOB PRIMARY KEY, expert TEXT, until REAL) WITHOUT ROWID"
    )
    database.execute("CREATE INDEX IF NOT EXISTS ends ON pins (until)")


def _delete(database: sqlite3.Connection, which: str, values: tuple[float, ...]) -> int:
    """Delete some rows, and return their number."""
    return database.execute(f"DELETE FROM pins WHERE session IN (SELECT session FROM pins {which})", values).rowcount


def _shorten(session: str) -> str:
    """A client may send a session of any length; a long one is kept as its hash."""
    return session if len(session) <= 64 else _hash(session).hex()


def _hash(session: str) -> bytes:
    return hashlib.sha256(session.encode(errors="replace")).digest()
