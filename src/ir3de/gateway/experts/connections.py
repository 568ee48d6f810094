"""Connections to experts: a minimal HTTP/1.1 client with a connection pool, on httptools.

A general client library took a third of the time of a request (docs/benchmarks.md).
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httptools

IDLE_CONNECTION_S = 4.0  # many servers close idle connections after 5 seconds
MAX_BUFFERED_BYTES = 1 << 18  # beyond this, reading from the expert pauses
MAX_HEAD_BYTES = 1 << 16  # of an answer

CLOSE_DETECTION_S = 1.0  # a request is sent again only if its kept connection closes within this time


class InvalidResponseError(OSError):
    """The expert sent something that is not an HTTP response."""


class ConnectionClosedError(OSError):
    """The connection ended before the answer did."""


class UnreachableError(OSError):
    """No connection could be opened."""


@dataclass(frozen=True)
class Origin:
    """Where an expert is reached: its own address, or a proxy that leads there."""

    scheme: str
    host: str
    port: int
    proxy: tuple[str, int, bytes] | None = None  # host, port, authorization header

    @property
    def authority(self) -> str:
        """Host and port, for the CONNECT request to a proxy."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def host_header(self) -> str:
        """The value of the header `host`."""
        usual = {"http": ":80", "https": ":443"}[self.scheme]
        return self.authority.removesuffix(usual)


@lru_cache(maxsize=1024)
def resolve_origin(base_url: str) -> tuple[Origin, str]:
    """The origin of an address and the path on it; the environment's proxies are looked up once."""
    parts = urlsplit(base_url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    past = proxy_bypass(host) or proxy_bypass(f"{host}:{port}")  # NO_PROXY names hosts, or hosts with their ports
    given = None if past else getproxies().get(parts.scheme)
    origin = Origin(parts.scheme, host, port, _parse_proxy(given) if given else None)
    through = f"http://{origin.host_header}" if origin.proxy and origin.scheme == "http" else ""
    return origin, through + parts.path


def _parse_proxy(given: str) -> tuple[str, int, bytes]:
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        host, port = parts.hostname or "", parts.port or 3128
    except ValueError as error:  # the message does not repeat the address, which may hold a password
        raise UnreachableError("the address of the environment's proxy cannot be read") from error
    if parts.scheme != "http":
        raise UnreachableError(f"the environment's proxy is {parts.scheme}://: only http:// proxies are supported")
    permit = b""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        permit = b"proxy-authorization: Basic " + b64encode(pair) + b"\r\n"
    return host, port, permit


def build_request_line(base_url: str, path: str) -> bytes:
    """The first lines of a request, which are the same each time but for the query, if there is one."""
    if "?" in path:  # clients choose the query: caching it would fill the cache
        return _build_request_line.__wrapped__(base_url, path)
    return _build_request_line(base_url, path)


@lru_cache(maxsize=4096)
def _build_request_line(base_url: str, path: str) -> bytes:
    origin, prefix = resolve_origin(base_url)
    lines = f"POST {prefix}/{path} HTTP/1.1\r\nhost: {origin.host_header}\r\n".encode()
    return lines + (origin.proxy[2] if origin.proxy and origin.scheme == "http" else b"")


class Connection(asyncio.Protocol):
    """One connection, one exchange at a time."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.loop = asyncio.get_running_loop()
        self.used = False  # whether it has answered before
        self.idle_since = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._reset()

    def _reset(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._pieces: deque[bytes] = deque()
        self._size = self._head_size = 0
        self._has_head = self._ended = self._keep = self._paused = False
        self._has_length = True  # otherwise the end of the connection is the end of the answer
        self._error: OSError | None = None

    async def send(self, request: bytes) -> None:
        """Send a request and wait for the head of its answer."""
        self._reset()
        self.transport.write(request)
        while not self._has_head:
            if self._error is not None:
                raise self._error
            await self._wait()

    async def read(self) -> bytes:
        """The next bytes of the body; none at its end."""
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            await self._wait()
        pieces = self._pieces
        found = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._size = 0
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        return found

    @property
    def has_received_data(self) -> bool:
        """Whether anything at all has come."""
        return self._head_size > 0 or self._has_head

    @property
    def is_reusable(self) -> bool:
        """Whether the exchange is over, to the last byte, and another one may follow."""
        unread = self._pieces or self._paused  # unread data would become part of the next answer
        if not self._ended or not self._keep or unread or self._error is not None or self.transport.is_closing():
            return False
        unsent = self.transport.get_write_buffer_size()  # the expert answered early, and may never read the rest
        return not unsent

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Start TLS with `host` through the tunnel of a proxy."""
        self.transport = await self.loop.start_tls(self.transport, self, context, server_hostname=host)
        self._parser = httptools.HttpResponseParser(self)

    async def _wait(self) -> None:
        self._waiter = self.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: OSError) -> None:
        if self._error is None and not self._ended:
            self._error = error
        self.transport.abort()
        self._wake()

    # asyncio's calls --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._ended:
            self._fail(InvalidResponseError("data after the end of the answer"))
            return
        if not self._has_head:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(InvalidResponseError(str(error)))
            return
        if not self._has_head and self._head_size > MAX_HEAD_BYTES:
            self._fail(InvalidResponseError("the headers are too long"))

    def connection_lost(self, error: Exception | None) -> None:
        if self._has_head and not self._has_length and error is None:
            self._ended = True  # the normal end of such an answer
        elif not self._ended and self._error is None:
            self._error = ConnectionClosedError("the connection was closed")
        self._wake()

    # httptools' calls -------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._ended:  # a second answer to one request: do not use this connection again
            self._keep = False
            raise InvalidResponseError("data after the end of the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # trailers are ignored: they may be endless
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # 100 Continue and the like come before the answer
            self.headers.clear()
            return
        self.status, self._has_head = status, True
        self._has_length = status in (204, 304) or any(
            name in (b"content-length", b"transfer-encoding") for name, _ in self.headers
        )
        self._wake()

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > MAX_BUFFERED_BYTES and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if self._has_head:
            self._keep, self._ended = self._parser.should_keep_alive(), True
            self._wake()


class ConnectionPool:
    """Idle connections, by origin. The pool is unbounded: `ConcurrencyLimit` bounds how many are in use."""

    def __init__(self) -> None:
        self._idle: dict[Origin, deque[Connection]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._context: ssl.SSLContext | None = None

    async def send(self, base_url: str, request: bytes, seconds: float) -> Connection:
        """Send a request, on an idle connection if there is one; a new one must open within `seconds`.

        An expert may close an idle connection just as a request is sent. The request is then sent again, once, on a new
        connection: but only if nothing was received and the connection closed soon, so that no POST is executed twice.
        """
        origin, _ = resolve_origin(base_url)
        kept = self._take_idle(origin)
        if kept is not None:
            sent = kept.loop.time()
            try:
                await kept.send(request)
                return kept
            except ConnectionClosedError:
                if kept.has_received_data or kept.loop.time() - sent > CLOSE_DETECTION_S:
                    raise
            except BaseException:
                kept.transport.abort()
                raise
        fresh = await self._connect(origin, seconds)
        try:
            await fresh.send(request)
        except BaseException:
            fresh.transport.abort()
            raise
        return fresh

    def give_back(self, base_url: str, connection: Connection) -> None:
        """Keep the connection of a complete exchange for the next one; close it if the exchange is incomplete."""
        if not connection.is_reusable:
            connection.transport.abort()
            return
        connection.used, connection.idle_since = True, connection.loop.time()
        self._idle.setdefault(resolve_origin(base_url)[0], deque()).append(connection)
        if self._sweep is None:
            self._sweep = connection.loop.call_later(IDLE_CONNECTION_S, self._close_idle)

    def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for line in self._idle.values():
            for connection in line:
                connection.transport.abort()
        self._idle.clear()

    def _take_idle(self, origin: Origin) -> Connection | None:
        line = self._idle.get(origin)
        while line:
            connection = line.pop()  # the one that was used last
            is_fresh = connection.loop.time() - connection.idle_since < IDLE_CONNECTION_S
            if is_fresh and not connection.transport.is_closing():
                return connection
            connection.transport.abort()
        return None

    def _close_idle(self) -> None:
        self._sweep = None
        now = asyncio.get_running_loop().time()
        for line in self._idle.values():
            while line and (line[0].transport.is_closing() or now - line[0].idle_since >= IDLE_CONNECTION_S):
                line.popleft().transport.abort()
        self._idle = {origin: line for origin, line in self._idle.items() if line}
        if self._idle:
            self._sweep = asyncio.get_running_loop().call_later(IDLE_CONNECTION_S / 2, self._close_idle)

    async def _connect(self, origin: Origin, seconds: float) -> Connection:
        try:
            async with asyncio.timeout(seconds):
                if origin.proxy is None:
                    return await self._open(origin.host, origin.port, secure=origin.scheme == "https")
                return await self._through_proxy(origin, origin.proxy)
        except TimeoutError as error:
            raise UnreachableError(f"no connection within {seconds:g} s") from error
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            raise UnreachableError(str(error)) from error

    async def _open(self, host: str, port: int, *, secure: bool) -> Connection:
        loop = asyncio.get_running_loop()
        context = self._tls() if secure else None
        _, connection = await loop.create_connection(Connection, host, port, ssl=context)
        return connection

    async def _through_proxy(self, origin: Origin, proxy: tuple[str, int, bytes]) -> Connection:
        host, port, permit = proxy
        connection = await self._open(host, port, secure=False)
        if origin.scheme == "http":  # a proxy forwards such requests itself
            return connection
        try:
            there = origin.authority.encode()
            await connection.send(b"CONNECT " + there + b" HTTP/1.1\r\nhost: " + there + b"\r\n" + permit + b"\r\n")
            if connection.status != 200:
                raise UnreachableError(f"the proxy answers {connection.status}")
            await connection.start_tls(self._tls(), origin.host)
        except BaseException:
            connection.transport.abort()
            raise
        return connection

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = ssl.create_default_context()
        return self._context
