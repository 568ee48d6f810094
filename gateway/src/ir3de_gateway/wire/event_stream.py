"""The reader of server-sent events. Relay, usage, translation, hooks and telemetry read streams with it alone.

Bytes may be cut anywhere. Lines end with CR, LF or CRLF; data may have several lines; the last event may lack its blank
line. A byte order mark is ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

MAX_EVENT_BYTES = 16 << 20  # of an event that must be whole; a larger one is an error
MAX_RELAYED_BYTES = 1 << 20  # of an event that is relayed; a larger one is forwarded in parts

BLANK_LINES = (b"\n\n", b"\n\r\n", b"\r\r")  # the end of an event
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_data_line = re.compile(rb"(?:\xef\xbb\xbf)?data: ?").match


class EventTooLargeError(ValueError):
    """An event of more than `MAX_EVENT_BYTES`."""


class Event(NamedTuple):
    """One event: its bytes, its name, and its data. Comments and blank lines have no data."""

    raw: bytes
    name: str
    data: bytes | None

    def parse(self) -> dict[str, Any] | None:
        """The data as a JSON object; None if they are anything else."""
        try:
            found = json.loads(self.data or b"")
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def replace_data(self, data: bytes) -> bytes:
        """The bytes of the event with other data. Its other lines stay as they are."""
        lines, is_written = list[bytes](), False
        for line in self.raw.splitlines(keepends=True):
            if (field := _data_line(line)) is None:
                lines.append(line)
            elif not is_written:
                end = line[len(line.rstrip(b"\r\n")) :]
                lines.append((end or b"\n").join(field.group() + part for part in data.split(b"\n")) + end)
                is_written = True
        return b"".join(lines)


class EventReader:
    """Takes a stream piece by piece, and returns its events as soon as they are whole.

    >>> reader = EventReader()
    >>> reader.read(b'event: ping\\r\\ndata: {"ty'), reader.read(b'pe": "ping"}\\r\\n\\r\\n')[0].data
    ([], b'{"type": "ping"}')
    """

    def __init__(self, *, max_bytes: int = MAX_EVENT_BYTES, forwards_parts: bool = False) -> None:
        self._max_bytes, self._forwards_parts = max_bytes, forwards_parts
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._end = b""  # the last two bytes of what is held

    def feed(self, piece: bytes) -> bytes:
        """The bytes of all events that are whole now; of a large event, if parts are forwarded, what has arrived."""
        if not self._held and piece.endswith(b"\n\n"):  # most pieces
            return piece
        window = self._end + piece
        end = max([place + len(blank) for blank in BLANK_LINES if (place := window.rfind(blank)) >= 0], default=0)
        self._held.append(piece)
        self._held_bytes += len(piece)
        if end:
            return self._take(self._held_bytes - len(window) + end)
        if self._held_bytes < self._max_bytes:
            self._end = window[-2:]
            return b""
        if not self._forwards_parts:
            raise EventTooLargeError(f"an event of more than {self._max_bytes >> 20} MB")
        return self._take(self._held_bytes)

    def flush(self) -> bytes:
        """The rest, at the end of the stream."""
        return self._take(self._held_bytes)

    def read(self, piece: bytes) -> list[Event]:
        """The events that are whole now."""
        return list(read_events(self.feed(piece)))

    def _take(self, size: int) -> bytes:
        content = b"".join(self._held)
        rest = content[size:]
        self._held, self._held_bytes, self._end = [rest] if rest else [], len(rest), rest[-2:]
        return content[:size]


def read_events(content: bytes) -> Iterator[Event]:
    """The events of a part of a stream that ends with an event, or of its end.

    >>> [event.data for event in read_events(b": a comment\\n\\ndata: 1\\ndata: 2\\n\\ndata: [DONE]")]
    [None, b'1\\n2', b'[DONE]']
    """
    begin = end = 0
    name, data = "", list[bytes]()
    for line in content.splitlines(keepends=True):
        end += len(line)
        if text := line.rstrip(b"\r\n"):
            field, _, value = text.partition(b":")
            if field.startswith(_BYTE_ORDER_MARK):
                field = field[len(_BYTE_ORDER_MARK) :]
            if field == b"data":
                data.append(value.removeprefix(b" "))
            elif field == b"event":
                name = value.removeprefix(b" ").decode(errors="replace")
            elif field == b"error":  # llama.cpp
                name, data = "error", [value.removeprefix(b" ")]
        else:
            yield Event(content[begin:end], name, b"\n".join(data) if data else None)
            begin, name, data = end, "", []
    if begin < end:
        yield Event(content[begin:], name, b"\n".join(data) if data else None)
