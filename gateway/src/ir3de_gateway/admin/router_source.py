"""Loads the router of a folder or of an address such as s3://bucket/router, and again when a new one is published.

Each fetched router has a folder of its own, named by the hash of its header. Only missing files that serving needs are
fetched. Each is checked against the hash in the header; the header is written last. A fetch has a limit of time and
size, and can be stopped. A router that is incomplete, because it is damaged or still being uploaded, is rejected with
one warning, and the current router goes on serving. Its folder stays until another router serves: the one that comes
may be refused, and a start without the address needs a router that can serve.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from ir3de.errors import ArtifactError, InputError, IR3DEError, MissingExtraError
from ir3de.serving import (
    ROUTER_HEADER_FILE,
    files,
    get_scheme,
    hide_secrets,
    hide_user,
    is_ours,
    list_routing_parts,
    load_described,
    open_fsspec,
    parse_header,
    read_header_file,
    stamp,
)
from ir3de_gateway.background import Stopped, call_within

if TYPE_CHECKING:
    from ir3de import Router

PIECE_BYTES = 1 << 22  # read at a time
MAX_HEADER_BYTES = 50_000_000
IN_FORCE = "in-force"  # a file beside the routers of an address: the name of the folder whose router serves

_MAX_ATTEMPTS = 10  # to read a router that is replaced while it is read

log = logging.getLogger("ir3de.gateway")

_Part = Mapping[str, str]


class FetchError(ArtifactError):
    """A router could not be fetched from its address."""


class FetchBudget:
    """What is left of the time and the bytes that a router may take. It ends once `stop` is set."""

    def __init__(
        self, seconds: float = 120.0, router_bytes: int = 4_000_000_000, stop: threading.Event | None = None
    ) -> None:
        self.seconds, self.router_bytes, self.stop = seconds, router_bytes, stop or threading.Event()
        self._until, self._bytes_left = monotonic() + seconds, router_bytes

    def seconds_left(self) -> float:
        return max(0.0, self._until - monotonic())

    def spend(self, count: int, place: str) -> None:
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise FetchError(
                f"{place}: the router has more than {self.router_bytes:,} bytes, which is the limit here "
                "(server.limits.router_bytes)"
            )


class FolderSource:
    """A router's own folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: object = None  # of the header that was read last
        self._version: str | None = None

    def read_version(self, budget: FetchBudget) -> object:
        """A value that differs from one router to the next and is cheap to read; None if there is no router."""
        now = stamp(self._path / ROUTER_HEADER_FILE)
        if now != self._stamp:  # a header that was only copied over itself is the same one
            self._stamp, self._version = now, None
            with suppress(OSError):
                self._version = hash_header((self._path / ROUTER_HEADER_FILE).read_bytes())
        return self._version

    def read_header(self, budget: FetchBudget) -> bytes:
        """The header's file as it is now."""
        return read_header_file(self._path)

    def fetch(self, content: bytes, budget: FetchBudget) -> Path:
        """A folder on this machine that holds the router of this header."""
        return self._path

    def find_last(self) -> Path | None:
        """The router that was fetched and served last, perhaps by an earlier process."""
        return None

    def put_in_force(self, folder: Path) -> None:
        """Note that the router of this folder serves, and delete all others that were fetched."""

    def drop_refused(self, folder: Path) -> None:
        """Delete what was fetched before `folder` and does not serve."""


class AddressSource(FolderSource):
    """Routers that are published at an address."""

    def __init__(self, address: str, cache: Path) -> None:
        self._address = address
        self._is_web = get_scheme(address) in ("http", "https")
        self._files: Any = None
        self._root = ""
        self._cache = cache
        self._shown = hide_secrets(address).rstrip("/")

    def read_version(self, budget: FetchBudget) -> object:
        return hash_header(self.read_header(budget))

    def find_last(self) -> Path | None:
        folders = [path.parent for path in self._cache.glob(f"*/{ROUTER_HEADER_FILE}")]
        if (in_force := self._find_in_force()) in folders:
            return in_force
        # earlier versions did not note it
        return max(folders, key=lambda folder: (folder / ROUTER_HEADER_FILE).stat().st_mtime_ns, default=None)

    def fetch(self, content: bytes, budget: FetchBudget) -> Path:
        """Fetch what this header describes. Several workers of one machine fetch it once."""
        try:
            needed, useful = self._wanted(content)
        except ArtifactError as error:
            raise FetchError(str(error)) from error
        folder = self._cache / hash_header(content)[:16]
        with files.lock_folder(self._cache, wait_s=budget.seconds_left()):
            files.make_folder(folder)
            for left in folder.glob(".*.part"):  # by a process that was killed
                left.unlink(missing_ok=True)
            for part in needed:
                self._bring(folder, part, budget)
            for part in useful:
                with suppress(ArtifactError):
                    self._bring(folder, part, budget)
            files.write(folder / ROUTER_HEADER_FILE, content)
        return folder

    def put_in_force(self, folder: Path) -> None:
        files.write(self._cache / IN_FORCE, folder.name.encode())
        self._drop_all_but(folder)

    def drop_refused(self, folder: Path) -> None:
        if (in_force := self._find_in_force()) is not None:  # else any of them may be the one that serves
            self._drop_all_but(folder, in_force)

    def _find_in_force(self) -> Path | None:
        with suppress(OSError, ValueError):
            return self._cache / (self._cache / IN_FORCE).read_text()
        return None

    def _drop_all_but(self, *kept: Path) -> None:
        for folder in self._cache.iterdir():  # processes that have its files open or mapped keep them
            if folder.is_dir() and folder not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _wanted(self, content: bytes) -> tuple[list[_Part], list[_Part]]:
        """The files that routing needs, and those that only make it start faster."""
        try:
            json.loads(content)
        except ValueError as error:
            raise ArtifactError(
                f"{self._shown}/{ROUTER_HEADER_FILE} is incomplete ({error}): upload it again, last"
            ) from error
        header = parse_header(content, Path(self._shown))
        try:
            needed = list_routing_parts(header)
            useful = [part for part in (header["tokenizer"]["fast_file"],) if part]
            strange = [part["name"] for part in (*needed, *useful) if not is_ours(Path(part["name"]))]
        except (AttributeError, KeyError, TypeError) as error:
            raise ArtifactError(f"{self._shown}/{ROUTER_HEADER_FILE} is damaged: {error!r}. Upload it again") from error
        if strange:
            raise ArtifactError(
                f"{self._shown}/{ROUTER_HEADER_FILE} is damaged: {strange[0]!r} is not the name of a router's file"
            )
        return needed, useful

    def _bring(self, folder: Path, part: _Part, budget: FetchBudget) -> None:
        path = folder / part["name"]
        for there in (path, *self._cache.glob(f"*/{part['name']}")):
            with suppress(ArtifactError):
                files.check_file(there, sha256=part["sha256"])
                if there != path:
                    _link(there, path)
                return
        sha = hashlib.sha256()
        with files.open_atomic(path) as file:

            def keep(piece: bytes) -> None:
                sha.update(piece)
                file.write(piece)

            self._stream(part["name"], keep, budget)
            if sha.hexdigest() != part["sha256"]:
                raise FetchError(f"{self._shown}/{part['name']} is damaged or half uploaded: upload it again")

    def read_header(self, budget: FetchBudget) -> bytes:
        content = bytearray()

        def keep(piece: bytes) -> None:
            content.extend(piece)
            if len(content) > MAX_HEADER_BYTES:
                raise FetchError(f"{self._shown}/{ROUTER_HEADER_FILE} is larger than {MAX_HEADER_BYTES:,} bytes")

        self._stream(ROUTER_HEADER_FILE, keep, budget)
        return bytes(content)

    def _open(self, name: str) -> Any:
        """A file, opened for reading. Some kinds of file systems connect when they are made."""
        if self._files is None:
            # A redirect could lead to a host that only this machine can reach.
            options: dict[str, Any] = {"allow_redirects": False} if self._is_web else {}
            opened, root = open_fsspec(self._address, skip_instance_cache=True, **options)
            self._files, self._root = opened, root.rstrip("/")
        # A web server that knows no ranges is read from the beginning to the end, in one request.
        options = {"block_size": 0} if self._is_web else {"cache_type": "none"}
        return self._files.open(f"{self._root}/{name}", "rb", **options)

    def _stream(self, name: str, keep: Callable[[bytes], object], budget: FetchBudget) -> None:
        """Read a file piece by piece."""

        def read(abandoned: threading.Event) -> None:
            with self._open(name) as file:
                while (piece := file.read(PIECE_BYTES)) and not abandoned.is_set():
                    budget.spend(len(piece), f"{self._shown}/{name}")
                    keep(piece)

        try:
            call_within(budget.seconds_left(), budget.stop, read)
        except (FetchError, InputError, MissingExtraError, Stopped):
            raise
        except ArtifactError as error:
            raise FetchError(str(error)) from error
        except FileNotFoundError as error:
            raise FetchError(
                f"{self._shown}/{name} is missing: upload a router's files there, {ROUTER_HEADER_FILE} last"
            ) from error
        except TimeoutError as error:
            message = f"it took longer than {budget.seconds:g} seconds (server.limits.fetch_seconds)"
            raise FetchError(f"cannot read {self._shown}/{name}: {message}") from error
        except Exception as error:  # every kind of file system has errors of its own
            reason = f"{type(error).__name__}: {hide_secrets(str(error), self._address)}"
            raise FetchError(f"cannot read {self._shown}/{name}: {reason}") from error


def hash_header(content: bytes) -> str:
    """The version of a router, from its header's file."""
    return hashlib.sha256(content).hexdigest()


def _link(there: Path, path: Path) -> None:
    """Give the file a second name, or copy it where that is not possible."""
    path.unlink(missing_ok=True)
    try:
        os.link(there, path)
    except OSError:
        shutil.copyfile(there, path)


# following ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoadedRouter:
    """A router and the header of the artifact that it was loaded by."""

    router: Router
    header: Mapping[str, Any]
    folder: Path  # on this machine, with the files that the header names

    @property
    def digest(self) -> str:
        """The SHA-256 of the artifact."""
        return str(self.header["sha256"])


class RouterFollower:
    """Loads the router of a location, and again when there is a new one. It is not thread-safe."""

    def __init__(self, location: str, cache: Path | None = None) -> None:
        """`cache` is a folder for what is fetched and mapped; without it the router's own files are mapped."""
        self.location = location
        self.shown = hide_user(location)
        self._cache = cache
        self._source = FolderSource(Path(location).expanduser())
        if is_address(location):
            if cache is None:
                raise ArtifactError(f"{self.shown} is an address: what is fetched from it needs a folder")
            self._source = AddressSource(location, cache)
        self._version: object = None  # of the router that was loaded last
        self._has_loaded = False
        self._in_force: Path | None = None  # the folder of the router that serves
        self._put_back: LoadedRouter | None = None
        self._last_warning = ""

    def changed(self, budget: FetchBudget | None = None) -> bool:
        """Whether there is another router than the one that was loaded last."""
        return self._source.read_version(budget or FetchBudget()) != self._version

    def load(self, budget: FetchBudget | None = None) -> LoadedRouter:
        """The router. If it cannot be used at the start, the fetched copy that served last is."""
        try:
            return self._load(budget or FetchBudget())
        except ArtifactError as error:
            last = self._source.find_last() if not self._has_loaded else None
            if last is None:
                raise
            self._warn_once(f"{error}. Serving the copy that was fetched before")
            return self._open(last, read_header_file(last))

    def check(self, budget: FetchBudget | None = None) -> LoadedRouter | None:
        """The new router if there is one. One that cannot be used is logged once, and tried again at the next check."""
        try:
            budget = budget or FetchBudget()
            found = self.load(budget) if self.changed(budget) else None
        except IR3DEError as error:
            self._warn_once(f"cannot load the new router from {self.shown}: {error}. The current router stays")
            return None
        if found is None:
            found, self._put_back = self._put_back, None
            return found
        log.info("loaded router %s from %s", found.digest[:12], self.shown)
        self._put_back, self._last_warning = None, ""
        return found

    def put_back(self, found: LoadedRouter, why: str) -> None:
        """Return this router at the next check again: it cannot serve yet, and what is in its way may go.

        It stays loaded. The reason is logged once.
        """
        self._put_back = found
        self._warn_once(why)

    def put_in_force(self, loaded: LoadedRouter) -> None:
        """Note that this router serves: a start without its address finds it, in place of those before."""
        if loaded.folder == self._in_force:  # one that waits to serve is not to be deleted
            return
        self._in_force = loaded.folder
        try:
            self._source.put_in_force(loaded.folder)
        except (ArtifactError, OSError) as error:  # a full disk: it must not keep a router from serving
            log.warning("a start without %s may not find the router that serves: %s", self.shown, error)

    def _load(self, budget: FetchBudget) -> LoadedRouter:
        """The router that is there now. Its version and hash are those of the header that it was loaded by."""
        for attempt in range(_MAX_ATTEMPTS):
            content = self._source.read_header(budget)
            try:
                folder = self._source.fetch(content, budget)
                found = self._open(folder, content)
                break
            except ArtifactError:
                is_replaced = self._source.read_version(budget) != hash_header(content)
                if not is_replaced or attempt == _MAX_ATTEMPTS - 1:
                    raise
        self._version = hash_header(content)
        self._source.drop_refused(folder)
        return found

    def _open(self, folder: Path, content: bytes) -> LoadedRouter:
        from ir3de import Router

        is_fetched = folder.parent == self._cache  # only the gateway writes there: it can be mapped as it is
        header = parse_header(content, folder)
        parts = load_described(folder, header, mapped=True, derived=None if is_fetched else self._cache)
        self._has_loaded = True
        return LoadedRouter(Router(parts), header, folder)

    def _warn_once(self, message: str) -> None:
        if message != self._last_warning:
            log.warning("%s", message)
        self._last_warning = message


def is_address(location: str) -> bool:
    """Whether it is an address, and not a folder of this machine."""
    return "://" in location
