"""The frames of HTTP/2 (RFC 9113): their kinds, flags and errors, and how their parts are read."""

from __future__ import annotations

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
MAX_STREAMS_SETTING, WINDOW_SETTING, FRAME_SETTING, LIST_SETTING = 3, 4, 5, 6  # numbers of settings
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_ERROR = 0, 1, 2, 3
FRAME_SIZE_ERROR, REFUSED_STREAM, COMPRESSION_ERROR, CALM = 6, 7, 9, 11

FRAME_BYTES = 16_384  # the longest frame that every peer takes, and that we take
LARGEST_WINDOW_BYTES = 2**31 - 1
FIRST_WINDOW_BYTES = 65_535  # before any setting

FRAME = struct.Struct(">HBBBI")  # the length in two parts, the kind, the flags, the stream


class PeerError(Exception):
    """The peer did what HTTP/2 forbids, and the connection ends."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def unpad(flags: int, content: bytes) -> bytes:
    if not flags & PADDED:
        return content
    if not content or content[0] >= len(content):
        raise PeerError(PROTOCOL_ERROR, "a frame is all padding")
    return content[1 : len(content) - content[0]]


def read_window(content: bytes) -> int:
    if len(content) != 4:
        raise PeerError(FRAME_SIZE_ERROR, "a window has not four bytes")
    return int.from_bytes(content, "big") & LARGEST_WINDOW_BYTES
