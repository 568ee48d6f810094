"""Asks a second replica when the first one is slow to begin, and takes the answer of whichever begins first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from time import perf_counter
from types import TracebackType

from ir3de_gateway.experts.replicas import Replica, ReplicatedExpert
from ir3de_gateway.experts.upstream import (
    RETRYABLE_STATUSES,
    UpstreamFailure,
    UpstreamRequest,
    UpstreamResponse,
    read_refusal,
)


class BegunRequest:
    """A request whose answer has begun already: `async with` gives the answer at once, and closes it."""

    def __init__(self, stack: AsyncExitStack, answer: UpstreamResponse, ticket: int, started: float) -> None:
        self._stack, self._answer, self.ticket, self.started = stack, answer, ticket, started

    async def __aenter__(self) -> UpstreamResponse:
        return self._answer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)


class Race:
    """One request to two replicas. Whoever loses is hung up on, and may be asked again: it has done nothing wrong."""

    def __init__(
        self,
        expert: ReplicatedExpert,
        build: Callable[[Replica], UpstreamRequest],
        translate: Callable[[UpstreamResponse, Replica], UpstreamResponse],
        record_failure: Callable[[Replica, UpstreamFailure, int, float], None],
    ) -> None:
        """`translate` gives an answer as the client understands it; `record_failure` gets what went wrong with a
        replica, the ticket of its circuit breaker, and after how many seconds.
        """
        self._expert, self._build, self._translate, self._record_failure = expert, build, translate, record_failure
        self._running: dict[asyncio.Task[BegunRequest], Replica] = {}
        self.second: Replica | None = None

    async def run(self, first: Replica, tried: Collection[Replica], hedge_after: float) -> tuple[Replica, BegunRequest]:
        """Who answers, and the answer; or the failure of whoever failed last.

        `first` was picked by the caller; the second one is none of those in `tried`.
        """
        self._start(first)
        winner: tuple[Replica, BegunRequest] | None = None
        try:
            done, _ = await asyncio.wait(self._running, timeout=hedge_after)
            if not done:
                self._start_second((first, *tried))
            winner = await self._find_winner()
            return winner
        finally:
            try:
                await asyncio.shield(self._call_off())
            except asyncio.CancelledError:  # the client has left meanwhile: nobody takes the answer
                if winner is not None:
                    await _hang_up(*winner)
                raise

    def _start_second(self, tried: Collection[Replica]) -> None:
        """Ask another replica, too, if one can be asked."""
        if not self._expert.concurrency.try_acquire():
            return
        self.second = self._expert.pick(tried, may_probe=False)
        if self.second is None:
            self._expert.concurrency.release()
        else:
            self._start(self.second)

    def _start(self, replica: Replica) -> None:
        self._running[asyncio.create_task(self._begin(replica, replica.breaker.ticket))] = replica

    async def _begin(self, replica: Replica, ticket: int) -> BegunRequest:
        """Send the request, and wait for the first byte of a good answer."""
        started = perf_counter()
        try:
            async with AsyncExitStack() as stack:
                answer = await stack.enter_async_context(self._build(replica))
                if answer.status in RETRYABLE_STATUSES or answer.status >= 500:
                    raise await read_refusal(self._translate(answer, replica), replica)
                if answer.is_stream:
                    await answer.await_first_piece()
                return BegunRequest(stack.pop_all(), answer, ticket, started)
        except UpstreamFailure as failure:
            self._record_failure(replica, failure, ticket, perf_counter() - started)
            replica.leave()
            raise
        except BaseException:
            replica.breaker.record_abandoned(ticket)
            replica.leave()
            raise

    async def _find_winner(self) -> tuple[Replica, BegunRequest]:
        while True:
            done, running = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task.exception() is None:
                    return self._running.pop(task), task.result()
            if not running:
                raise next(iter(done)).exception() or AssertionError("a task has no outcome")
            for task in done:
                del self._running[task]

    async def _call_off(self) -> None:
        """Hang up on whoever is still asked."""
        for task in self._running:
            task.cancel()
        ended = await asyncio.gather(*self._running, return_exceptions=True)
        for replica, begun in zip(self._running.values(), ended, strict=True):
            if isinstance(begun, BegunRequest):  # both began at once
                await _hang_up(replica, begun)
        self._running.clear()  # a task keeps its error, whose frames keep this race and the request
        if self.second is not None:
            self._expert.concurrency.release()


async def _hang_up(replica: Replica, begun: BegunRequest) -> None:
    """Close an answer that nobody wants; the others do this themselves."""
    await begun.__aexit__(None, None, None)
    replica.breaker.record_abandoned(begun.ticket)
    replica.leave()
