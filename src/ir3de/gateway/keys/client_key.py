"""Who asks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientKey:
    """The key that a request came with; the key itself is not kept."""

    name: str = ""  # for logs, metrics and traces; empty where keys have no names


ANYBODY = ClientKey()  # where the gateway asks for no key
