"""So many requests at once, so many in line, and no more."""

from __future__ import annotations

import asyncio
from collections import deque


class Busy(Exception):  # noqa: N818 - a state of the expert, not a mistake
    """No place in line, or the wait was too long."""


class Slots:
    """Places at an expert: `acquire` waits in line, first come first served; `release` lets the next one in."""

    def __init__(self, limit: int, queue: int, wait: float) -> None:
        self.limit, self._queue, self.wait = limit, queue, wait
        self.taken = 0
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._line)

    async def acquire(self) -> None:
        """Take a place, or raise `Busy`."""
        if self.taken < self.limit and not self._line:
            self.taken += 1
            return
        if len(self._line) >= self._queue:
            raise Busy
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            async with asyncio.timeout(self.wait):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.release()  # the place came in the moment of giving up
            elif turn in self._line:
                self._line.remove(turn)
            if isinstance(error, TimeoutError):
                raise Busy from error
            raise
        # `release` has handed its place over: `taken` stays as it is

    def release(self) -> None:
        """Give the place to the next in line, or leave it free."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.taken -= 1
