"""One call of gRPC: what has come, what waits to be sent, and who answers it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol


class Handler(Protocol):
    """What answers the messages of one call."""

    async def take(self, message: bytes) -> Sequence[bytes]:
        """The answers to a message; the next message waits for them."""

    def end(self) -> None:
        """Nothing more comes."""


Methods = Mapping[bytes, Callable[[], Handler]]  # by their path


class Call:
    """One call: a stream of the connection."""

    __slots__ = (
        "handler",
        "has_begun",
        "is_all_in",
        "number",
        "partial",
        "status",
        "task",
        "unread",
        "unsent",
        "waiting",
        "window",
    )

    def __init__(self, number: int, handler: Handler, window: int) -> None:
        self.number, self.handler, self.window = number, handler, window
        self.partial = bytearray()  # a message that is not whole yet
        self.waiting: deque[bytes] = deque()  # messages that are
        self.unsent = bytearray()  # answers for which the window has no room
        self.unread = 0  # bytes that the peer may not send again yet
        self.has_begun = self.is_all_in = False
        self.status: int | None = None  # of gRPC, once all answers are made
        self.task: asyncio.Task[None] | None = None
