"""The environment's proxies: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, in either case."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from ir3de_gateway.experts.transport import UnreachableError

_PORTS = {"http": 3128, "https": 443, "socks4": 1080, "socks4a": 1080, "socks5": 1080, "socks5h": 1080}


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
    def resolves_names(self) -> bool:
        """Whether the proxy looks up the names of experts; otherwise it is given their addresses."""
        return self.scheme in ("socks5h", "socks4a")

    @property
    def authorization(self) -> bytes:
        """The header line for an HTTP proxy, if it wants one."""
        if self.user is None:
            return b""
        return b"proxy-authorization: Basic " + b64encode(f"{self.user}:{self.password}".encode()) + b"\r\n"


def find_proxy(scheme: str, host: str, port: int) -> Proxy | None:
    """The proxy that leads to a host, as the environment has it."""
    if proxy_bypass(host) or proxy_bypass(f"{host}:{port}"):  # NO_PROXY names hosts, or hosts with their ports
        return None
    proxies = getproxies()
    given = proxies.get(scheme) or proxies.get("all")
    return parse_proxy(given) if given else None


def parse_proxy(given: str) -> Proxy:
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
    except ValueError as error:  # the message does not repeat the address, which may hold a password
        raise UnreachableError("the address of the environment's proxy cannot be read", "proxy") from error
    if scheme not in _PORTS:
        known = ", ".join(f"{name}://" for name in _PORTS)
        raise UnreachableError(f"the environment's proxy is {scheme}://: known are {known}", "proxy")
    user = None if parts.username is None else unquote(parts.username)
    return Proxy(scheme, host, port or _PORTS[scheme], user, unquote(parts.password or ""))
