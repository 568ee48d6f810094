"""The sequential test of the candidate router at work: one worker reads the journal, and acts on the verdict.

A worse candidate is stopped for all workers, because the state folder has it. A better one may be promoted: by an
admin, or here if the configuration allows it. The test is computed anew each time, since feedback may be changed and
deleted; what has ended stays ended.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from ir3de.errors import IR3DEError
from ir3de.serving import stamp
from ir3de.traffic import Journal, Selection, TrialReport, run_test
from ir3de_gateway.admin.administration import Administration, Caller
from ir3de_gateway.admin.candidate import describe_state, end_trial, promote, write_test
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.background import run_in_thread

if TYPE_CHECKING:
    from ir3de_gateway.admin.changes import AdminState, Change

CHECK_INTERVAL_S = 2.0
REST_SHARE = 50.0  # seconds of rest after each second of work: the test takes at most 2 % of a core
WHO = "sequential test"
STATES = {"trial": 1, "stopped": 3}  # of the metric; 2 is a better candidate

log = logging.getLogger("ir3de.gateway")


class Gauges(Protocol):
    """The metrics of the candidate."""

    def set_state(self, state: int, against: float | None = None, in_favour: float | None = None) -> None: ...


class TrialJudge:
    """Judges the candidate that is tried now."""

    def __init__(self, administration: Administration, gauges: Gauges) -> None:
        self._administration, self._gauges = administration, gauges
        self.rest_s = CHECK_INTERVAL_S
        self._seen: object = None  # the journal and the candidate that were judged last
        self._report: TrialReport | None = None

    async def check(self) -> None:
        """Test the candidate if there is something new, and act on the verdict."""
        now = self._administration.current
        config, folder = now.config.routing.candidate, now.config.feedback.folder
        if now.candidate is None or config is None or folder is None or not self._administration.is_first():
            self._seen = self._report = None
            self._gauges.set_state(STATES.get(describe_state(now), 0))
            return
        seen = (now.digest, now.candidate.digest, config.level, await run_in_thread(_stamp_journal, Path(folder)))
        if seen != self._seen:
            before = None if self._report is None else self._report.verdict
            self._report = await run_in_thread(self._test, now, Path(folder))
            self._seen = seen
            if self._report.verdict == "better" != before:
                log.info("%s, and may be promoted", describe_report(self._report))
        report = self._report
        assert report is not None
        self._gauges.set_state(2 if report.verdict == "better" else 1, report.against, report.in_favour)
        if report.verdict == "worse":
            await self._stop(now.candidate.digest, report)
        elif report.verdict == "better" and config.promote == "auto":
            await self._promote(now, report)

    def _test(self, now: AdminState, folder: Path) -> TrialReport:
        assert now.candidate is not None and now.config.routing.candidate is not None
        began, digest = perf_counter(), now.candidate.digest
        with Journal.create(folder) as journal:
            both = Selection(router=now.digest, candidate=digest)  # with another live router the test begins anew
            # where they agree, requests are only counted, which takes a tenth of the time
            rows = journal.read(replace(both, disagrees=True), prompts=False, on_damage=lambda _: None)
            report = run_test(rows, digest, level=now.config.routing.candidate.level).report()
            report = replace(report, requests=journal.count(both))
        time = datetime.now(UTC).isoformat(timespec="seconds")
        with suppress(IR3DEError):  # it is for other workers, and repeated
            write_test(self._administration.folder, digest, {**report.to_dict(), "time": time})
        self.rest_s = max(CHECK_INTERVAL_S, REST_SHARE * (perf_counter() - began))
        return report

    async def _stop(self, digest: str, report: TrialReport) -> None:
        why = describe_report(report)
        change = partial(end_trial, "stopped", digest, WHO, why)
        if await self._change(change, action="stop candidate", why=why):
            log.warning("the candidate %s was stopped: %s. The live router serves alone", digest[:12], why)
            self._gauges.set_state(3, report.against, report.in_favour)

    async def _promote(self, now: AdminState, report: TrialReport) -> None:
        assert now.trial is not None
        why, digest = describe_report(report), now.trial.loaded.digest
        where = now.trial.follower.shown
        if await self._change(partial(promote, digest, WHO, why), action="promote candidate", path=where, why=why):
            log.warning("the candidate %s is the live router now: %s", digest[:12], why)

    async def _change(self, change: Change, **what: str) -> bool:
        """Whether the change was made. Otherwise it is tried again at the next check."""
        try:
            await self._administration.change(change, Caller(WHO), **what)
        except ApiError as problem:
            if problem.code not in ("no_candidate", "stale"):  # another worker was faster
                log.error("the candidate's trial cannot be ended: %s", problem.message)
            return False
        return True


def describe_report(report: TrialReport) -> str:
    """A verdict as a sentence."""
    evidence = report.against if report.verdict == "worse" else report.in_favour
    size = "" if report.difference is None else f", mean difference {report.difference:+.2f}"
    counted = f"{report.observed:,} of {report.disagreements:,} disagreements have feedback{size}"
    return f"the candidate is {report.verdict} than the live router: {counted}, evidence {evidence:,.0f}"


def _stamp_journal(folder: Path) -> tuple[object, ...]:
    """Differs when something was written; SQLite writes to the log first."""
    path = folder / "journal.sqlite"
    sizes = [one.stat().st_size for one in (path, path.with_name(f"{path.name}-wal")) if one.exists()]
    return stamp(path), stamp(path.with_name(f"{path.name}-wal")), *sizes
