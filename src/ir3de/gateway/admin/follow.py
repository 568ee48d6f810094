"""Follows the router in a folder or at an address such as s3://bucket/router, and loads a new one.

Every gateway checks the router's header from time to time. A router that is incomplete, because it is damaged or still
being uploaded, is refused with one warning; the current router goes on serving.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ir3de.artifact import HEADER, read_header, stamp
from ir3de.errors import ArtifactError, IR3DEError
from ir3de.gateway.admin.fetching import Remote
from ir3de.storage.remote import hide_user

if TYPE_CHECKING:
    from ir3de.router import Router

log = logging.getLogger(__name__)

_ATTEMPTS = 10  # to read a router that is being replaced all the time


class RouterSource(Protocol):
    """Where routers appear."""

    def read_version(self) -> object:
        """Tells one router from the next, cheaply; None where there is none."""
        ...

    def fetch(self) -> Path:
        """A folder on this machine that holds the router."""
        ...

    def find_last(self) -> Path | None:
        """What was fetched in an earlier life, if anything."""
        ...

    def drop_others(self, folder: Path) -> None:
        """That folder is in use: what was fetched before may go."""
        ...


class FolderSource:
    """A router's own folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_version(self) -> object:
        return stamp(self.path / HEADER)

    def fetch(self) -> Path:
        return self.path

    def find_last(self) -> Path | None:
        return None

    def drop_others(self, folder: Path) -> None:
        pass


class RouterFollower:
    """Loads the router of a place, and again when there is a new one. Not for two threads at once."""

    def __init__(self, location: str, cache: Path | None = None) -> None:
        """`cache` is for what is fetched or derived; without it a folder's derived files lie in the folder itself."""
        self.location = location
        self.shown = hide_user(location)
        self.digest = ""  # SHA-256 of the router that was loaded last
        self.header: Mapping[str, Any] = {}  # what its folder says of it
        self._derived: Path | None = None
        self._source: RouterSource
        if cache is not None:
            self._derived = cache / hashlib.sha256(location.encode()).hexdigest()[:16]
        if not is_address(location):
            self._source = FolderSource(Path(location).expanduser())
        elif self._derived is None:
            raise ArtifactError(f"{self.shown} is an address: what is fetched from it needs a folder")
        else:
            self._source = Remote(location, self._derived)
        self._version: object = None
        self._said = ""

    def changed(self) -> bool:
        """Whether there is another router than the one that was loaded last."""
        return self._source.read_version() != self._version

    def load(self) -> tuple[Router, str]:
        """The router and the SHA-256 of its artifact. What was fetched once still serves while the place is away."""
        try:
            return self._load()
        except ArtifactError as error:
            last = self._source.find_last() if not self.digest else None
            if last is None:
                raise
            self._warn_once(f"{error}. Serving the copy that was fetched before")
            return self._open(last)

    def check(self) -> tuple[Router, str] | None:
        """The new router if there is one; one that cannot be used is told of once, and tried again at the next look."""
        try:
            found = self.load() if self.changed() else None
        except IR3DEError as error:
            self._warn_once(f"no new router taken from {self.shown}: {error}. The current one goes on serving")
            return None
        if found is not None:
            log.info("router %s taken from %s", self.digest[:12], self.shown)
            self._said = ""
        return found

    def _load(self) -> tuple[Router, str]:
        for attempt in range(_ATTEMPTS):
            mark = self._source.read_version()
            try:
                folder = self._source.fetch()
                found = self._open(folder)
            except ArtifactError:
                if self._source.read_version() == mark or attempt == _ATTEMPTS - 1:
                    raise
                continue  # replaced meanwhile
            if self._source.read_version() == mark or attempt == _ATTEMPTS - 1:
                break
        self._version = mark
        self._source.drop_others(folder)
        return found

    def _open(self, folder: Path) -> tuple[Router, str]:
        from ir3de.router import Router

        router = Router.load(folder, mapped=True, derived=self._derived)
        self.header = read_header(folder)
        self.digest = str(self.header["sha256"])
        return router, self.digest

    def _warn_once(self, message: str) -> None:
        if message != self._said:
            log.warning("%s", message)
        self._said = message


def is_address(location: str) -> bool:
    """Whether it is not a folder of this machine."""
    return "://" in location


async def repeat(action: Callable[[], Awaitable[object]], seconds: Callable[[], float]) -> None:
    """Do something again and again; what goes wrong is told of once in a row, and does not end it."""
    said = ""
    while True:
        await asyncio.sleep(seconds())
        try:
            await action()
            said = ""
        except Exception as error:  # whatever it is, it must not end the looking
            if str(error) != said:
                log.warning("%s", error, exc_info=not isinstance(error, IR3DEError))
            said = str(error)
