"""HTTP clients behind one interface, each as a gateway would use it: raw bytes, no redirects, no cookies, no limits."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

KEEP_ALIVE_S = 4.0
CONNECT_S = 5.0
ANSWER_S = 10.0
HEADERS = [
    (b"content-type", b"application/json"),
    (b"accept-encoding", b"identity"),
    (b"x-request-id", b"0123456789abcdef"),
    (b"authorization", b"Bearer sk-0123456789"),
    (b"user-agent", b"OpenAI/Python 1.60.0"),
    (b"accept", b"application/json"),
    (b"x-stainless-lang", b"python"),
    (b"x-stainless-os", b"Linux"),
]
_TEXT = [(name.decode(), value.decode()) for name, value in HEADERS]
_LINES = b"".join(b"%b: %b\r\n" % pair for pair in HEADERS)


@dataclass
class Reply:
    """An answer that has begun."""

    status: int
    headers: list[tuple[bytes, bytes]]
    read: Callable[[], Awaitable[bytes]]  # the next piece, none at the end
    close: Callable[[], Awaitable[None]]


class Client(Protocol):
    """Something that sends POSTs."""

    async def ask(self, url: str, body: bytes) -> Reply: ...
    async def stop(self) -> None: ...


class Ours:
    """The gateway's transport."""

    def __init__(self) -> None:
        from ir3de_gateway import Destination, HttpTransport, UpstreamCall

        self._transport, self._destination, self._call = HttpTransport(), Destination, UpstreamCall

    async def ask(self, url: str, body: bytes) -> Reply:
        loop = asyncio.get_running_loop()
        base_url, _, path = url.rpartition("/")
        until = loop.time() + ANSWER_S
        answer = await self._transport.send(
            self._call(self._destination(base_url), path, _LINES, body, CONNECT_S, until)
        )

        async def close() -> None:
            answer.close()

        return Reply(answer.status, answer.headers, lambda: answer.read(until), close)

    async def stop(self) -> None:
        self._transport.close()


class Aiohttp:
    def __init__(self) -> None:
        import aiohttp
        from multidict import CIMultiDict
        from yarl import URL

        self._url, self._headers = URL, CIMultiDict
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=ANSWER_S),
        )

    async def ask(self, url: str, body: bytes) -> Reply:
        response = await self._session.request(
            "POST", self._url(url, encoded=True), data=body, headers=self._headers(_TEXT), allow_redirects=False
        )

        async def close() -> None:
            if response.content.at_eof():
                response.release()
            else:
                response.close()

        headers = [(name.lower(), value) for name, value in response.raw_headers]
        return Reply(response.status, headers, response.content.readany, close)

    async def stop(self) -> None:
        await self._session.close()


class Pyreqwest:
    def __init__(self) -> None:
        from pyreqwest.client import ClientBuilder

        build = ClientBuilder().gzip(False).brotli(False).zstd(False).deflate(False).follow_redirects(False)
        build = build.referer(False).http1_lower_case_headers().no_proxy().read_timeout(timedelta(seconds=ANSWER_S))
        build = build.connect_timeout(timedelta(seconds=CONNECT_S))
        self._client = build.pool_idle_timeout(timedelta(seconds=KEEP_ALIVE_S)).build()

    async def ask(self, url: str, body: bytes) -> Reply:
        # without the limit, it would wait for 64 kB of the answer
        request = self._client.post(url).headers(_TEXT).body_bytes(body).streamed_read_buffer_limit(0).build_streamed()
        response = await request.__aenter__()
        reader = response.body_reader

        async def read() -> bytes:
            piece = await reader.read_chunk()
            return b"" if piece is None else bytes(piece)

        async def close() -> None:
            await request.__aexit__(None, None, None)

        return Reply(response.status, [(name.encode(), value.encode()) for name, value in response.headers.items()],
                     read, close)  # fmt: skip

    async def stop(self) -> None:
        await self._client.close()


class Httpx2:
    def __init__(self) -> None:
        import httpx2

        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEP_ALIVE_S)
        timeout = httpx2.Timeout(ANSWER_S, connect=CONNECT_S)
        self._client = httpx2.AsyncClient(timeout=timeout, limits=limits, trust_env=False)

    async def ask(self, url: str, body: bytes) -> Reply:
        request = self._client.build_request("POST", url, headers=HEADERS, content=body)
        response = await self._client.send(request, stream=True)
        pieces = response.aiter_raw()
        headers = [(name.lower(), value) for name, value in response.headers.raw]
        return Reply(response.status_code, headers, lambda: _next(pieces), response.aclose)

    async def stop(self) -> None:
        await self._client.aclose()


class CurlCffi:
    def __init__(self) -> None:
        from curl_cffi.requests import AsyncSession

        self._session: Any = AsyncSession(trust_env=False, max_clients=10_000, timeout=(CONNECT_S, ANSWER_S))

    async def ask(self, url: str, body: bytes) -> Reply:
        response = await self._session.post(
            url, headers=dict(_TEXT), data=body, stream=True, allow_redirects=False, discard_cookies=True
        )
        pieces = response.aiter_content()
        headers = [(name.lower().encode(), value.encode()) for name, value in response.headers.multi_items()]
        return Reply(response.status_code, headers, lambda: _next(pieces), response.aclose)

    async def stop(self) -> None:
        await self._session.close()


class Niquests:
    def __init__(self) -> None:
        import niquests

        self._session: Any = niquests.AsyncSession(disable_http3=True, pool_maxsize=10_000)
        self._session.trust_env = False

    async def ask(self, url: str, body: bytes) -> Reply:
        response = await self._session.post(
            url, headers=dict(_TEXT), data=body, stream=True, allow_redirects=False, timeout=(CONNECT_S, ANSWER_S)
        )
        pieces = await response.iter_raw()
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in response.headers.items()]
        return Reply(response.status_code, headers, lambda: _next(pieces), response.close)

    async def stop(self) -> None:
        await self._session.close()


async def _next(pieces: Any) -> bytes:
    found: bytes = await anext(pieces, b"")
    return found


CLIENTS: dict[str, Callable[[], Client]] = {
    "the gateway's": Ours,
    "aiohttp": Aiohttp,
    "pyreqwest": Pyreqwest,
    "httpx2": Httpx2,
    "curl_cffi": CurlCffi,
    "niquests": Niquests,
}


def list_available(names: Iterable[str]) -> list[str]:
    """Those whose packages are installed."""
    modules = {name: name for name in ("aiohttp", "pyreqwest", "httpx2", "curl_cffi", "niquests")}
    return [name for name in names if name not in modules or importlib.util.find_spec(modules[name]) is not None]
