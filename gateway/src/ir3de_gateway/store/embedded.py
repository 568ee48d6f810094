"""The embedded store behind the seam: files of this machine, which answer at once, so that nothing has to wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import time

from ir3de_gateway.background import run_in_thread
from ir3de_gateway.store.limits import Charge, FileLimits, KeyUsage, Limits, Rates, Rejection, Spending
from ir3de_gateway.store.pins import StoredPins


class EmbeddedLimits:
    """`FileLimits` with the clock of this machine."""

    def __init__(self, files: FileLimits, clock: Callable[[], float] = time) -> None:
        self._files, self._clock = files, clock

    async def admit(self, key: str, limits: Limits, *, spends: bool = True) -> Rejection | Charge:
        return self._files.admit(key, limits, self._clock(), spends=spends)

    async def reserve(self, key: str, limits: Limits, bound: Charge) -> Rejection | None:
        return self._files.reserve(key, limits, bound, self._clock())

    async def settle(
        self, key: str, limits: Limits, reserved: Charge, spent: Spending | None, *, instead: Charge | None = None
    ) -> Rates:
        return self._files.settle(key, limits, reserved, spent, self._clock(), instead=instead)

    async def read_rates(self, key: str, limits: Limits) -> Rates:
        return self._files.read_rates(key, limits, self._clock())

    async def read_usage(self, key: str, experts: Iterable[str] = ()) -> KeyUsage:
        return self._files.read_usage(key, self._clock(), experts)

    async def close(self) -> None:
        self._files.close()


class EmbeddedPins:
    """`StoredPins`, whose operations take microseconds."""

    is_away = False

    def __init__(self, stored: StoredPins) -> None:
        self._stored = stored

    async def get(self, name: str) -> str | None:
        return self._stored.get(name)

    async def put(self, name: str, value: str, seconds: float | None = None) -> None:
        self._stored.put(name, value, seconds)

    async def take(self, name: str) -> str | None:
        return self._stored.take(name)

    async def tidy(self) -> None:
        await run_in_thread(self._stored.tidy)

    async def close(self) -> None:
        self._stored.close()
