"""Where routers come from: a folder, or an address whose files are fetched into a folder of this machine.

Each fetched router has a folder of its own, named by the hash of its header. Only the files that serving needs and that
are not there yet are fetched. Each is checked against the hash in the header; the header is written last.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from ir3de.artifact import HEADER, KIND, VERSION, is_ours, stamp
from ir3de.errors import ArtifactError
from ir3de.storage import files
from ir3de.storage.remote import hide_secrets, open_fsspec

_Part = dict[str, str]


class FolderSource:
    """A router's own folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read_version(self) -> object:
        """A value that differs from one router to the next and is cheap to read; None if there is no router."""
        return stamp(self._path / HEADER)

    def fetch(self) -> Path:
        """A folder on this machine that holds the router."""
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
        self._files, root = open_fsspec(address)
        self._root = root.rstrip("/")
        self._cache = cache
        self._shown = hide_secrets(address).rstrip("/")

    def read_version(self) -> object:
        return hashlib.sha256(self._read(HEADER)).hexdigest()

    def find_last(self) -> Path | None:
        folders = [path.parent for path in self._cache.glob(f"*/{HEADER}")]
        return max(folders, key=lambda folder: (folder / HEADER).stat().st_mtime_ns, default=None)

    def fetch(self) -> Path:
        """Fetch what is published now. Several workers of one machine fetch it once."""
        content = self._read(HEADER)
        needed, useful = self._wanted(content)
        folder = self._cache / hashlib.sha256(content).hexdigest()[:16]
        with files.lock_folder(self._cache):
            files.make_folder(folder)
            for part in needed:
                self._bring(folder, part)
            for part in useful:
                with suppress(ArtifactError):
                    self._bring(folder, part)
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

    def _bring(self, folder: Path, part: _Part) -> None:
        path = folder / part["name"]
        for there in (path, *self._cache.glob(f"*/{part['name']}")):
            with suppress(ArtifactError):
                files.read(there, sha256=part["sha256"])
                if there != path:
                    _link(there, path)
                return
        content = self._read(part["name"])
        if hashlib.sha256(content).hexdigest() != part["sha256"]:
            raise ArtifactError(f"{self._shown}/{part['name']} is damaged or half uploaded: upload it again")
        files.write(path, content)

    def _read(self, name: str) -> bytes:
        try:
            content: bytes = self._files.cat_file(f"{self._root}/{name}")
        except FileNotFoundError as error:
            raise ArtifactError(
                f"{self._shown}/{name} is missing: upload a router's files there, {HEADER} last"
            ) from error
        except Exception as error:  # every kind of filesystem has errors of its own
            reason = f"{type(error).__name__}: {hide_secrets(str(error), self._address)}"
            raise ArtifactError(f"cannot read {self._shown}/{name}: {reason}") from error
        return content


def _link(there: Path, path: Path) -> None:
    """Give the file a second name, or copy it where that is not possible."""
    path.unlink(missing_ok=True)
    try:
        os.link(there, path)
    except OSError:
        shutil.copyfile(there, path)
