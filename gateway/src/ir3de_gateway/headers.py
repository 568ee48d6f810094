"""Which headers of a request are forwarded to an expert; header values as text and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import quote

HeaderList = list[tuple[bytes, bytes]]

_NEVER_FORWARDED = frozenset(  # about the connection, or written anew for the expert
    b"host connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding "
    b"upgrade content-length content-type accept accept-encoding expect x-request-id".split()
)
# `*` never covers these: secrets of the gateway's clients, who and where the clients are, whose account pays, and what
# servers take for another path or method. Only a full name does.
_is_private = re.compile(
    rb"auth|key|token|secret|passw|cookie|credential|signature|forward|real-ip|client-ip|client-cert|remote-|original-"
    rb"|rewrite-|method|^openai-(?:organization|project)$"
).search
OWN_HEADERS = (b"x-ir3de-", b"access-control-")  # the gateway sets these itself
MAX_KNOWN_NAMES = 1_000  # clients choose the names, so the cache is bounded


class HeaderFilter:
    """Which headers of clients reach experts: those of some names; a name that ends with * stands for all it begins.

    >>> keeps = HeaderFilter(["user-agent", "x-*"]).keeps
    >>> keeps(b"user-agent"), keeps(b"x-team"), keeps(b"x-goog-api-key"), keeps(b"x-remote-user"), keeps(b"referer")
    (True, True, False, False, False)
    """

    def __init__(self, names: Sequence[str]) -> None:
        given = [name.lower().encode("latin-1", "replace") for name in names]
        self._names = frozenset(name for name in given if not name.endswith(b"*")) - _NEVER_FORWARDED
        self._beginnings = tuple(name[:-1] for name in given if name.endswith(b"*"))
        self.known: dict[bytes, bool] = {}  # the answers of `keeps` so far

    def keeps(self, name: bytes) -> bool:
        found = self.known.get(name)
        if found is None:
            found = name in self._names or (
                name.startswith(self._beginnings)
                and name not in _NEVER_FORWARDED
                and not name.startswith(OWN_HEADERS)
                and _is_private(name) is None
            )
            if len(self.known) < MAX_KNOWN_NAMES:
                self.known[name] = found
        return found


@lru_cache(maxsize=64)
def compile_header_filter(names: tuple[str, ...]) -> HeaderFilter:
    return HeaderFilter(names)


def text(value: bytes) -> str:
    """Decode a header value: UTF-8 if possible, otherwise Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


@lru_cache(maxsize=4096)
def encode_name(value: str) -> bytes:
    """A name as a header value: characters beyond ASCII are percent-encoded."""
    return quote(value, safe=" !#$&'()*+,/:;=?@[]~").encode()
