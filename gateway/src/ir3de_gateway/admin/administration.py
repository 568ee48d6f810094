"""Adds, removes and replaces experts and routers while the gateway serves.

A change is computed in a thread, written to the state folder, and then takes effect in one swap of the live snapshot.
Requests in flight keep the snapshot they started with. Other workers, and other gateways that use the same folder,
check the state file every second. Writers lock the folder, so that no change is lost. A change is stopped when its
client disconnects or the gateway stops; while it runs, other changes are rejected after a short wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ir3de.errors import ArtifactError, IR3DEError, name_some
from ir3de.serving import files, hide_user
from ir3de_gateway.admin.candidate import attach_candidate
from ir3de_gateway.admin.changes import AdminState, CandidateRouter, Change, Changed, Comparison
from ir3de_gateway.admin.fit_process import FitFailed
from ir3de_gateway.admin.router_source import FetchBudget, FetchError, LoadedRouter, RouterFollower
from ir3de_gateway.admin.state import STATE, State, StateFolder, UnknownChangeError
from ir3de_gateway.admin.versions import list_kept, note_version
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.background import Stopped, release_memory, repeat, run_in_thread
from ir3de_gateway.config.document import Config
from ir3de_gateway.experts.snapshot import LiveSnapshot
from ir3de_gateway.store.workers import WorkerPlace

RELEASE_DELAY_S = 5.0  # from a change of the router to giving back the memory of the one before
STATE_CHECK_S = 1.0  # between two checks of the state file
CHANGE_WAIT_S = 5.0  # that a change waits for another one to end
READ_WAIT_S = 1.0  # that a read waits for a change

RESTART_NEEDED = "only a restart changes %s"

log = logging.getLogger("ir3de.gateway")


@dataclass(frozen=True)
class Caller:
    """The author of a change, and its condition."""

    who: str = ""  # never the token itself
    request_id: str = ""
    if_match: str | None = None


class Administration:
    """Makes changes, one at a time, and loads those that other workers made."""

    def __init__(
        self,
        live: LiveSnapshot,
        reread: Callable[[], Config],
        folder: StateFolder,
        is_first: Callable[[], bool] = lambda: True,
        place: WorkerPlace | None = None,
        on_change: Callable[[State], None] = lambda state: None,
    ) -> None:
        """`live` has a snapshot from `open_admin_state`; `is_first` returns whether this worker is the first of all.

        `place` is this worker's place among the others, if there are any. `on_change` is called with each new state.
        """
        self._on_change = on_change
        self.live, self.folder, self.is_first, self._place = live, folder, is_first, place
        self._started_with = self.current.base  # some of it is in force until the gateway starts again
        self._reread = reread
        self._lock = asyncio.Lock()
        self._under_way: dict[asyncio.Task[Comparison], threading.Event] = {}  # changes, and what stops them
        self._note_applied()
        self.current.put_in_force()

    @property
    def current(self) -> AdminState:
        """What serves now."""
        assert isinstance(self.live.snapshot, AdminState)
        return self.live.snapshot

    @property
    def etag(self) -> str:
        return compute_etag(self.current)

    async def change(self, change: Change, caller: Caller, **what: Any) -> Comparison:
        """Make a change, which `what` describes in the audit log: the router before and after, if it was fitted again.

        If the caller is cancelled, the change is stopped, unless it is made already.
        """
        stop = threading.Event()
        task = asyncio.create_task(self._make_change(change, caller, what, stop))
        self._under_way[task] = stop
        task.add_done_callback(self._on_done)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            stop.set()
            raise

    def reload(
        self, now: AdminState, folder: StateFolder, stop: threading.Event, *, configured_router: bool = False
    ) -> Changed:
        """A change: read the configuration file again, in every worker."""
        state = replace(now.state, reloads=now.state.reloads + 1)
        return Changed(replace(state, router=None) if configured_router else state, base=self._reread())

    async def reload_at_signal(self) -> None:
        """Read the configuration file again because of SIGHUP, and log the result."""
        try:
            await self.change(self.reload, Caller("SIGHUP"), action="reload")
        except ApiError as problem:
            log.error("SIGHUP: %s. The configuration stays as it was", problem.message)
            return
        log.info("SIGHUP: the configuration has been read again")
        if needs := self.list_restart_needs():
            log.warning(RESTART_NEEDED, name_some(needs))

    def list_restart_needs(self) -> list[str]:
        """The fields that differ from those with which this process started, and that are read only then."""
        runs, wanted = self._started_with, self.current.base
        fields = [name for name, value in wanted.server if name != "limits" and value != getattr(runs.server, name)]
        needs = [f"server.{name}" for name in fields]
        needs += ["logs.level"] if wanted.logs.level != runs.logs.level else []
        return needs + (["routing.pinning"] if wanted.routing.pinning != runs.routing.pinning else [])

    def _on_done(self, task: asyncio.Task[Comparison]) -> None:
        del self._under_way[task]
        if not task.cancelled():
            task.exception()  # the caller may have disconnected, and asyncio would log it

    async def _make_change(
        self, change: Change, caller: Caller, what: dict[str, Any], stop: threading.Event
    ) -> Comparison:
        try:
            async with asyncio.timeout(CHANGE_WAIT_S):
                await self._lock.acquire()
        except TimeoutError:
            raise build_busy_error() from None
        try:
            now, found = await run_in_thread(self._apply_change, change, caller, what, stop)
            self._activate(now)
        finally:
            self._lock.release()
        if isinstance(found, ApiError):
            raise found
        return found

    def _apply_change(
        self, change: Change, caller: Caller, what: dict[str, Any], stop: threading.Event
    ) -> tuple[AdminState, Comparison | ApiError]:
        """The state after the change; or the state that others left, and why this change is rejected."""
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "request_id": caller.request_id}
        line |= {"who": caller.who, **what}
        now = self.current
        try:
            with self.folder.lock(CHANGE_WAIT_S):
                now = self._read_changes(stop)
                self.folder.complete_audit(now.state)  # if it cannot be written, nothing is changed: no line gets lost
                note_version(self.folder, now)  # so that there is a way back
                line |= {"router_before": now.digest, "etag_before": compute_etag(now)}
                try:
                    check_if_match(caller.if_match, compute_etag(now))
                    new, comparison = self._try_change(change, now, stop)
                    return self._persist(new, line), comparison
                except ApiError as problem:
                    self.folder.drop_routers(now.state, now.base, list_kept(self.folder))
                    self.folder.record({**line, "outcome": "refused", "status": problem.status, "code": problem.code})
                    return now, problem
        except files.FolderBusyError:
            return now, build_busy_error()
        except UnknownChangeError as error:  # it may be made: its router stays, and it is not recorded as refused
            return now, ApiError(500, str(error), "state_unknown")
        except (IR3DEError, OSError) as error:  # the state folder cannot be used, so nothing was written
            return now, ApiError(500, f"nothing was changed: {error}", "state_unusable")

    def _try_change(self, change: Change, now: AdminState, stop: threading.Event) -> tuple[AdminState, Comparison]:
        """The state after the change, with its router loaded; nothing is written yet."""
        try:
            state, comparison, base = change(now, self.folder, stop)
            base = base or now.base
            # a router that is named is loaded again, even if an earlier one from that location serves
            is_named = state.router is not now.state.router
            new = open_admin_state(base, state, self.folder, now, stop, reload_router=is_named)
        except Stopped:
            message = "the change was stopped: the client disconnected, or the gateway stops"
            raise ApiError(499, message, "stopped") from None
        except FetchError as error:
            # One answer for all errors: others would reveal which hosts and ports this machine can reach.
            log.warning("no router could be fetched: %s", error)
            shown = hide_user(state.apply_to(base or now.base, self.folder.path).router.path)[:200]
            message = f"no router could be fetched from {shown}: the gateway's log has the reason"
            raise ApiError(422, message, "router_not_fetched", "path") from None
        except (IR3DEError, ValueError) as error:
            raise ApiError(422, str(error), "refused") from error
        except FitFailed as error:
            raise ApiError(500, f"nothing was changed: {error}", "fit_failed") from error
        if not set(new.router.experts) & set(new.experts):
            known, served = ", ".join(new.router.experts[:20]), ", ".join(new.experts)
            message = f"the router knows {known}, but the experts are {served}: no name is in both"
            raise ApiError(409, message, "nothing_in_common")
        return new, comparison

    def _persist(self, new: AdminState, line: dict[str, Any]) -> AdminState:
        """Write the state. From then on the change is made, even if the process ends at once."""
        line |= {"router_after": new.digest, "outcome": "done"}
        try:
            state = self.folder.write(new.state, line)
        except UnknownChangeError:
            raise
        except ArtifactError as error:
            raise ApiError(500, f"nothing was changed: {error}", "state_unusable") from error
        except ValueError as error:  # a lone surrogate: JSON can escape it, UTF-8 cannot encode it
            raise ApiError(422, f"this text cannot be encoded: {error}", "invalid_field") from error
        try:
            self.folder.complete_audit(state)
        except ArtifactError as error:  # the change is made; its line stays in the state, and is written later
            log.error("cannot complete the audit log: %s", error)
        made = replace(new, state=state, stamp=self.folder.stamp()).put_in_force()
        note_version(self.folder, made)
        self.folder.drop_routers(state, new.base, list_kept(self.folder))
        return made

    async def follow(self) -> None:
        """Load what others change, until cancelled. Then changes under way are stopped."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(repeat(self.check_state, lambda: self.folder.check_s or STATE_CHECK_S))
                tasks.create_task(repeat(self.check_router, lambda: self.live.snapshot.config.router.follow))
        finally:
            for stop in self._under_way.values():
                stop.set()
            if self._under_way:
                await asyncio.wait(self._under_way, timeout=CHANGE_WAIT_S)

    async def check_state(self, wait_s: float | None = None) -> None:
        """Load what another worker changed. While this one makes a change or loads, wait for it, `wait_s` at most."""
        if await run_in_thread(self.folder.stamp) != self.current.stamp:  # a disk may hang
            async with asyncio.timeout(wait_s):
                await self._lock.acquire()
            try:
                self._activate(await run_in_thread(self._read_changes))
                await run_in_thread(self.note_version)
            finally:
                self._lock.release()

    async def catch_up(self) -> None:
        """Load what another worker changed, before a read: who made a change sees it in any worker's next answer."""
        with suppress(IR3DEError, OSError, TimeoutError):  # `follow` logs it
            await self.check_state(READ_WAIT_S)

    def count_pending(self) -> int:
        """How many workers have not applied the last change yet."""
        if self._place is None:
            return 0
        try:
            return self._place.count_behind(self.current.state.changes)
        except (sqlite3.Error, OSError):
            return 0

    def _note_applied(self) -> None:
        if self._place is not None:
            with suppress(sqlite3.Error, OSError):
                self._place.note_applied(self.current.state.changes)

    async def check_router(self) -> None:
        """Load a router that was published."""
        await self.check_state()  # another worker may have replaced the router that is followed
        async with self._lock:
            now = self.current
            found = await run_in_thread(now.follower.check, build_budget(now.config))
            if found is not None:
                self._activate(await run_in_thread(self._replace_router, found))
                if self.current is not now:
                    await run_in_thread(self.note_version)
            if (trial := self.current.trial) is not None:
                another = await run_in_thread(trial.follower.check, build_budget(now.config))
                if another is not None:
                    self._activate(await run_in_thread(self._replace_trial, CandidateRouter(trial.follower, another)))

    def _replace_router(self, loaded: LoadedRouter) -> AdminState:
        """The state with a router that was published; until it can serve, the one before does."""
        try:
            return self.current.with_router(loaded).put_in_force()
        except IR3DEError as error:
            follower = self.current.follower
            why = f"the new router from {follower.shown} cannot serve yet: {error}. The current router stays"
            follower.put_back(loaded, why)
            return self.current

    def _replace_trial(self, trial: CandidateRouter) -> AdminState:
        """The state with a candidate that was published; until it can be tried, the one before is."""
        try:
            return self.current.with_trial(trial).put_in_force()
        except IR3DEError as error:
            trial.follower.put_back(trial.loaded, f"{error}. The candidate before stays")
            return self.current

    def note_version(self) -> None:
        """Note the router that serves as a version. One worker does it for all."""
        if self.is_first():
            with suppress(IR3DEError, OSError), self.folder.lock(CHANGE_WAIT_S):  # else before the next change
                note_version(self.folder, self.current)

    def _read_changes(self, stop: threading.Event | None = None) -> AdminState:
        now = self.current
        if self.folder.stamp() == now.stamp:
            return now
        state, stamp = self.folder.read_stamped()
        if stamp == now.stamp:  # the store did not give the state whose number it gave
            return now
        base = now.base if state.reloads == now.state.reloads else self._reread()
        return replace(open_admin_state(base, state, self.folder, now, stop), stamp=stamp).put_in_force()

    def _activate(self, now: AdminState) -> None:
        if (before := self.live.snapshot) is now:
            return
        self.live.swap(now)
        now.apply_drains()
        self._on_change(now.state)
        self._note_applied()
        if before.digest != now.digest:  # requests under way may still use the router before
            asyncio.get_running_loop().call_later(RELEASE_DELAY_S, release_memory)


def open_admin_state(
    base: Config,
    state: State | None,
    folder: StateFolder,
    before: AdminState | None = None,
    stop: threading.Event | None = None,
    *,
    reload_router: bool = False,
) -> AdminState:
    """Apply the state to the configuration, and load the router, unless `before` has it and `reload_router` is false.

    Without a state, as at the start, the folder's is read, and its audit log completed.
    """
    if state is not None:
        stamp = folder.stamp()
    else:
        folder.prepare()
        state, stamp = folder.read_stamped()
        if state.last:
            with suppress(ArtifactError), folder.lock(CHANGE_WAIT_S):  # else before the next change
                folder.complete_audit(state)
    config = state.apply_to(base, folder.path)
    if before is not None and not reload_router and before.follower.location == config.router.path:
        follower, loaded = before.follower, before.loaded
    else:
        follower = RouterFollower(config.router.path, folder.cache_for(config.router.path))
        try:
            loaded = follower.load(build_budget(config, stop))
        except ArtifactError as error:
            if state.router is None or not state.router.own:
                raise
            raise ArtifactError(
                f"{error}. This router was changed through /admin: put its folder back, or delete "
                f"{folder.path / STATE} to drop all changes"
            ) from error
    where = {"base": base, "state": state, "stamp": stamp, "follower": follower, "loaded": loaded}
    now = AdminState.from_config(config, loaded.router, loaded.digest, before, **where)
    return attach_candidate(now, folder, before, build_budget(config, stop))


def build_budget(config: Config, stop: threading.Event | None = None) -> FetchBudget:
    """What fetching a router may take."""
    limits = config.server.limits
    return FetchBudget(limits.fetch_seconds, limits.router_bytes, stop)


def build_busy_error() -> ApiError:
    message = "another change is under way: try again when it is done. Nothing was changed"
    return ApiError(503, message, "change_under_way", headers={"retry-after": f"{CHANGE_WAIT_S:.0f}"})


def compute_etag(now: AdminState) -> str:
    """A strong ETag of configuration, state and router: the same in every worker that has the same state."""
    config = now.base.model_dump(mode="json")
    content = json.dumps([config, now.state.sha256, now.digest], sort_keys=True)
    return f'"{hashlib.sha256(content.encode()).hexdigest()[:32]}"'


def check_if_match(if_match: str | None, current: str) -> None:
    """Reject a change that was meant for another state."""
    if if_match is None or "*" in (given := [tag.strip() for tag in if_match.split(",")]) or current in given:
        return
    raise ApiError(
        412,
        f"the state has changed: If-Match is {if_match[:100]}, the ETag is now {current}. GET it again",
        "stale",
        headers={"etag": current},
    )
