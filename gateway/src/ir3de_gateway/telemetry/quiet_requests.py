"""Requests that asked no expert: which of them are not worth a line in the log, and what metrics call them."""

from __future__ import annotations

from collections.abc import Mapping

from ir3de_gateway.wire import FORMATS

_PROBES = frozenset(("/livez", "/readyz", "/health"))
_PREFIXES = (  # of a path, and the name of what lies there
    ("/v1/route", "route"),
    ("/v1/models", "models"),
    ("/v1/", "other"),
    ("/admin", "admin"),
    ("/page/", "page"),
)
_ENDPOINTS: dict[str, str] = {
    "/": "page",
    "/metrics": "metrics",
    "/version": "info",
    "/openapi.json": "info",
    **{f"/v1/{path}": wire.capability for path, wire in FORMATS.items()},  # refused before an expert was asked
}


def name_endpoint(path: str) -> str:
    """One of a few names for any path, because clients choose paths.

    >>> name_endpoint("/livez"), name_endpoint("/page/app.js"), name_endpoint("/v1/messages"), name_endpoint("/x")
    ('probe', 'page', 'messages', 'other')
    """
    if path in _PROBES:
        return "probe"
    if (known := _ENDPOINTS.get(path)) is not None:
        return known
    return next((name for prefix, name in _PREFIXES if path.startswith(prefix)), "other")


def is_quiet(method: str, path: str, status: int, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request needs no line: probes, files, and what our own page asks for again and again, if it succeeds.

    >>> is_quiet("GET", "/metrics", 200, {}), is_quiet("GET", "/metrics", 500, {}), is_quiet("PUT", "/admin", 200, {})
    (True, False, False)
    """
    if status >= 400:
        return False
    if method in ("GET", "HEAD") and not path.startswith("/v1/"):
        return True
    from_page = headers.get(b"sec-fetch-site") == b"same-origin"  # browsers set it, and no script can
    return from_page and (path == "/v1/route" or method == "GET")
