"""Writes answers to clients: the head of each together with its first piece."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

CLOSE_TIMEOUT_S = 30.0  # for a client to read the rest of its answer


class HeadBufferingTransport:
    """A transport that sends an answer's head with the first piece of its body: one system call, one packet."""

    __slots__ = ("_head", "_is_close_announced", "_loop", "_transport", "has_begun", "held", "holds_answers", "linger")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head = b""
        self.has_begun = False  # an answer has
        self.holds_answers = False  # answers are dropped, and `held` is set
        self.held = False
        self._is_close_announced = False  # by the head of the last answer
        self.linger: Callable[[], None] | None = None  # called instead of a close that the client cannot expect

    def write(self, data: bytes) -> None:
        if self.holds_answers:
            self.held = True
            return
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 1"):  # not 100 Continue
            self._head, self.has_begun = data, True
            self._is_close_announced = b"\r\nconnection: close\r\n" in data
            self._loop.call_soon(self._flush)  # the body may come much later
            return
        self._transport.write(data)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        self.write(b"".join(pieces))

    def close(self) -> None:
        """What uvicorn calls. It closes at once if the last answer has said so, else after another request."""
        if not self.holds_answers:
            self._flush()
            if self.linger is not None and not self._is_close_announced:
                self.linger()
                return
            self._transport.close()
            if self._transport.get_write_buffer_size():  # it stays open until the client has read that
                self._loop.call_later(CLOSE_TIMEOUT_S, self._transport.abort)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
