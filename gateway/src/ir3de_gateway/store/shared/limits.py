"""Limits and budgets of keys over several machines: `limits.lua` decides, by the clock of the store.

Each request has a lease, which its worker renews. What a dead gateway had in flight ends when its leases do. A lease
makes operations repeatable: one whose answer was lost is sent again.
"""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from ir3de_gateway.store.limits import (
    IN_FLIGHT,
    RESERVED_COST,
    RESERVED_TOKENS,
    Charge,
    KeyUsage,
    Limits,
    Rates,
    Rejection,
    Spending,
    find_rates,
    find_rejection,
    find_spent,
)
from ir3de_gateway.store.numbers import DamagedNumbersError
from ir3de_gateway.store.shared.connection import ForeignContentError, StoreConnection, name_keys
from ir3de_gateway.store.usage import WIDTH, Totals, Usage

SCRIPT = "limits.lua"
RENEW_INTERVAL_S = 5.0  # a lease lasts six times as long: the event loop may be busy
MAX_RENEWED = 1_000  # leases of one key in one call
RENEWED_AT_ONCE = 64  # calls


class Answer:
    """The numbers of a key, as the store has them after an operation."""

    def __init__(self, found: list[Any]) -> None:
        self.rejected = found[0].decode()
        numbers = array("d", found[3])
        self._held = {IN_FLIGHT: found[2], RESERVED_TOKENS: numbers[WIDTH], RESERVED_COST: numbers[WIDTH + 1]}
        self.usage = Usage(numbers[:WIDTH], float(found[1]))
        self.by_expert = found[4:]

    def sum(self, kind: int) -> float:
        """What all requests in flight hold."""
        return float(self._held[kind])


class RedisLimits:
    """The operations. Each one is a round trip, and raises a `StoreUnavailableError` if the store does not answer."""

    def __init__(self, connection: StoreConnection, clock: Callable[[], float] | None = None) -> None:
        """`clock` replaces the store's own."""
        self._connection, self._clock = connection, clock
        self.held: dict[str, dict[str, None]] = {}  # leases by their keys, to be renewed

    @property
    def is_away(self) -> bool:
        return self._connection.is_away

    async def admit(self, key: str, limits: Limits, *, spends: bool = True, lease: str = "") -> Rejection | Charge:
        lease = lease or make_lease()
        found = await self._run(key, "admit", lease, int(spends), *_write_limits(limits))
        if found.rejected:
            rejection = find_rejection(found.usage, found, limits, spends=spends)
            return rejection or Rejection(found.rejected, getattr(limits, found.rejected), 0.0)
        self.held.setdefault(key, {})[lease] = None
        return Charge(0, 0.0, found.usage.second, lease)

    async def reserve(self, key: str, limits: Limits, bound: Charge) -> Rejection | None:
        _, tokens, _, day, month = _write_limits(limits)
        reserved = bound.tokens, repr(bound.cost), bound.since
        found = await self._run(key, "reserve", bound.lease, *reserved, tokens, day, month)
        if not found.rejected:
            return None
        rejection = find_spent(found.usage, found, limits)
        return rejection or Rejection(found.rejected, getattr(limits, found.rejected), 0.0)

    async def settle(
        self,
        key: str,
        limits: Limits,
        reserved: Charge,
        spent: Spending | None,
        *,
        instead: Charge | None = None,
        is_again: bool = False,
    ) -> Rates:
        self.forget(key, reserved.lease)
        before = reserved if instead is None or spent is None else instead
        arguments = [
            *_write_spent(spent),
            int(before is instead),
            before.tokens,
            repr(before.cost),
            before.since,
            int(is_again),
        ]
        return find_rates((await self._run(key, "settle", reserved.lease, *arguments)).usage, limits)

    async def cancel(self, key: str, lease: str) -> None:
        """End a request of which it is unknown whether it was admitted."""
        self.forget(key, lease)
        await self._run(key, "cancel", lease)

    def forget(self, key: str, lease: str) -> None:
        """No longer renew a lease."""
        if (held := self.held.get(key)) is not None:
            held.pop(lease, None)
            if not held:
                del self.held[key]

    async def renew(self) -> None:
        """Renew the leases of this worker, at once: requests may wait for the store, but their leases must not."""
        parts = [
            (key, leases[start : start + MAX_RENEWED])
            for key, leases in [(key, list(held)) for key, held in self.held.items()]
            for start in range(0, len(leases), MAX_RENEWED)
        ]
        for start in range(0, len(parts), RENEWED_AT_ONCE):
            some = parts[start : start + RENEWED_AT_ONCE]
            await asyncio.gather(*(self._run(key, "renew", "", *leases, is_urgent=True) for key, leases in some))

    async def read_rates(self, key: str, limits: Limits) -> Rates:
        return find_rates((await self._run(key, "read", "")).usage, limits)

    async def read_usage(self, key: str, experts: Iterable[str] = ()) -> KeyUsage:
        names = list(experts)
        found = await self._run(key, "read", "", *names)
        rows = zip(names, found.by_expert, strict=True)
        by_expert = {name: Totals(array("d", row), found.usage.now) for name, row in rows}
        return KeyUsage(found.usage, int(found.sum(IN_FLIGHT)), by_expert)

    async def _run(self, key: str, operation: str, lease: str, *arguments: Any, is_urgent: bool = False) -> Answer:
        *names, settled = name_keys(self._connection.prefix, key)
        moment = "" if self._clock is None else repr(self._clock())
        try:
            found = await self._connection.run(
                SCRIPT,
                [*names, f"{settled}:{lease}"],
                [operation, moment, lease, *arguments],
                is_urgent=is_urgent,
            )
        except ForeignContentError as error:
            raise DamagedNumbersError(str(error)) from error
        return Answer(found)


def make_lease() -> str:
    """A name for a request."""
    return os.urandom(8).hex()


def _write_limits(limits: Limits) -> list[str]:
    """Limits as arguments: requests, tokens, concurrent, per day, per month; empty for none."""
    return ["" if value is None else repr(value) for value in limits]


def _write_spent(spent: Spending | None) -> list[Any]:
    if spent is None:
        return [0, 0, 0, 0, ""]
    return [1, spent.tokens, repr(spent.cost), int(spent.is_estimated), spent.expert]
