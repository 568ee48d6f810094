"""Limits while the shared store is away: the policy, a bounded local allowance, and what is written when it is back.

    closed   requests of keys that are counted get an error
    open     each worker admits a share of each key's limits by itself

What requests took meanwhile is kept in memory and written when the store is back, each request once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from math import ceil
from time import monotonic, time
from typing import Any, NamedTuple, TypeVar

from ir3de_gateway.store.contract import StoreUnavailableError
from ir3de_gateway.store.limits import Charge, FileLimits, KeyUsage, Limits, Rates, Rejection, Spending
from ir3de_gateway.store.numbers import DamagedNumbersError
from ir3de_gateway.store.shared.limits import RENEW_INTERVAL_S, RedisLimits, make_lease

MAX_UNSETTLED = 100_000  # requests whose usage is in memory alone while the store is away
LOCAL = "local "  # how the leases of requests begin that this worker admitted by itself
NO_LIMITS = Limits()
NO_RATES = Rates(None, None)

T = TypeVar("T")
_log = logging.getLogger("ir3de.gateway")


class Settlement(NamedTuple):
    """The end of a request that could not be written."""

    key: str
    reserved: Charge
    spent: Spending | None = None
    instead: Charge | None = None
    is_again: bool = False  # the store may have it already
    is_cancelled: bool = False  # whether the store admitted it is unknown


class SharedLimits:
    """Limits on the shared store. An operation that has begun is completed even if its request is cancelled."""

    def __init__(
        self, redis: RedisLimits, *, is_open: bool, allowance: float, clock: Callable[[], float] = time
    ) -> None:
        self._redis, self._is_open, self._allowance, self._clock = redis, is_open, allowance, clock
        self._alone = FileLimits(None, 1)  # what this worker has admitted by itself, over all outages
        self._unsettled: deque[Settlement] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._renewed = monotonic()
        self.lost = 0  # requests whose usage was never written

    @property
    def unsettled(self) -> int:
        return len(self._unsettled)

    async def admit(self, key: str, limits: Limits, *, spends: bool = True) -> Rejection | Charge:
        lease, was_away = make_lease(), self._redis.is_away
        task = self._start(self._redis.admit(key, limits, spends=spends, lease=lease))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda done: self._abandon(key, done))
            raise
        except StoreUnavailableError:
            if not was_away:
                self._keep(Settlement(key, Charge(0, 0.0, 0, lease), is_cancelled=True))
            if not self._is_open:
                raise
        found = self._alone.admit(key, self._reduce(limits), self._clock(), spends=spends)
        return found if isinstance(found, Rejection) else found._replace(lease=LOCAL + make_lease())

    def _abandon(self, key: str, done: asyncio.Task[Any]) -> None:
        """End a request that was cancelled while it was admitted."""
        if not done.cancelled() and done.exception() is None and isinstance(charge := done.result(), Charge):
            self._start(self.settle(key, NO_LIMITS, charge, None))

    def _reduce(self, limits: Limits) -> Limits:
        """The part of a key's limits that this worker may use by itself."""
        requests, tokens, concurrent, day, month = limits
        share = self._allowance
        return Limits(
            None if requests is None else ceil(requests * share),
            None if tokens is None else ceil(tokens * share),
            None if concurrent is None else ceil(concurrent * share),
            None if day is None else day * share,
            None if month is None else month * share,
        )

    async def reserve(self, key: str, limits: Limits, bound: Charge) -> Rejection | None:
        if bound.lease.startswith(LOCAL):
            return self._alone.reserve(key, self._reduce(limits), bound, self._clock())
        try:
            return await asyncio.shield(self._start(self._redis.reserve(key, limits, bound)))
        except StoreUnavailableError:
            if not self._is_open:
                raise
            return None  # the store admitted it: at most those that were in flight

    async def settle(
        self, key: str, limits: Limits, reserved: Charge, spent: Spending | None, *, instead: Charge | None = None
    ) -> Rates:
        if reserved.lease.startswith(LOCAL):
            own = self._reduce(limits)
            rates = self._alone.settle(key, own, reserved, spent, self._clock())
            self._keep(Settlement(key, reserved, spent, instead))
            return rates
        settlement = Settlement(key, reserved, spent, instead)
        return await asyncio.shield(self._start(self._settle(limits, settlement)))

    async def _settle(self, limits: Limits, settlement: Settlement) -> Rates:
        was_away = self._redis.is_away
        try:
            return await self._write(settlement, limits)
        except StoreUnavailableError:
            self._keep(settlement._replace(is_again=not was_away))
            return NO_RATES

    async def _write(self, settlement: Settlement, limits: Limits = NO_LIMITS) -> Rates:
        key, reserved, spent, instead, is_again, is_cancelled = settlement
        if is_cancelled:
            await self._redis.cancel(key, reserved.lease)
            return NO_RATES
        return await self._redis.settle(key, limits, reserved, spent, instead=instead, is_again=is_again)

    def _keep(self, settlement: Settlement) -> None:
        self._unsettled.append(settlement)
        if len(self._unsettled) > MAX_UNSETTLED:
            self.lost += not self._unsettled.popleft().is_cancelled

    async def read_rates(self, key: str, limits: Limits) -> Rates:
        try:
            return await self._redis.read_rates(key, limits)
        except StoreUnavailableError:
            return self._alone.read_rates(key, self._reduce(limits), self._clock()) if self._is_open else NO_RATES

    async def read_usage(self, key: str, experts: Iterable[str] = ()) -> KeyUsage:
        return await self._redis.read_usage(key, experts)

    async def tend(self) -> None:
        """Write what could not be written, and renew what is in flight. Call it every second."""
        if monotonic() - self._renewed >= RENEW_INTERVAL_S:
            self._renewed = monotonic()
            await self._redis.renew()
        while self._unsettled:
            settlement = self._unsettled[0]
            try:
                await self._write(settlement)
            except DamagedNumbersError as error:
                _log.error("what a request of the key '%s' took cannot be written: %s", settlement.key, error)
                self.lost += 1
            except StoreUnavailableError:
                if not self._redis.is_away or not settlement.is_again:
                    self._unsettled[0] = settlement._replace(is_again=True)
                return
            if self._unsettled and self._unsettled[0] is settlement:
                self._unsettled.popleft()

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)
        with suppress(StoreUnavailableError):
            await self.tend()
        if self._unsettled:
            lost = sum(not one.is_cancelled for one in self._unsettled)
            self.lost += lost
            _log.error("the usage of %d requests was not written: the shared store is away", lost)
