"""Requests as bytes, for tests of what reads them."""

import json

from raw_sockets import chat

CHAT = json.dumps(chat("?", "law")).encode()
LIVEZ = b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n"
JDK = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"


def head(*lines: bytes, path: bytes = b"/v1/chat/completions", host: bytes = b"host: 127.0.0.1") -> bytes:
    return (
        b"".join(line + b"\r\n" for line in (b"POST %b HTTP/1.1" % path, *([host] if host else ()), *lines)) + b"\r\n"
    )


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)
