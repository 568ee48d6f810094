"""A table of numbers that all workers of one gateway see at once: one file, mapped into each of them.

A row has a name. It has some numbers that all workers write (under the table's lock), and some for each worker, which
only that worker writes. What belongs to a worker is cleared when the worker is dead, so a total over the workers is
never left too high: it is always added up from the numbers of those that live.

    header   columns, rows in use, and for each column whether a worker has it
    row      SHA-256 of the name; numbers of all; the first number of every worker, the second one of every worker, …
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import os
from errno import ENOSPC
from functools import cache
from math import inf
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from types import TracebackType

from ir3de_gateway.workers.folder import WorkerPlace, get_worker_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

COMMON_CELLS = 10  # numbers of a row that all workers write
OWN_CELLS = 4  # numbers of a row for each worker
DEAD_CHECK_INTERVAL_S = 0.5
MAX_LOCK_WAIT_S = 1.0  # long enough for a worker that the system has not run for a while
LOCK_RETRY_S = 60.0

_AT_ONCE = 0 if fcntl is None else fcntl.LOCK_EX | fcntl.LOCK_NB
_BYTES = 8  # of a number
_NAME_CELLS = 4
_COLUMNS, _ROWS = range(2)
_TAKEN = 8  # where the header says which columns are taken
_ROWS_AT_ONCE = 64  # that the file grows by

_log = logging.getLogger("ir3de.gateway")


class TableLock:
    """Lets one worker at a time change the table. The system frees it when a worker dies."""

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
        except BaseException:  # the file is closed, for example: who comes next must not wait for ever
            self._threads.release()
            raise

    def _wait(self) -> None:
        """Wait some microseconds, as a rule. If a worker hangs with the lock, the others must go on: without it."""
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


class Row:
    """The numbers of one name."""

    def __init__(self, table: WorkerTable, cells: memoryview[float]) -> None:
        self.table = table
        self.common = cells[_NAME_CELLS : _NAME_CELLS + COMMON_CELLS]
        workers = cells[_NAME_CELLS + COMMON_CELLS :]
        self._all = [workers[kind * table.columns : (kind + 1) * table.columns] for kind in range(OWN_CELLS)]
        self.own = workers[table.number :: table.columns]

    def list_all(self, kind: int) -> list[float]:
        """That number of every worker; 0 where there is none."""
        return self._all[kind].tolist()  # type: ignore[return-value] # the stubs know integers only

    def clear_worker(self, number: int) -> None:
        for numbers in self._all:
            numbers[number] = 0.0


class WorkerTable:
    """The table of one gateway, as one of its workers has it."""

    def __init__(self, folder: Path, workers: int) -> None:
        """Take a column. There are some more than workers, because new workers start before old ones have stopped."""
        (folder / "table").mkdir(exist_ok=True)
        self._place = WorkerPlace(folder / "table")
        self.number = self._place.number
        self._file = os.open(folder / "table" / "numbers", os.O_RDWR | os.O_CREAT, 0o600)
        self.lock = TableLock(self._file)
        self._places: dict[bytes, int] = {}  # rows by their names
        self._known_rows = 0
        self._looked = monotonic()
        with self.lock:
            if os.fstat(self._file).st_size == 0:
                self._grow(_count_header_cells(2 * workers + 8))
            self._map()
            if not self._cells[_COLUMNS]:
                self._cells[_COLUMNS] = 2.0 * workers + 8.0
            self.columns = int(self._cells[_COLUMNS])
            if self.number < self.columns:
                self._clear_column(self.number)
                self._cells[_TAKEN + self.number] = 1.0

    def find_row(self, name: str) -> Row:
        """The row of that name; it is added if there is none yet."""
        key = hashlib.sha256(name.encode()).digest()
        with self.lock:
            self._read_names()
            place = self._places.get(key)
            if place is None:
                place = self._add_row(key)
        return self._get_row(place)

    def clear_dead_workers(self) -> bool:
        """Clear what dead workers have left; True if there was any. It is looked for at most twice a second."""
        if monotonic() - self._looked < DEAD_CHECK_INTERVAL_S:
            return False
        self._looked = monotonic()
        taken = [n for n in range(self.columns) if n != self.number and self._cells[_TAKEN + n]]
        found = False
        with self.lock:
            for number in taken:
                if not self._place.is_alive(number) and self._cells[_TAKEN + number]:
                    self._clear_column(number)
                    self._cells[_TAKEN + number] = 0.0
                    found = True
        return found

    def _clear_column(self, number: int) -> None:
        self._read_names()
        for place in range(self._known_rows):
            self._get_row(place).clear_worker(number)

    def _grow(self, cells: int) -> None:
        """Make the file longer. It is written, so a full disk is an error here and not a signal when it is used."""
        size = os.fstat(self._file).st_size
        if os.pwrite(self._file, bytes(cells * _BYTES - size), size) < cells * _BYTES - size:
            os.ftruncate(self._file, size)
            raise OSError(ENOSPC, "no room for the workers' table")

    def _map(self) -> None:
        self._cells = memoryview(mmap.mmap(self._file, 0)).cast("d")  # rows of an earlier map stay valid

    def _get_row(self, place: int) -> Row:
        start = self._find_start(place)
        return Row(self, self._cells[start : start + self._row_cells])

    @property
    def _row_cells(self) -> int:
        return _NAME_CELLS + COMMON_CELLS + self.columns * OWN_CELLS

    def _find_start(self, place: int) -> int:
        return _count_header_cells(self.columns) + place * self._row_cells

    def _read_names(self) -> None:
        """Read the names of rows that other workers have added."""
        rows = int(self._cells[_ROWS])
        if self._find_start(rows) > len(self._cells):
            self._map()
        for place in range(self._known_rows, rows):
            start = self._find_start(place)
            self._places[self._cells[start : start + _NAME_CELLS].tobytes()] = place
        self._known_rows = rows

    def _add_row(self, key: bytes) -> int:
        place = self._known_rows
        if self._find_start(place + 1) > len(self._cells):
            self._grow(self._find_start(place + _ROWS_AT_ONCE))
            self._map()
        start = self._find_start(place)
        self._cells[start : start + _NAME_CELLS] = memoryview(key).cast("d")
        self._cells[_ROWS] = place + 1.0
        self._places[key], self._known_rows = place, place + 1
        return place


def _count_header_cells(columns: int) -> int:
    return _TAKEN + columns


def find_worker_row(name: str, workers: int) -> Row | None:
    """The row of that name in the table of this process's gateway.

    None if there is one worker, or where workers cannot share a table: on Windows, or on a full disk.
    """
    folder = get_worker_folder() if workers > 1 else None
    if folder is None or fcntl is None:
        return None
    try:
        table = _open_table(folder, workers)
        if table.number < table.columns:
            return table.find_row(name)
        problem = "there are more workers than expected"
    except OSError as error:
        problem = error.strerror or str(error)
    _log.warning("this worker limits its requests by itself, because workers cannot share numbers: %s", problem)
    return None


@cache
def _open_table(folder: Path, workers: int) -> WorkerTable:
    return WorkerTable(folder, workers)
