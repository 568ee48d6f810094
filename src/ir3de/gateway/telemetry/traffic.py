"""The last minutes of traffic, of all workers together, as the page shows them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from ir3de.gateway.telemetry.tallies import CONFIDENCE_BINS, SLOT, ExpertTally, Slot, quantile_ms, summed
from ir3de.gateway.telemetry.worker_folder import alive

if TYPE_CHECKING:
    from ir3de.gateway.exchange_record import Record

WINDOW = 300  # seconds
PER_SECOND = 120


class Traffic:
    """A sliding window of slots. A worker writes its current slot into the shared folder; whoever is asked adds up."""

    def __init__(self, folder: Path | None = None, clock: Callable[[], float] = time) -> None:
        self._folder, self._clock = folder, clock
        self._began = clock()
        self._slots: list[Slot] = []  # oldest first
        self.in_flight: Counter[str] = Counter()
        self._changed = False
        self._untold: dict[int, Slot] = {}  # changed since the others were told

    def began(self, expert: str) -> None:
        self.in_flight[expert] += 1
        self._changed = True

    def ended(self, expert: str) -> None:
        self.in_flight[expert] -= 1
        self._changed = True

    def observe(self, record: Record, label: Callable[[str], str]) -> None:
        """Count a request that has ended; `label` keeps the names of experts bounded."""
        now = int(self._clock())
        slot = self._current(now)
        slot.count(record, label(record.expert), now)
        for giver, taker, _ in record.fallbacks:
            slot.expert(label(giver)).fallbacks_from += 1
            slot.expert(label(taker)).fallbacks_to += 1
        self._changed = True
        if self._folder is not None:
            self._untold[slot.start] = slot

    def publish(self) -> None:
        """Tell the other workers, if there is anything new; a disk that is full keeps it from them, no more."""
        busy = +self.in_flight
        if self._folder is None or not (self._changed or busy):
            return
        current = self._current(int(self._clock()))
        self._untold[current.start] = current  # with it goes what is in flight
        with suppress(OSError):
            for start, slot in list(self._untold.items()):
                target = self._folder / f"traffic_{os.getpid()}_{start}.json"
                part = target.with_suffix(".part")
                part.write_text(json.dumps({**slot.to_dict(), "in_flight": dict(busy)}))
                part.replace(target)
                del self._untold[start]
            self._changed = False
        oldest = current.start - WINDOW - SLOT
        self._untold = {start: slot for start, slot in self._untold.items() if start >= oldest}
        for path in self._folder.glob("traffic_*.json"):
            if int(path.stem.rpartition("_")[2]) < oldest:
                path.unlink(missing_ok=True)

    def report(self, experts: Iterable[str]) -> dict[str, Any]:
        """The window as JSON: the experts of the configuration, then what else there was."""
        now = int(self._clock())
        theirs, in_flight = self._others(now)
        slots = [slot for slot in (*self._slots, *theirs) if slot.start > now - WINDOW]
        whole = summed(slots)
        requests = sum(tally.requests for tally in whole.experts.values())
        names = dict.fromkeys((*experts, *whole.experts))
        return {
            "since": round(max(self._began, now - WINDOW), 3),
            "window_seconds": WINDOW,
            "totals": {
                "requests": requests,
                "errors": whole.errors,
                "cancelled": whole.cancelled,
                "abstained": whole.abstained,
                "in_flight": in_flight + (+self.in_flight).total(),
            },
            "experts": [_row(name, whole.experts.get(name) or ExpertTally(), requests) for name in names],
            "confidence": {
                "edges": [edge / CONFIDENCE_BINS for edge in range(CONFIDENCE_BINS + 1)],
                "counts": whole.confidence,
            },
            "per_second": _per_second(slots, now),
        }

    def _current(self, now: int) -> Slot:
        start = now - now % SLOT
        if not self._slots or self._slots[-1].start < start:
            self._slots = [slot for slot in self._slots if slot.start > start - WINDOW - SLOT]
            self._slots.append(Slot(start))
        slot = self._slots[-1]
        if now < slot.start:  # the clock was set back
            self._slots = [slot := Slot(start)]
        return slot

    def _others(self, now: int) -> tuple[list[Slot], int]:
        """The slots of the other workers, and their requests in flight."""
        newest: dict[int, tuple[int, int]] = {}
        slots = []
        for pid, content in self._files(now):
            with suppress(ValueError, KeyError, TypeError):
                slot = Slot.from_dict(content)
                slots.append(slot)
                newest[pid] = max(newest.get(pid, (0, 0)), (slot.start, sum(content["in_flight"].values())))
        return slots, sum(count for pid, (_, count) in newest.items() if alive(pid))

    def _files(self, now: int) -> Iterator[tuple[int, Any]]:
        for path in () if self._folder is None else self._folder.glob("traffic_*.json"):
            _, pid, start = path.stem.split("_")
            if int(pid) != os.getpid() and int(start) > now - WINDOW:
                with suppress(OSError, ValueError):  # taken away, or half a file after a crash
                    yield int(pid), json.loads(path.read_bytes())


def _row(name: str, tally: ExpertTally, requests: int) -> dict[str, Any]:
    return {
        "expert": name,
        "requests": tally.requests,
        "share": round(tally.requests / requests, 4) if requests else 0.0,
        "errors": tally.errors,
        "fallbacks_from": tally.fallbacks_from,
        "fallbacks_to": tally.fallbacks_to,
        "p50_ms": quantile_ms(tally.total, 0.5),
        "p99_ms": quantile_ms(tally.total, 0.99),
        "ttft_p50_ms": quantile_ms(tally.first, 0.5),
        "tokens": tally.tokens,
        "cost": round(tally.cost, 9),
    }


def _per_second(slots: Iterable[Slot], now: int) -> list[dict[str, int]]:
    counts: Counter[int] = Counter()
    for slot in slots:
        counts.update({slot.start + offset: count for offset, count in enumerate(slot.seconds) if count})
    return [{"t": second, "requests": counts[second]} for second in range(now - PER_SECOND + 1, now + 1)]
