"""All keys of a gateway: those of the keys file, which is read again when it changes, and those of the environment."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path
from time import time
from typing import NamedTuple

from ir3de.errors import IR3DEError
from ir3de.serving import files
from ir3de_gateway.config.experts import read_variable
from ir3de_gateway.config.models import Server
from ir3de_gateway.keys.account import Accounts
from ir3de_gateway.keys.client_key import ANYBODY, ClientKey
from ir3de_gateway.keys.definitions import KeyEntry, KeysFile, parse_moment, read_keys_file
from ir3de_gateway.workers.folder import get_worker_folder, is_first_to_say

CHECK_INTERVAL_S = 1.0  # between two looks at the keys file
SETTLED_S = 2.0  # after a change, the file is read at each look for so long

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


class KeyStore:
    """The keys by their hashes. A new keys file replaces all of them at once; a broken one changes nothing."""

    def __init__(self, server: Server, state_folder: Path | None = None) -> None:
        self.path = None if server.keys_file is None else Path(server.keys_file)
        self._accounts = None if self.path is None else Accounts(state_folder, server.workers)
        self._of_environment = {hash_key(key): self._build_plain(name) for name, key in list_environment_keys(server)}
        self._by_hash: Mapping[bytes, ClientKey] = self._of_environment
        self.is_open = self.path is None and not self._of_environment  # the gateway asks for no key
        self.problem: str | None = None  # of the keys file as it is now, while an older one is in force
        self._stamp: Stamp | None = None  # of the file that was read last, once it has not changed for a while
        self._file = KeysFile(keys=())
        if self.path is not None:
            self._file, self.problem = read_keys_in_force(self.path)
            self._by_hash = self._index(self._file)

    def find(self, key: str) -> ClientKey | None:
        """Who has that key. It is looked up by its hash: how long that takes says nothing about other keys."""
        return ANYBODY if self.is_open else self._by_hash.get(hash_key(key))

    def list_all(self) -> list[ClientKey]:
        """Every key with a name, in the order of the file."""
        return list(self._by_hash.values())

    @property
    def has_admins(self) -> bool:
        """Whether a key may use /admin."""
        return any("admin" in key.scopes for key in self._by_hash.values())

    def check(self) -> None:
        """Read the keys file again if it has changed. A broken file is told once, and the keys stay as they are."""
        if self.path is None or (stamp := _stamp(self.path)) == self._stamp:
            return
        problem, file = None, self._file
        try:
            file = _read_and_keep(self.path)
        except IR3DEError as error:
            problem = str(error)
        if _stamp(self.path) != stamp:  # somebody is writing it: the next check reads it whole
            return
        # until it has settled, a change may leave no trace in the file's time
        self._stamp = stamp if time() - stamp.changed >= SETTLED_S else None
        is_known = (file, problem) == (self._file, self.problem)
        self._file, self.problem, self._by_hash = file, problem, self._index(file)
        if is_known:
            return
        if problem is not None:
            if is_first_to_say(f"keys problem {problem}", "keys"):
                _log.error("%s. The keys stay as they were", problem)
            return
        if is_first_to_say(f"keys loaded {stamp}", "keys"):
            _log.info("loaded %d keys from %s", len(file.keys), self.path)

    def close(self) -> None:
        if self._accounts is not None:
            self._accounts.close()

    def _index(self, file: KeysFile) -> dict[bytes, ClientKey]:
        return {**self._of_environment, **{_read_hash(entry): self._build(entry) for entry in file.keys}}

    def _build(self, entry: KeyEntry) -> ClientKey:
        return ClientKey(
            entry.name,
            frozenset(entry.scopes),
            None if entry.experts is None else frozenset(entry.experts),
            entry.limits,
            inf if entry.expires is None else parse_moment(entry.expires),
            entry.disabled,
            None if self._accounts is None else self._accounts.find(entry.name),
        )

    def _build_plain(self, name: str) -> ClientKey:
        return ClientKey(name, account=None if self._accounts is None else self._accounts.find(name))


def read_keys_in_force(path: Path) -> tuple[KeysFile, str | None]:
    """The keys file, or if it is broken, the one that other workers have in force, and what is wrong with the new one.

    A worker may have to start in the place of one that died while the file is broken.
    """
    try:
        return _read_and_keep(path), None
    except IR3DEError as error:
        kept = _find_kept_file()
        if kept is None or not kept.exists():
            raise
        return read_keys_file(kept), str(error)


def _read_and_keep(path: Path) -> KeysFile:
    """The keys file. Workers keep a copy of it, as long as they serve."""
    found, kept = read_keys_file(path), _find_kept_file()
    if kept is not None:
        content = found.model_dump_json(exclude_defaults=True)
        try:
            if not kept.exists() or kept.read_text("utf-8") != content:
                files.write(kept, content.encode(), private=True)
        except (OSError, IR3DEError) as error:
            _log.warning("the keys cannot be kept for workers that start later: %s", error)
    return found


def _find_kept_file() -> Path | None:
    folder = get_worker_folder()
    return None if folder is None else folder / "keys.yaml"


def hash_key(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="replace")).digest()


def _read_hash(entry: KeyEntry) -> bytes:
    if entry.hash is not None:
        return bytes.fromhex(entry.hash.partition(":")[2])
    return hash_key(read_variable(entry.key_env) or "")


class Stamp(NamedTuple):
    """What differs from one content of a file to the next, as a rule."""

    changed: float  # seconds since 1970
    size: int
    number: int


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError as error:
        return Stamp(0.0, 0, error.errno or 0)
    return Stamp(found.st_mtime_ns / 1e9, found.st_size, found.st_ino)


def find_unknown_experts(entries: Iterable[KeyEntry], known: Iterable[str]) -> list[tuple[int, str]]:
    """Experts that keys name and the gateway does not have, with the places of the keys."""
    names = set(known)
    return [(place, name) for place, entry in enumerate(entries) for name in entry.experts or () if name not in names]
