"""Pins over several machines: one key of the store each, which expires by itself.

While the store is away, a worker goes on with the pins that it has seen lately, and keeps new ones to write them later.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from time import time

from ir3de_gateway.store.contract import StoreUnavailableError
from ir3de_gateway.store.pins import MAX_UNWRITTEN, hash_name
from ir3de_gateway.store.shared.connection import ForeignContentError, StoreConnection

MAX_RECENT = 10_000  # pins that a worker remembers for an outage
MAX_UNWRITTEN_CHARS = 64_000_000  # of values that wait for the store
MAX_RECENT_CHARS = 1_000  # of a value; longer ones, such as responses, are remembered only until they are written


class SharedPins:
    """Pins in the shared store, by the hashes of their names."""

    def __init__(self, connection: StoreConnection, ttl: float, clock: Callable[[], float] = time) -> None:
        self._connection, self._ttl, self._clock = connection, ttl, clock
        self._recent: OrderedDict[str, tuple[str, float]] = OrderedDict()  # values, and when they expire
        self._unwritten: dict[str, None] = {}  # names of recent ones that the store does not have

    @property
    def is_away(self) -> bool:
        """Whether a pin that is not found may exist."""
        return self._connection.is_away

    async def get(self, name: str) -> str | None:
        place = self._name(name)
        if place not in self._unwritten:
            try:
                found = await self._connection.do("GET", place)
            except StoreUnavailableError:
                pass
            except ForeignContentError:
                return None
            else:
                value = None if found is None else str(found.decode(errors="replace"))
                if value is None:
                    self._forget(place)
                elif place not in self._recent and len(value) <= MAX_RECENT_CHARS:
                    self._remember(place, value, self._clock() + self._ttl)
                return value
        recent = self._recent.get(place)
        return recent[0] if recent is not None and self._clock() < recent[1] else None

    async def put(self, name: str, value: str, seconds: float | None = None) -> None:
        place, lasts = self._name(name), self._ttl if seconds is None else seconds
        self._remember(place, value, self._clock() + lasts)
        self._unwritten[place] = None
        is_written = await asyncio.shield(asyncio.ensure_future(self._write(place)))
        if not is_written and len(value) > MAX_RECENT_CHARS and self._count_unwritten() > MAX_UNWRITTEN_CHARS:
            self._forget(place)

    def _count_unwritten(self) -> int:
        return sum(len(self._recent[place][0]) for place in self._unwritten)

    def _forget(self, place: str) -> None:
        self._recent.pop(place, None)
        self._unwritten.pop(place, None)

    def _remember(self, place: str, value: str, until: float) -> None:
        self._recent[place] = value, until
        self._recent.move_to_end(place)
        if len(self._recent) > MAX_RECENT:
            self._forget(next(iter(self._recent)))

    async def _write(self, place: str) -> bool:
        """Write a pin; whether the store has it now."""
        value, until = self._recent[place]
        milliseconds = round((until - self._clock()) * 1_000)
        try:
            if milliseconds > 0:
                await self._connection.do("SET", place, value, "PX", milliseconds, writes=True)
        except StoreUnavailableError:
            return False
        except ForeignContentError:
            pass
        if self._recent.get(place) == (value, until):  # otherwise it was put again meanwhile
            self._unwritten.pop(place, None)
            if len(value) > MAX_RECENT_CHARS:
                del self._recent[place]
        return True

    async def take(self, name: str) -> str | None:
        place = self._name(name)
        if place in self._unwritten:
            return None
        self._forget(place)
        try:
            found = await self._connection.do("GETDEL", place, writes=True)
        except (StoreUnavailableError, ForeignContentError):
            return None
        return None if found is None else str(found.decode(errors="replace"))

    async def tidy(self) -> None:
        """Write the rest."""
        for place in list(self._unwritten)[:MAX_UNWRITTEN]:
            if place in self._recent and not await self._write(place):
                return

    async def close(self) -> None:
        await self.tidy()

    def _name(self, name: str) -> str:
        return f"{self._connection.prefix}:pin:{hash_name(name).hex()}"
