"""Opens connections to experts: name, address, proxy, TLS."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohappyeyeballs

from ir3de_gateway.config.experts import TlsFileError, TlsFiles
from ir3de_gateway.experts.http1 import Http1Connection
from ir3de_gateway.experts.name_resolution import NameResolver
from ir3de_gateway.experts.proxies import Proxy, find_proxy
from ir3de_gateway.experts.transport import (
    OutOfResourcesError,
    UnreachableError,
    is_out_of_resources,
)

NEXT_ADDRESS_S = 0.25  # how long an address may take before the next one is tried beside it (RFC 8305)


@dataclass(frozen=True)
class Origin:
    """An expert's host and port, the path of its base URL, and the proxy that leads there."""

    scheme: str
    host: str
    port: int
    path: str = ""
    proxy: Proxy | None = None

    @classmethod
    def parse(cls, base_url: str) -> Origin:
        parts = urlsplit(base_url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        return cls(parts.scheme, host, port, parts.path, find_proxy(parts.scheme, host, port))

    @property
    def authority(self) -> str:
        """Host and port, for the CONNECT request to a proxy."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def host_header(self) -> str:
        """The value of the header `host`."""
        usual = {"http": ":80", "https": ":443"}[self.scheme]
        return self.authority.removesuffix(usual)

    @property
    def is_forwarded(self) -> bool:
        """Whether a proxy gets the request itself, with its whole address, instead of opening a tunnel."""
        return self.proxy is not None and not self.proxy.is_socks and self.scheme == "http"

    def build_path(self, path: str) -> str:
        """A path below the base URL; with a slash before it, it is one of the server itself."""
        return path if path.startswith("/") else f"{self.path}/{path}"

    def build_target(self, path: str) -> str:
        """That path as a request line has it: with the whole address if a proxy gets the request."""
        return f"http://{self.host_header}{self.build_path(path)}" if self.is_forwarded else self.build_path(path)


class Connector:
    """Opens connections. Errors are `UnreachableError` or `OutOfResourcesError`."""

    def __init__(self) -> None:
        self._names = NameResolver()
        self._contexts: dict[tuple[TlsFiles | None, bool], ssl.SSLContext] = {}

    async def connect(
        self,
        origin: Origin,
        tls: TlsFiles | None,
        protocol: Callable[[], asyncio.Protocol],
        seconds: float,
        *,
        http2: bool = False,
    ) -> Any:
        """A connection with this protocol; `http2`: whether the server may choose that."""
        try:
            context = self._get_context(tls, http2) if origin.scheme == "https" else None
            async with asyncio.timeout(seconds):
                return await self._connect(origin, context, protocol)
        except TimeoutError as error:
            raise UnreachableError(f"no connection within {seconds:g} s", "time") from error
        except (UnreachableError, OutOfResourcesError):
            raise
        except (OSError, RuntimeError) as error:  # RuntimeError: uvloop's, of a socket that cannot be used
            if is_out_of_resources(error):
                raise OutOfResourcesError(getattr(error, "errno", None), str(error)) from error
            if isinstance(error, (ssl.SSLError, TlsFileError)):
                raise UnreachableError(str(error), "tls") from error
            raise UnreachableError(_describe(error)) from error

    async def _connect(
        self, origin: Origin, context: ssl.SSLContext | None, protocol: Callable[[], asyncio.Protocol]
    ) -> Any:
        loop, proxy = asyncio.get_running_loop(), origin.proxy
        server_name = None if context is None else origin.host
        if proxy is not None and proxy.is_socks:
            line = await self._open_socks_tunnel(proxy, origin)
        elif proxy is not None and context is not None:
            return await self._open_tunnel(proxy, origin, context, protocol)
        elif proxy is not None:
            line = await self._open_socket(proxy.host, proxy.port)
            if proxy.scheme == "https":
                context, server_name = self._get_context(None, False), proxy.host
        else:
            line = await self._open_socket(origin.host, origin.port)
        return (await _start(loop, protocol, line, context, server_name))[1]

    async def _open_socket(self, host: str, port: int) -> socket.socket:
        addresses: Any = await self._names.resolve(host, port)
        try:
            return await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS_S)
        except (OSError, RuntimeError) as error:
            # its frame keeps the error, which keeps the frame and its callers: the request, until a collection
            raise error.with_traceback(None) from error.__cause__

    async def _open_tunnel(
        self, proxy: Proxy, origin: Origin, context: ssl.SSLContext, protocol: Callable[[], asyncio.Protocol]
    ) -> asyncio.Protocol:
        """Through an HTTP proxy, by CONNECT; TLS with the expert goes inside of TLS with the proxy if that has it."""
        loop = asyncio.get_running_loop()
        line = await self._open_socket(proxy.host, proxy.port)
        to_proxy = self._get_context(None, False) if proxy.scheme == "https" else None
        transport, connection = await _start(
            loop, lambda: Http1Connection(_ignore), line, to_proxy, proxy.host if to_proxy else None
        )
        try:
            there = origin.authority.encode()
            connection.write(
                b"CONNECT " + there + b" HTTP/1.1\r\nhost: " + there + b"\r\n" + proxy.authorization + b"\r\n"
            )
            await connection.wait_for_head(loop.time() + 86_400)  # the caller limits the time
            if connection.status != 200:
                raise UnreachableError(f"the proxy answers {connection.status}", "proxy")
            final = protocol()
            secured = await loop.start_tls(transport, final, context, server_hostname=origin.host)
            assert secured is not None
            final.connection_made(secured)
        except BaseException:
            transport.abort()
            raise
        return final

    async def _open_socks_tunnel(self, proxy: Proxy, origin: Origin) -> socket.socket:
        try:
            from python_socks import ProxyError, ProxyType
            from python_socks.async_.asyncio import Proxy as SocksProxy
        except ImportError:
            raise UnreachableError("a SOCKS proxy needs another package: pip install python-socks", "proxy") from None
        kind = ProxyType.SOCKS5 if proxy.scheme.startswith("socks5") else ProxyType.SOCKS4
        address = (await self._names.resolve(proxy.host, proxy.port))[0][4][0]
        target = origin.host
        if not proxy.resolves_names:
            target = str((await self._names.resolve(origin.host, origin.port))[0][4][0])
        socks = SocksProxy(kind, str(address), proxy.port, proxy.user, proxy.password or None, rdns=True)
        try:
            line: socket.socket = await socks.connect(target, origin.port, timeout=86_400)  # the caller limits the time
        except ProxyError as error:
            raise UnreachableError(f"the proxy refuses: {error}", "proxy") from error
        return line

    def _get_context(self, tls: TlsFiles | None, http2: bool) -> ssl.SSLContext:
        context = self._contexts.get((tls, http2))
        if context is None:
            context = self._contexts[tls, http2] = (tls or TlsFiles()).build_context()
            if http2:
                context.set_alpn_protocols(["h2", "http/1.1"])
        return context


def _describe(error: Exception) -> str:
    """Why no connection was made, in words: asyncio writes numbers of errors, and its own calls."""
    reasons = [os.strerror(int(number)).lower() for number in re.findall(r"\[Errno (\d+)\]", str(error))]
    return ", ".join(dict.fromkeys(reasons)) or str(error)


async def _start(
    loop: asyncio.AbstractEventLoop,
    protocol: Callable[[], Any],
    line: socket.socket,
    context: ssl.SSLContext | None,
    server_name: str | None,
) -> tuple[asyncio.Transport, Any]:
    try:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return await loop.create_connection(protocol, sock=line, ssl=context, server_hostname=server_name)
    except BaseException:
        line.close()
        raise


def _ignore(connection: Http1Connection) -> None:
    """The connection to a proxy is not kept."""
