"""Concurrency limit with a bounded FIFO queue, of one worker or of all workers together."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from math import ceil, inf
from time import monotonic

from ir3de_gateway.store.numbers import LoneTable, Row

POLL_INTERVAL_S = 0.01  # between two looks for a slot that another worker has freed

_IN_USE, _WAITING, _OLDEST = range(3)  # of each worker; the oldest is when its first waiter arrived


class LimitReached(Exception):  # noqa: N818 - a state of the expert, not a mistake
    """The queue is full, or the wait was too long."""


@dataclass(slots=True, eq=False)
class _Waiter:
    turn: asyncio.Future[None]
    arrived: float


class ConcurrencyLimit:
    """How many requests an expert gets at once: `acquire` waits in a FIFO queue, `release` wakes the next waiter.

    A row of the workers' table holds the slots that each of them uses. The request that has waited longest gets the
    next slot, in whichever worker. A worker cannot wake a request of another one: if the row is shared, the first
    waiter of each worker polls every few milliseconds.
    """

    def __init__(self, limit: int, queue: int, wait: float, row: Row | None = None) -> None:
        self.limit, self._queue_length, self.wait = limit, queue, wait
        self._row = LoneTable().create_row() if row is None else row
        self.is_shared = self._row.table.is_shared  # it is the limit of all workers together
        self._waiters: deque[_Waiter] = deque()
        self._poll_timer: asyncio.TimerHandle | None = None

    @property
    def in_use(self) -> int:
        self._row.table.clear_dead_workers()
        return int(sum(self._row.every[_IN_USE]))

    @property
    def waiting(self) -> int:
        return int(sum(self._row.every[_WAITING]))

    @property
    def waiting_here(self) -> int:
        """Requests that wait in this worker."""
        return len(self._waiters)

    async def acquire(self) -> None:
        """Wait for a free slot, or raise `LimitReached`."""
        if self.try_acquire():
            return
        waiter = _Waiter(asyncio.get_running_loop().create_future(), monotonic())
        if not self._enter(waiter):
            raise LimitReached
        try:
            async with asyncio.timeout(self.wait):
                await waiter.turn
        except BaseException as error:
            if waiter.turn.done() and not waiter.turn.cancelled():
                self.release()  # the slot was assigned just as the wait ended
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
                self._note_queue()
            if isinstance(error, TimeoutError):
                raise LimitReached from error
            raise
        # `release` has passed its slot on: `in_use` does not change

    def try_acquire(self) -> bool:
        """Take a slot that is free now."""
        return not self._waiters and self._take()

    def release(self) -> None:
        """Pass the slot to the next waiter, or free it."""
        if not self._waiters or not self._pass_on():
            self._give_back()

    def _pass_on(self) -> bool:
        """Pass a taken slot to the next waiter; False if there is none, or if one elsewhere has waited longer."""
        while self._waiters and not self._is_older_elsewhere():
            waiter = self._waiters.popleft()
            self._note_queue()
            if not waiter.turn.done():
                waiter.turn.set_result(None)
                return True
        return False

    def _take(self) -> bool:
        """Take a slot if one is free and no other request has waited longer."""
        return self._try_take() or (self._row.table.clear_dead_workers() and self._try_take())

    def _try_take(self) -> bool:
        row = self._row
        with row.table.lock:
            if sum(row.every[_IN_USE]) >= self.limit:
                return False
            if self.is_shared and any(row.every[_OLDEST]) and self._is_older_elsewhere():
                return False
            row.own[_IN_USE] += 1.0
            return True

    def _give_back(self) -> None:
        self._row.own[_IN_USE] -= 1.0  # only this worker writes it, so no lock is needed

    def _enter(self, waiter: _Waiter) -> bool:
        """Join the queue if it is not full."""
        with self._row.table.lock:
            if sum(self._row.every[_WAITING]) >= self._queue_length:
                return False
            self._waiters.append(waiter)
            self._note_queue()
        if self._poll_timer is None:
            self._schedule_poll()
        return True

    def _is_older_elsewhere(self) -> bool:
        """Whether another worker has an earlier waiter. An overdue one is ignored: its worker may hang."""
        arrived = self._waiters[0].arrived if self._waiters else inf
        overdue = monotonic() - self.wait
        return any(overdue < oldest < arrived for oldest in self._row.every[_OLDEST] if oldest)

    def _note_queue(self) -> None:
        """Tell other workers how long the queue is, and since when its first waiter waits."""
        own = self._row.own
        own[_WAITING] = float(len(self._waiters))
        own[_OLDEST] = self._waiters[0].arrived if self._waiters else 0.0

    def _schedule_poll(self) -> None:
        if self.is_shared:
            self._poll_timer = asyncio.get_running_loop().call_later(POLL_INTERVAL_S, self._poll)

    def _poll(self) -> None:
        self._poll_timer = None
        while self._waiters and self._take():
            if not self._pass_on():
                self._give_back()
                break
        if self._waiters:
            self._schedule_poll()


def create_limit(limit: int, queue: int, wait: float, workers: int, row: Row) -> ConcurrencyLimit:
    """A limit for all workers together; where workers cannot share one, each has its part."""
    parts = 1 if row.table.is_shared else workers
    return ConcurrencyLimit(ceil(limit / parts), ceil(queue / parts), wait, row)
