"""One HTTP exchange with an expert, and its timeouts: until the first byte of the answer, and then until its end."""

from __future__ import annotations

import asyncio
import logging
import zlib
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from ir3de.gateway.api_errors import ClientDisconnect
from ir3de.gateway.experts.connections import (
    CLOSE_DETECTION_S,
    Connection,
    ConnectionPool,
    InvalidResponseError,
    UnreachableError,
    build_request_line,
)
from ir3de.gateway.experts.snapshot import Expert

RETRYABLE_STATUSES = frozenset((408, 429))  # and 5xx: another expert is asked
MAX_ANSWER_BYTES = 64 << 20  # bytes of an answer that are held until it is whole

_log = logging.getLogger("ir3de.gateway")
_DECOMPRESSED_ENCODINGS = frozenset((b"gzip", b"x-gzip", b"deflate"))  # some servers send them unasked


@dataclass(eq=False)
class UpstreamFailure(Exception):  # noqa: N818 - not always anybody's error
    """An expert that did not answer: the reason, and its own error body if it sent one."""

    reason: str  # one of a few words: a label of metrics
    message: str
    status: int = 502  # for the client, if nobody else answers
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes | None = None  # the expert's error object
    is_expert_fault: bool = True  # counts as a failure of the circuit breaker
    is_refusal: bool = False  # the expert has too much to do: it is left alone for a while
    retry_after: float | None = None


class UpstreamResponse:
    """An expert's answer: status, headers, and the pieces of its body as they arrive."""

    def __init__(self, connection: Connection, expert: Expert, timeout: asyncio.Timeout, ends: float) -> None:
        self._connection, self._expert, self._timeout, self._ends = connection, expert, timeout, ends
        self.status = connection.status
        self.headers = connection.headers
        named = dict(connection.headers)
        kind = named.get(b"content-type", b"")
        self.content_type = kind.partition(b";")[0].strip().lower().decode("latin-1")
        self.is_stream = self.content_type == "text/event-stream" and self.status == 200
        self.is_waiting = True  # False while it is the client that takes its time
        length = named.get(b"content-length", b"")
        self._length = int(length) if length.isdigit() else None
        encoding = named.get(b"content-encoding", b"").strip().lower()
        self.is_decompressed = encoding in _DECOMPRESSED_ENCODINGS
        self._decompressor: Any = (
            zlib.decompressobj(47 if encoding != b"deflate" else 15) if self.is_decompressed else None
        )

    async def read_piece(self, *, last: bool = False) -> bytes:
        """The next bytes, or none at the end. After the `last` piece the end of the stream is awaited only briefly."""
        wait = min(CLOSE_DETECTION_S, self._expert.config.timeouts.idle) if last else self._expert.config.timeouts.idle
        self._timeout.reschedule(min(self._connection.loop.time() + wait, self._ends))
        return await self.read_first_piece()

    async def read_first_piece(self) -> bytes:
        """The same under the time limit for the first byte."""
        self.is_waiting = True
        piece = await self._connection.read()
        while piece and self._decompressor is not None:
            if content := self._decompress(piece):
                piece = content
                break
            piece = await self._connection.read()
        self.is_waiting = False
        return piece

    def _decompress(self, piece: bytes) -> bytes:
        try:
            content: bytes = self._decompressor.decompress(piece, MAX_ANSWER_BYTES)
        except zlib.error as error:
            raise InvalidResponseError(str(error)) from error
        return content

    async def read_whole(self) -> bytes | None:
        """The whole body, or None if it is too large to be held."""
        length = None if self.is_decompressed else self._length
        if length is not None and length > MAX_ANSWER_BYTES:
            return None
        pieces, size = [await self.read_first_piece()], 0
        while pieces[-1]:
            size += len(pieces[-1])
            if size > MAX_ANSWER_BYTES:
                message = f"'{self._expert.name}' sent more than {MAX_ANSWER_BYTES >> 20} MB"
                raise UpstreamFailure("garbage", message, is_expert_fault=False)  # it was asked for so much
            if length is not None and size >= length:
                break
            pieces.append(await self.read_piece())
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class UpstreamRequest:
    """An exchange with an expert: `async with UpstreamRequest(…) as answer`.

    Errors of the expert and timeouts are raised as `UpstreamFailure`. If the block ends before the answer does, the
    connection is closed; otherwise it is kept for the next request.
    """

    __slots__ = ("_answer", "_connection", "_connections", "_expert", "_path", "_rest", "_timeout")

    def __init__(self, connections: ConnectionPool, expert: Expert, path: str, head: bytes, body: bytes) -> None:
        self._connections, self._expert, self._path = connections, expert, path
        self._rest = head, b"content-length: %d\r\n\r\n" % len(body), body
        self._connection: Connection | None = None
        self._answer: UpstreamResponse | None = None

    async def __aenter__(self) -> UpstreamResponse:
        expert, limits = self._expert, self._expert.config.timeouts
        now = asyncio.get_running_loop().time()
        self._timeout = asyncio.timeout_at(now + min(limits.first_token, limits.total))
        await self._timeout.__aenter__()
        try:
            base_url = expert.config.base_url
            request = b"".join((build_request_line(base_url, self._path), *self._rest))
            self._connection = await self._connections.send(base_url, request, limits.connect)
        except BaseException as error:
            await self._stop_timer(type(error), error, error.__traceback__)
            raise
        self._answer = UpstreamResponse(self._connection, expert, self._timeout, now + limits.total)
        return self._answer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connections.give_back(self._expert.config.base_url, self._connection)
        await self._stop_timer(kind, error, trace)

    async def _stop_timer(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the timer. A timeout that cancelled the work, and an error of the expert, become a `UpstreamFailure`."""
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as late:
            if self._answer is not None and not self._answer.is_waiting:
                raise ClientDisconnect from late  # or it does not read the answer, which is not the expert's fault
            raise UpstreamFailure("timeout", f"'{self._expert.name}' did not answer in time", 504) from late
        if isinstance(error, OSError):
            raise _classify_error(error, self._expert) from error


def _classify_error(error: OSError, expert: Expert) -> UpstreamFailure:
    name, limits = expert.name, expert.config.timeouts
    # the cause goes to the log, at most once a minute: clients must not learn addresses
    if isinstance(error, (UnreachableError, InvalidResponseError)) and expert.should_warn():
        _log.warning("'%s' at %s: %s", name, expert.config.base_url, " ".join(str(error).split())[:300])
    if isinstance(error, UnreachableError):
        if isinstance(error.__cause__, TimeoutError):
            return UpstreamFailure("connect", f"'{name}' could not be reached within {limits.connect:g} s", 504)
        return UpstreamFailure("connect", f"'{name}' cannot be reached", 502)
    if isinstance(error, InvalidResponseError):
        return UpstreamFailure("garbage", f"'{name}' sent something that is not HTTP", 502)
    return UpstreamFailure("broken", f"'{name}' broke off its answer", 502)
