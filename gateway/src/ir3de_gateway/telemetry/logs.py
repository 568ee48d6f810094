"""The files of the logs, which no request waits for: the access log, the decision log, standard error."""

from __future__ import annotations

import errno
import logging
import os
import queue
import select
import threading
from pathlib import Path
from time import monotonic

from ir3de.errors import ArtifactError
from ir3de_gateway.telemetry.counts import PROCESS_COUNTS

STANDARD_OUTPUT, STANDARD_ERROR = "-", "-stderr"
MAX_QUEUE_BYTES = 4_000_000  # of lines that wait to be written
MAX_BATCH_BYTES = 65_536  # of lines written at once to a file
ATOMIC_BYTES = getattr(select, "PIPE_BUF", 512)  # to a pipe: the lines of several processes must not mix
PAUSE_S = 0.02  # between two batches, so that busy times need few switches between threads
CLOSE_TIMEOUT_S = 2.0  # for what is left at the end
ROTATION_CHECK_S = 1.0  # between two checks whether a file was rotated
WARN_INTERVAL_S = 60.0

_STREAMS = {STANDARD_OUTPUT: (1, "standard output"), STANDARD_ERROR: (2, "standard error")}
_EMPTY, _REOPEN, _END = b"", b"reopen", b"end"  # no line, and what else the thread does; lines end with a line feed
_log = logging.getLogger("ir3de.gateway")
_count_lock = threading.Lock()


class LogFile:
    """A file, or a standard stream, that several processes append whole lines to, each in a thread of its own.

    It survives rotation and a full disk. Lines that come too fast to be written are dropped and counted.
    """

    def __init__(self, path: str) -> None:
        stream = _STREAMS.get(path)
        self._path = Path(path) if stream is None else None
        self._file, self._name = (_open(Path(path)), path) if stream is None else stream
        self._max_batch_bytes = MAX_BATCH_BYTES if stream is None else ATOMIC_BYTES
        self._waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._accepted_bytes = self._done_bytes = 0  # each is changed by one thread only
        self._thread: threading.Thread | None = None
        self._is_ending = threading.Event()
        self._is_torn = False  # the last line is incomplete
        self._next_check_at = monotonic() + ROTATION_CHECK_S
        self._next_warning_at = 0.0
        self.lost = 0

    def write(self, line: bytes) -> None:
        """Queue a line."""
        if self._accepted_bytes - self._done_bytes > MAX_QUEUE_BYTES:
            self._report_loss("lines come faster than it accepts them")
            return
        self._accepted_bytes += len(line)
        self._waiting.put(line)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"log {self._name}", daemon=True)
            self._thread.start()

    def reopen(self) -> None:
        """Open the file again, after a rotation."""
        self._waiting.put(_REOPEN)

    def close(self, seconds: float = CLOSE_TIMEOUT_S) -> None:
        """Write the queued lines, for this long at most. With 0, return at once; a second call waits for them."""
        self._is_ending.set()
        if self._thread is None:
            self._close_file()
            return
        self._waiting.put(_END)
        self._thread.join(seconds)
        if seconds and self._thread.is_alive():
            self._report_loss(f"it accepted nothing for {seconds:g} s at the end", self._waiting.qsize())

    # in the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        batch: list[bytes] = []
        size = 0
        while (item := self._take(is_idle=not batch)) != _END:
            if item in (_EMPTY, _REOPEN) or size + len(item) > self._max_batch_bytes:
                self._write_batch(batch)
                batch, size = [], 0
            if item == _REOPEN:
                self._reopen()
            elif item == _EMPTY:
                self._is_ending.wait(PAUSE_S)
            else:
                batch.append(item)
                size += len(item)
        self._write_batch(batch)
        self._close_file()

    def _take(self, *, is_idle: bool) -> bytes:
        """The next line; without one, wait for it if nothing else is to be written."""
        try:
            return self._waiting.get(block=is_idle)
        except queue.Empty:
            return _EMPTY

    def _write_batch(self, lines: list[bytes]) -> None:
        if not lines:
            return
        if self._path is not None and monotonic() >= self._next_check_at:
            self._check_rotation(self._path)
        data = rest = (b"\n" if self._is_torn else b"") + b"".join(lines)
        while rest:
            try:
                rest = rest[os.write(self._file, rest) :]
            except BlockingIOError:  # another process made the pipe non-blocking
                select.select([], [self._file], [], 1.0)
            except OSError as error:
                self._report_loss(error.strerror or str(error), min(len(lines), rest.count(b"\n")))
                break
        written = data[: len(data) - len(rest)]
        self._is_torn = not written.endswith(b"\n") if written else self._is_torn
        self._done_bytes += sum(map(len, lines))

    def _check_rotation(self, path: Path) -> None:
        self._next_check_at = monotonic() + ROTATION_CHECK_S
        try:
            is_same = os.path.samestat(path.stat(), os.fstat(self._file))
        except OSError:
            is_same = False
        if not is_same:
            self._reopen()

    def _reopen(self) -> None:
        if self._path is None:
            return
        try:
            fresh = _open(self._path)
        except ArtifactError as error:
            self._report_loss(str(error), lines=0)  # continue with the old file
            return
        os.close(self._file)
        self._file, self._is_torn = fresh, False

    def _close_file(self) -> None:
        if self._path is not None and self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _report_loss(self, why: str, lines: int = 1) -> None:
        with _count_lock:
            self.lost += lines
            PROCESS_COUNTS.log_lines_dropped += lines
            if monotonic() < self._next_warning_at:
                return
            self._next_warning_at = monotonic() + WARN_INTERVAL_S
        _log.warning("cannot write to %s: %s. %d lines dropped so far", self._name, why, self.lost)


class StandardErrorHandler(logging.Handler):
    """Writes log messages to standard error without blocking."""

    def __init__(self) -> None:
        super().__init__()
        self._writer = LogFile(STANDARD_ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._writer.write(self.format(record).encode(errors="backslashreplace") + b"\n")
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        self._writer.close()
        super().close()


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o640)
    except OSError as error:
        raise ArtifactError(_refuse(path, error.strerror or str(error))) from error


def explain_unwritable(path: Path) -> str | None:
    """Why a log cannot be written there; None if it can. No file is created."""
    try:
        if path.is_dir():
            return _refuse(path, os.strerror(errno.EISDIR))
        if not path.exists() and not path.parent.is_dir():
            return _refuse(path, os.strerror(errno.ENOENT))
        is_allowed = os.access(path, os.W_OK) if path.exists() else os.access(path.parent, os.W_OK | os.X_OK)
    except OSError as error:  # the name is too long, or the folder is not accessible
        return _refuse(path, error.strerror or str(error))
    return None if is_allowed else _refuse(path, os.strerror(errno.EACCES))


def _refuse(path: Path, why: str) -> str:
    return f"cannot write the log {path}: {why}. Name a file that this user may write, in a folder that exists"
