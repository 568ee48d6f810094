"""Where the router lies, a folder or an address such as s3://bucket/router, and how a new one there is taken up.

Nobody is told of a new router: every gateway looks at its header from time to time. What is not whole, because it is
still being uploaded or is damaged, is refused and told of once; the router at hand goes on serving.
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
from ir3de.gateway.admin.fetching import Remote, without_user

if TYPE_CHECKING:
    from ir3de.router import Router

log = logging.getLogger(__name__)

_ATTEMPTS = 10  # to read a router that is being replaced all the time


class Place(Protocol):
    """Where routers appear."""

    def mark(self) -> object:
        """Tells one router from the next, cheaply; None where there is none."""
        ...

    def fetch(self) -> Path:
        """A folder on this machine that holds the router."""
        ...

    def last(self) -> Path | None:
        """What was fetched in an earlier life, if anything."""
        ...

    def settled(self, folder: Path) -> None:
        """That folder is in use: what was fetched before may go."""
        ...


class Folder:
    """A router's own folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> object:
        return stamp(self.path / HEADER)

    def fetch(self) -> Path:
        return self.path

    def last(self) -> Path | None:
        return None

    def settled(self, folder: Path) -> None:
        pass


class Follower:
    """Loads the router of a place, and again when there is a new one. Not for two threads at once."""

    def __init__(self, location: str, cache: Path | None = None) -> None:
        """`cache` is for what is fetched or derived; without it a folder's derived files lie in the folder itself."""
        self.location = location
        self.shown = without_user(location)
        self.digest = ""  # SHA-256 of the router that was loaded last
        self.header: Mapping[str, Any] = {}  # what its folder says of it
        self._derived: Path | None = None
        self._place: Place
        if cache is not None:
            self._derived = cache / hashlib.sha256(location.encode()).hexdigest()[:16]
        if not is_address(location):
            self._place = Folder(Path(location).expanduser())
        elif self._derived is None:
            raise ArtifactError(f"{self.shown} is an address: what is fetched from it needs a folder")
        else:
            self._place = Remote(location, self._derived)
        self._mark: object = None
        self._said = ""

    def changed(self) -> bool:
        """Whether there is another router than the one that was loaded last."""
        return self._place.mark() != self._mark

    def load(self) -> tuple[Router, str]:
        """The router and the SHA-256 of its artifact. What was fetched once still serves while the place is away."""
        try:
            return self._load()
        except ArtifactError as error:
            last = self._place.last() if not self.digest else None
            if last is None:
                raise
            self._say(f"{error}. Serving what was fetched before")
            return self._opened(last)

    def look(self) -> tuple[Router, str] | None:
        """The new router if there is one; one that cannot be used is told of once, and tried again at the next look."""
        try:
            found = self.load() if self.changed() else None
        except IR3DEError as error:
            self._say(f"no new router taken from {self.shown}: {error}. The one at hand goes on serving")
            return None
        if found is not None:
            log.info("router %s taken from %s", self.digest[:12], self.shown)
            self._said = ""
        return found

    def _load(self) -> tuple[Router, str]:
        for attempt in range(_ATTEMPTS):
            mark = self._place.mark()
            try:
                folder = self._place.fetch()
                found = self._opened(folder)
            except ArtifactError:
                if self._place.mark() == mark or attempt == _ATTEMPTS - 1:
                    raise
                continue  # replaced meanwhile
            if self._place.mark() == mark or attempt == _ATTEMPTS - 1:
                break
        self._mark = mark
        self._place.settled(folder)
        return found

    def _opened(self, folder: Path) -> tuple[Router, str]:
        from ir3de.router import Router

        router = Router.load(folder, mapped=True, derived=self._derived)
        self.header = read_header(folder)
        self.digest = str(self.header["sha256"])
        return router, self.digest

    def _say(self, message: str) -> None:
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
