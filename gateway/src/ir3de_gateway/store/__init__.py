"""What workers share, behind one seam: limits and budgets of keys, pins and ids of stored objects, counts for /metrics.

    limits     admit, reserve, settle, read_rates, read_usage
    pins       get, put, take
    counts     publish, read_published

`contract` is the seam. The embedded store is two files of numbers and SQLite files. Breakers and concurrency limits of
experts are in shared memory (`numbers.WorkerTable`), because each request reads them several times. Changes of /admin,
drained replicas among them, are in `admin/state.py`: several machines may share that file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ir3de_gateway.store.contract import LimitStore, PinStore
from ir3de_gateway.store.embedded import EmbeddedLimits, EmbeddedPins
from ir3de_gateway.store.limits import FileLimits
from ir3de_gateway.store.pins import create_pins
from ir3de_gateway.store.workers import WorkerPlace, get_worker_folder


@dataclass(frozen=True)
class Store:
    """The parts of a store."""

    pins: PinStore
    limits: LimitStore | None = None  # None where keys are not counted
    counts: WorkerPlace | None = None  # None where a worker serves alone

    async def close(self) -> None:
        await self.pins.close()
        if self.limits is not None:
            await self.limits.close()
        if self.counts is not None:
            self.counts.close()


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
