"""The client's side of a request: its body within limits, and word that the client has left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from starlette.types import Receive, Scope

from ir3de.gateway.api_errors import ClientLeft, Problem
from ir3de.gateway.config.models import Limits

WIRE = "ir3de.wire"  # extension of the ASGI scope by which our own server says what others have to be asked for
LINGER = 2.0  # seconds that a client may go on sending a request that was refused for its size


class Wire(Protocol):
    """The connection of a request, where the server is ours."""

    def has_arrived(self) -> bool: ...
    def tell(self, leaving: Callable[[], None]) -> None: ...
    def tell_not(self, leaving: Callable[[], None]) -> None: ...


def wire_of(scope: Scope) -> Wire | None:
    found: Wire | None = (scope.get("extensions") or {}).get(WIRE)
    return found


async def read_body(
    receive: Receive, headers: Mapping[bytes, bytes], limits: Limits, wire: Wire | None = None
) -> bytes:
    """The whole body, or a `Problem`: too large, too slow, or packed."""
    coding = headers.get(b"content-encoding", b"identity").decode("latin-1")
    if coding.lower() != "identity":
        raise Problem(415, f"the request is packed as {coding[:50]}: send it as it is, without content-encoding")
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > limits.body_bytes:
        raise too_large(limits)
    if wire is not None and wire.has_arrived():  # then there is nothing to wait for, and no need of a clock
        return await _read_pieces(receive, limits)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _read_pieces(receive, limits)
    except TimeoutError:
        raise Problem(
            408, f"the request did not arrive within {limits.body_seconds:g} s", headers={"connection": "close"}
        ) from None


async def _read_pieces(receive: Receive, limits: Limits) -> bytes:
    pieces, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limits.body_bytes:
            raise too_large(limits)
        if not message.get("more_body"):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def let_finish(receive: Receive, seconds: float = LINGER) -> None:
    """Read on for a while and forget it: a client that is still sending would not see an answer before its end."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while (message := await receive())["type"] != "http.disconnect" and message.get("more_body"):
                pass


def too_large(limits: Limits) -> Problem:
    message = f"the request is larger than {limits.body_bytes:,} bytes, which is the limit here"
    return Problem(413, message, headers={"connection": "close"})


class Leaving:
    """Watches for the client's leaving, and then cancels the work that is done for it."""

    def __init__(self, receive: Receive, wire: Wire | None = None) -> None:
        self._task = asyncio.current_task()
        self._left = False
        self._wire = wire
        self._watch: asyncio.Future[None] | None = None
        if wire is not None:
            wire.tell(self._gone)
        else:
            self._watch = asyncio.ensure_future(self._wait(receive))

    async def _wait(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone()

    def _gone(self) -> None:
        self._left = True
        if self._task is not None:
            self._task.cancel()

    def stop(self) -> None:
        """The answer is complete, or there will be none."""
        if self._wire is not None:
            self._wire.tell_not(self._gone)
        elif self._watch is not None:
            self._watch.cancel()

    def settle(self) -> bool:
        """Whether it was the client's leaving that cancelled the work; that cancellation is then over."""
        if self._left and self._task is not None:
            self._task.uncancel()
        return self._left
