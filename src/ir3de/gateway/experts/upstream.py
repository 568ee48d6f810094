"""Asking an expert: one HTTP exchange, with its timeouts, up to the first byte of the answer and then to the end."""

from __future__ import annotations

import asyncio
import logging
import zlib
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from ir3de.gateway.api_errors import ClientLeft
from ir3de.gateway.experts.connections import (
    SHOWS,
    Connection,
    Connections,
    NotHttpError,
    NotReachedError,
    request_line,
)
from ir3de.gateway.experts.snapshot import Expert

RETRIED = frozenset((408, 429))  # and 5xx: another expert may do better
LARGEST_ANSWER = 64 << 20  # bytes of an answer that are held until it is whole

_log = logging.getLogger("ir3de.gateway")
_PACKED = frozenset((b"gzip", b"x-gzip", b"deflate"))  # what is unpacked here, though nobody asked for it


@dataclass(eq=False)
class Failure(Exception):  # noqa: N818 - not always anybody's error
    """An expert that did not answer: why, and its own words if it had any."""

    reason: str  # one of a few words: a label of metrics
    message: str
    status: int = 502  # for the client, if nobody else answers
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes | None = None  # what the expert said, with its status
    unwell: bool = True  # counts against the expert's health
    retry_after: float | None = None


class Answer:
    """An expert's answer, begun: status, headers, and the pieces of its body as they come."""

    def __init__(self, connection: Connection, expert: Expert, timeout: asyncio.Timeout, ends: float) -> None:
        self._connection, self._expert, self._timeout, self._ends = connection, expert, timeout, ends
        self.status = connection.status
        self.headers = connection.headers
        named = dict(connection.headers)
        kind = named.get(b"content-type", b"")
        self.content_type = kind.partition(b";")[0].strip().lower().decode("latin-1")
        self.is_stream = self.content_type == "text/event-stream" and self.status == 200
        self.waited_for = True  # False while it is the client that takes its time
        length = named.get(b"content-length", b"")
        self._length = int(length) if length.isdigit() else None
        packing = named.get(b"content-encoding", b"").strip().lower()
        self.unpacked = packing in _PACKED
        self._unpacking: Any = zlib.decompressobj(47 if packing != b"deflate" else 15) if self.unpacked else None

    async def piece(self, *, last: bool = False) -> bytes:
        """The next bytes as they came; none at the end, which after the `last` ones is not waited for long."""
        wait = min(SHOWS, self._expert.config.timeouts.idle) if last else self._expert.config.timeouts.idle
        self._timeout.reschedule(min(self._connection.loop.time() + wait, self._ends))
        return await self.first_piece()

    async def first_piece(self) -> bytes:
        """The same under the time limit for the first byte."""
        self.waited_for = True
        piece = await self._connection.read()
        while piece and self._unpacking is not None:
            if unpacked := self._unpack(piece):
                piece = unpacked
                break
            piece = await self._connection.read()
        self.waited_for = False
        return piece

    def _unpack(self, piece: bytes) -> bytes:
        try:
            unpacked: bytes = self._unpacking.decompress(piece, LARGEST_ANSWER)
        except zlib.error as error:
            raise NotHttpError(str(error)) from error
        return unpacked

    async def whole(self) -> bytes | None:
        """The whole body, or None if it is too large to be held."""
        length = None if self.unpacked else self._length
        if length is not None and length > LARGEST_ANSWER:
            return None
        pieces, size = [await self.first_piece()], 0
        while pieces[-1]:
            size += len(pieces[-1])
            if size > LARGEST_ANSWER:
                raise Failure("garbage", f"'{self._expert.name}' sent more than {LARGEST_ANSWER >> 20} MB")
            if length is not None and size >= length:
                break
            pieces.append(await self.piece())
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class Asking:
    """An exchange with an expert: `async with Asking(…) as answer`.

    What the expert does wrong, and what takes too long, becomes a `Failure`. Leaving the block before the answer has
    ended hangs up; after its end the connection is kept for the next request.
    """

    __slots__ = ("_answer", "_connection", "_connections", "_expert", "_path", "_rest", "_timeout")

    def __init__(self, connections: Connections, expert: Expert, path: str, head: bytes, body: bytes) -> None:
        self._connections, self._expert, self._path = connections, expert, path
        self._rest = head, b"content-length: %d\r\n\r\n" % len(body), body
        self._connection: Connection | None = None
        self._answer: Answer | None = None

    async def __aenter__(self) -> Answer:
        expert, limits = self._expert, self._expert.config.timeouts
        now = asyncio.get_running_loop().time()
        self._timeout = asyncio.timeout_at(now + min(limits.first_token, limits.total))
        await self._timeout.__aenter__()
        try:
            base_url = expert.config.base_url
            request = b"".join((request_line(base_url, self._path), *self._rest))
            self._connection = await self._connections.ask(base_url, request, limits.connect)
        except BaseException as error:
            await self._leave(type(error), error, error.__traceback__)
            raise
        self._answer = Answer(self._connection, expert, self._timeout, now + limits.total)
        return self._answer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connections.give_back(self._expert.config.base_url, self._connection)
        await self._leave(kind, error, trace)

    async def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the clock; a time limit that cancelled the work, and what the expert did wrong, are told as failures."""
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as late:
            if self._answer is not None and not self._answer.waited_for:
                raise ClientLeft from late  # or it does not read what it is sent: not the expert's fault
            raise Failure("timeout", f"'{self._expert.name}' did not answer in time", 504) from late
        if isinstance(error, OSError):
            raise _failure(error, self._expert) from error


def _failure(error: OSError, expert: Expert) -> Failure:
    name, limits = expert.name, expert.config.timeouts
    # why is for the log, once in a while: a client need not know addresses
    if isinstance(error, (NotReachedError, NotHttpError)) and expert.complains():
        _log.warning("'%s' at %s: %s", name, expert.config.base_url, " ".join(str(error).split())[:300])
    if isinstance(error, NotReachedError):
        if isinstance(error.__cause__, TimeoutError):
            return Failure("connect", f"'{name}' could not be reached within {limits.connect:g} s", 504)
        return Failure("connect", f"'{name}' cannot be reached", 502)
    if isinstance(error, NotHttpError):
        return Failure("garbage", f"'{name}' sent something that is not HTTP", 502)
    return Failure("broken", f"'{name}' broke off its answer", 502)
