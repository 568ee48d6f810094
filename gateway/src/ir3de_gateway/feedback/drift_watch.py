"""Looks for drift in the new requests of the journal. One worker does it for all; what it found is in the journal.

The state of the monitor is kept there, too, so a gateway that starts again goes on where it was. When somebody's
requests are deleted from the journal, that state is deleted with them, and begins anew from the requests that are left.
"""

from __future__ import annotations

import json
import logging
import zlib
from time import monotonic
from typing import TYPE_CHECKING, Any

from ir3de.errors import InputError, IR3DEError
from ir3de.traffic import Alarm, DriftMonitor, Journal, Observation, describe_alarms, observe_record

if TYPE_CHECKING:
    from pathlib import Path

    from ir3de import Router
    from ir3de_gateway.telemetry.counts import DriftMetrics

LOOK_INTERVAL_S = 15.0
MOST_REQUESTS = 500  # looked at each time: of more, evenly spread ones
SAVE_INTERVAL_S = 300.0  # between two times that the whole state is kept; a report is kept each time
MAX_WINDOWS = 48
WINDOW_PROMPTS = 100  # of the first windows; two become one when there are too many
MAX_ALARMS = 200  # the last ones are kept
STATE, REPORT = "drift state", "drift report"  # the names of the notes

_log = logging.getLogger("ir3de.gateway")


class DriftWatch:
    """The monitor of one journal."""

    def __init__(self, folder: Path, metrics: DriftMetrics) -> None:
        self.folder, self._metrics = folder, metrics
        self._state: dict[str, Any] = {}
        self._monitor = DriftMonitor()
        self._saved = monotonic()
        self._changes: list[dict[str, Any]] = []

    def look(self, router: Router, digest: str) -> None:
        """Look at the requests that came since the last time; those of another router are left out."""
        with Journal.create(self.folder) as journal:
            if not self._state or journal.read_note(REPORT) is None:
                self._load(journal)
            self._state["last"], records = journal.read_after(self._state["last"], MOST_REQUESTS)
            new: list[Alarm] = []
            for record in records:
                if record.router == digest:
                    seen = observe_record(record)
                    new += self._monitor.observe(seen)
                    _add_to_windows(self._state["windows"], seen)
            self._note(new, router)
            notes = {REPORT: json.dumps(self._report()).encode()}
            if new or journal.read_note(STATE) is None or monotonic() - self._saved >= SAVE_INTERVAL_S:
                notes[STATE] = self._pack()
                self._saved = monotonic()
            journal.write_notes(notes)
        self._metrics.set_prompts(self._monitor.prompts)

    def save(self) -> None:
        """Keep the whole state, at the end."""
        if self._state:
            with Journal.create(self.folder) as journal:
                if journal.read_note(STATE) is not None:  # else somebody's requests were deleted meanwhile
                    journal.write_notes({STATE: self._pack()})

    def _load(self, journal: Journal) -> None:
        kept = journal.read_note(STATE)
        self._monitor, self._changes = DriftMonitor(), []
        self._state = {"last": 0, "windows": [], "alarms": []}
        if kept is None:
            return
        try:
            state = json.loads(zlib.decompress(kept))
            self._monitor = DriftMonitor.from_dict(state.pop("monitor"))
            self._changes = state.pop("changes")
            self._state = state
        except (InputError, ValueError, KeyError, zlib.error) as error:
            _log.warning("drift is looked for from the beginning of the journal: %s", error)

    def _pack(self) -> bytes:
        content = {**self._state, "changes": self._changes, "monitor": self._monitor.to_dict()}
        return zlib.compress(json.dumps(content).encode(), 1)

    def _note(self, new: list[Alarm], router: Router) -> None:
        """Count alarms, log the changes, and describe them in words."""
        if not new:
            return
        for alarm in new:
            self._metrics.count(alarm.kind)
        alarms = self._state["alarms"] = [*self._state["alarms"], *(one.to_dict() for one in new)][-MAX_ALARMS:]
        try:
            changes = describe_alarms(router, [Alarm(**one) for one in alarms])
        except IR3DEError as error:  # a copy for serving alone does not know its prompts
            _log.warning("changes of the traffic cannot be described: %s", error)
            return
        self._changes = [one.to_dict() for one in changes]
        _log.warning("the traffic has changed: %s", changes[-1].summary)

    def _report(self) -> dict[str, Any]:
        monitor = self._monitor
        return {
            "prompts": monitor.prompts,
            "reference_prompts": monitor.learnt,
            "wanted_prompts": monitor.reference_prompts,
            "is_learning": monitor.is_learning,
            "prompts_per_false_alarm": monitor.prompts_per_false_alarm,
            "changes": self._changes,
            "windows": self._state["windows"],
        }


def read_report(folder: Path) -> dict[str, Any] | None:
    """What the watch found, whichever worker looked; None before the first look."""
    with Journal.create(folder) as journal:
        kept = journal.read_note(REPORT)
    return None if kept is None else dict(json.loads(kept))


def _add_to_windows(windows: list[dict[str, Any]], seen: Observation) -> None:
    """Count a request in the last window; each window has as many as the first."""
    size = max(windows[0]["prompts"], WINDOW_PROMPTS) if windows else WINDOW_PROMPTS
    if not windows or windows[-1]["prompts"] >= size:
        if len(windows) >= MAX_WINDOWS:
            windows[:] = [_join(*windows[place : place + 2]) for place in range(0, len(windows), 2)]
        windows.append({"since": seen.time, "prompts": 0, "abstained": 0, "experts": {}})
    last = windows[-1]
    last["prompts"] += 1
    last["abstained"] += "abstained" in seen.signs
    if seen.expert is not None:
        last["experts"][seen.expert] = last["experts"].get(seen.expert, 0) + 1


def _join(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    names = dict.fromkeys((*first["experts"], *second["experts"]))
    experts = {name: first["experts"].get(name, 0) + second["experts"].get(name, 0) for name in names}
    counts = {name: first[name] + second[name] for name in ("prompts", "abstained")}
    return {"since": first["since"], **counts, "experts": experts}
