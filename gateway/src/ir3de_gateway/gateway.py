"""The gateway: what all requests share, opened from a configuration and closed at the end."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import time

from ir3de.errors import InputError, IR3DEError
from ir3de_gateway.admin.administration import Administration, open_admin_state
from ir3de_gateway.admin.changes import AdminState
from ir3de_gateway.admin.shared_state import open_state_folder
from ir3de_gateway.admin.state import find_state_folder
from ir3de_gateway.admin.trial import TrialJudge
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.background import repeat, run_in_thread
from ir3de_gateway.config.document import Config
from ir3de_gateway.config.prices import apply_price_file
from ir3de_gateway.experts.snapshot import HealthChecker, LiveSnapshot, Snapshot
from ir3de_gateway.feedback.drift_watch import LOOK_INTERVAL_S, DriftWatch
from ir3de_gateway.feedback.mailbox import DELIVER_INTERVAL_S, Mailbox
from ir3de_gateway.feedback.writer import JournalWriter, check_folder
from ir3de_gateway.hooks.runner import HookRunner, load_hooks
from ir3de_gateway.keys.key_changes import NO_CHANGES
from ir3de_gateway.keys.registry import CHECK_INTERVAL_S, KeyRegistry, read_keys_in_force
from ir3de_gateway.requests.answer_cache import AnswerCache
from ir3de_gateway.requests.client import StallWatch
from ir3de_gateway.store import check_shared_state, open_shared_store, open_store
from ir3de_gateway.store.pins import TIDY_INTERVAL_S
from ir3de_gateway.store.workers import get_worker_folder
from ir3de_gateway.telemetry.observer import Observer
from ir3de_gateway.telemetry.tracing import Tracing
from ir3de_gateway.transport.pool import HttpTransport

SECRET_BYTES = 16
TEND_INTERVAL_S = 0.5  # between two looks after the shared store
DELETE_INTERVAL_S = 60.0  # between two deletions of old requests from the journal


class Gateway:
    """Router, experts, connections, sessions and observers of one process."""

    transport: HttpTransport
    administration: Administration | None = None  # None unless it was made by `Gateway.open`

    def __init__(
        self, snapshot: Snapshot, *, config_path: Path | None = None, state_folder: Path | None = None
    ) -> None:
        """Pins are kept in the state folder; without one, they end with the gateway."""
        self.live = LiveSnapshot(snapshot)
        self.config_path = config_path
        self.opened_at = int(time())
        self.secret = os.urandom(SECRET_BYTES)  # of this run: clients cannot foresee which prompts are explored
        self._background: list[asyncio.Task[None]] = []
        self._temporary_state: tempfile.TemporaryDirectory[str] | None = None
        server, pinning = snapshot.config.server, snapshot.config.routing.pinning
        counts_keys, shared = server.keys_file is not None, snapshot.config.shared_state
        if shared is None:
            self.store = open_store(
                state_folder,
                workers=server.workers,
                counts_keys=counts_keys,
                pin_seconds=pinning.ttl,
                stored_seconds=pinning.stored_ttl,
            )
        else:
            self.store = open_shared_store(shared, counts_keys=counts_keys, pin_seconds=pinning.ttl)
        self.observer = Observer(self.live, self.store.counts)
        if self.store.shared is not None:
            self.observer.metrics.watch_store(self.store.shared)
        self.tracing: Tracing | None = self.observer.tracing
        self.pins = self.store.pins
        changes = snapshot.state.key_changes if isinstance(snapshot, AdminState) else NO_CHANGES
        self.keys = KeyRegistry(server, self.store.limits, changes)
        if self.keys.path is not None:
            self.observer.metrics.keys = self.keys
        self.stalls = StallWatch()
        self._hooks: HookRunner | None = None
        self._cache: AnswerCache | None = None
        self._journal: JournalWriter | None = None
        self._drift: DriftWatch | None = None
        self._mailbox: Mailbox | None = None
        self.session_headers = tuple(name.lower().encode() for name in pinning.headers)

    @classmethod
    def open(
        cls, config: Config, *, config_path: Path | None = None, reread: Callable[[], Config] | None = None
    ) -> Gateway:
        """Load what /admin changed and the router, and get ready; connections are made when requests come.

        `reread` reads the configuration again for a reload through /admin.
        """
        if config.server.keys_file is not None:
            read_keys_in_force(Path(config.server.keys_file))  # a broken one stops the start before anything is opened
        load_hooks(config.hooks)  # what cannot be loaded stops the start
        check_shared_state(config.shared_state)
        check_folder(config.feedback)  # a journal that cannot be written does so, too
        given, config = config, apply_price_file(config)
        path, temporary = find_state_folder(config, config_path), None
        if path is None and (shared := get_worker_folder()) is not None:
            path = shared / "state"
        if path is None:  # changes last as long as the process
            temporary = tempfile.TemporaryDirectory(prefix="ir3de-state-")
            path = Path(temporary.name)
        folder = open_state_folder(config.shared_state, path)
        now = open_admin_state(config, None, folder)
        gateway = cls(now, config_path=config_path, state_folder=path if temporary is None else None)
        now.apply_drains()
        again = partial(_read_again, reread or (lambda: given))
        gateway.administration = Administration(
            gateway.live,
            again,
            folder,
            gateway.is_first,
            gateway.store.counts,
            lambda state: gateway.keys.set_changes(state.key_changes),
        )
        gateway.administration.note_version()
        gateway._temporary_state = temporary
        return gateway

    def is_first(self) -> bool:
        """Whether this worker does what one of them does for all."""
        return self.store.counts is None or self.store.counts.is_first()

    def get_cache(self, snapshot: Snapshot) -> AnswerCache | None:
        """The answers that this snapshot's experts gave; None if it keeps none, or no longer serves."""
        config = snapshot.config.cache
        if not config.ttl or snapshot is not self.live.snapshot:
            return None
        if self._cache is None or self._cache.config != config:
            self._cache = AnswerCache(config)
        self._cache.set_owner(snapshot)
        return self._cache

    def get_hooks(self, snapshot: Snapshot) -> HookRunner | None:
        """The hooks of a snapshot's configuration; None if it has none."""
        config = snapshot.config.hooks
        if not config.before and not config.after:
            return None
        if self._hooks is None or self._hooks.config != config:
            try:
                self._hooks = HookRunner(config, self.observer.metrics.count_hook)
            except InputError as error:  # of a configuration that was read again
                raise ApiError(
                    502, "a hook of the gateway cannot be loaded; the log has the details", "hook_failed"
                ) from error
        return self._hooks

    def get_journal(self) -> JournalWriter | None:
        """The journal of the configuration that serves; None if it keeps none."""
        config, journal = self.live.snapshot.config.feedback, self._journal
        if journal is not None and journal.config is not config and journal.config != config:
            threading.Thread(target=journal.close, daemon=True).start()  # which may wait for the disk
            journal = self._journal = None
        if journal is None and config.folder is not None:
            journal = self._journal = JournalWriter(config, self.observer.metrics.journal.count_lost)
        return journal

    def get_mailbox(self) -> Mailbox | None:
        """The way to the journals of other machines; None if there are none, or this one keeps no journal."""
        folder = self.live.snapshot.config.feedback.folder
        if self.store.shared is None or folder is None:
            return None
        if self._mailbox is None or self._mailbox.folder != folder:
            self._mailbox = Mailbox(self.store.shared.connection, folder)
        return self._mailbox

    async def _deliver_feedback(self) -> None:
        journal, mailbox = self.get_journal(), self.get_mailbox()
        if journal is not None and mailbox is not None and self.is_first():
            await mailbox.deliver(journal)

    async def _delete_old(self) -> None:
        if (journal := self.get_journal()) is not None:
            await run_in_thread(journal.delete_old)

    async def look_for_drift(self) -> None:
        """Look at the new requests of the journal, in the first of all workers."""
        snapshot = self.live.snapshot
        folder = snapshot.config.feedback.folder
        if folder is None or not self.is_first():
            self._drift = None
            return
        if self._drift is None or self._drift.folder != Path(folder):
            self._drift = DriftWatch(Path(folder), self.observer.metrics.drift)
        await run_in_thread(self._drift.look, snapshot.router, snapshot.digest)

    async def start(self) -> None:
        self.transport = HttpTransport()
        self.observer.handle_sighup(self._reload)
        tidying = repeat(self.pins.tidy, lambda: TIDY_INTERVAL_S)
        deleting = repeat(self._delete_old, lambda: DELETE_INTERVAL_S)
        watching = repeat(self.look_for_drift, lambda: LOOK_INTERVAL_S)
        checker = HealthChecker(self.live, self.transport, self.observer.count_health_check)
        self._background = [asyncio.create_task(one) for one in (tidying, deleting, watching, checker.run())]
        if self.store.shared is not None:
            tending = repeat(self.store.shared.tend, lambda: TEND_INTERVAL_S)
            delivering = repeat(self._deliver_feedback, lambda: DELIVER_INTERVAL_S)
            self._background += [asyncio.create_task(one) for one in (tending, delivering)]
        if self.administration is not None:
            self._background.append(asyncio.create_task(self.administration.follow()))
            judge = TrialJudge(self.administration, self.observer.metrics.candidate)
            self._background.append(asyncio.create_task(repeat(judge.check, lambda: judge.rest_s)))
        if self.keys.path is not None:
            following = repeat(lambda: run_in_thread(self.keys.check), lambda: CHECK_INTERVAL_S)
            self._background.append(asyncio.create_task(following))

    def _reload(self) -> None:
        """Read the configuration again. With several workers, their supervisor has replaced them."""
        if self.administration is not None and get_worker_folder() is None:
            task = asyncio.create_task(self.administration.reload_at_signal())
            self._background.append(task)
            task.add_done_callback(self._background.remove)

    async def stop(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self.transport.close()
        if self._journal is not None:
            await run_in_thread(self._journal.close)
        if self._drift is not None:
            with suppress(IR3DEError):  # then it goes on from an earlier state
                await run_in_thread(self._drift.save)
        self.observer.close()
        await self.store.close()
        if self.administration is not None:
            self.administration.folder.close()
        if self._temporary_state is not None:
            self._temporary_state.cleanup()


def _read_again(read: Callable[[], Config]) -> Config:
    """The configuration with its price file. What cannot be loaded or opened is an error: the one before stays."""
    config = apply_price_file(read())
    load_hooks(config.hooks)
    check_folder(config.feedback)
    return config
