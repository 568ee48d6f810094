"""Gateways on one store, each with a folder of its own, as on machines of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client_keys import write_keys
from ir3de_gateway.app import create_app
from ir3de_gateway.gateway import Gateway
from raw_sockets import Got, ask
from redis_process import RedisProcess
from running_gateway import Upstream, config_for, save_small_router, served


@dataclass
class Fleet:
    """Gateways with folders of their own, as on machines of their own, and one store."""

    urls: list[str]
    gateways: list[Gateway]
    upstream: Upstream
    store: RedisProcess

    def ask(
        self,
        place: int,
        body: Any = None,
        path: str = "/v1/chat/completions",
        method: str | None = None,
        **headers: str,
    ) -> Got:
        """Ask the gateway of that machine."""
        return ask(self.urls[place % len(self.urls)], body, path, method, **headers)


@contextmanager
def fleet(
    folder: Path,
    store: RedisProcess,
    *keys: Any,
    state: Any = None,
    url: str = "",
    has_journals: bool = False,
    **changes: Any,
) -> Iterator[Fleet]:
    """Three gateways."""
    save_small_router(folder / "router")
    file = write_keys(folder / "keys.yaml", *keys)
    upstream = Upstream()
    with ExitStack() as stack:
        experts = upstream.url = stack.enter_context(served(upstream.app()))
        gateways, urls = [], []
        for number in range(3):
            own = {"store": url or store.url, "folder": str(folder / f"machine-{number}"), **(state or {})}
            server = {"keys_file": str(file)} if keys else {}
            journal = {"feedback": {"folder": str(folder / f"journal-{number}")}} if has_journals else {}
            config = config_for(experts, folder / "router", state=own, server=server, **journal, **changes)
            gateways.append(Gateway.open(config))
            urls.append(stack.enter_context(served(create_app(gateways[-1]))))
        yield Fleet(urls, gateways, upstream, store)
