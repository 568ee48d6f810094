"""All keys of a gateway, from the keys file, which is read again when it changes, and from the environment."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from math import inf, isfinite
from pathlib import Path
from time import time
from typing import Any, Literal

from ir3de.errors import ArtifactError, InputError, IR3DEError
from ir3de.serving import stamp
from ir3de_gateway.config.document import Server
from ir3de_gateway.config.experts import read_variable
from ir3de_gateway.keys.client_key import ANYBODY, ClientKey, build_away_error, build_unreadable_error
from ir3de_gateway.keys.key_changes import NO_CHANGES, KeyChanges
from ir3de_gateway.keys.keys_file import KeyEntry, KeysFile, PreviousSecret, parse_moment, read_keys_file
from ir3de_gateway.store.contract import LimitStore, StoreUnavailableError
from ir3de_gateway.store.limits import Limits
from ir3de_gateway.store.numbers import DamagedNumbersError
from ir3de_gateway.store.usage import REQUESTS, TOKENS, Used
from ir3de_gateway.store.workers import WorkerNotes, get_worker_folder, is_first_report

CHECK_INTERVAL_S = 1.0  # between two checks of the keys file
SETTLED_S = 2.0  # after a change, each check reads the file for so long

_SHARED_NOTE = "keys"

_log = logging.getLogger("ir3de.gateway")


def list_environment_keys(server: Server) -> list[tuple[str, str]]:
    """Names and keys from the environment variables that the configuration names, or from IR3DE_API_KEY.

    A key is called as its variable; if the variable holds several, the others have a number.
    """
    found: list[tuple[str, str]] = []
    for variable in server.api_keys_env or ("IR3DE_API_KEY",):
        keys = [key.strip() for key in (read_variable(variable) or "").split(",") if key.strip()]
        found += [(variable if place == 1 else f"{variable}-{place}", key) for place, key in enumerate(keys, 1)]
    return found


class KeyRegistry:
    """The keys by their hashes. A new keys file replaces all of them at once; an invalid one changes nothing.

    A thread reads the file while the event loop gets the changes of /admin. Each puts only an index in force that has
    the newest of both. The lock is held for an assignment alone: the event loop must not wait for an index.
    """

    def __init__(self, server: Server, limits: LimitStore | None = None, changes: KeyChanges = NO_CHANGES) -> None:
        """`limits` counts what keys use; without it, nothing is counted. `changes` are those of /admin."""
        self.path = None if server.keys_file is None else Path(server.keys_file)
        self._store = limits
        self._of_environment = {
            hash_key(key): ClientKey(name, store=self._store) for name, key in list_environment_keys(server)
        }
        self._by_hash: Mapping[bytes, ClientKey] = self._of_environment
        self.is_open = self.path is None and not self._of_environment  # the gateway needs no key
        self.problem: str | None = None  # of the current keys file, while an older one is in force
        self._stamp: object = ""  # of the file that was read last, once it has not changed for a while
        self._tried_with = changes  # the changes of /admin when that file was read
        self._file, self._changes, self._lock = KeysFile(keys=()), changes, threading.Lock()
        if self.path is not None:
            self._file, self.problem = read_keys_in_force(self.path, changes)
            self._by_hash = self._index(self._file, changes)
            if self.problem is None:
                _share(self._file)

    @property
    def file(self) -> KeysFile:
        """The keys file in force."""
        return self._file

    def set_changes(self, changes: KeyChanges) -> None:
        """Put the changes of /admin in force."""
        if self.path is None or changes == self._changes:
            return
        self._changes = changes  # an index of a thread that has earlier ones is made again
        while True:
            file, problem, indexed = self._file, None, self._by_hash
            try:
                indexed = self._index(file, changes)
            except InputError as error:  # the file has changed, too
                problem = str(error)
            with self._lock:
                if file is not self._file:
                    continue
                self._by_hash = indexed
            if problem is not None:
                _log.error("%s. The keys stay as they were", problem)
            return

    def find(self, key: str) -> ClientKey | None:
        """The owner of a key, found by its hash: the time that takes reveals nothing about other keys."""
        return ANYBODY if self.is_open else self._by_hash.get(hash_key(key))

    def list_all(self) -> list[ClientKey]:
        """Every key with a name, in the order of the file."""
        return [key for key in self._by_hash.values() if not key.is_replaced]

    @property
    def has_admins(self) -> bool:
        """Whether a key may use /admin."""
        return any("admin" in key.scopes for key in self._by_hash.values())

    def check(self) -> None:
        """Read the keys file again if it has changed. An invalid file is logged once, and the keys stay as they are.

        One that was refused is also read again after a change of /admin, which it may fit by now. One that could not
        be read is tried again at each check.
        """
        if self.path is None:
            return
        changes, found = self._changes, stamp(self.path)
        if found == self._stamp and (self.problem is None or changes is self._tried_with):
            return
        problem, read, is_readable = None, None, True
        try:
            read = read_keys_file(self.path)
        except IR3DEError as error:
            problem, is_readable = str(error), not isinstance(error, ArtifactError)
        if stamp(self.path) != found:  # it is being written: the next check reads it whole
            return
        # until it has settled, a change may leave no trace in the file's time; one of its permissions never does
        self._stamp, self._tried_with = found if is_readable and _has_settled(self.path) else "", changes
        file, problem, is_known = self._put_in_force(read, problem)
        if problem is None:
            _share(file)
        if is_known:
            return
        if problem is not None:
            if is_first_report(f"keys problem {problem}", "keys"):
                _log.error("%s. The keys stay as they were", problem)
        elif is_first_report(f"keys loaded {found}", "keys"):
            _log.info("loaded %d keys from %s", len(file.keys), self.path)

    def _put_in_force(self, read: KeysFile | None, problem: str | None) -> tuple[KeysFile, str | None, bool]:
        """Put a keys file in force that was read, or its problem: both as they are now, and whether they were before.

        A file that does not fit the changes of /admin has a problem, too.
        """
        while True:
            changes, file, indexed = self._changes, self._file, None
            if read is not None:
                problem = None
                try:
                    file, indexed = read, self._index(read, changes)
                except IR3DEError as error:
                    file, problem = self._file, str(error)
            is_known = (file, problem) == (self._file, self.problem)
            with self._lock:
                if changes is not self._changes:
                    continue
                self._file, self.problem = file, problem
                if indexed is not None:
                    self._by_hash = indexed
            return file, problem, is_known

    def _index(self, file: KeysFile, changes: KeyChanges) -> dict[bytes, ClientKey]:
        """The keys by the hashes of their secrets: two while a secret is being replaced."""
        found, of_admin = dict(self._of_environment), {entry.name for entry in changes.changed}
        for entry in changes.apply_to(file).keys:
            key = self._build(entry, "admin" if entry.name in of_admin else "file")
            found[_read_hash(entry)] = key
            if entry.previous is not None and key.previous_expires_at is not None:
                until = min(key.expires_at, key.previous_expires_at)
                found.setdefault(_read_hash(entry.previous), replace(key, expires_at=until, is_replaced=True))
        return found

    def _build(self, entry: KeyEntry, origin: Literal["file", "admin"]) -> ClientKey:
        return ClientKey(
            entry.name,
            frozenset(entry.scopes),
            None if entry.experts is None else frozenset(entry.experts),
            Limits(**dict(entry.limits)),
            inf if entry.expires is None else parse_moment(entry.expires),
            entry.disabled,
            self._store,
            previous_expires_at=None if entry.previous is None else parse_moment(entry.previous.expires),
            origin=origin,
        )


def read_keys_in_force(path: Path, changes: KeyChanges = NO_CHANGES) -> tuple[KeysFile, str | None]:
    """The keys file; if it is invalid, the one that other workers have in force, and the problem of the new one.

    A file that does not fit the changes of /admin is invalid, too. A worker may have to replace one that died while the
    file is invalid.
    """
    try:
        found = read_keys_file(path)
        changes.apply_to(found)
        return found, None
    except IR3DEError as error:
        folder = get_worker_folder()
        with suppress(sqlite3.Error, OSError):
            if folder is not None:
                with closing(WorkerNotes(folder)) as notes:
                    shared = notes.read(_SHARED_NOTE).get(_SHARED_NOTE)
                if shared is not None:
                    return KeysFile.model_validate_json(shared), str(error)
        raise


def _share(file: KeysFile) -> None:
    """Write a keys file that is in force into the notes, for workers that start later."""
    folder = get_worker_folder()
    if folder is not None:
        try:
            with closing(WorkerNotes(folder)) as notes:
                notes.write(_SHARED_NOTE, file.model_dump_json(exclude_defaults=True))
        except (sqlite3.Error, OSError) as error:
            _log.warning("workers that start later cannot find the keys: %s", error)


def _has_settled(path: Path) -> bool:
    try:
        return time() - path.stat().st_mtime >= SETTLED_S
    except OSError:
        return True


def hash_key(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="replace")).digest()


def _read_hash(entry: KeyEntry | PreviousSecret) -> bytes:
    if entry.hash is not None:
        return bytes.fromhex(entry.hash.partition(":")[2])
    return hash_key(read_variable(entry.key_env) or "")


# descriptions ---------------------------------------------------------------------------------------------------


async def describe_key(key: ClientKey, experts: Iterable[str]) -> dict[str, Any]:
    """A key, its limits and what it has used, also of each of these experts."""
    description: dict[str, Any] = {
        "name": key.name,
        "scopes": sorted(key.scopes),
        "experts": None if key.experts is None else sorted(key.experts),
        "expires": format_moment(key.expires_at) if isfinite(key.expires_at) else None,
        "disabled": key.is_disabled,
        "limits": key.limits._asdict(),
        "origin": key.origin,
    }
    if key.previous_expires_at is not None:
        description["previous_expires"] = format_moment(key.previous_expires_at)
    if key.store is None:
        return description
    try:
        usage, in_flight, by_expert = await key.store.read_usage(key.name, experts)
    except DamagedNumbersError:
        return {**description, "problem": build_unreadable_error(key.name).message}
    except StoreUnavailableError:
        return {**description, "problem": build_away_error().message}
    return description | {
        "used": {
            "requests": usage.requests,
            "tokens": usage.tokens,
            "concurrent": in_flight,
            "day": _describe_period(usage.day),
            "month": _describe_period(usage.month) | {"estimated": usage.estimated},
        },
        "resets": {  # when all requests and tokens have left the minute, and when the day and the month end
            "requests": format_moment(usage.now + usage.find_reset(REQUESTS)),
            "tokens": format_moment(usage.now + usage.find_reset(TOKENS)),
            "day": format_moment(usage.periods[0].ends),
            "month": format_moment(usage.periods[1].ends),
        },
        "by_expert": [  # of this month
            {"expert": name, **_describe_period(totals.month), "estimated": totals.estimated}
            for name, totals in by_expert.items()
            if totals.month.requests
        ],
    }


def _describe_period(used: Used) -> dict[str, Any]:
    return {"requests": used.requests, "tokens": used.tokens, "cost": used.shown_cost}


def format_moment(seconds: float) -> str:
    """Seconds since 1970 as a time of UTC.

    >>> format_moment(0.5)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
