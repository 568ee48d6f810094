"""Opens connections to experts: looks up names, and goes through proxies and TLS."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohappyeyeballs

from ir3de_gateway.config.experts import TlsFileError, TlsFiles
from ir3de_gateway.transport import OutOfResourcesError, UnreachableError, is_out_of_resources
from ir3de_gateway.transport.http1 import Http1Connection

NEXT_ADDRESS_S = 0.25  # after this, the next address is tried concurrently (RFC 8305)
ANSWER_TTL_S = 30.0  # of a resolved name: getaddrinfo does not report its TTL
REFRESH_PATIENCE_S = 1.0  # how long to wait for a new answer of the resolver while there is an old one
RETRY_S = 5.0  # how long to use an old answer before the next query, if the resolver gave no new one
_NO_LIMIT_S = 86_400  # where the caller limits the time

_PROXY_PORTS = {"http": 3128, "https": 443, "socks4": 1080, "socks4a": 1080, "socks5": 1080, "socks5h": 1080}

AddressInfo = tuple[Any, ...]  # of `getaddrinfo`: family, type, protocol, name, address
ProtocolFactory = Callable[[], asyncio.Protocol]

# proxies ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Proxy:
    """A proxy: http:// and https:// ones forward requests and open tunnels, SOCKS proxies open tunnels."""

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str = ""

    @property
    def is_socks(self) -> bool:
        return self.scheme.startswith("socks")

    @property
    def authorization(self) -> bytes:
        """The header line for an HTTP proxy; empty without a user."""
        if self.user is None:
            return b""
        return b"proxy-authorization: Basic " + b64encode(f"{self.user}:{self.password}".encode()) + b"\r\n"


def find_proxy(scheme: str, host: str, port: int) -> Proxy | None:
    """The proxy for a host, from HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, in either case."""
    if proxy_bypass(host) or proxy_bypass(f"{host}:{port}"):  # NO_PROXY names hosts, or hosts with their ports
        return None
    proxies = getproxies()
    given = proxies.get(scheme) or proxies.get("all")
    return _parse_proxy(given) if given else None


def _parse_proxy(given: str) -> Proxy:
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
    except ValueError as error:  # the message does not repeat the address, which may hold a password
        raise UnreachableError("the address of the environment's proxy cannot be read", "proxy") from error
    if scheme not in _PROXY_PORTS:
        known = ", ".join(f"{name}://" for name in _PROXY_PORTS)
        raise UnreachableError(f"the environment's proxy is {scheme}://: known are {known}", "proxy")
    user = None if parts.username is None else unquote(parts.username)
    return Proxy(scheme, host, port or _PROXY_PORTS[scheme], user, unquote(parts.password or ""))


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
        """A path below the base URL; one that begins with a slash is a path of the server itself."""
        return path if path.startswith("/") else f"{self.path}/{path}"

    def build_target(self, path: str) -> str:
        """The path in the request line: the whole address if a proxy forwards the request."""
        return f"http://{self.host_header}{self.build_path(path)}" if self.is_forwarded else self.build_path(path)


# connections ------------------------------------------------------------------------------------------------------


class Connector:
    """Opens connections. Errors are `UnreachableError` or `OutOfResourcesError`."""

    def __init__(self) -> None:
        self._names = NameResolver()
        self._contexts: dict[tuple[TlsFiles | None, bool], ssl.SSLContext] = {}

    async def connect(
        self, origin: Origin, tls: TlsFiles | None, protocol: ProtocolFactory, seconds: float, *, http2: bool = False
    ) -> Any:
        """A connection with this protocol; `http2`: whether to offer that to the server."""
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

    async def _connect(self, origin: Origin, context: ssl.SSLContext | None, protocol: ProtocolFactory) -> Any:
        proxy, server_name = origin.proxy, None if context is None else origin.host
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
        return (await _start(protocol, line, context, server_name))[1]

    async def _open_socket(self, host: str, port: int) -> socket.socket:
        addresses: Any = await self._names.resolve(host, port)
        try:
            return await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS_S)
        except (OSError, RuntimeError) as error:
            # its frame holds the error, which holds the frame and its callers: the request, until a collection
            raise error.with_traceback(None) from error.__cause__

    async def _open_tunnel(
        self, proxy: Proxy, origin: Origin, context: ssl.SSLContext, protocol: ProtocolFactory
    ) -> asyncio.Protocol:
        """Through an HTTP proxy, by CONNECT; TLS with the expert runs inside TLS with an https:// proxy."""
        loop = asyncio.get_running_loop()
        line = await self._open_socket(proxy.host, proxy.port)
        to_proxy = self._get_context(None, False) if proxy.scheme == "https" else None
        server_name = proxy.host if to_proxy else None
        transport, connection = await _start(lambda: Http1Connection(lambda *_: None), line, to_proxy, server_name)
        try:
            there = origin.authority.encode()
            connection.write(b"CONNECT %b HTTP/1.1\r\nhost: %b\r\n%b\r\n" % (there, there, proxy.authorization))
            await connection.wait_for_head(loop.time() + _NO_LIMIT_S)
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
        from python_socks import ProxyError, ProxyType
        from python_socks.async_.asyncio import Proxy as SocksProxy

        kind = ProxyType.SOCKS5 if proxy.scheme.startswith("socks5") else ProxyType.SOCKS4
        address = (await self._names.resolve(proxy.host, proxy.port))[0][4][0]
        target = origin.host
        if proxy.scheme not in ("socks5h", "socks4a"):  # these proxies resolve names themselves
            target = str((await self._names.resolve(origin.host, origin.port))[0][4][0])
        socks = SocksProxy(kind, str(address), proxy.port, proxy.user, proxy.password or None, rdns=True)
        try:
            line: socket.socket = await socks.connect(target, origin.port, timeout=_NO_LIMIT_S)
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
    """Why there is no connection: the texts of the error numbers in asyncio's message."""
    reasons = [os.strerror(int(number)).lower() for number in re.findall(r"\[Errno (\d+)\]", str(error))]
    return ", ".join(dict.fromkeys(reasons)) or str(error)


async def _start(
    protocol: Callable[[], Any], line: socket.socket, context: ssl.SSLContext | None, server_name: str | None
) -> tuple[asyncio.Transport, Any]:
    try:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        return await loop.create_connection(protocol, sock=line, ssl=context, server_hostname=server_name)
    except BaseException:
        line.close()
        raise


# names ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResolvedName:
    """The addresses of a name, or the resolver's error."""

    addresses: list[AddressInfo]
    expires: float
    error: OSError | UnicodeError | None = None


def look_up(host: str) -> list[AddressInfo]:
    """The addresses of a name. It blocks, for as long as the system's resolver takes."""
    return list(socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM))


class NameResolver:
    """The addresses of names, with a cache.

    Each name has one look-up at a time, in its own thread: a name that does not resolve delays no other. The last good
    answer stays in use while the resolver fails.
    """

    def __init__(self) -> None:
        self._answers: dict[str, ResolvedName] = {}
        self._running: dict[str, asyncio.Future[ResolvedName]] = {}

    async def resolve(self, host: str, port: int) -> list[AddressInfo]:
        """The addresses of a host; the caller limits the time."""
        answer = self._answers.get(host)
        if answer is None or answer.expires <= monotonic():
            answer = await self._refresh(host, answer)
        return [(*info[:4], (info[4][0], port, *info[4][2:])) for info in answer.addresses]

    async def _refresh(self, host: str, known: ResolvedName | None) -> ResolvedName:
        running = self._running.get(host) or self._start(host)
        if known is None:
            found = await asyncio.shield(running)
        else:
            done, _ = await asyncio.wait([running], timeout=REFRESH_PATIENCE_S)
            found = running.result() if done else known
        if known is not None and (found is known or found.error is not None):
            self._answers[host] = replace(known, expires=monotonic() + RETRY_S)
            return known
        if found.error is not None:
            raise _describe_failure(host, found.error) from found.error
        return found

    def _start(self, host: str) -> asyncio.Future[ResolvedName]:
        loop = asyncio.get_running_loop()
        self._running[host] = future = loop.create_future()
        if _is_address(host):  # needs neither resolver nor thread
            self._finish(host, _look_up_once(host))
            return future
        try:
            threading.Thread(target=self._run, args=(loop, host), name=f"look up {host}", daemon=True).start()
        except RuntimeError as error:  # can't start new thread
            del self._running[host]
            raise OutOfResourcesError(str(error)) from error
        return future

    def _run(self, loop: asyncio.AbstractEventLoop, host: str) -> None:
        found = _look_up_once(host)
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(self._finish, host, found)

    def _finish(self, host: str, found: ResolvedName) -> None:
        if found.error is None:
            self._answers[host] = found
        future = self._running.pop(host)
        if not future.done():
            future.set_result(found)


def _look_up_once(host: str) -> ResolvedName:
    try:
        return ResolvedName(look_up(host), monotonic() + ANSWER_TTL_S)
    except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
        return ResolvedName([], 0.0, error)


def _is_address(host: str) -> bool:
    """Whether it is an IP address rather than a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):
            socket.inet_pton(family, host.partition("%")[0])
            return True
    return False


def _describe_failure(host: str, error: OSError | UnicodeError) -> OSError:
    """The error of a failed look-up. The resolver does not report a lack of descriptors, so this tests for one."""
    try:
        socket.socket().close()
    except OSError as lack:
        if is_out_of_resources(lack):
            return OutOfResourcesError(lack.errno, str(lack))
    return UnreachableError(f"the name {host} cannot be resolved: {error}", "name")
