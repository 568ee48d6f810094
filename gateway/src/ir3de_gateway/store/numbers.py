"""Rows of numbers that all workers share: a file that outlives the gateway, and a table in shared memory.

    header   what the file is, and how many numbers a row has
    row      SHA-256 of its name; the numbers

`NumberFile` is read and written under its lock. Each change is written at once, so a killed process loses none. The
operating system writes to the disk, so a power failure may lose the last seconds.

`WorkerTable` is mapped into the memory of each worker and ends with the gateway. A row has numbers that all workers
write, and numbers of each worker, which are cleared when the worker dies: totals over the workers never stay too high.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import os
import struct
from array import array
from collections.abc import Sequence
from contextlib import AbstractContextManager
from errno import ENOSPC
from functools import cache
from math import inf
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from types import TracebackType
from typing import TypeAlias

import numpy as np

from ir3de.errors import InputError
from ir3de_gateway.store.workers import WorkerPlace, get_worker_folder, is_first_report

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Numbers: TypeAlias = "array[float]"

COMMON_CELLS = 10  # numbers of a row that all workers write
OWN_CELLS = 4  # numbers of a row for each worker
DEAD_CHECK_INTERVAL_S = 0.5
MAX_LOCK_WAIT_S = 1.0  # long enough for a worker that the system has not run for a while
LOCK_RETRY_S = 60.0
WARN_INTERVAL_S = 60.0

_AT_ONCE = 0 if fcntl is None else fcntl.LOCK_EX | fcntl.LOCK_NB
_HEADER = struct.Struct("<16sQQ")
_MARK = b"ir3de numbers 1\n"
_NAME_BYTES = 32
_ROWS_AT_ONCE = 64  # by which a table grows
_COUNT_BYTES = bytes(range(0x7F))  # first bytes of doubles that are neither negative nor infinite nor NaN

_log = logging.getLogger("ir3de.gateway")


class DamagedNumbersError(InputError):
    """A file of numbers holds something that the gateway did not write."""


class FileLock:
    """A lock on a file, between threads and processes. The system releases it when a process dies."""

    def __init__(self, file: int) -> None:
        self._file, self._threads = file, Lock()
        self._gave_up = -inf

    def __enter__(self) -> None:
        self._threads.acquire()
        try:
            try:
                fcntl.flock(self._file, _AT_ONCE)
            except BlockingIOError:
                self._wait()
        except BaseException:  # such as a closed file: the next caller must not wait for ever
            self._threads.release()
            raise

    def _wait(self) -> None:
        """Wait, usually for some microseconds. If a worker hangs with the lock, go on without it."""
        began = monotonic()
        patience = MAX_LOCK_WAIT_S if began - self._gave_up > LOCK_RETRY_S else 0.0
        while True:
            sleep(1e-5)
            try:
                fcntl.flock(self._file, _AT_ONCE)
                return
            except BlockingIOError:
                if monotonic() - began >= patience:
                    break
        if patience:
            self._gave_up = monotonic()
            _log.warning("a worker hangs: limits over all workers are not exact for %g s", LOCK_RETRY_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_UN)  # which does nothing if another worker has it
        finally:
            self._threads.release()


class _RowFile:
    """A file of rows, found by their names."""

    _file = -1
    _rows_at_once = 1

    def __init__(self, path: Path | None, width: int) -> None:
        self.path, self.width = path, width
        self.lock: AbstractContextManager[bool | None] = Lock()
        self._places: dict[bytes, int] = {}  # of the numbers, by the hash of the name

    def _open(self) -> None:
        assert self.path is not None
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        self.lock = FileLock(self._file)

    @property
    def _row_bytes(self) -> int:
        return _NAME_BYTES + 8 * self.width

    def _find_place(self, name: str) -> int:
        """Where the numbers of a name begin; a new row is zero. The caller holds the lock."""
        key = hashlib.sha256(name.encode()).digest()
        self._read_names()
        return self._places[key] if key in self._places else self._add_row(key)

    def _read_names(self) -> None:
        """Read the names of rows that other workers have added."""
        place, size = _HEADER.size + len(self._places) * self._row_bytes, os.fstat(self._file).st_size
        while place + self._row_bytes <= size and any(name := os.pread(self._file, _NAME_BYTES, place)):
            self._places[name] = place + _NAME_BYTES
            place += self._row_bytes

    def _add_row(self, key: bytes) -> int:
        """Append a row. It is written, so a full disk is an error here and not a signal when a map of it is used."""
        place, size = _HEADER.size + len(self._places) * self._row_bytes, os.fstat(self._file).st_size
        rows = self._rows_at_once if place >= size else 1
        self._write_whole(key + bytes(rows * self._row_bytes - _NAME_BYTES), place, size)
        self._places[key] = place + _NAME_BYTES
        return place + _NAME_BYTES

    def _write_header(self) -> None:
        self._write_whole(_build_header(self.width), 0, 0)

    def _write_whole(self, content: bytes, place: int, size: int) -> None:
        if os.pwrite(self._file, content, place) < len(content):
            os.ftruncate(self._file, size)
            raise OSError(ENOSPC, os.strerror(ENOSPC))

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


# what outlives the gateway --------------------------------------------------------------------------------------


class NumberRow:
    """The numbers of one name: where they are, and what was read last."""

    __slots__ = ("last", "place")

    def __init__(self, place: int | None, width: int) -> None:
        self.place, self.last = place, array("d", bytes(8 * width))


class NumberFile(_RowFile):
    """A file of rows. Without a path, or where workers cannot share files, the numbers end with the process.

    All numbers are counts, except those at the places of `fractions`. A file with others is a `DamagedNumbersError`.
    """

    def __init__(self, path: Path | None, width: int, fractions: Sequence[int] = ()) -> None:
        super().__init__(path, width)
        self._rows: dict[str, NumberRow] = {}
        self._warn_at = 0.0
        if path is None or fcntl is None:
            return
        try:
            self._open()
            with self.lock:
                if content := os.pread(self._file, os.fstat(self._file).st_size, 0):
                    check_numbers(path, content, width, fractions)
                else:
                    self._write_header()
        except DamagedNumbersError:
            self.close()
            raise
        except OSError as error:
            if is_first_report(f"what keys use cannot be kept in {path.parent}"):
                text = "what keys use cannot be kept in %s, so each worker counts alone, until it ends: %s"
                _log.warning(text, path.parent, error.strerror or error)
            self.close()
            self.lock = Lock()

    @property
    def is_kept(self) -> bool:
        """Whether the numbers outlive the process."""
        return self._file >= 0

    def find_row(self, name: str) -> NumberRow:
        """The row of a name; a new one is zero. The caller holds the lock."""
        found = self._rows.get(name)
        if found is None:
            place = None
            try:
                place = self._find_place(name) if self.is_kept else None
            except OSError as error:
                self._warn("numbers in %s cannot be kept, so this worker counts alone: %s", error)
            found = self._rows[name] = NumberRow(place, self.width)
        return found

    def read(self, row: NumberRow) -> Numbers:
        """A copy of the numbers, or a `DamagedNumbersError`. The caller holds the lock."""
        if row.place is None:
            return row.last[:]
        try:
            content = os.pread(self._file, 8 * self.width, row.place)
            if len(content) < 8 * self.width:
                raise OSError(f"{self.path} has become shorter")
        except OSError as error:
            self._warn("numbers in %s cannot be read, so this worker counts alone: %s", error)
            return row.last[:]
        if content[7::8].translate(None, _COUNT_BYTES):
            damage = DamagedNumbersError(_describe_damage(self.path, "a number is not a count"))
            self._warn("keys are rejected, because of %s: %s", damage)
            raise damage
        return array("d", content)

    def write(self, row: NumberRow, numbers: Numbers) -> None:
        """Write the numbers of a row. The caller has held the lock since it read them."""
        row.last = numbers
        if row.place is not None:
            try:
                os.pwrite(self._file, numbers, row.place)
            except OSError as error:
                self._warn("numbers in %s cannot be written, so this worker counts alone: %s", error)

    def _warn(self, text: str, error: Exception) -> None:
        """Log a warning that every request would repeat: at most once per interval."""
        if monotonic() >= self._warn_at:
            self._warn_at = monotonic() + WARN_INTERVAL_S
            _log.warning(text, self.path, error)


def check_numbers(path: Path | None, content: bytes, width: int, fractions: Sequence[int]) -> None:
    """Raise a `DamagedNumbersError` unless the content of a file is a header and rows of counts."""
    header, rows, row_bytes = content[: _HEADER.size], content[_HEADER.size :], _NAME_BYTES + 8 * width
    if header != _build_header(width):
        raise DamagedNumbersError(_describe_damage(path, "it does not begin as such a file does"))
    if len(rows) % row_bytes:
        raise DamagedNumbersError(_describe_damage(path, "it ends in the middle of a row"))
    numbers = np.frombuffer(rows, np.uint8).reshape(-1, row_bytes)[:, _NAME_BYTES:].copy().view(np.float64)
    counts = np.delete(numbers, fractions, axis=1)
    if not (np.isfinite(numbers) & (numbers >= 0)).all() or (counts != np.floor(counts)).any():
        raise DamagedNumbersError(_describe_damage(path, "a number is not a count"))


def _describe_damage(path: Path | None, what: str) -> str:
    unknown = "so what keys have used is unknown, and their limits cannot hold"
    return f"{path} is damaged, {unknown}: {what}. Restore it from a backup, or move it away to count from zero"


def _build_header(width: int) -> bytes:
    return _HEADER.pack(_MARK, width, 0)


# shared memory --------------------------------------------------------------------------------------------------


class Row:
    """The numbers of one name: `common` of all workers, `own` of this one, and by their places those of `every` one."""

    def __init__(self, table: WorkerTable | LoneTable, cells: memoryview[float]) -> None:
        self.table = table
        self.common, workers = cells[:COMMON_CELLS], cells[COMMON_CELLS:]
        self.every = [workers[kind * table.columns : (kind + 1) * table.columns] for kind in range(OWN_CELLS)]
        self.own = workers[table.number :: table.columns]

    def clear_worker(self, number: int) -> None:
        for numbers in self.every:
            numbers[number] = 0.0


class LoneTable:
    """The table of a worker that counts alone. Its rows end with those who have them."""

    is_shared, number, columns = False, 0, 1

    def __init__(self) -> None:
        self.lock = Lock()

    def create_row(self) -> Row:
        return Row(self, memoryview(bytearray(8 * (COMMON_CELLS + OWN_CELLS))).cast("d"))

    def clear_dead_workers(self) -> bool:
        return False


class WorkerTable(_RowFile):
    """The table of one gateway, as one of its workers has it."""

    is_shared = True
    _rows_at_once = _ROWS_AT_ONCE

    def __init__(self, folder: Path, workers: int) -> None:
        """Take a column. There are more of them than workers, because new workers start before old ones stop."""
        super().__init__(folder / "table" / "numbers", COMMON_CELLS + OWN_CELLS * (2 * workers + 8))
        self._open()
        self._place = WorkerPlace(folder / "table")
        self.number = self._place.number
        self._cells: memoryview[float] = memoryview(b"").cast("d")
        self._checked = monotonic()
        with self.lock:
            if os.fstat(self._file).st_size < _HEADER.size:
                self._write_header()
            self.width = _HEADER.unpack(os.pread(self._file, _HEADER.size, 0))[1]
        self.columns = (self.width - COMMON_CELLS) // OWN_CELLS
        if self.number < self.columns:
            self._taken = self.find_row("workers")  # a worker's first number there is 1
            with self.lock:
                self._clear_column(self.number)
                self._taken.own[0] = 1.0

    def find_row(self, name: str) -> Row:
        """The row of that name; a new one is zero."""
        with self.lock:
            return self._map_row(self._find_place(name))

    def clear_dead_workers(self) -> bool:
        """Clear what dead workers have left; True if there was any. This checks at most twice a second."""
        if monotonic() - self._checked < DEAD_CHECK_INTERVAL_S:
            return False
        self._checked = monotonic()
        found = False
        with self.lock:
            for number, is_taken in enumerate(self._taken.every[0]):
                if is_taken and number != self.number and not self._place.is_alive(number):
                    self._clear_column(number)
                    found = True
        return found

    def _clear_column(self, number: int) -> None:
        self._read_names()
        for place in self._places.values():
            self._map_row(place).clear_worker(number)

    def _map_row(self, place: int) -> Row:
        first = place // 8
        if first + self.width > len(self._cells):  # rows of an earlier map stay valid
            self._cells = memoryview(mmap.mmap(self._file, 0)).cast("d")
        return Row(self, self._cells[first : first + self.width])


def find_worker_row(name: str, workers: int) -> Row:
    """The row of that name in the table of this process's gateway.

    It is this worker's alone if no other serves, or where workers cannot share a table: on Windows, on a full disk.
    """
    folder = get_worker_folder() if workers > 1 else None
    if folder is None or fcntl is None:
        return LoneTable().create_row()
    try:
        table = _open_table(folder, workers)
        if table.number < table.columns:
            return table.find_row(name)
        problem = "there are more workers than expected"
    except OSError as error:
        problem = error.strerror or str(error)
    _log.warning("this worker limits its requests by itself, because workers cannot share numbers: %s", problem)
    return LoneTable().create_row()


@cache
def _open_table(folder: Path, workers: int) -> WorkerTable:
    return WorkerTable(folder, workers)
