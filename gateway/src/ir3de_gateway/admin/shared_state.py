"""The state folder of gateways on several machines: what /admin changed is in the store that they share.

    P:admin:state.json, P:admin:versions.json, P:admin:candidate.json   a hash each: content, and the number of changes
    P:admin:audit                                                       the last lines of the audit log
    P:admin:lock                                                        who makes a change
    P:admin:routers, P:router:NAME                                      routers that /admin made, and their files

The folder of a machine has a copy, with which it starts and goes on while the store is away. Changes need the store.
All calls block: they are made in threads.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from ir3de.errors import ArtifactError
from ir3de.serving import files, holds_router
from ir3de_gateway.admin.state import (
    CANDIDATE,
    SHARED_MARK,
    STATE,
    VERSIONS,
    RouterChoice,
    State,
    StateFolder,
    UnknownChangeError,
)
from ir3de_gateway.config.document import Config
from ir3de_gateway.config.state import SharedState
from ir3de_gateway.store.shared.connection import create_client, hide_password, import_redis

CHECK_INTERVAL_S = 0.3  # a change is on all machines within a second
ADMIN_TIMEOUT_S = 10.0  # a router is larger than a counter
LOCK_S = 30.0  # that the lock lasts unless it is renewed
MAX_AUDIT_LINES = 10_000
MAX_ROUTER_BYTES = 256_000_000  # of one router in the store

# KEYS: document. ARGV: content, number of changes or 0. A state that was written by somebody else meanwhile stays.
_PUT = """
local now = tonumber(redis.call('HGET', KEYS[1], 'number') or '0')
local number = tonumber(ARGV[2])
if number > 0 and number ~= now + 1 and redis.call('EXISTS', KEYS[1]) == 1 then return now end
redis.call('HSET', KEYS[1], 'content', ARGV[1], 'number', number > 0 and number or now + 1)
return -1
"""

T = TypeVar("T")
log = logging.getLogger("ir3de.gateway")


class SharedStateFolder(StateFolder):
    """A state folder whose documents are copies of those in the shared store."""

    check_s = CHECK_INTERVAL_S

    def __init__(self, path: Path, url: str, prefix: str, timeout_s: float) -> None:
        super().__init__(path)
        self._shown, self._prefix = hide_password(url), prefix
        self._redis = create_client(url, timeout_s, is_async=False)
        self._slow = create_client(url, max(timeout_s, ADMIN_TIMEOUT_S), is_async=False)  # for routers
        self._errors = import_redis().exceptions
        self._stamp: object = None
        self._numbers: dict[str, int] = {}  # of the documents that are here
        self._warned: dict[str, str] = {}  # why they could not be fetched, as it was logged

    def close(self) -> None:
        self._redis.close()
        self._slow.close()

    def _ask(self, ask: Callable[[], T]) -> T:
        """What the store answers, or an `ArtifactError`."""
        try:
            return ask()
        except (self._errors.RedisError, OSError) as error:
            raise ArtifactError(f"the shared store {self._shown} cannot be used: {error}") from error

    def _name(self, name: str) -> str:
        return f"{self._prefix}:admin:{name}"

    def prepare(self) -> None:
        """Documents that this machine had before it shared them are set aside."""
        super().prepare()
        mark = self.path / SHARED_MARK
        with suppress(OSError):
            if not mark.exists():
                for name in (STATE, VERSIONS, CANDIDATE):
                    if (self.path / name).exists():
                        shutil.copy2(self.path / name, self.path / f"{name}.before")
                mark.touch(mode=0o600)

    @contextmanager
    def lock(self, wait_s: float) -> Iterator[None]:
        """Keep the writers of all machines out. The lock of one that dies ends by itself."""
        with super().lock(wait_s):
            held = self._redis.lock(self._name("lock"), timeout=LOCK_S, blocking_timeout=wait_s, thread_local=False)
            if not self._ask(held.acquire):
                raise files.FolderBusyError(f"another machine makes a change in the shared store {self._shown}")
            done = threading.Event()
            threading.Thread(target=self._renew, args=(held, done), daemon=True).start()
            try:
                yield
            finally:
                done.set()
                with suppress(self._errors.RedisError, OSError):
                    held.release()

    def _renew(self, held: Any, done: threading.Event) -> None:
        while not done.wait(LOCK_S / 3):
            with suppress(self._errors.RedisError, OSError):
                held.reacquire()

    # documents --------------------------------------------------------------------------------------------------

    def stamp(self) -> object:
        """The number of the last change; while the store is away, the last one that was seen."""
        with suppress(ArtifactError):
            found = self._ask(lambda: self._redis.hget(self._name(STATE), "number"))
            self._stamp = None if found is None else int(found)
        return self._stamp

    def fetch(self, name: str) -> None:
        """Copy a document from the store. A store without one gets this machine's."""
        path = self.path / name
        try:
            found = self._ask(lambda: self._redis.hmget(self._name(name), "number", "content"))
            if found[1] is None:
                if path.exists():
                    log.warning("the shared store %s has no %s: it gets the one of %s", self._shown, name, self.path)
                    self._upload_copy(name, path.read_bytes())
                return
        except ArtifactError as error:
            if (warning := f"{error}. {path} is used as it was") != self._warned.get(name):  # once, not at each check
                log.warning("%s", warning)
            self._warned[name] = warning
            return
        self._warned.pop(name, None)
        if self._numbers.get(name) != (number := int(found[0])) or not path.exists():
            files.make_folder(self.path, mode=0o700)
            files.write(path, found[1], private=True)
            self._numbers[name] = number
        if name == VERSIONS:
            self._fetch_routers(json.loads(found[1]).get("versions", ()))

    def _upload_copy(self, name: str, content: bytes) -> None:
        """Give the store a document of this machine, with the routers that it names."""
        document = json.loads(content)
        rows = document.get("versions", ()) if name == VERSIONS else [document.get("router") or {}]
        for row in rows:
            folder = row.get("folder") or (row.get("path") if row.get("own") else "")
            if folder and holds_router(self.path / folder):
                self._upload(str(folder))
        self._put(name, content, int(document.get("changes", 0)))

    def put(self, name: str, content: bytes, number: int = 0) -> None:
        """Write a document to the store, and a copy of it here."""
        self._put(name, content, number)
        with suppress(ArtifactError):
            super().put(name, content)

    def _put(self, name: str, content: bytes, number: int) -> None:
        """Write a document to the store. Where the answer is lost, ask again: the store may have written it."""
        try:
            found = self._ask(lambda: self._redis.eval(_PUT, 1, self._name(name), content, number))
        except ArtifactError as problem:
            if not isinstance(problem.__cause__, self._errors.ConnectionError | self._errors.TimeoutError | OSError):
                raise  # the store answered: it is full, say
            found = self._put_again(name, content, number)
        if found != -1:
            raise ArtifactError(f"another machine made change {found} meanwhile: try again")
        self._numbers.pop(name, None)

    def _put_again(self, name: str, content: bytes, number: int) -> Any:
        """Write a document that may be there already. The call before may also arrive after this one."""
        try:
            found = self._ask(lambda: self._slow.eval(_PUT, 1, self._name(name), content, number))
            if found == -1 or self._ask(lambda: self._slow.hget(self._name(name), "content")) != content:
                return found
        except ArtifactError as error:
            message = f"{error}. It is not known whether the change was made: read it before you try again"
            raise UnknownChangeError(message) from error
        return -1

    def read(self) -> State:
        state = super().read()
        if state.router is not None and state.router.own:
            self._download(state.router.path)
        return state

    def read_stamped(self) -> tuple[State, object]:
        """The state, and the number of the copy that is here: the store may end after it gave a later number."""
        state = self.read()
        self._stamp = stamp = self._numbers.get(STATE)
        return state, stamp

    # routers ----------------------------------------------------------------------------------------------------

    def keep_router(self, source: Path, digest: str, base: str = "") -> RouterChoice:
        choice = super().keep_router(source, digest, base)
        self._upload(choice.path)
        return choice

    def adopt(self, made: Path, base: str) -> RouterChoice:
        choice = super().adopt(made, base)
        self._upload(choice.path)
        return choice

    def _upload(self, name: str) -> None:
        """Put a router of this folder into the store; its name is its content, so it is never changed there."""
        key = f"{self._prefix}:router:{name}"
        if self._ask(lambda: self._redis.exists(key)):
            return
        kept = [path for path in (self.path / name).iterdir() if path.is_file() and not path.name.startswith(".")]
        size = sum(path.stat().st_size for path in kept)
        if size > MAX_ROUTER_BYTES:
            most = f"{size / 1e6:.0f} MB, and the shared store takes {MAX_ROUTER_BYTES / 1e6:.0f} MB"
            raise ArtifactError(f"the router has {most}: publish it where all machines can read it, as router.path")
        content = {path.name: path.read_bytes() for path in kept}
        self._ask(lambda: self._slow.hset(key, mapping=content))
        self._ask(lambda: self._redis.sadd(self._name("routers"), name))

    def _download(self, name: str) -> None:
        """Copy a router from the store, unless it is here. If it cannot be had, loading it reports that."""
        if holds_router(self.path / name):
            return
        try:
            content = self._ask(lambda: self._slow.hgetall(f"{self._prefix}:router:{name}"))
        except ArtifactError as error:
            log.error("the router %s is not here: %s", name, error)
            return
        if not content:
            return
        made = Path(tempfile.mkdtemp(prefix=".router-", dir=self.path))
        for file, value in content.items():
            files.write(made / Path(file.decode()).name, value)
        with suppress(OSError):  # another worker was faster
            made.rename(self.path / name)
        shutil.rmtree(made, ignore_errors=True)

    def _fetch_routers(self, versions: Any) -> None:
        for name in {str(version.get("folder", "")) for version in versions} - {""}:
            self._download(name)

    def drop_routers(self, state: State, base: Config, kept: Collection[str] = ()) -> None:
        super().drop_routers(state, base, kept)
        in_use = {*kept, "" if state.router is None else state.router.path}
        with suppress(ArtifactError):
            for found in self._ask(lambda: self._redis.smembers(self._name("routers"))):
                if (name := found.decode()) not in in_use:
                    self._ask(lambda name=name: self._redis.delete(f"{self._prefix}:router:{name}"))  # type: ignore[misc]
                    self._ask(lambda name=name: self._redis.srem(self._name("routers"), name))  # type: ignore[misc]

    # audit ------------------------------------------------------------------------------------------------------

    def record(self, line: Mapping[str, Any]) -> None:
        """Append a line to the audit log of all machines, and to this one's."""
        self._ask(lambda: self._redis.rpush(self._name("audit"), json.dumps(line)))
        with suppress(ArtifactError):
            self._ask(lambda: self._redis.ltrim(self._name("audit"), -MAX_AUDIT_LINES, -1))
            super().record(line)

    def history(self, most: int) -> list[dict[str, Any]]:
        """The last lines of the audit log of all machines, newest first."""
        lines = self._ask(lambda: self._redis.lrange(self._name("audit"), -most, -1))
        return [json.loads(line) for line in reversed(lines)]


def open_state_folder(shared: SharedState | None, path: Path) -> StateFolder:
    """The state folder of a gateway."""
    if shared is None:
        return StateFolder(path)
    return SharedStateFolder(path, shared.read_address(), shared.prefix, shared.timeout)
