"""Follows the router in a folder or at an address such as s3://bucket/router, and loads a new one.

Every gateway checks the router's header from time to time. A router that is incomplete, because it is damaged or still
being uploaded, is refused with one warning; the current router goes on serving.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ir3de.errors import ArtifactError, IR3DEError
from ir3de.serving import hide_user, load_described, parse_header, read_header_file
from ir3de_gateway.admin.fetching import AddressSource, FetchBudget, FolderSource, hash_header

if TYPE_CHECKING:
    from ir3de import Router

log = logging.getLogger("ir3de.gateway")

_MAX_ATTEMPTS = 10  # to read a router that is replaced while it is read


@dataclass(frozen=True)
class LoadedRouter:
    """A router and the header of the artifact that it was loaded by."""

    router: Router
    header: Mapping[str, Any]

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
        self._last_warning = ""

    def changed(self, budget: FetchBudget | None = None) -> bool:
        """Whether there is another router than the one that was loaded last."""
        return self._source.read_version(budget or FetchBudget()) != self._version

    def load(self, budget: FetchBudget | None = None) -> LoadedRouter:
        """The router. If its location cannot be read at the start, the copy that was fetched last is used."""
        try:
            return self._load(budget or FetchBudget())
        except ArtifactError as error:
            last = self._source.find_last() if not self._has_loaded else None
            if last is None:
                raise
            self._warn_once(f"{error}. Serving the copy that was fetched last")
            return self._open(last, read_header_file(last))

    def check(self, budget: FetchBudget | None = None) -> LoadedRouter | None:
        """The new router if there is one. One that cannot be used is logged once, and tried again at the next check."""
        try:
            budget = budget or FetchBudget()
            found = self.load(budget) if self.changed(budget) else None
        except IR3DEError as error:
            self._warn_once(f"cannot load the new router from {self.shown}: {error}. The current router stays")
            return None
        if found is not None:
            log.info("loaded router %s from %s", found.digest[:12], self.shown)
            self._last_warning = ""
        return found

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
        self._source.drop_others(folder)
        return found

    def _open(self, folder: Path, content: bytes) -> LoadedRouter:
        from ir3de import Router

        is_fetched = folder.parent == self._cache  # nobody else writes there: it can be mapped as it is
        header = parse_header(content, folder)
        parts = load_described(folder, header, mapped=True, derived=None if is_fetched else self._cache)
        self._has_loaded = True
        return LoadedRouter(Router(parts), header)

    def _warn_once(self, message: str) -> None:
        if message != self._last_warning:
            log.warning("%s", message)
        self._last_warning = message


def is_address(location: str) -> bool:
    """Whether it is an address, and not a folder of this machine."""
    return "://" in location


async def repeat(action: Callable[[], Awaitable[object]], seconds: Callable[[], float]) -> None:
    """Call `action` every so many seconds. An error does not stop it, and is logged once if it repeats."""
    last_error = ""
    while True:
        await asyncio.sleep(seconds())
        try:
            await action()
            last_error = ""
        except Exception as error:
            if str(error) != last_error:
                log.warning("%s", error, exc_info=not isinstance(error, IR3DEError))
            last_error = str(error)
