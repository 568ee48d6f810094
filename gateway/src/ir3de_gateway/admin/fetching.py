"""Where routers come from: a folder, or an address whose files are fetched into a folder of this machine.

Each fetched router has a folder of its own, named by the hash of its header. Only the files that serving needs and that
are not there yet are fetched. Each is checked against the hash in the header; the header is written last. Files go to
disk piece by piece. A fetch has a limit of time and size, and can be stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from ir3de.errors import ArtifactError, InputError, MissingExtraError
from ir3de.serving import (
    HEADER,
    KIND,
    VERSION,
    files,
    get_scheme,
    hide_secrets,
    is_ours,
    open_fsspec,
    read_header_file,
    stamp,
)
from ir3de_gateway.admin.bounded import Stopped, call_within

PIECE_BYTES = 1 << 22  # read at a time
MAX_HEADER_BYTES = 50_000_000

_Part = dict[str, str]


class FetchError(ArtifactError):
    """A router could not be fetched from its address."""


class FetchBudget:
    """What is left of the time and the bytes that a router may take. Once `stop` is set, nobody waits for it."""

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
        now = stamp(self._path / HEADER)
        if now != self._stamp:  # a header that was only copied over itself is the same one
            self._stamp, self._version = now, None
            with suppress(OSError):
                self._version = hash_header((self._path / HEADER).read_bytes())
        return self._version

    def read_header(self, budget: FetchBudget) -> bytes:
        """The header's file as it is now."""
        return read_header_file(self._path)

    def fetch(self, content: bytes, budget: FetchBudget) -> Path:
        """A folder on this machine that holds the router of this header."""
        return self._path

    def find_last(self) -> Path | None:
        """The router that was fetched last, perhaps by an earlier process."""
        return None

    def drop_others(self, folder: Path) -> None:
        """Delete what was fetched before `folder`."""


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
        folders = [path.parent for path in self._cache.glob(f"*/{HEADER}")]
        return max(folders, key=lambda folder: (folder / HEADER).stat().st_mtime_ns, default=None)

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
            files.write(folder / HEADER, content)
        return folder

    def drop_others(self, folder: Path) -> None:
        for other in self._cache.iterdir():  # processes that have its files open or mapped keep them
            if other.is_dir() and other != folder:
                shutil.rmtree(other, ignore_errors=True)

    def _wanted(self, content: bytes) -> tuple[list[_Part], list[_Part]]:
        """The files that routing needs, and those that only make it start faster."""
        place = Path(f"{self._shown}/{HEADER}")
        try:
            header: Any = json.loads(content)
        except ValueError as error:
            raise ArtifactError(f"{self._shown}/{HEADER} is incomplete ({error}): upload it again, last") from error
        files.check_kind(header, KIND, VERSION, place)
        files.check_seal(header, place)
        try:
            needed = [header["table"], header["tokenizer"]["file"]]
            useful = [part for part in (header["tokenizer"]["fast_file"],) if part]
            strange = [part["name"] for part in (*needed, *useful) if not is_ours(Path(part["name"]))]
        except (KeyError, TypeError) as error:
            raise ArtifactError(f"{self._shown}/{HEADER} is damaged: {error!r}. Upload it again") from error
        if strange:
            raise ArtifactError(f"{self._shown}/{HEADER} is damaged: {strange[0]!r} is not the name of a router's file")
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
                raise FetchError(f"{self._shown}/{HEADER} is larger than {MAX_HEADER_BYTES:,} bytes: it is no router's")

        self._stream(HEADER, keep, budget)
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
                f"{self._shown}/{name} is missing: upload a router's files there, {HEADER} last"
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
