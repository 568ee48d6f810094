"""What an operation of the store costs: limits in the file of numbers, the same in SQLite, and a cell of shared memory.

    python scripts/measure_store.py results/store.json

Each is measured in one process, and in two that change the same row at the same time: CPU time, the median of rounds.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import process_time, sleep, time
from types import TracebackType
from typing import Any

from ir3de.serving import close_with, open_database
from ir3de_gateway.store.limits import FileLimits, Limits, Spending
from ir3de_gateway.store.numbers import NumberFile, NumberRow, Numbers, WorkerTable
from ir3de_lab import files
from ir3de_lab.catalogue.recording import record

OPERATIONS, ROUNDS = 200, 20
LIMITS = Limits(10**9, 10**12, 10**6, 1e12, 1e12)
_ROWS = ("CREATE TABLE IF NOT EXISTS rows (name TEXT PRIMARY KEY, numbers BLOB) WITHOUT ROWID",)


class SqliteRows(NumberFile):
    """The same rows in an SQLite file in WAL mode: each operation is a transaction."""

    def __init__(self, path: Path, width: int) -> None:
        super().__init__(None, width)
        self._database = open_database(path, _ROWS)
        close_with(self, self._database)
        self._database.execute("PRAGMA busy_timeout=0")
        self.lock = self
        self._names: dict[int, str] = {}

    def __enter__(self) -> None:
        while True:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:  # another process writes; SQLite itself would sleep for a millisecond
                sleep(1e-5)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.execute("COMMIT")

    def find_row(self, name: str) -> NumberRow:
        found = super().find_row(name)
        self._names[id(found)] = name
        return found

    def read(self, row: NumberRow) -> Numbers:
        read = self._database.execute("SELECT numbers FROM rows WHERE name = ?", (self._names[id(row)],)).fetchone()
        numbers = row.last[:]
        if read is not None:
            numbers = type(numbers)("d", read[0])
        return numbers

    def write(self, row: NumberRow, numbers: Numbers) -> None:
        self._database.execute("INSERT OR REPLACE INTO rows VALUES (?, ?)", (self._names[id(row)], numbers.tobytes()))


def open_store(folder: Path, *, is_sqlite: bool) -> FileLimits:
    """A store of limits, as the gateway has it or on SQLite."""
    store = FileLimits(folder, 1)
    if is_sqlite:
        store._file = SqliteRows(folder / "rows.sqlite", store._file.width)
        store._expert_file = SqliteRows(folder / "experts.sqlite", store._expert_file.width)
    return store


def open_limits(folder: Path, *, is_sqlite: bool) -> Callable[[], object]:
    """Three operations of a request: admit, reserve, settle."""
    store = open_store(folder, is_sqlite=is_sqlite)
    spent = Spending("law", 10, 5, 0.01, is_estimated=False)

    def run() -> None:
        admitted: Any = store.admit("key", LIMITS, time())
        bound = admitted._replace(tokens=100, cost=0.1)
        store.reserve("key", LIMITS, bound, time())
        store.settle("key", LIMITS, bound, spent, time())

    return run


def _open_cell(folder: Path) -> Callable[[], object]:
    row = WorkerTable(folder, 2).find_row("expert")

    def run() -> None:
        with row.table.lock:
            row.own[0] += 1.0

    return run


KINDS: dict[str, tuple[Callable[[Path], Callable[[], object]], int]] = {  # and operations of one call
    "limits in the file of numbers": (lambda folder: open_limits(folder, is_sqlite=False), 3),
    "limits in SQLite": (lambda folder: open_limits(folder, is_sqlite=True), 3),
    "a cell of shared memory, locked": (_open_cell, 1),
}


def _measure(kind: str, folder: Path, together: Any, results: Any) -> None:
    opened, operations = KINDS[kind]
    run = opened(folder)
    run()
    cpu: list[float] = []
    together.wait()
    for _ in range(ROUNDS):
        began = process_time()
        for _ in range(OPERATIONS):
            run()
        cpu.append((process_time() - began) / OPERATIONS / operations)
    results.put(median(cpu))


def measure_store() -> Iterator[tuple[str, float]]:
    """Microseconds of an operation, for each way to keep numbers."""
    context = multiprocessing.get_context("spawn")
    for kind in KINDS:
        for processes in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                together, results = context.Barrier(processes), context.Queue()
                jobs = [
                    context.Process(target=_measure, args=(kind, Path(folder), together, results))
                    for _ in range(processes)
                ]
                for job in jobs:
                    job.start()
                found = max(results.get() for _ in jobs)
                for job in jobs:
                    job.join()
            many = "1 process" if processes == 1 else f"{processes} processes"
            yield f"{kind}, {many}: CPU of an operation", round(found * 1e6, 1)


def main() -> None:
    """Print the figures, and keep them in the file that is named."""
    figures = [{"name": name, "value": value, "unit": "µs"} for name, value in measure_store()]
    for figure in figures:
        print(f"{figure['name']:<60} {figure['value']:>6} {figure['unit']}")
    if len(sys.argv) > 1:
        circumstances = {
            "command": "python " + " ".join(sys.argv),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
        }
        document = {"circumstances": {**circumstances, "python": platform.python_version()}, "figures": figures}
        files.write_json(Path(sys.argv[1]), {**document, **record("store")})


if __name__ == "__main__":
    main()
