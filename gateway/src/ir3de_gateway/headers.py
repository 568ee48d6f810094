"""Which headers of a request are forwarded to an expert, and which of its answer are returned to the client."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
_NOT_PASSED_ON = frozenset(  # of an answer
    b"connection keep-alive proxy-authenticate proxy-connection te trailer transfer-encoding upgrade content-length "
    b"date server set-cookie alt-svc x-request-id".split()
)
_OURS = (b"x-ir3de-", b"access-control-")  # the gateway sets these itself
JSON_KINDS = b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
_BREAKS = str.maketrans("", "", "\r\n\0")
MAX_KNOWN_NAMES = 1_000  # clients choose the names: no more are remembered


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
        self._known: dict[bytes, bool] = {}

    def keeps(self, name: bytes) -> bool:
        found = self._known.get(name)
        if found is None:
            found = name in self._names or (
                name.startswith(self._beginnings)
                and name not in _NEVER_FORWARDED
                and not name.startswith(_OURS)
                and _is_private(name) is None
            )
            if len(self._known) < MAX_KNOWN_NAMES:
                self._known[name] = found
        return found


@lru_cache(maxsize=64)
def compile_header_filter(names: tuple[str, ...]) -> HeaderFilter:
    return HeaderFilter(names)


def build_upstream_head(
    received: Iterable[tuple[bytes, bytes]],
    request_id: str,
    more: Mapping[str, str],
    forwarded: HeaderFilter,
    kinds: bytes = JSON_KINDS,
) -> bytes:
    """The head of an upstream request: `more` first, then the client's headers that may be forwarded."""
    lines = [  # the answer must not be compressed, because a field is added to it
        kinds,
        f"accept-encoding: identity\r\nx-request-id: {request_id}\r\n".encode(),
    ]
    lines += [f"{name}: {value.translate(_BREAKS)}\r\n".encode() for name, value in more.items()]
    ours = {name.encode() for name in more}
    keeps = forwarded.keeps
    kept = [(name, value) for name, value in received if keeps(name) and name not in ours]
    hop_by_hop = _read_connection_options(received)
    lines += [b"%b: %b\r\n" % pair for pair in kept if pair[0] not in hop_by_hop]
    return b"".join(lines)


def _read_connection_options(received: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """The names of headers that are meant for the gateway alone, as the header `connection` lists them."""
    options = [value.lower() for name, value in received if name == b"connection"]
    if not options or options == [b"keep-alive"]:
        return frozenset()
    return frozenset(option.strip() for value in options for option in value.split(b","))


def filter_response_headers(answered: Iterable[tuple[bytes, bytes]], *, is_decompressed: bool) -> HeaderList:
    """The headers of an expert's answer that the client gets; `is_decompressed`: the body was decompressed here."""
    kept = [pair for pair in answered if pair[0] not in _NOT_PASSED_ON and not pair[0].startswith(_OURS)]
    return [pair for pair in kept if pair[0] != b"content-encoding"] if is_decompressed else kept


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
