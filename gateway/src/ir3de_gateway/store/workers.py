"""What the workers of one gateway share while it runs: a folder, their numbers, and an SQLite file of notes and counts.

The folder ends with the gateway. Without one, a worker serves alone.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from ir3de.serving import close_with, open_database

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

VARIABLE = "IR3DE_WORKER_FOLDER"
NOTES_FILE = "notes.sqlite"

_NOTES = ("CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",)


@contextmanager
def create_worker_folder() -> Iterator[Path]:
    """A new folder that the workers share, for as long as their parent lives: enter before they start.

    Where the variable names a folder already, the new one is made inside it.
    """
    before = os.environ.get(VARIABLE) or None
    if before is not None:
        Path(before).mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="ir3de-", dir=before, ignore_cleanup_errors=True) as folder:
        os.environ[VARIABLE] = folder
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = before


def get_worker_folder() -> Path | None:
    """The folder that this worker shares with the others; None if it serves alone."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named and Path(named).is_dir() else None


class WorkerPlace:
    """A worker's place in a folder: a number that no other living worker has, and a text that all others can read.

    Errors are those of `sqlite3`, or `OSError`. Each number is a file, which its worker keeps locked: it is free again
    when the process ends, however it ends. On Windows, which has no such locks, the number is that of the process, and
    every worker counts as alive.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.number, self._file = folder, os.getpid(), -1
        self._notes: WorkerNotes | None = None
        for number in count() if fcntl is not None else ():
            file = os.open(self._path(number), os.O_RDWR | os.O_CREAT, 0o600)
            if _try_lock(file):
                self.number, self._file = number, file
                return
            os.close(file)

    def is_alive(self, number: int) -> bool:
        """Whether the worker of that number still runs."""
        if fcntl is None or number == self.number:
            return True
        try:
            file = os.open(self._path(number), os.O_RDWR)
        except FileNotFoundError:
            return False
        except OSError:  # it cannot be known now: no descriptors are left
            return True
        try:
            return not _try_lock(file)
        finally:
            os.close(file)

    def is_first(self) -> bool:
        """Whether no living worker has a smaller number: what one worker does for all is this one's."""
        return fcntl is None or not any(map(self.is_alive, range(self.number)))

    def publish(self, text: str) -> None:
        """Replace the text of this worker. It stays after the worker has ended, until its number is taken again."""
        self._open_notes().write(f"worker {self.number}", text)

    def read_published(self) -> dict[int, str]:
        """What all workers have published, by their numbers."""
        return {int(name.split()[1]): text for name, text in self._open_notes().read("worker ").items()}

    def note_applied(self, change: int) -> None:
        """Note the last change of /admin that this worker has applied."""
        self._open_notes().write(f"applied {self.number}", str(change))

    def count_behind(self, change: int) -> int:
        """How many of the living workers have not applied that change."""
        noted = {int(name.split()[1]): int(text) for name, text in self._open_notes().read("applied ").items()}
        return sum(applied < change and self.is_alive(number) for number, applied in noted.items())

    def _open_notes(self) -> WorkerNotes:
        if self._notes is None:
            self._notes = WorkerNotes(self.folder)
        return self._notes

    def close(self) -> None:
        """Give the number back."""
        if self._notes is not None:
            self._notes.close()
            self._notes = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _path(self, number: int) -> Path:
        return self.folder / f"worker-{number}"


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# notes and counts -----------------------------------------------------------------------------------------------


class WorkerNotes:
    """Texts by their names, which all workers of a folder read and write. Errors are those of `sqlite3`."""

    def __init__(self, folder: Path) -> None:
        self._database = open_database(folder / NOTES_FILE, _NOTES)
        close_with(self, self._database)
        self._database.execute("PRAGMA synchronous=OFF")  # the folder ends with the gateway
        self._database.execute("PRAGMA wal_autocheckpoint=1000")

    def write(self, name: str, value: str) -> bool:
        """Write a note; whether it is new."""
        write = "INSERT INTO notes VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
        return self._database.execute(f"{write} WHERE value != excluded.value", (name, value)).rowcount == 1

    def read(self, prefix: str) -> dict[str, str]:
        """The notes whose names begin so."""
        return dict(self._database.execute("SELECT * FROM notes WHERE name GLOB ?", (f"{prefix}*",)))

    def close(self) -> None:
        self._database.close()


def is_first_report(message: str, subject: str = "") -> bool:
    """Whether no other worker has reported this: what all workers find is logged once. Alone, a worker is the first.

    With a `subject`, a message is logged again after another one about that subject: a problem that returns is news.
    """
    folder = get_worker_folder()
    if folder is None:
        return True
    try:
        with closing(WorkerNotes(folder)) as notes:
            return notes.write(f"report {subject or message}", message)
    except (sqlite3.Error, OSError):  # better twice than never
        return True
