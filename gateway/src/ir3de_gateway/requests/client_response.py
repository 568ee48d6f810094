"""The response to the client, whole or piece by piece."""

from __future__ import annotations

import asyncio
import math

from starlette.types import Message, Receive, Send

from ir3de_gateway.api_errors import ClientDisconnect
from ir3de_gateway.headers import HeaderList
from ir3de_gateway.requests.client import DisconnectWatcher, discard_body

STALL_CHECK_S = 1.0  # between two looks at the clients that take nothing


class StallWatch:
    """Clients that take nothing for too long are treated as if they had disconnected. One timer serves all of them."""

    def __init__(self) -> None:
        self._sending: dict[ClientResponse, float] = {}  # since when
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, response: ClientResponse, now: float) -> None:
        """A piece is being sent."""
        self._sending[response] = now
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(STALL_CHECK_S, self._check)

    def end(self, response: ClientResponse) -> None:
        """The client has taken it, or is no longer there."""
        self._sending.pop(response, None)

    def _check(self) -> None:
        loop, self._timer = asyncio.get_running_loop(), None
        for response, since in list(self._sending.items()):
            if loop.time() - since >= response.stall_limit:
                response.disconnect()
        if self._sending:
            self._timer = loop.call_later(STALL_CHECK_S, self._check)


class ClientResponse:
    """The response to one request; `status` is 0 until its head was sent."""

    __slots__ = ("_send", "_stalls", "has_ended", "longest_stall", "sent_bytes", "stall_limit", "status", "watcher")

    def __init__(self, send: Send, stalls: StallWatch) -> None:
        self._send, self._stalls = send, stalls
        self.stall_limit = math.inf  # seconds that a client may take nothing
        self.watcher: DisconnectWatcher | None = None
        self.status = self.sent_bytes = 0
        self.has_ended = False  # nothing may be sent after that
        self.longest_stall = 0.0  # seconds that the client took nothing

    def also_send_to(self, other: Send) -> None:
        """From now on somebody else gets the same."""
        client = self._send

        async def send_to_both(message: Message) -> None:
            await client(message)
            await other(message)

        self._send = send_to_both

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
        self.has_ended = True
        await self.send_piece(content, is_last=True)

    def stop(self) -> None:
        """Nothing more is expected of the client."""
        self.stall_limit = math.inf
        if self.watcher is not None:
            self.watcher.stop()

    def disconnect(self) -> None:
        """The client takes nothing: it is as good as gone."""
        if self.watcher is not None:
            self.watcher.disconnect()

    async def _pass(self, message: Message) -> None:
        loop = asyncio.get_running_loop()
        since = loop.time()
        is_watched = self.stall_limit != math.inf
        if is_watched:
            self._stalls.begin(self, since)
        try:
            await self._send(message)
        except OSError:  # ASGI servers raise it when the client has disconnected
            raise ClientDisconnect from None
        finally:
            if is_watched:
                self._stalls.end(self)
            if (stall := loop.time() - since) > self.longest_stall:
                self.longest_stall = stall
