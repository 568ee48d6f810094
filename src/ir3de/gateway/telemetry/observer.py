"""Metrics, logs and traces of each request: one call when it ends."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections import Counter
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ir3de.gateway.exchange_record import Outcome, Record
from ir3de.gateway.telemetry.logs import LONGEST_NAME, Lines, access_line, decision_line
from ir3de.gateway.telemetry.metrics import Metrics
from ir3de.gateway.telemetry.tracing import Tracing, from_environment
from ir3de.gateway.telemetry.worker_folder import shared_folder

if TYPE_CHECKING:
    from ir3de.gateway.config.models import Logs
    from ir3de.gateway.experts.snapshot import Live

PROBED = frozenset(("/livez", "/readyz", "/health", "/metrics"))
LATER = 0.003  # seconds after which ended requests are taken note of
MOST_UNTOLD = 1_000
PUBLISH_EVERY = 1.0  # seconds, where there are other workers

_log = logging.getLogger(__name__)


class Observer:
    """What the gateway tells about its requests. It never stops one: what goes wrong here is a message and no more."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._shared = shared_folder()
        self.metrics = Metrics(live, self._shared)
        self.in_flight: Counter[str] = Counter()  # requests that each expert is answering
        self.tracing: Tracing | None = from_environment()
        self._access: Lines | None = None
        self._decisions: Lines | None = None
        self._logs: Logs | None = None
        self._take_up(live.snapshot.config.logs)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._ended: list[Record] = []
        self._later: asyncio.TimerHandle | None = None

    def began(self, expert: str) -> None:
        """An expert is being asked."""
        self.in_flight[expert] += 1
        if self._shared is not None and self._timer is None:
            self._publish()

    def ended(self, expert: str) -> None:
        """Its answer has ended, or was given up."""
        self.in_flight[expert] -= 1

    def observe(self, record: Record) -> None:
        """A request has ended, one way or another. It is taken note of a moment later, several at a time.

        That takes half as long as one by one, and no other request has to wait for it.
        """
        self._ended.append(record)
        if self._later is None:
            try:
                self._later = asyncio.get_running_loop().call_later(LATER, self.catch_up)
            except RuntimeError:  # no loop, no later
                self.catch_up()
        elif len(self._ended) >= MOST_UNTOLD:
            self.catch_up()

    def catch_up(self) -> None:
        """Take note of what has ended by now."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        ended, self._ended = self._ended, []
        for record in ended:
            try:
                self._observe(record)
            except Exception:
                _log.exception("could not take note of request %s", record.request_id[:100])

    def _observe(self, record: Record) -> None:
        decision = record.decision
        if decision is not None and record.confidence is None:
            record.confidence = decision.confidence
        self.metrics.observe(record)
        snapshot = self._live.snapshot
        if snapshot.config.logs is not self._logs:
            self._take_up(snapshot.config.logs)
        if (self._access or self._decisions) and decision is not None and record.margin is None:
            record.margin = decision.margin
        if self._access is not None:
            self._access.write(access_line(record))
        if self._decisions is not None and decision is not None:
            expert = snapshot.experts.get(record.expert)
            price = None if expert is None else expert.config.price
            self._decisions.write(decision_line(record, price=price, prompts=snapshot.config.logs.prompts))
        if self._shared is not None and self._timer is None:
            self._publish()

    def note(self, scope: Scope, status: int, *, began: float | None = None, error: str = "", sent: int = 0) -> None:
        """The access log's line about a request that asked no expert; of probes that went well there is none."""
        path = str(scope.get("path", ""))[:LONGEST_NAME]
        if self._access is None or (status < 400 and path in PROBED):
            return
        seconds = 0.0 if began is None else perf_counter() - began
        outcome: Outcome = "ok" if status < 400 else "client_error" if status < 500 else "unavailable"
        record = Record(scope["state"]["request_id"], path, status=status, outcome=outcome, error=error)
        record.started -= seconds
        record.total_seconds, record.sent_bytes, record.method = seconds, sent, scope["method"]
        self._access.write(access_line(record))

    def watching(self, app: ASGIApp) -> ASGIApp:
        """The application behind, whose requests are in the access log too."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            began, status, sent = perf_counter(), 500, 0

            async def heard(message: Message) -> None:
                nonlocal status, sent
                status = message.get("status", status)
                sent += len(message.get("body", b""))
                await send(message)

            try:
                await app(scope, receive, heard)
            finally:
                self.note(scope, status, began=began, sent=sent)

        return watched

    def reopen(self) -> None:
        """Go on in new log files, for a SIGHUP; that one was rotated away is also seen without it, within a second."""
        self.catch_up()
        for lines in (self._access, self._decisions):
            if lines is not None:
                lines.reopen()

    def heed_hangups(self) -> None:
        """Let SIGHUP mean that logs were rotated; at a terminal it means that the terminal is gone, as ever."""
        hangup = getattr(signal, "SIGHUP", None)
        if hangup is None or (sys.stdin is not None and sys.stdin.isatty()):
            return
        with suppress(ValueError, RuntimeError, NotImplementedError):  # not the main thread: not ours to say
            asyncio.get_running_loop().add_signal_handler(hangup, self.reopen)

    @property
    def routes(self) -> list[Route]:
        return [Route("/metrics", self._get_metrics, methods=["GET"])]

    def close(self) -> None:
        """Tell the others a last time, and let go of files."""
        self.catch_up()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._shared is not None:
            self.metrics.refresh(self.in_flight)
        for lines in (self._access, self._decisions):
            if lines is not None:
                lines.close()
        self._access = self._decisions = None
        if self.tracing is not None:
            self.tracing.close()

    async def _get_metrics(self, request: Request) -> Response:
        self.catch_up()
        self.metrics.refresh(self.in_flight)
        content, content_type = await asyncio.to_thread(self.metrics.scrape, request.headers.get("accept", ""))
        return Response(content, headers={"content-type": content_type, "cache-control": "no-store"})

    def _publish(self) -> None:
        """Now, and again every second from now on."""
        try:
            self.catch_up()
            self.metrics.refresh(self.in_flight)
        except Exception:
            _log.exception("could not tell the other workers")
        if not self._closed:
            with suppress(RuntimeError):  # no loop, no later
                self._timer = asyncio.get_running_loop().call_later(PUBLISH_EVERY, self._publish)

    def _take_up(self, logs: Logs) -> None:
        """Open the logs of a configuration; those that stay are left as they are."""
        before, self._logs = self._logs, logs
        if before is None or before.access != logs.access:
            self._access = _replaced(self._access, logs.access)
        if before is None or before.decisions != logs.decisions:
            self._decisions = _replaced(self._decisions, logs.decisions)


def _replaced(old: Lines | None, path: str | None) -> Lines | None:
    fresh = None if path is None else Lines(path)
    if old is not None:
        old.close()
    return fresh
