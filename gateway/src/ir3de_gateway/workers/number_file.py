"""Rows of numbers in a file that outlives the gateway, read and changed by all workers under one lock.

    header   what the file is, and how many numbers a row has
    row      SHA-256 of the name; the numbers

A change is written at once, so a gateway that is killed loses none. It is the system that writes to the disk: a machine
that loses its power may lose the last seconds. A file that is damaged is refused, and left as it is.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
from array import array
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import inf
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TypeAlias, TypeVar

import numpy as np

from ir3de.errors import InputError
from ir3de_gateway.workers.folder import is_first_to_say
from ir3de_gateway.workers.table import TableLock

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")
Numbers: TypeAlias = "array[float]"

COMPLAINT_INTERVAL_S = 60.0  # between two warnings

_HEADER = struct.Struct("<16sQQ")
_MARK = b"ir3de numbers 1\n"
_NAME_BYTES = 32

_log = logging.getLogger("ir3de.gateway")


class DamagedNumbersError(InputError):
    """Numbers that nobody has written."""


class NumberRow:
    """The numbers of one name."""

    def __init__(self, file: NumberFile, place: int | None) -> None:
        self._file, self._place = file, place
        self._last = array("d", bytes(8 * file.width))  # where the file cannot be read

    def change(self, function: Callable[[Numbers], T]) -> T:
        """Call a function that reads and changes the numbers, while nobody else does.

        If they are damaged, it is not called: a `DamagedNumbersError`.
        """
        with self._file.lock:
            numbers = self._read()
            result = function(numbers)
            self._last = numbers
            self._write(numbers)
            return result

    def read(self) -> Numbers:
        """A copy of the numbers."""
        with self._file.lock:
            return self._read()

    def _read(self) -> Numbers:
        if self._place is not None:
            try:
                numbers = self._file.read_at(self._place)
            except OSError as error:
                self._file.complain("numbers in %s cannot be read, so this worker counts alone: %s", error)
            else:
                if min(numbers) >= 0 and sum(numbers) < inf:  # false for NaN
                    return numbers
                damage = DamagedNumbersError(_describe_damage(self._file.path, "a number is not a count"))
                self._file.complain("keys are refused, because of %s: %s", damage)
                raise damage
        return self._last[:]

    def _write(self, numbers: Numbers) -> None:
        if self._place is not None:
            try:
                self._file.write_at(self._place, numbers)
            except OSError as error:
                self._file.complain("numbers in %s cannot be written, so this worker counts alone: %s", error)


class NumberFile:
    """A file of rows. Without a path, or where workers cannot share files, the numbers end with the process.

    All numbers are counts but those at the places of `fractions`. A file with others is a `DamagedNumbersError`.
    """

    def __init__(self, path: Path | None, width: int, fractions: Sequence[int] = ()) -> None:
        self.width, self.path = width, path
        self.lock: AbstractContextManager[bool | None] = Lock()
        self._file, self._rows = -1, dict[str, NumberRow]()
        self._places: dict[bytes, int] = {}
        self._complain_at = 0.0
        if path is None or fcntl is None:
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            self.lock = TableLock(self._file)
            with self.lock:
                self._check(fractions)
        except DamagedNumbersError:
            self.close()
            raise
        except OSError as error:
            if is_first_to_say(f"what keys use cannot be kept in {path.parent}"):
                text = "what keys use cannot be kept in %s, so each worker counts alone, until it ends: %s"
                _log.warning(text, path.parent, error.strerror or error)
            self.close()
            self.lock = Lock()

    @property
    def is_kept(self) -> bool:
        """Whether the numbers outlive the process."""
        return self._file >= 0

    def find_row(self, name: str) -> NumberRow:
        """The row of that name; it is added if there is none yet."""
        found = self._rows.get(name)
        if found is None:
            found = self._rows[name] = NumberRow(self, self._find_place(name))
        return found

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def read_at(self, place: int) -> Numbers:
        content = os.pread(self._file, 8 * self.width, place)
        if len(content) < 8 * self.width:
            raise OSError(f"{self.path} has become shorter")
        return array("d", content)

    def write_at(self, place: int, numbers: Numbers) -> None:
        os.pwrite(self._file, numbers.tobytes(), place)

    def complain(self, text: str, error: Exception) -> None:
        """Log a warning that every request would repeat: at most once per interval."""
        if monotonic() >= self._complain_at:
            self._complain_at = monotonic() + COMPLAINT_INTERVAL_S
            _log.warning(text, self.path, error)

    def _check(self, fractions: Sequence[int]) -> None:
        """Write the header of a new file, and read all of an old one."""
        if content := os.pread(self._file, os.fstat(self._file).st_size, 0):
            check_numbers(self.path, content, self.width, fractions)
        else:
            os.pwrite(self._file, _build_header(self.width), 0)

    def _find_place(self, name: str) -> int | None:
        """Where the numbers of a name begin; None if there is no file, or no room in it."""
        if self._file < 0:
            return None
        key = hashlib.sha256(name.encode()).digest()
        try:
            with self.lock:
                self._read_names()
                return self._places[key] if key in self._places else self._add_row(key)
        except OSError as error:
            self.complain("numbers in %s cannot be kept, so this worker counts alone: %s", error)
            return None

    def _read_names(self) -> None:
        """Read the names of rows that other workers have added."""
        place, size = _HEADER.size + len(self._places) * _count_row_bytes(self.width), os.fstat(self._file).st_size
        while place + _count_row_bytes(self.width) <= size:
            self._places[os.pread(self._file, _NAME_BYTES, place)] = place + _NAME_BYTES
            place += _count_row_bytes(self.width)

    def _add_row(self, key: bytes) -> int:
        place = _HEADER.size + len(self._places) * _count_row_bytes(self.width)
        content = key + bytes(8 * self.width)
        if os.pwrite(self._file, content, place) < len(content):
            os.ftruncate(self._file, place)
            raise OSError("no room")
        self._places[key] = place + _NAME_BYTES
        return place + _NAME_BYTES


def check_numbers(path: Path | None, content: bytes, width: int, fractions: Sequence[int]) -> None:
    """Raise a `DamagedNumbersError` unless the content of a file is a header and rows of counts."""
    header, rows = content[: _HEADER.size], content[_HEADER.size :]
    if header != _build_header(width):
        raise DamagedNumbersError(_describe_damage(path, "it does not begin as such a file does"))
    if len(rows) % _count_row_bytes(width):
        raise DamagedNumbersError(_describe_damage(path, "it ends in the middle of a row"))
    table = np.frombuffer(rows, np.uint8).reshape(-1, _count_row_bytes(width))
    numbers = table[:, _NAME_BYTES:].copy().view(np.float64)
    counts = np.delete(numbers, fractions, axis=1)
    if not (np.isfinite(numbers) & (numbers >= 0)).all() or (counts != np.floor(counts)).any():
        raise DamagedNumbersError(_describe_damage(path, "a number is not a count"))


def _describe_damage(path: Path | None, what: str) -> str:
    unknown = "so what keys have used is unknown, and their limits cannot hold"
    return f"{path} is damaged, {unknown}: {what}. Restore it from a backup, or move it away to count from zero"


def _build_header(width: int) -> bytes:
    return _HEADER.pack(_MARK, width, 0)


def _count_row_bytes(width: int) -> int:
    return _NAME_BYTES + 8 * width
