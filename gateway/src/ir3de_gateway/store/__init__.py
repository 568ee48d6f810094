"""What workers share, behind one seam: limits and budgets of keys, pins and ids of stored objects, counts for /metrics.

    limits     admit, reserve, settle, read_rates, read_usage
    pins       get, put, take
    counts     publish, read_published

`contract` is the seam, and `shared` a store that several machines share. The embedded store is two files of numbers and
SQLite files. Breakers and concurrency limits of experts are in shared memory (`numbers.WorkerTable`), because each
request reads them several times. Changes of /admin, drained replicas among them, are in `admin/state.py`.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ir3de.errors import InputError
from ir3de_gateway.config.state import SharedState
from ir3de_gateway.store.contract import LimitStore, PinStore, StoreUnavailableError
from ir3de_gateway.store.embedded import EmbeddedLimits, EmbeddedPins
from ir3de_gateway.store.limits import FileLimits
from ir3de_gateway.store.pins import create_pins
from ir3de_gateway.store.shared.connection import StoreConnection, check_store
from ir3de_gateway.store.shared.guarded import SharedLimits
from ir3de_gateway.store.shared.limits import RedisLimits
from ir3de_gateway.store.shared.pins import SharedPins
from ir3de_gateway.store.workers import WorkerPlace, get_worker_folder, is_first_report

_log = logging.getLogger("ir3de.gateway")


@dataclass(frozen=True)
class Store:
    """The parts of a store."""

    pins: PinStore
    limits: LimitStore | None = None  # None where keys are not counted
    counts: WorkerPlace | None = None  # None where a worker serves alone
    shared: SharedStore | None = None  # None where this machine serves alone

    async def close(self) -> None:
        await self.pins.close()
        if self.limits is not None:
            await self.limits.close()
        if self.counts is not None:
            self.counts.close()
        if self.shared is not None:
            await self.shared.connection.close()


@dataclass(frozen=True)
class SharedStore:
    """The connection to a store that machines share, and what has to be done for it every second."""

    connection: StoreConnection
    pins: SharedPins
    limits: SharedLimits | None

    async def tend(self) -> None:
        """Ask whether a store that was away is back; write what could not be written; renew what is in flight."""
        if await self.connection.check():
            with suppress(StoreUnavailableError):  # then it is logged, and tried again
                if self.limits is not None:
                    await self.limits.tend()
            await self.pins.tidy()


def open_shared_store(config: SharedState, *, counts_keys: bool, pin_seconds: float) -> Store:
    """The store that machines share. It connects when it is used."""
    connection = StoreConnection(config.read_address(), config.prefix, config.timeout)
    pins, limits = SharedPins(connection, pin_seconds), None
    if counts_keys:
        is_open = config.on_failure == "open"
        limits = SharedLimits(RedisLimits(connection), is_open=is_open, allowance=config.allowance)
    place = get_worker_folder()
    shared = SharedStore(connection, pins, limits)
    return Store(pins, limits, None if place is None else WorkerPlace(place), shared)


def open_store(
    folder: Path | None, *, workers: int, counts_keys: bool, pin_seconds: float, stored_seconds: float
) -> Store:
    """The embedded store, in the state folder and the folder of the workers; without them, in memory."""
    shared = get_worker_folder()
    return Store(
        EmbeddedPins(create_pins(pin_seconds, folder or shared, stored_seconds)),
        EmbeddedLimits(FileLimits(folder, workers)) if counts_keys else None,
        None if shared is None else WorkerPlace(shared),
    )


def check_shared_state(config: SharedState | None) -> None:
    """Raise an `InputError` if the shared store cannot be used. One that is away stops a closed gateway only."""
    if config is None:
        return
    try:
        check_store(config.read_address(), config.prefix, config.timeout)
    except StoreUnavailableError as error:
        if config.on_failure == "closed":
            raise InputError(f"{error}. Start the store, or set state.on_failure: open to start without it") from None
        if is_first_report(f"store {error}", "shared store"):
            _log.error("%s. This gateway starts without it, and uses it when it answers", error)
