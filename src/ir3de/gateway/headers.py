"""Which headers of a request go on to an expert, and which of its answer to the client."""

from __future__ import annotations

from collections.abc import Iterable

from multidict import CIMultiDict

HeaderList = list[tuple[bytes, bytes]]

_KEPT_BACK = frozenset(  # of a request: about this connection or this page, or secrets between client and gateway
    b"host connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade "
    b"content-length authorization x-api-key api-key cookie accept-encoding expect origin referer content-type".split()
)
_NOT_PASSED_ON = frozenset(  # of an answer
    b"connection keep-alive proxy-authenticate te trailer transfer-encoding upgrade content-length "
    b"date server set-cookie alt-svc x-request-id".split()
)
_OURS = (b"x-ir3de-", b"access-control-")  # whatever an expert says of these, the gateway speaks for itself


def for_expert(received: Iterable[tuple[bytes, bytes]], request_id: str) -> CIMultiDict[str]:
    """The client's headers, as far as they concern an expert."""
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in received:
        if name not in _KEPT_BACK and not name.startswith(_OURS):
            headers.add(name.decode("latin-1"), text(value))
    headers["content-type"] = "application/json"  # it was read as that, whatever it was called
    headers["accept-encoding"] = "identity"  # the answer is read on its way, and gets one more field
    headers["x-request-id"] = request_id
    return headers


def for_client(answered: Iterable[tuple[bytes, bytes]], *, unpacked: bool) -> HeaderList:
    """An expert's headers, as far as they concern the client; `unpacked` where its body is not compressed any more."""
    lower = ((name.lower(), value) for name, value in answered)
    kept = [pair for pair in lower if pair[0] not in _NOT_PASSED_ON and not pair[0].startswith(_OURS)]
    return [pair for pair in kept if pair[0] != b"content-encoding"] if unpacked else kept


def text(value: bytes) -> str:
    """What a header says: UTF-8 where it is that, so that writing it again gives the same bytes."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
