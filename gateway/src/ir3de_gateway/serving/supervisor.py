"""Starts the workers, replaces those that end, and stops them all."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from time import monotonic
from types import FrameType

from ir3de.errors import InputError

POLL_S = 0.2  # the longest that a signal waits
START_TIMEOUT_S = 60.0  # for a new worker, when SIGHUP replaces them one by one
STABLE_S = 10.0  # a worker that served this long is replaced at once
MAX_DELAY_S = 30.0  # between two attempts to start a worker
MAX_FIRST_KILLS = 3  # of one worker, by signals, while none has served yet
STOP_GRACE_S = 10.0  # after the time that requests have to finish
HURRY_GRACE_S = 2.0  # after a second interrupt: workers report the stop to their clients
PATIENCE_S = 0.5  # that a stop may take without a message
WAITING = "stopping: %s, at most %g s. A second Ctrl-C stops at once"

# runs in a new process; it sends None when it serves, or the reason why it cannot
Target = Callable[[Connection, socket.socket], None]

logger = logging.getLogger("ir3de.gateway")


class Worker:
    """A process that serves."""

    def __init__(self, target: Target, listening: socket.socket) -> None:
        spawning = multiprocessing.get_context("spawn")
        self.reports, reports = spawning.Pipe(duplex=False)
        self.process = spawning.Process(target=target, args=(reports, listening))
        self.process.start()
        reports.close()
        self.started_at = monotonic()
        self.is_ready = False
        self.failure = ""  # why it cannot serve

    def read_report(self) -> bool:
        """Whether it has just become ready."""
        was_ready = self.is_ready
        try:
            while self.reports.poll():
                report = self.reports.recv()
                self.is_ready, self.failure = report is None, report or ""
        except (EOFError, OSError):  # it has ended
            pass
        return self.is_ready and not was_ready

    @property
    def has_ended(self) -> bool:
        return not self.process.is_alive()

    def interrupt(self) -> None:
        """Let it stop without waiting for its requests. Without signals, kill it."""
        if os.name != "posix" or self.process.pid is None:
            self.process.kill()
            return
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGINT)

    def describe_end(self) -> str:
        return self.failure or f"it ended with code {self.process.exitcode}"


@dataclass
class Place:
    """One of the workers that there should be; it is empty between two attempts."""

    worker: Worker | None = None
    failures: int = 0  # in a row
    start_at: float = 0.0

    def release(self) -> None:
        """Its worker has ended: choose when to start another."""
        assert self.worker is not None
        was_stable = self.worker.is_ready and monotonic() - self.worker.started_at >= STABLE_S
        delay = 0.0 if was_stable or (self.worker.is_ready and not self.failures) else 2.0**self.failures / 2
        self.failures = 0 if was_stable else self.failures + 1
        self.worker, self.start_at = None, monotonic() + min(MAX_DELAY_S, delay)


class Supervisor:
    """Keeps workers running: SIGTERM and SIGINT stop them, SIGHUP replaces them one by one."""

    def __init__(
        self,
        target: Target,
        listening: socket.socket,
        *,
        workers: int,
        drain_seconds: float,
        on_replaced: Callable[[], None] = lambda: None,
    ) -> None:
        self._target, self._listening, self._drain_seconds = target, listening, drain_seconds
        self._on_replaced = on_replaced
        self._places = [Place() for _ in range(workers)]
        self._signals: list[int] = []
        self._has_served = False
        self._start_error = ""  # why workers cannot start, as it was logged
        self._to_replace: list[Place] = []
        self._replacement: Worker | None = None
        self._leaving: Worker | None = None  # it was replaced, and finishes its requests

    def serve(self) -> bool:
        """Run until stopped; False if a second interrupt cancelled requests."""
        numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
        with handle_signals(self._collect_signal, *numbers):
            try:
                while not (stopping := self._read_signals()):
                    self._tend_places()
                    self._continue_replacing()
                    self._wait()
            except InputError:
                self._stop()
                raise
            return self._stop(interrupted=signal.SIGINT in stopping)

    def _tend_places(self) -> None:
        for place in self._places:
            if place.worker is None:
                if monotonic() >= place.start_at:
                    place.worker = self._start()
                continue
            has_ended = place.worker.has_ended  # before its last report is read
            if place.worker.read_report():
                self._on_ready(place.worker)
            if has_ended:
                self._on_end(place)
                place.release()

    def _on_ready(self, worker: Worker) -> None:
        if self._start_error:
            self._start_error = ""
            logger.info("worker %d serves again", worker.process.pid)
        self._has_served = True

    def _on_end(self, place: Place) -> None:
        worker = place.worker
        assert worker is not None
        reason, code = worker.describe_end(), worker.process.exitcode or 0
        if not self._has_served and (code >= 0 or place.failures >= MAX_FIRST_KILLS):  # others would fail the same way
            raise InputError(f"the gateway did not start: {reason}")
        if worker.is_ready:
            logger.warning("worker %d ended with code %s: starting another", worker.process.pid, code)
        elif reason != self._start_error:  # once, not at each attempt
            self._start_error = reason
            serving = sum(one.worker is not None and one.worker.is_ready for one in self._places)
            logger.error("a worker cannot start: %s. The gateway retries; %d others serve", reason, serving)

    def _continue_replacing(self) -> None:
        """Start a new worker, wait until it is ready, stop an old one, wait until it has ended, and so on."""
        if self._leaving is not None:
            if not self._leaving.has_ended:
                return
            self._leaving = None
            if not self._to_replace:
                self._report_replaced()
        if not self._to_replace:
            return
        if self._replacement is None:
            self._replacement = self._start()
            return
        new, place = self._replacement, self._to_replace[0]
        new.read_report()
        if new.is_ready:
            self._leaving, place.worker, place.failures = place.worker, new, 0
            self._replacement = None
            del self._to_replace[0]
            if self._leaving is not None:
                self._leaving.process.terminate()
            elif not self._to_replace:
                self._report_replaced()
        elif new.has_ended or monotonic() - new.started_at > START_TIMEOUT_S:
            new.process.kill()
            self._replacement = None
            self._to_replace.clear()
            why = new.describe_end() if new.has_ended else f"it was not ready within {START_TIMEOUT_S:g} s"
            logger.error("a new worker did not start: %s. The old ones continue", why)

    def _report_replaced(self) -> None:
        logger.info("every worker has been replaced")
        self._on_replaced()

    def _stop(self, *, interrupted: bool = False) -> bool:
        """Let every worker finish its requests, unless a second interrupt comes; kill those that do not end.

        After an interrupt, but not after SIGTERM, the log explains what the gateway waits for.
        """
        self._listening.close()  # while any process has it open, new clients connect and wait for nothing
        for worker in self._workers():
            worker.process.terminate()
        deadline = monotonic() + self._drain_seconds + STOP_GRACE_S
        explain_at = monotonic() + PATIENCE_S if interrupted else deadline
        was_hurried = False
        while running := [worker for worker in self._workers() if not worker.has_ended]:
            wait([worker.process.sentinel for worker in running], POLL_S)
            if not was_hurried and signal.SIGINT in self._signals:
                was_hurried, deadline = True, monotonic() + HURRY_GRACE_S
                for worker in running:
                    worker.interrupt()
            elif monotonic() > deadline:
                for worker in running:
                    worker.process.kill()
                    worker.process.join()
                if not was_hurried:
                    logger.error("%d workers did not stop in time and were killed", len(running))
            elif not was_hurried and monotonic() > explain_at:
                explain_at = deadline
                busy = "1 worker" if len(running) == 1 else f"{len(running)} workers"
                logger.info(WAITING, f"waiting for the requests of {busy} to finish", self._drain_seconds)
        return not was_hurried

    def _wait(self) -> None:
        """Wait until a worker ends or reports, or a signal may have arrived."""
        workers = self._workers()
        reporting = [worker.reports for worker in workers if not (worker.is_ready or worker.failure)]
        wait([*reporting, *(worker.process.sentinel for worker in workers)], POLL_S)

    def _start(self) -> Worker:
        return Worker(self._target, self._listening)

    def _workers(self) -> list[Worker]:
        found = [place.worker for place in self._places]
        return [worker for worker in (*found, self._replacement, self._leaving) if worker is not None]

    def _read_signals(self) -> list[int]:
        """Handle the signals that arrived; returns those that request a stop."""
        signals = list(self._signals)
        self._signals.clear()
        if getattr(signal, "SIGHUP", None) in signals:
            self._to_replace = list(self._places)
            logger.info("SIGHUP: replacing %d workers one by one", len(self._to_replace))
        return [number for number in signals if number in (signal.SIGINT, signal.SIGTERM)]

    def _collect_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)


@contextmanager
def handle_signals(handle: Callable[[int, FrameType | None], None], *numbers: int) -> Iterator[None]:
    """Handle signals in this way meanwhile."""
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
