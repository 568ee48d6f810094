"""Asking an expert: one HTTP exchange, with its timeouts, up to the first byte of the answer and then to the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from time import monotonic
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from ir3de.gateway.live import Expert
from ir3de.gateway.receiving import ClientLeft

RETRIED = frozenset((408, 429))  # and 5xx: another expert may do better
LARGEST_ANSWER = 64 << 20  # bytes of an answer that are held until it is whole

_PIECE = 1 << 16
_AT_ONCE = 1 << 20  # bytes of a request that are written in one go; more would keep others waiting
_SHOWS = 1.0  # seconds within which it shows that a connection was closed
_PACKED = frozenset(("gzip", "deflate", "br", "zstd"))  # what the client library unpacks, though nobody asked for it
_KEPT = 4.0  # seconds that an idle connection is kept: many servers close theirs after 5, just as a request may come


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

    def __init__(self, response: aiohttp.ClientResponse, expert: Expert, timeout: asyncio.Timeout, ends: float) -> None:
        self._response, self._expert, self._timeout, self._ends = response, expert, timeout, ends
        self.status = response.status
        self.headers = response.raw_headers
        kind = response.headers.get("content-type", "")
        self.content_type = kind.partition(";")[0].strip().lower()
        self.is_stream = self.content_type == "text/event-stream" and self.status == 200
        self.unpacked = response.headers.get("content-encoding", "").strip().lower() in _PACKED
        self.waited_for = True  # False while it is the client that takes its time

    async def piece(self, *, last: bool = False) -> bytes:
        """The next bytes as they came; none at the end, which after the `last` ones is not waited for long."""
        wait = min(_SHOWS, self._expert.config.timeouts.idle) if last else self._expert.config.timeouts.idle
        now = asyncio.get_running_loop().time()
        self._timeout.reschedule(min(now + wait, self._ends))
        return await self._read()

    async def first_piece(self) -> bytes:
        """The same under the time limit for the first byte."""
        return await self._read()

    async def _read(self) -> bytes:
        self.waited_for = True
        piece = await self._response.content.readany()
        self.waited_for = False
        return piece

    async def whole(self) -> bytes | None:
        """The whole body, or None if it is too large to be held."""
        length = None if self.unpacked else self._response.content_length
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


@asynccontextmanager
async def asking(
    client: aiohttp.ClientSession, expert: Expert, path: str, body: bytes, headers: CIMultiDict[str]
) -> AsyncIterator[Answer]:
    """An exchange with an expert. What it does wrong, and what takes too long, becomes a `Failure`.

    Leaving the block before the answer has ended hangs up; after its end the connection is kept for the next request.
    """
    limits, answer = expert.config.timeouts, None
    ends = asyncio.get_running_loop().time() + limits.total
    try:
        async with (
            asyncio.timeout(min(limits.first_token, limits.total)) as timeout,
            await _begun(client, expert, path, body, headers) as response,
        ):
            answer = Answer(response, expert, timeout, ends)
            yield answer
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        if isinstance(error, TimeoutError) and answer is not None and not answer.waited_for:
            raise ClientLeft from error  # or it does not read what it is sent: not the expert's fault
        raise _failure(error, expert) from error


async def _begun(
    client: aiohttp.ClientSession, expert: Expert, path: str, body: bytes, headers: CIMultiDict[str]
) -> aiohttp.ClientResponse:
    """The head of an answer. An expert may close a kept connection as a request comes in: then it is sent again."""
    base_url, started = expert.config.base_url, monotonic()
    for again in (True, False):
        try:
            return await client.request(
                "POST",
                address(base_url, path),
                data=aiohttp.BytesPayload(body) if len(body) < _AT_ONCE else BytesIO(body),
                headers=headers,
                allow_redirects=False,
                proxy=proxy_for(base_url),
                timeout=_connecting(expert.config.timeouts.connect),
            )
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            if not again or monotonic() - started > _SHOWS:
                raise
    raise AssertionError


def _failure(error: Exception, expert: Expert) -> Failure:
    name, limits = expert.name, expert.config.timeouts
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Failure("connect", f"'{name}' could not be reached within {limits.connect:g} s", 504)
    if isinstance(error, TimeoutError):
        return Failure("timeout", f"'{name}' did not answer in time", 504)
    if isinstance(error, aiohttp.ClientConnectorError):
        return Failure("connect", f"'{name}' cannot be reached", 502)
    if isinstance(error, (aiohttp.ClientResponseError, aiohttp.InvalidURL)):
        return Failure("garbage", f"'{name}' sent something that is not HTTP", 502)
    return Failure("broken", f"'{name}' broke off its answer", 502)


@lru_cache(maxsize=256)
def _connecting(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, connect=seconds)  # looking up the name is a part of it


@lru_cache(maxsize=1024)
def address(base_url: str, path: str) -> URL:
    return URL(f"{base_url}/{path}", encoded=True)


@lru_cache(maxsize=256)
def proxy_for(base_url: str) -> str | None:
    """The proxy that the environment names for this address; looked up once, it takes longer than a request."""
    parts = urlsplit(base_url)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)


def new_client() -> aiohttp.ClientSession:
    """Connections are kept and as many as needed: how many are in use at once is for `slots` to say."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT, ttl_dns_cache=60),
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=_PIECE,
        max_line_size=1 << 15,
        max_field_size=1 << 15,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
    )
