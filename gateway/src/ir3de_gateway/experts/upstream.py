"""One HTTP exchange with an expert, and its timeouts: to the first byte of the answer, and then to its end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine, Mapping
from math import inf
from typing import Any

from pydantic_core import from_json

from ir3de_gateway.experts.retry import UpstreamFailure as UpstreamFailure  # who reads answers needs their failures
from ir3de_gateway.experts.retry import build_status_failure
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.headers import OWN_HEADERS, HeaderList
from ir3de_gateway.transport import (
    InvalidResponseError,
    NoConnectionError,
    OutOfResourcesError,
    RequestBody,
    Transport,
    UnreachableError,
    UpstreamAnswer,
    UpstreamCall,
)
from ir3de_gateway.transport.decoding import Decoder, EncodingError, create_decoder
from ir3de_gateway.transport.pool import CLOSE_DETECTION_S

_NOT_RELAYED = frozenset(  # headers about the connection
    b"connection keep-alive proxy-authenticate proxy-connection te trailer transfer-encoding upgrade content-length "
    b"date server set-cookie alt-svc x-request-id".split()
)
_NOT_RELAYED_DECODED = _NOT_RELAYED | {b"content-encoding"}
MAX_ANSWER_BYTES = 64 << 20  # bytes of an answer that are held until it is whole
_CLOCK_STEP_S = 0.001  # of uvloop: its clock and its timers are rounded to it, so they may end before their time

_log = logging.getLogger("ir3de.gateway")


class UpstreamResponse:
    """An expert's answer: status, headers, and the pieces of its body as they arrive. It must be closed.

    Reading raises an `OSError`, also at a time limit, which `as_failure` turns into an `UpstreamFailure`.
    """

    def __init__(self, answer: UpstreamAnswer, expert: Expert, first_deadline: float, last_deadline: float) -> None:
        self._answer, self._expert = answer, expert
        self._first_deadline, self._last_deadline = first_deadline, last_deadline
        self._loop = asyncio.get_running_loop()
        self._early: bytes | None = None  # the first bytes, if they were awaited before
        self.status = answer.status
        self.headers = answer.headers
        self.resends = answer.resends  # how often the request was sent again
        named = dict(answer.headers)
        kind = named.get(b"content-type", b"")
        self.content_type = kind.partition(b";")[0].strip().lower().decode("latin-1")
        self.is_stream = self.content_type == "text/event-stream" and self.status == 200
        length = named.get(b"content-length", b"")
        self._length = int(length) if length.isdigit() else None
        encoding = named.get(b"content-encoding")
        self._decoder = None if encoding is None else create_decoder(encoding.strip().lower().decode("latin-1"))
        self.is_decompressed = self._decoder is not None

    def close(self) -> None:
        """Keep the connection for the next request if the answer is complete, and close it otherwise."""
        self._answer.close()

    def end_by(self, deadline: float) -> None:
        """Let the answer end earlier than the expert's own limit."""
        self._last_deadline = deadline

    @property
    def is_out_of_time(self) -> bool:
        """Whether the answer should have ended by now."""
        return is_overdue(self._last_deadline)

    def read_piece(self, *, last: bool = False) -> Coroutine[Any, Any, bytes]:
        """The next bytes, or none at the end. After the `last` piece the end of the stream is awaited only briefly."""
        wait = min(CLOSE_DETECTION_S, self._expert.config.timeouts.idle) if last else self._expert.config.timeouts.idle
        return self._read(min(self._loop.time() + wait, self._last_deadline))

    def read_first_piece(self) -> Coroutine[Any, Any, bytes]:
        """The same under the time limit for the first byte."""
        return self._read(self._first_deadline) if self._early is None else self._take_early(self._early)

    async def await_first_piece(self) -> None:
        """Wait for the first bytes, which `read_first_piece` then has at once."""
        self._early = await self._read(self._first_deadline)

    async def _take_early(self, early: bytes) -> bytes:
        self._early = None
        return early

    def _read(self, deadline: float) -> Coroutine[Any, Any, bytes]:
        return self._answer.read(deadline) if self._decoder is None else self._read_decoded(self._decoder, deadline)

    async def _read_decoded(self, decoder: Decoder, deadline: float) -> bytes:
        while True:
            piece = b"" if decoder.has_more else await self._answer.read(deadline)
            if not piece and not decoder.has_more:
                decoder.check_complete()
                return b""
            if content := decoder.decode(piece):
                return content

    def find_usage(self) -> Mapping[str, Any]:
        """The token usage of a stream, where the client's events do not have it: only that of a translated answer."""
        return {}

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
                raise UpstreamFailure("garbage", message, is_expert_fault=False)  # the request wanted so much
            if length is not None and size >= length:
                break
            pieces.append(await self.read_piece())
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def is_overdue(deadline: float) -> bool:
    """Whether a time of the event loop has come. By a finer clock, a time limit of uvloop may end a little early."""
    return deadline < inf and asyncio.get_running_loop().time() + _CLOCK_STEP_S >= deadline


def list_client_headers(answer: UpstreamResponse) -> HeaderList:
    """The headers of an answer that the client gets."""
    dropped = _NOT_RELAYED_DECODED if answer.is_decompressed else _NOT_RELAYED
    return [pair for pair in answer.headers if pair[0] not in dropped and not pair[0].startswith(OWN_HEADERS)]


async def send_request(
    transport: Transport,
    expert: Expert,
    path: str,
    head: bytes,
    body: RequestBody,
    *,
    is_repeatable: bool = True,
    method: str = "POST",
    deadline: float = inf,
) -> UpstreamResponse:
    """Send a request to an expert, and wait for the head of its answer; or raise an `UpstreamFailure`.

    A request that is not `is_repeatable` is never sent twice. The answer must begin by the `deadline` (a whole one must
    end).
    """
    limits, now = expert.config.timeouts, asyncio.get_running_loop().time()
    first, last = min(now + limits.first_token, now + limits.total, deadline), now + limits.total
    may_resend = is_repeatable and expert.config.resend
    call = UpstreamCall(expert.destination, path, head, body, limits.connect, first, may_resend, is_repeatable, method)
    answer = None
    try:
        answer = await transport.send(call)
        response = UpstreamResponse(answer, expert, first, last)
    except OSError as error:
        if answer is not None:
            answer.close()
        raise as_failure(error, expert) from None
    if deadline < last and not response.is_stream:
        response.end_by(deadline)
    return response


def as_failure(error: OSError | UpstreamFailure, expert: Expert) -> UpstreamFailure:
    """The failure that an error of the connection, or of the time limits, stands for."""
    if isinstance(error, UpstreamFailure):
        return error
    failure = _classify_error(error, expert)
    error.with_traceback(None)  # the connection keeps the error, whose frames would keep the request and its router
    return failure


def _classify_error(error: OSError, expert: Expert) -> UpstreamFailure:
    name, limits = expert.name, expert.config.timeouts
    # the cause goes to the log, at most once a minute: clients must not learn addresses
    if isinstance(error, (UnreachableError, InvalidResponseError, OutOfResourcesError)) and expert.should_warn():
        _log.warning("'%s' at %s: %s", name, expert.config.base_url, " ".join(str(error).split())[:300])
    if isinstance(error, OutOfResourcesError):
        message = f"the gateway has no file descriptors or memory left for a connection to '{name}'"
        return UpstreamFailure("resources", message, 503, is_expert_fault=False, retry_after=1.0)
    if isinstance(error, NoConnectionError):
        message = f"all connections to '{name}' are in use"
        return UpstreamFailure("busy", message, 429, is_expert_fault=False, retry_after=1.0)
    if isinstance(error, UnreachableError):
        if error.stage == "time":
            return UpstreamFailure("connect", f"'{name}' could not be reached within {limits.connect:g} s", 504)
        return UpstreamFailure("connect", f"'{name}' cannot be reached", 502)
    if isinstance(error, TimeoutError):
        return UpstreamFailure("timeout", f"'{name}' did not answer in time", 504)
    if isinstance(error, EncodingError):
        return UpstreamFailure("garbage", f"'{name}' answered {error}", 502)
    if isinstance(error, InvalidResponseError):
        return UpstreamFailure("garbage", f"'{name}' sent something that is not HTTP", 502)
    return UpstreamFailure("broken", f"'{name}' broke off its answer", 502)


async def read_failure(answer: UpstreamResponse, expert: Expert) -> UpstreamFailure:
    """Turn an error answer into a failure. The expert's body is kept only if it is a JSON object."""
    body = await answer.read_whole()
    kept = body if body is not None and parse_object(body) is not None else None
    return build_status_failure(expert.name, answer.status, list_client_headers(answer), kept)


def parse_object(body: bytes) -> dict[str, Any] | None:
    """The JSON object that a body is; None if it is not one."""
    try:
        found = from_json(body)  # three times as fast as json, and stricter
    except ValueError:
        try:
            found = json.loads(body.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None
