"""Recognises requests that uvicorn may see as they came, without parsing them twice."""

from __future__ import annotations

import re

MAX_HEAD_BYTES = 65_536  # of request line and headers; nginx and others stop at 32 kB
MAX_HEADERS = 256

# headers that only say how this connection is used, except `connection` itself: see the module `headers`
CONNECTION_HEADERS = frozenset((b"upgrade", b"http2-settings", b"keep-alive", b"proxy-connection", b"te", b"trailer"))

_match_request_line = re.compile(rb"(?!CONNECT )[A-Z]+ /[!-~]* HTTP/1\.1\r\n").match
# the host, a length, and the beginning of all that is unusual
_find_notable = re.compile(
    rb"\n(host:|content-length:[ \t]*[0-9]{1,18}[ \t]*\r|content-length|transfer-encoding|[ \t]|%b)"
    % b"|".join(sorted(CONNECTION_HEADERS))
).findall


def is_plain_request(data: bytes) -> bool:
    """Whether the data is one whole HTTP/1.1 request with one host, of usual size, without headers of the connection.

    >>> is_plain_request(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
    True
    >>> is_plain_request(b"GET / HTTP/1.1\\r\\nHost: a\\r\\nUpgrade: h2c\\r\\n\\r\\n")
    False
    """
    end = data.find(b"\r\n\r\n")
    if not 0 < end < MAX_HEAD_BYTES or _match_request_line(data) is None:
        return False
    head = data[: end + 2].lower()
    notable = _find_notable(head)
    if head.count(b"\n") > MAX_HEADERS:
        return False
    if notable == [b"host:"]:
        return len(data) == end + 4
    if len(notable) != 2 or b"host:" not in notable:
        return False
    length = notable[1] if notable[0] == b"host:" else notable[0]
    return length.endswith(b"\r") and len(data) == end + 4 + int(length[15:])
