"""The folder that the workers of one gateway share, and which of them are alive."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

VARIABLE = "IR3DE_WORKER_FOLDER"


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


def is_first_to_say(message: str, subject: str = "") -> bool:
    """Whether no other worker has said it: what all workers find must be told once. Alone, a worker is the first.

    With a `subject`, it may be said again once something else was said of that: a problem that comes back is news.
    """
    folder = get_worker_folder()
    if folder is None:
        return True
    said = hashlib.sha256(message.encode()).digest()
    try:
        file = os.open(folder / f"said-{_shorten(subject or message)}", os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(file, "r+b") as last:
            if fcntl is not None:
                fcntl.flock(last, fcntl.LOCK_EX)  # until it is closed
            if last.read() == said:
                return False
            last.seek(0)
            last.write(said)
    except OSError:  # better told twice than not at all
        pass
    return True


def _shorten(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


class WorkerPlace:
    """A number that no other living worker of the folder has. It is free again when the process ends, however it ends.

    Each number is a file, which its worker keeps locked. On Windows, where there are no such locks, the number is that
    of the process, and everybody counts as alive.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.number, self._file = folder, os.getpid(), -1
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

    def leave(self) -> None:
        """Give the number back."""
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
