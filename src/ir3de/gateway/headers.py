"""Which headers of a request are forwarded to an expert, and which of its answer are returned to the client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

HeaderList = list[tuple[bytes, bytes]]

_KEPT_BACK = frozenset(  # of a request: about the connection or the page, or secrets of the gateway
    b"host connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade "
    b"content-length authorization x-api-key api-key cookie accept-encoding expect origin referer content-type "
    b"x-request-id".split()
)
_NOT_PASSED_ON = frozenset(  # of an answer
    b"connection keep-alive proxy-authenticate te trailer transfer-encoding upgrade content-length "
    b"date server set-cookie alt-svc x-request-id".split()
)
_OURS = (b"x-ir3de-", b"access-control-")  # the gateway sets these itself
_BREAKS = str.maketrans("", "", "\r\n\0")


def build_upstream_head(received: Iterable[tuple[bytes, bytes]], request_id: str, more: Mapping[str, str]) -> bytes:
    """The head of an upstream request: `more` first, then the client's headers that may be forwarded."""
    lines = [  # the body was read as JSON; the answer must not be compressed, because a field is added to it
        f"content-type: application/json\r\naccept-encoding: identity\r\nx-request-id: {request_id}\r\n".encode()
    ]
    lines += [f"{name}: {value.translate(_BREAKS)}\r\n".encode() for name, value in more.items()]
    ours = {name.encode() for name in more}
    for name, value in received:
        if name not in _KEPT_BACK and name not in ours and not name.startswith(_OURS):
            lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)


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
