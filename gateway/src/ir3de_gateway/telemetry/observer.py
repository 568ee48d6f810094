"""Records each request in metrics, logs and traces, with one call when it ends."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from time import perf_counter, time
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ir3de_gateway.exchange_record import ExchangeRecord, Outcome
from ir3de_gateway.store.workers import WorkerPlace
from ir3de_gateway.telemetry.log_lines import (
    MAX_NAME_CHARS,
    format_access_line,
    format_decision_line,
    format_terminal_line,
    is_terminal,
    wants_colours,
)
from ir3de_gateway.telemetry.logs import STANDARD_OUTPUT, LogFile
from ir3de_gateway.telemetry.metrics import Metrics
from ir3de_gateway.telemetry.tracing import Tracing, create_tracing
from ir3de_gateway.wire import FORMATS

if TYPE_CHECKING:
    from ir3de_gateway.api_errors import ApiError
    from ir3de_gateway.config.document import Logs
    from ir3de_gateway.experts.expert import Replica
    from ir3de_gateway.experts.snapshot import LiveSnapshot

RECORDED = "is_recorded"  # in the state of a request whose exchange is recorded by itself
OBSERVE_DELAY_S = 0.003  # finished requests are written after this delay, in batches
MAX_PENDING_RECORDS = 1_000
PUBLISH_INTERVAL_S = 1.0  # seconds, where there are other workers

_log = logging.getLogger("ir3de.gateway")

_PREFIXES = (  # of paths, and the names of their endpoints
    ("/v1/route", "route"),
    ("/v1/feedback", "feedback"),
    ("/v1/models", "models"),
    ("/v1/", "other"),
    ("/admin", "admin"),
    ("/page/", "page"),
)
_ENDPOINTS: dict[str, str] = {
    **dict.fromkeys(("/livez", "/readyz", "/health"), "probe"),
    "/": "page",
    "/metrics": "metrics",
    "/version": "info",
    "/openapi.json": "info",
    **{f"/v1/{path}": wire.capability for path, wire in FORMATS.items()},  # rejected before an expert was chosen
}


class Observer:
    """Records finished requests in metrics and logs. Errors here are logged, and never affect a request."""

    def __init__(self, live: LiveSnapshot, counts: WorkerPlace | None = None) -> None:
        self._live = live
        self._shares = counts is not None
        self.metrics = Metrics(live, counts)
        self.in_flight: Counter[str] = Counter()  # requests that each expert is answering
        self.tracing: Tracing | None = create_tracing()
        self._access: LogFile | None = None
        self._format_access: Callable[[ExchangeRecord], bytes] = format_access_line
        self._replaced: list[LogFile] = []  # logs that may still have lines to write
        self._decisions: LogFile | None = None
        self._logs: Logs | None = None
        self._open_logs(live.snapshot.config.logs)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._pending: list[ExchangeRecord] = []
        self._flush_timer: asyncio.TimerHandle | None = None

    def request_started(self, expert: str) -> None:
        """A request to an expert begins."""
        self.in_flight[expert] += 1
        if self._shares and self._timer is None:
            self._publish()

    def request_ended(self, expert: str) -> None:
        """A request to an expert ends."""
        self.in_flight[expert] -= 1

    def count_health_check(self, replica: Replica, is_good: bool) -> None:
        """Count the health check of a replica."""
        self.metrics.replicas.health_checks[replica.name, replica.label, "ok" if is_good else "failed"] += 1

    def observe(self, record: ExchangeRecord) -> None:
        """Queue the record of a finished request. Records are written a moment later, in batches, at half the cost."""
        self._pending.append(record)
        if self._flush_timer is None:
            try:
                self._flush_timer = asyncio.get_running_loop().call_later(OBSERVE_DELAY_S, self.flush)
            except RuntimeError:  # no event loop is running
                self.flush()
        elif len(self._pending) >= MAX_PENDING_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Write all queued records."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        ended, self._pending = self._pending, []
        for record in ended:
            try:
                self._observe(record)
            except Exception:
                _log.exception("could not record request %s", record.request_id[:100])

    def _observe(self, record: ExchangeRecord) -> None:
        self.metrics.observe(record)
        snapshot = self._live.snapshot
        if snapshot.config.logs is not self._logs:
            self._open_logs(snapshot.config.logs)
        if self._access is not None:
            self._access.write(self._format_access(record))
        if self._decisions is not None and record.decision is not None:
            expert = snapshot.experts.get(record.expert)
            price = None if expert is None else expert.config.price
            self._decisions.write(format_decision_line(record, price=price, prompts=snapshot.config.logs.prompts))
        if self._shares and self._timer is None:
            self._publish()

    def log_access(
        self, scope: Scope, status: int, *, began: float | None = None, error: str = "", sent: int = 0
    ) -> None:
        """Count a request that involved no expert, and log it unless it is quiet."""
        path, method = str(scope.get("path", ""))[:MAX_NAME_CHARS], scope["method"]
        self.metrics.count_response(name_endpoint(path), status)
        if self._access is None or is_quiet(method, path, status, scope["state"]["headers"]):
            return
        seconds = 0.0 if began is None else perf_counter() - began
        outcome: Outcome = "ok" if status < 400 else "client_error" if status < 500 else "unavailable"
        record = ExchangeRecord(
            scope["state"]["request_id"], path, started=time() - seconds, status=status, outcome=outcome, error=error,
            total_seconds=seconds, sent_bytes=sent, method=method, key=scope["state"]["key"].name,
        )  # fmt: skip
        self._access.write(self._format_access(record))

    def record_refusal(self, scope: Scope, problem: ApiError) -> None:
        """Count and log a request that was rejected before it reached an endpoint."""
        self.metrics.count_refusal(scope["state"]["key"].name, problem.code)
        self.log_access(scope, problem.status, error=problem.code)

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Wrap an application so that its requests are logged."""

        async def log_request(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            began, status, sent = perf_counter(), 0, 0

            async def count_and_send(message: Message) -> None:
                nonlocal status, sent
                status = message.get("status", status)
                sent += len(message.get("body", b""))
                await send(message)

            try:
                await app(scope, receive, count_and_send)
            except asyncio.CancelledError:  # the gateway stops
                status = status or 503
                raise
            finally:
                if RECORDED not in scope["state"]:
                    self.log_access(scope, status or 500, began=began, sent=sent)

        return log_request

    def reopen(self) -> None:
        """Open the log files again, on SIGHUP. Rotated files are also noticed without it, within a second."""
        self.flush()
        for lines in (self._access, self._decisions):
            if lines is not None:
                lines.reopen()

    def handle_sighup(self, reload: Callable[[], None] = lambda: None) -> None:
        """On SIGHUP, reopen the logs and call `reload`. At a terminal, SIGHUP means that the terminal was closed."""
        hangup = getattr(signal, "SIGHUP", None)
        if hangup is None or (sys.stdin is not None and sys.stdin.isatty()):
            return

        def react() -> None:
            self.reopen()
            reload()

        with suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread
            asyncio.get_running_loop().add_signal_handler(hangup, react)

    @property
    def routes(self) -> list[Route]:
        return [Route("/metrics", self._get_metrics, methods=["GET"])]

    def close(self) -> None:
        """Publish the metrics once more, and close the logs."""
        self.flush()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._shares:
            self.metrics.refresh(self.in_flight)
        for lines in (*self._replaced, self._access, self._decisions):
            if lines is not None:
                lines.close()
        self._access = self._decisions = None
        if self.tracing is not None:
            self.tracing.close()

    async def _get_metrics(self, request: Request) -> Response:
        self.flush()
        self.metrics.refresh(self.in_flight)
        shared, accept = await self.metrics.build_shared(), request.headers.get("accept", "")
        content, content_type = await asyncio.to_thread(self.metrics.scrape, accept, shared)
        return Response(content, headers={"content-type": content_type, "cache-control": "no-store"})

    def _publish(self) -> None:
        """Publish the metrics for other workers, now and every second from now on."""
        try:
            self.flush()
            self.metrics.refresh(self.in_flight)
        except Exception:
            _log.exception("could not publish metrics to the other workers")
        if not self._closed:
            with suppress(RuntimeError):  # no event loop is running
                self._timer = asyncio.get_running_loop().call_later(PUBLISH_INTERVAL_S, self._publish)

    def _open_logs(self, logs: Logs) -> None:
        """Open the logs of a configuration. Logs whose path did not change stay open."""
        before, self._logs = self._logs, logs
        if before is None or before.access != logs.access:
            self._access = self._replace_log(self._access, logs.access)
        if before is None or before.decisions != logs.decisions:
            self._decisions = self._replace_log(self._decisions, logs.decisions)
        self._format_access = _choose_format(logs)

    def _replace_log(self, old: LogFile | None, path: str | None) -> LogFile | None:
        if old is not None:
            old.close(0)
            self._replaced.append(old)
        return None if path is None else LogFile(path)


def _choose_format(logs: Logs) -> Callable[[ExchangeRecord], bytes]:
    """The format of the access log: readable lines on a terminal, JSON elsewhere."""
    on_terminal = logs.access == STANDARD_OUTPUT and is_terminal(1)
    if logs.format == "json" or (logs.format == "auto" and not on_terminal):
        return format_access_line
    return partial(format_terminal_line, colours=on_terminal and wants_colours(1))


def name_endpoint(path: str) -> str:
    """One of a few labels for any path, because clients choose paths.

    >>> name_endpoint("/livez"), name_endpoint("/page/app.js"), name_endpoint("/v1/messages"), name_endpoint("/x")
    ('probe', 'page', 'messages', 'other')
    """
    known = _ENDPOINTS.get(path)
    return known or next((name for prefix, name in _PREFIXES if path.startswith(prefix)), "other")


def is_quiet(method: str, path: str, status: int, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request is not logged: probes, files, and the requests that the page repeats, if they succeed.

    >>> is_quiet("GET", "/metrics", 200, {}), is_quiet("GET", "/metrics", 500, {}), is_quiet("PUT", "/admin", 200, {})
    (True, False, False)
    """
    if status >= 400:
        return False
    if method in ("GET", "HEAD") and not path.startswith("/v1/"):
        return True
    from_page = headers.get(b"sec-fetch-site") == b"same-origin"  # browsers set it, and no script can
    return from_page and (path == "/v1/route" or method == "GET")
