"""Work that may take long or hang, in threads that never keep the gateway from stopping.

`asyncio.to_thread` will not do: the process waits for its threads when it ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")

STOP_CHECK_S = 0.05  # between two looks whether work is to stop


class Stopped(Exception):  # noqa: N818 - no error: nobody waits for the work any more
    """The client has left, or the gateway stops."""


async def run_in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a thread of its own."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if future.done():  # nobody waits any more
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)  # type: ignore[arg-type] # what the function returned

    def run() -> None:
        outcome: tuple[T | None, BaseException | None]
        try:
            outcome = function(*arguments), None
        except BaseException as error:
            outcome = None, error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, daemon=True).start()
    return await future


def call_within(seconds: float, stop: threading.Event, function: Callable[[threading.Event], T]) -> T:
    """Call a function that may hang. After `seconds` TimeoutError is raised, and `Stopped` once `stop` is set.

    The function gets an event: once it is set nobody waits for the function, which should then end as soon as it can.
    """
    abandoned, until = threading.Event(), monotonic() + seconds
    results: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            results.put((function(abandoned), None))
        except BaseException as error:
            results.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        while True:
            with suppress(Empty):
                value, error = results.get(timeout=STOP_CHECK_S)
                if error is not None:
                    raise error
                return value  # type: ignore[return-value] # what the function returned
            if stop.is_set():
                raise Stopped
            if monotonic() >= until:
                raise TimeoutError
    finally:
        abandoned.set()
