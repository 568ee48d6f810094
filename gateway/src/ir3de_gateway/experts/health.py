"""Active health checks: a GET request to each replica from time to time, whether or not it gets other requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from time import monotonic

from ir3de_gateway.experts.expert import Replica
from ir3de_gateway.experts.snapshot import LiveSnapshot
from ir3de_gateway.transport import NoConnectionError, OutOfResourcesError, Transport, UpstreamCall

MAX_WAIT_S = 1.0  # between two looks for due checks: other replicas may have been configured
MAX_BODY_BYTES = 1 << 20  # of an answer, which is read so that its connection can be reused

_log = logging.getLogger("ir3de.gateway")


class HealthChecker:
    """Checks the replicas of the live snapshot. Of several workers, one makes each check."""

    def __init__(self, live: LiveSnapshot, transport: Transport, count: Callable[[Replica, bool], None]) -> None:
        """`count` is called with the outcome of each check."""
        self._live, self._transport, self._count = live, transport, count
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Check until cancelled."""
        try:
            while True:
                await asyncio.sleep(self.start_checks())
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    def start_checks(self) -> float:
        """Start the checks that are due, and return the seconds until the next look."""
        wait = MAX_WAIT_S
        for replica in self._list_checked():
            if replica.claim_check():
                task = asyncio.create_task(self.check(replica))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            wait = min(wait, replica.next_check - monotonic())
        return max(wait, 0.01)

    def _list_checked(self) -> Iterator[Replica]:
        for expert in self._live.snapshot.experts.values():
            if expert.replicas and expert.config.health.active:
                yield from expert.replicas

    async def check(self, replica: Replica) -> None:
        """Check one replica, now."""
        try:
            status = await self._request(replica)
        except (NoConnectionError, OutOfResourcesError):  # the replica is not the cause
            replica.schedule_check()
            return
        except OSError as error:
            found, is_good = _describe(error, replica.config.health.timeout), False
        else:
            found, is_good = f"status {status}", status < 500
        self._count(replica, is_good)
        if replica.record_check(is_good=is_good):
            log_change(replica, found)

    async def _request(self, replica: Replica) -> int:
        health, loop = replica.config.health, asyncio.get_running_loop()
        key = replica.authorization
        head = b"accept: */*\r\n" + (b"" if key is None else b"authorization: %b\r\n" % key.encode())
        deadline = loop.time() + health.timeout
        call = UpstreamCall(replica.destination, health.path, head, b"", health.timeout, deadline, method="GET")
        answer = await self._transport.send(call)
        try:
            size = 0
            while size < MAX_BODY_BYTES and (piece := await answer.read(deadline)):
                size += len(piece)
        finally:
            answer.close()
        return answer.status


def _describe(error: OSError, seconds: float) -> str:
    """Why a check failed; some errors have no text."""
    if isinstance(error, TimeoutError):
        return f"no response within {seconds:g} s"
    return " ".join(str(error).split()) or "the connection was closed"


def log_change(replica: Replica, found: str) -> None:
    """Log that a replica is down, or up again."""
    where = (replica.name, replica.config.base_url)
    if replica.is_down:
        _log.warning("'%s' at %s is down (%s): it gets no requests until a health check succeeds", *where, found[:300])
    else:
        _log.info("'%s' at %s is up again", *where)
