"""Writes routed requests into the journal, in batches and in a thread of its own, and the feedback on them at once.

A request waits in a bounded queue until it is written. If the journal cannot be written, the queue is kept and tried
again; what does not fit is counted as lost. Feedback is acknowledged only when it is on the disk.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, time
from typing import TYPE_CHECKING

from ir3de.errors import IR3DEError
from ir3de.traffic import Feedback, Journal, Selection, TrafficRecord
from ir3de_gateway.feedback.journal_rows import build_row

if TYPE_CHECKING:
    from ir3de import Router
    from ir3de_gateway.config.document import FeedbackConfig
    from ir3de_gateway.exchange_record import ExchangeRecord

WRITE_DELAY_S = 0.25  # from a request to its row, so that a transaction has many of them
RETRY_DELAY_S = 1.0  # after a failure
BATCH_ROWS = 500
MAX_WAITING = 20_000  # requests that are not written yet
MAX_WAITING_CHARS = 32_000_000  # of their prompts
WARN_INTERVAL_S = 60.0
DAY_S = 86_400.0
CLOCK_TOLERANCE_S = 60.0  # between two clocks, from one deletion of old requests to the next
DISTRUST_S = DAY_S  # after the clock has jumped, nothing is deleted for so long

_log = logging.getLogger("ir3de.gateway")


class JournalWriter:
    """The journal of the configured folder, as one worker writes it."""

    def __init__(self, config: FeedbackConfig, count_lost: Callable[[int], None]) -> None:
        assert config.folder is not None
        self.config, self._folder, self._count_lost = config, config.folder, count_lost
        self._journal: Journal | None = None
        self._lock = threading.Lock()  # for the journal
        self._losing = threading.Lock()  # for the count
        self._waiting: deque[tuple[ExchangeRecord, Router]] = deque()
        self._put_chars = self._written_chars = 0  # each is changed by one thread alone
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._warned = -WARN_INTERVAL_S
        self._clock = ClockWatch()

    # requests ---------------------------------------------------------------------------------------------------

    def put(self, record: ExchangeRecord, router: Router) -> None:
        """Queue a request that has ended. This is called in the event loop, and takes microseconds."""
        size = _count_chars(record)
        waiting_chars = self._put_chars - self._written_chars
        if len(self._waiting) >= MAX_WAITING or waiting_chars + size > MAX_WAITING_CHARS or self._stop.is_set():
            self._lose(1)
            return
        self._put_chars += size
        self._waiting.append((record, router))
        if not self._wake.is_set():
            self._wake.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._stop.wait(WRITE_DELAY_S)
            self._wake.clear()
            try:
                self.flush()
            except IR3DEError as error:
                self._warn(f"{error}. {len(self._waiting):,} requests wait for it")
                self._stop.wait(RETRY_DELAY_S)
                self._wake.set()

    def flush(self) -> None:
        """Write every request that waits. An `IR3DEError` if the journal cannot be written: they wait on."""
        with self._lock:
            while self._waiting:
                self._write([self._waiting[place] for place in range(min(BATCH_ROWS, len(self._waiting)))])

    def _write(self, batch: list[tuple[ExchangeRecord, Router]]) -> None:
        """Write the first requests that wait, and take them off the queue."""
        rows = [row for one in batch if (row := self._build(*one)) is not None]
        try:
            self._open().append(rows)
        except IR3DEError:
            raise
        except Exception:  # what cannot be written at all must not hold up the others
            _log.exception("could not write %d requests into the journal", len(rows))
            self._lose(len(rows))
        for record, _ in batch:
            self._waiting.popleft()
            self._written_chars += _count_chars(record)

    def _build(self, record: ExchangeRecord, router: Router) -> TrafficRecord | None:
        try:
            return build_row(record, router, self.config.keep)
        except Exception:
            _log.exception("could not keep request %s in the journal", record.request_id[:100])
            self._lose(1)
            return None

    def _lose(self, requests: int) -> None:
        with self._losing:
            self._count_lost(requests)

    def _open(self) -> Journal:
        """The journal. One whose file was deleted or replaced meanwhile is opened anew."""
        if self._journal is not None and not self._journal.path.exists():
            self._journal.close()
            self._journal = None
        if self._journal is None:
            self._journal = Journal.create(self._folder)
        return self._journal

    def _warn(self, message: str) -> None:
        if monotonic() - self._warned >= WARN_INTERVAL_S:
            self._warned = monotonic()
            _log.warning("%s", message)

    # feedback ---------------------------------------------------------------------------------------------------

    def find(self, request_id: str, key: str | None) -> TrafficRecord | None:
        """The request of that id, or with an answer of that id, if it is still to be kept; with a key, only its own."""
        self.flush()
        with self._lock:
            found = self._open().find(request_id, key=key)
        return None if found is None or found.time < self._find_oldest() else found

    def read_before(self, number: int | None, most: int) -> tuple[int, list[TrafficRecord]]:
        """The last requests before that one, or of all, as `Journal.read_before`; without those that are too old."""
        self.flush()
        with self._lock:
            first, found = self._open().read_before(number, most)
        oldest = self._find_oldest()
        return first, [one for one in found if one.time >= oldest]

    def put_feedback(self, request_id: str, feedback: Feedback, key: str | None) -> None:
        """Write feedback. When this returns, it is on the disk."""
        with self._lock:
            self._open().put_feedback(request_id, feedback, key=key)

    def delete_feedback(self, request_id: str, author: str, key: str | None) -> bool:
        """Delete an author's feedback on a request; whether there was any."""
        with self._lock:
            return self._open().delete_feedback(request_id, author, key=key)

    # retention --------------------------------------------------------------------------------------------------

    def _find_oldest(self) -> float:
        """The time before which requests are no longer kept."""
        return time() - self.config.days * DAY_S

    def delete_old(self) -> int:
        """Delete requests that are older than the configured days, unless the clock cannot be trusted."""
        if not self._clock.is_steady():
            self._warn("the clock has jumped: requests that seem old are kept in the journal for another day")
            return 0
        selection = Selection(until=self._find_oldest())
        with self._lock:
            journal = self._open()
            return journal.delete(selection, keeps_notes=True) if journal.count(selection) else 0

    def close(self) -> None:
        """Write what waits, and close the journal."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        with suppress(IR3DEError):
            self.flush()
        if self._waiting:
            self._lose(len(self._waiting))
            self._waiting.clear()
        with self._lock:
            if self._journal is not None:
                self._journal.close()
                self._journal = None


def _count_chars(record: ExchangeRecord) -> int:
    return len(record.text) + sum(map(len, record.turns))


class ClockWatch:
    """Whether the clock of the machine runs evenly. One that jumped ahead would make every request look old.

    >>> now, steady = [0.0], [0.0]
    >>> watch = ClockWatch(lambda: now[0], lambda: steady[0])
    >>> now[0] += 600; steady[0] += 600; watch.is_steady()
    True
    >>> now[0] += 1e8; steady[0] += 600; watch.is_steady()
    False
    """

    def __init__(self, clock: Callable[[], float] = time, steady: Callable[[], float] = monotonic) -> None:
        self._clock, self._steady = clock, steady
        self._last = clock(), steady()
        self._distrusted_until = steady()

    def is_steady(self) -> bool:
        """Whether it has run evenly since the last call, and did not jump within the day before."""
        before, self._last = self._last, (self._clock(), self._steady())
        passed, really_passed = self._last[0] - before[0], self._last[1] - before[1]
        if abs(passed - really_passed) > CLOCK_TOLERANCE_S:
            self._distrusted_until = self._last[1] + DISTRUST_S
        return self._last[1] >= self._distrusted_until


def check_folder(config: FeedbackConfig) -> None:
    """Open the journal once; an `IR3DEError` if it cannot be written, is damaged or of a newer version."""
    if config.folder is not None:
        Journal.create(config.folder).close()
