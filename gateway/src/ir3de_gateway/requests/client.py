"""The client's side of a request: reads its body within limits, and notices when the client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from starlette.types import Receive, Scope

from ir3de_gateway.api_errors import ApiError, ClientDisconnect
from ir3de_gateway.config.models import Limits

CONNECTION_EXTENSION = "ir3de.connection"  # ASGI extension of our own server: its `ClientConnection`
DISCARD_TIMEOUT_S = 2.0  # that the rest of a refused body is read


class ClientConnection(Protocol):
    """The connection of a request, where the server is ours."""

    def is_body_complete(self) -> bool: ...
    def add_disconnect_callback(self, callback: Callable[[], None]) -> None: ...
    def remove_disconnect_callback(self, callback: Callable[[], None]) -> None: ...


def find_connection(scope: Scope) -> ClientConnection | None:
    found: ClientConnection | None = (scope.get("extensions") or {}).get(CONNECTION_EXTENSION)
    return found


async def read_body(
    receive: Receive, headers: Mapping[bytes, bytes], limits: Limits, connection: ClientConnection | None = None
) -> bytes:
    """The whole body, or an `ApiError`: too large, too slow, or compressed."""
    coding = headers.get(b"content-encoding", b"identity").decode("latin-1")
    if coding.lower() != "identity":
        raise ApiError(415, f"the request is compressed ({coding[:50]}): send it without content-encoding")
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > limits.body_bytes:
        raise build_too_large_error(limits.body_bytes)
    if connection is not None and connection.is_body_complete():  # nothing to wait for: no timer is needed
        return await _read_pieces(receive, limits)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _read_pieces(receive, limits)
    except TimeoutError:
        raise ApiError(
            408, f"the request did not arrive within {limits.body_seconds:g} s", headers={"connection": "close"}
        ) from None


async def _read_pieces(receive: Receive, limits: Limits) -> bytes:
    pieces, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limits.body_bytes:
            raise build_too_large_error(limits.body_bytes)
        if not message.get("more_body"):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def discard_body(receive: Receive, seconds: float = DISCARD_TIMEOUT_S) -> None:
    """Read and drop the rest of the body: many clients read the answer only after they have sent everything."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while (message := await receive())["type"] != "http.disconnect" and message.get("more_body"):
                pass


def build_too_large_error(limit_bytes: int) -> ApiError:
    message = f"the request is larger than {limit_bytes:,} bytes, which is the limit here"
    return ApiError(413, message, headers={"connection": "close"})


class DisconnectWatcher:
    """Cancels the current task when the client disconnects."""

    def __init__(self, receive: Receive, connection: ClientConnection | None = None) -> None:
        self._task = asyncio.current_task()
        self._has_left = False
        self._connection = connection
        self._watch: asyncio.Future[None] | None = None
        if connection is not None:
            connection.add_disconnect_callback(self.disconnect)
        else:
            self._watch = asyncio.ensure_future(self._wait(receive))

    async def _wait(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.disconnect()

    def disconnect(self) -> None:
        """The client is no longer there."""
        self._has_left = True
        if self._task is not None:
            self._task.cancel()

    def stop(self) -> None:
        """The answer is complete, or there will be none."""
        if self._connection is not None:
            self._connection.remove_disconnect_callback(self.disconnect)
        elif self._watch is not None:
            self._watch.cancel()

    def absorb_cancellation(self) -> bool:
        """Whether the disconnect caused the cancellation; if so, the cancellation is undone."""
        if self._has_left and self._task is not None:
            self._task.uncancel()
        return self._has_left
