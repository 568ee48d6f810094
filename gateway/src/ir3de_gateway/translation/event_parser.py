"""Reads server-sent events from pieces of any size, whatever their line ends are."""

from __future__ import annotations

from typing import NamedTuple

from ir3de_gateway.translation.faults import UnreadableAnswer

MAX_EVENT_BYTES = 16 << 20  # of one event, which is held until it is whole


class Event(NamedTuple):
    """One event: its name, which may be empty, and its data; or a comment, which keeps a connection alive."""

    name: str
    data: bytes
    is_comment: bool = False


class EventParser:
    """Takes pieces of a stream, and returns the events that are whole.

    >>> parser = EventParser()
    >>> parser.feed(b'event: ping\\r\\ndata: {"ty'), parser.feed(b'pe": "ping"}\\r\\n\\r')
    ([], [Event(name='ping', data=b'{"type": "ping"}', is_comment=False)])
    """

    def __init__(self) -> None:
        self._held = b""  # a line that has not ended
        self._after_return = False  # a line feed that comes now belongs to the line end before
        self._name, self._data, self._size = "", list[bytes](), 0

    def feed(self, piece: bytes) -> list[Event]:
        """The events that end in this piece."""
        if self._after_return and piece[:1] == b"\n":
            piece, self._after_return = piece[1:], False
        if not piece:
            return []
        self._after_return = piece.endswith(b"\r")
        lines = (self._held + piece).splitlines(keepends=True)
        self._held = b"" if lines[-1].endswith((b"\n", b"\r")) else lines.pop()
        if len(self._held) + self._size > MAX_EVENT_BYTES:
            raise UnreadableAnswer(f"an event of more than {MAX_EVENT_BYTES >> 20} MB")
        return [event for line in lines if (event := self._read_line(line.rstrip(b"\r\n"))) is not None]

    def flush(self) -> list[Event]:
        """The last event, at the end of a stream that lacks the empty line after it."""
        lines, self._held = [self._held, b""], b""
        return [event for line in lines if (event := self._read_line(line)) is not None]

    def _read_line(self, line: bytes) -> Event | None:
        if not line:
            return self._finish_event()
        name, _, value = line.partition(b":")
        if not name:
            return Event("", value, is_comment=True)
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value)
        elif name == b"event":
            self._name = value.decode(errors="replace")
        return None

    def _finish_event(self) -> Event | None:
        event = Event(self._name, b"\n".join(self._data)) if self._data else None
        self._name, self._data, self._size = "", [], 0
        return event
