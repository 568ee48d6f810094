"""The gateway: what all requests share, opened from a configuration and closed at the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Protocol

from ir3de.gateway.config import Config
from ir3de.gateway.live import Live, Snapshot
from ir3de.gateway.records import Record
from ir3de.gateway.sessions import MemoryPins, Pins
from ir3de.gateway.upstreams import new_client

if TYPE_CHECKING:
    import aiohttp


class Trace(Protocol):
    """The spans of one request."""

    def forward(self) -> Mapping[str, str]: ...
    def finish(self, record: Record) -> None: ...


class Tracing(Protocol):
    """Where spans come from."""

    def begin(self, headers: Mapping[bytes, bytes]) -> Trace: ...


class Gateway:
    """Router, experts, connections, sessions and observers of one process."""

    client: aiohttp.ClientSession

    def __init__(self, snapshot: Snapshot, *, config_path: Path | None = None) -> None:
        self.live = Live(snapshot)
        self.config_path = config_path
        self.opened = int(time())
        self.tracing: Tracing | None = None
        pinning = snapshot.config.routing.pinning
        self.pins: Pins = MemoryPins(pinning.ttl)
        self.session_headers = tuple(name.lower().encode() for name in pinning.headers)

    @classmethod
    def open(cls, config: Config, *, config_path: Path | None = None) -> Gateway:
        """Load the router and get ready; connections are made when requests come."""
        from ir3de.router import Router
        from ir3de.storage import inspect_router

        router = Router.load(config.router.path)
        digest = str(inspect_router(config.router.path).header["sha256"])
        return cls(Snapshot.of(config, router, digest), config_path=config_path)

    async def start(self) -> None:
        self.client = new_client()

    async def stop(self) -> None:
        await self.client.close()
        self.pins.close()

    # what requests tell -----------------------------------------------------------------------------------------

    def began(self, expert: str) -> None:
        """An expert was asked."""

    def ended(self, expert: str) -> None:
        """It has answered, or failed to."""

    def observe(self, record: Record) -> None:
        """A request is over."""
