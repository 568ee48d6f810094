"""Concurrency limit with a bounded FIFO queue."""

from __future__ import annotations

import asyncio
from collections import deque


class LimitReached(Exception):  # noqa: N818 - a state of the expert, not a mistake
    """The queue is full, or the wait was too long."""


class ConcurrencyLimit:
    """How many requests an expert gets at once: `acquire` waits in a FIFO queue, `release` wakes the next waiter."""

    def __init__(self, limit: int, queue: int, wait: float) -> None:
        self.limit, self._queue_length, self.wait = limit, queue, wait
        self.in_use = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    async def acquire(self) -> None:
        """Wait for a free slot, or raise `LimitReached`."""
        if self.in_use < self.limit and not self._waiters:
            self.in_use += 1
            return
        if len(self._waiters) >= self._queue_length:
            raise LimitReached
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        try:
            async with asyncio.timeout(self.wait):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.release()  # the slot was assigned just as the wait ended
            elif turn in self._waiters:
                self._waiters.remove(turn)
            if isinstance(error, TimeoutError):
                raise LimitReached from error
            raise
        # `release` has passed its slot on: `in_use` does not change

    def release(self) -> None:
        """Pass the slot to the next waiter, or free it."""
        while self._waiters:
            turn = self._waiters.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.in_use -= 1
