"""Files that lines are appended to: the access log and the decision log."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from time import monotonic

from ir3de.errors import ArtifactError

STANDARD_OUTPUT = "-"
ROTATION_CHECK_S = 1.0  # between two checks whether a file was rotated
WARN_INTERVAL_S = 60.0

_log = logging.getLogger(__name__)


class LogFile:
    """A file that several processes append lines to, each in one write. It survives rotation and a full disk."""

    def __init__(self, path: str) -> None:
        self._path = None if path == STANDARD_OUTPUT else Path(path)
        self._file = 1 if self._path is None else _open(self._path)
        self._look = monotonic() + ROTATION_CHECK_S
        self._is_torn = False  # the last line did not fit on the disk
        self.lost = 0
        self._complain = 0.0

    def write(self, line: bytes) -> None:
        """Append the line. If that fails, the line is lost and counted."""
        if self._path is not None and monotonic() >= self._look:
            self._reopen_if_rotated(self._path)
        if self._is_torn:
            line = b"\n" + line
        try:
            written = os.write(self._file, line)
        except OSError as error:
            self._report_loss(error.strerror or str(error))
            return
        self._is_torn = written < len(line)
        if self._is_torn:
            self._report_loss("no room for the whole line")

    def reopen(self) -> None:
        """Open the file again, after a rotation."""
        if self._path is None:
            return
        try:
            fresh = _open(self._path)
        except ArtifactError as error:
            self._report_loss(str(error), lines=0)  # go on with the old file
            return
        os.close(self._file)
        self._file, self._is_torn = fresh, False

    def close(self) -> None:
        if self._path is not None and self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _reopen_if_rotated(self, path: Path) -> None:
        self._look = monotonic() + ROTATION_CHECK_S
        try:
            there = path.stat()
        except OSError:
            there = None
        ours = os.fstat(self._file)
        if there is None or (there.st_ino, there.st_dev) != (ours.st_ino, ours.st_dev):
            self.reopen()

    def _report_loss(self, why: str, lines: int = 1) -> None:
        self.lost += lines
        if monotonic() >= self._complain:
            self._complain = monotonic() + WARN_INTERVAL_S
            _log.warning(
                "cannot write to %s: %s. %d lines lost so far", self._path or "standard output", why, self.lost
            )


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o640)
    except OSError as error:
        raise ArtifactError(
            f"cannot write the log {path}: {error.strerror or error}. Name a file in a folder that exists"
        ) from error
