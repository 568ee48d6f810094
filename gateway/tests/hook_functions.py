"""Hooks for tests: what they saw is in `SEEN`, and what they do is in `DOES`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from time import perf_counter, sleep
from typing import Any

SEEN: list[dict[str, Any]] = []
DOES: dict[str, Callable[[dict[str, Any]], Any]] = {}
LET_GO = threading.Event()  # ends those that hang


def before(event: dict[str, Any]) -> Any:
    return _do("before", event)


def after(event: dict[str, Any]) -> Any:
    return _do("after", event)


async def before_async(event: dict[str, Any]) -> Any:
    found = _do("before", event)
    return await found if asyncio.iscoroutine(found) else found


async def after_async(event: dict[str, Any]) -> Any:
    found = _do("after", event)
    return await found if asyncio.iscoroutine(found) else found


def _do(which: str, event: dict[str, Any]) -> Any:
    SEEN.append({"hook": which, **event})
    return DOES.get(which, lambda event: None)(event)


def linger() -> float:
    """Take a moment, and say how many seconds."""
    since = perf_counter()
    sleep(0.02)
    return perf_counter() - since


def hang(event: dict[str, Any]) -> None:
    LET_GO.wait(60)


def crash(event: dict[str, Any]) -> None:
    raise RuntimeError("the hook has a fault")


def leave(event: dict[str, Any]) -> None:
    raise SystemExit(3)


def exhaust(event: dict[str, Any]) -> None:
    """A bug that is easily made: `next` without a default."""
    next(iter(()))
