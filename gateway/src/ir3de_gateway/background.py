"""What a process does besides requests: work in threads, repeated checks, and memory that is given back."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

from ir3de.errors import IR3DEError

T = TypeVar("T")

STOP_CHECK_S = 0.05  # between two checks whether work is to stop
GC_THRESHOLD_OBJECTS = 20_000  # new objects between two runs of the garbage collector

_log = logging.getLogger("ir3de.gateway")


class Stopped(Exception):  # noqa: N818 - not an error
    """The client has disconnected, or the gateway stops."""


def _start_thread(function: Callable[..., T], *arguments: Any) -> Future[T]:
    """Call a function in a thread of its own. It never keeps the process from ending; those of a pool would."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # it cannot be cancelled from now on

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except StopIteration as error:  # asyncio would wait for ever: its futures reject this one
            failure = RuntimeError("the function raised StopIteration")
            failure.__cause__ = error
            future.set_exception(failure)
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


async def run_in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a thread of its own, which never keeps the process from ending."""
    return await asyncio.wrap_future(_start_thread(function, *arguments))


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
                _log.warning("%s", error, exc_info=not isinstance(error, IR3DEError))
            last_error = str(error)


def call_within(seconds: float, stop: threading.Event, function: Callable[[threading.Event], T]) -> T:
    """Call a function that may hang. After `seconds` TimeoutError is raised, and `Stopped` once `stop` is set.

    The function gets an event. Once it is set, the result is no longer needed, and the function should end.
    """
    abandoned, until = threading.Event(), monotonic() + seconds
    future = _start_thread(function, abandoned)
    try:
        while not wait((future,), STOP_CHECK_S).done:
            if stop.is_set():
                raise Stopped
            if monotonic() >= until:
                raise TimeoutError
        return future.result()
    finally:
        abandoned.set()


def collect_garbage_rarely() -> None:
    """Requests leave hardly any reference cycles: collect garbage rarely, and never what existed at the start."""
    release_memory()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD_OBJECTS, 20, 20)


def release_memory() -> None:
    """Give back unused memory. glibc would keep it, separately for each thread that ever loaded a router."""
    gc.collect()
    with suppress(AttributeError, OSError):  # other systems have no such function
        ctypes.CDLL(None).malloc_trim(0)
