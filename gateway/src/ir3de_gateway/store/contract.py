"""The seam: the operations of a store that requests wait for, and what an implementation promises.

Each operation is atomic and one round trip, and none needs a lock across two calls. Times are the store's own, so that
machines whose clocks differ count alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ir3de_gateway.store.limits import Charge, KeyUsage, Limits, Rates, Rejection, Spending


class StoreUnavailableError(Exception):
    """A store over the network does not answer, or cannot write."""


class LimitStore(Protocol):
    """Limits and budgets of keys. Numbers that are damaged raise a `DamagedNumbersError`.

    A store over the network may raise a `StoreUnavailableError`, but not at the end of a request.
    """

    async def admit(self, key: str, limits: Limits, *, spends: bool = True) -> Rejection | Charge:
        """Count a request that begins, or return the limit that has been reached."""
        ...

    async def reserve(self, key: str, limits: Limits, bound: Charge) -> Rejection | None:
        """Reserve the most that an admitted request can take; if a limit was reached meanwhile, uncount the request."""
        ...

    async def settle(
        self, key: str, limits: Limits, reserved: Charge, spent: Spending | None, *, instead: Charge | None = None
    ) -> Rates:
        """End a request: charge what it took in place of its reservation, or of an earlier charge (`instead`)."""
        ...

    async def read_rates(self, key: str, limits: Limits) -> Rates:
        """How much of the minute is left."""
        ...

    async def read_usage(self, key: str, experts: Iterable[str] = ()) -> KeyUsage: ...

    async def close(self) -> None: ...


class PinStore(Protocol):
    """Pins, which expire. No operation raises: routing goes on without pins."""

    @property
    def is_away(self) -> bool:
        """Whether a pin that is not found may exist: the store does not answer."""
        ...

    async def get(self, name: str) -> str | None:
        """The value of a pin, unless it has expired."""
        ...

    async def put(self, name: str, value: str, seconds: float | None = None) -> None:
        """Set a pin for so long; by default for the time of conversations."""
        ...

    async def take(self, name: str) -> str | None:
        """The value, for the one caller of all that removes the pin; None for the others."""
        ...

    async def tidy(self) -> None:
        """Write what could not be written at once, and remove what has expired. Call it every few seconds."""
        ...

    async def close(self) -> None: ...
