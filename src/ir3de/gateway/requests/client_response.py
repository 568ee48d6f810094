"""The response to the client, whole or piece by piece."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Send

from ir3de.gateway.api_errors import ClientDisconnect
from ir3de.gateway.headers import HeaderList
from ir3de.gateway.requests.client import DisconnectWatcher, discard_body


class ClientResponse:
    """The response to one request; `status` is 0 until its head was sent."""

    __slots__ = ("_send", "_sending_since", "_stall_timer", "longest_stall", "sent_bytes", "status", "watcher")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sending_since: float | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self.watcher: DisconnectWatcher | None = None
        self.status = self.sent_bytes = 0
        self.longest_stall = 0.0  # seconds that the client took nothing

    async def send_whole(self, status: int, headers: HeaderList, body: bytes) -> None:
        """A response in one piece."""
        await self.start(status, [*headers, (b"content-length", str(len(body)).encode())])
        await self.end(body)

    async def send_early(self, status: int, headers: HeaderList, body: bytes, receive: Receive) -> None:
        """The same, while the client is still sending its request: the rest of that is read and dropped."""
        await self.start(status, [*headers, (b"content-length", str(len(body)).encode())])
        await self.send_piece(body)
        await discard_body(receive)
        await self.end()

    async def start(self, status: int, headers: HeaderList) -> None:
        """Send the head of a response."""
        self.status = status
        await self._pass({"type": "http.response.start", "status": status, "headers": headers})

    async def send_piece(self, content: bytes, *, is_last: bool = False) -> None:
        self.sent_bytes += len(content)
        await self._pass({"type": "http.response.body", "body": content, "more_body": not is_last})

    async def end(self, content: bytes = b"") -> None:
        self.stop()  # a disconnect from here on is normal
        await self.send_piece(content, is_last=True)

    def limit_stalls(self, seconds: float) -> None:
        """From now on, a client that takes nothing for that long is treated as one that has disconnected."""
        self._stall_timer = asyncio.get_running_loop().call_later(seconds, self._check_stall, seconds)

    def stop(self) -> None:
        """Nothing more is expected of the client."""
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        if self.watcher is not None:
            self.watcher.stop()

    def _check_stall(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        left = seconds if self._sending_since is None else self._sending_since + seconds - loop.time()
        if left > 0:
            self._stall_timer = loop.call_later(left, self._check_stall, seconds)
        elif self.watcher is not None:
            self.watcher.disconnect()

    async def _pass(self, message: Message) -> None:
        loop = asyncio.get_running_loop()
        since = self._sending_since = loop.time()
        try:
            await self._send(message)
        except OSError:  # ASGI servers raise it when the client has disconnected
            raise ClientDisconnect from None
        finally:
            self._sending_since = None
            if (stall := loop.time() - since) > self.longest_stall:
                self.longest_stall = stall
