"""The gateway: what all requests share, opened from a configuration and closed at the end."""

from __future__ import annotations

from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from ir3de.gateway.config import Config
from ir3de.gateway.live import Live, Snapshot
from ir3de.gateway.observing import Observer
from ir3de.gateway.sessions import MemoryPins, Pins
from ir3de.gateway.tracing import Tracing
from ir3de.gateway.upstreams import new_client

if TYPE_CHECKING:
    import aiohttp


class Gateway:
    """Router, experts, connections, sessions and observers of one process."""

    client: aiohttp.ClientSession

    def __init__(self, snapshot: Snapshot, *, config_path: Path | None = None) -> None:
        self.live = Live(snapshot)
        self.config_path = config_path
        self.opened = int(time())
        self.observer = Observer(self.live)
        self.tracing: Tracing | None = self.observer.tracing
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
        self.observer.heed_hangups()

    async def stop(self) -> None:
        await self.client.close()
        self.pins.close()
        self.observer.close()
