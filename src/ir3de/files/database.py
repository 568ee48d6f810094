"""SQLite files that several processes of one machine share: private, in WAL mode, closed with their owner."""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import sleep

WRITE_WAIT_S = 1.0  # for another process
OPEN_ATTEMPTS = 100
OPEN_PAUSE_S = 0.05  # between two attempts
PAGE_BYTES = 4_096


def open_database(path: Path | None, schema: Sequence[str]) -> sqlite3.Connection:
    """Open an SQLite file in WAL mode, private to this user; without a path, a database in memory.

    With `synchronous=NORMAL` a killed process loses nothing, and a power failure may lose the last seconds.
    """
    for attempt in range(OPEN_ATTEMPTS):
        if path is not None:
            _make_private(path)
        database = sqlite3.connect(
            path or ":memory:", isolation_level=None, timeout=WRITE_WAIT_S, check_same_thread=False
        )
        try:
            for pragma in (f"page_size={PAGE_BYTES}", "journal_mode=WAL", "synchronous=NORMAL", "wal_autocheckpoint=0"):
                database.execute(f"PRAGMA {pragma}")
            for statement in schema:
                database.execute(statement)
            return database
        except BaseException as error:
            database.close()
            is_locked = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
            if not is_locked or attempt == OPEN_ATTEMPTS - 1:
                raise
        sleep(OPEN_PAUSE_S)  # processes that start together create the file together
    raise AssertionError("the last attempt returns or raises")


def _make_private(path: Path) -> None:
    """Create the file if it does not exist: SQLite would let others read it.

    An existing file is not opened: closing it would release the locks that SQLite has on it in this process.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    path.chmod(0o600)


def close_with(owner: object, database: sqlite3.Connection) -> None:
    """Close the database when its owner is dropped unclosed; Python 3.13 warns of what is left to the collector."""
    weakref.finalize(owner, database.close).atexit = False
