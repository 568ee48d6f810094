"""Server-sent events: the one reader of streams, and the relay that forwards them.

Bytes may be cut anywhere. Lines end with CR, LF or CRLF; data may have several lines; the last event may lack its blank
line. A byte order mark is ignored. The relay forwards whole events only, adds provenance to the first, and reads the
end and the usage from the last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

MAX_EVENT_BYTES = 16 << 20  # of an event that must be whole; a larger one is an error
MAX_RELAYED_BYTES = 1 << 20  # of an event that is relayed; a larger one is forwarded in parts

BLANK_LINES = (b"\n\n", b"\n\r\n", b"\r\r")  # the end of an event
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_data_line = re.compile(rb"(?:\xef\xbb\xbf)?data: ?").match
_TAIL_BYTES = 1 << 13  # kept of the beginning and of the end of a stream, to find the usage
_usage = re.compile(rb'"usage": ?\{')


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


class StreamFormat(Protocol):
    """What the relay needs of a `WireFormat`, which explains it."""

    needs_head: bool

    def is_final(self, event: Event) -> bool: ...
    def is_complete(self, events: bytes) -> bool: ...
    def is_complete_at_end(self, events: bytes) -> bool: ...
    def has_error(self, events: bytes) -> bool: ...
    def read_usage(
        self, head: Mapping[str, Any] | None, tail: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None: ...
    def find_response_id(self, head: bytes) -> str: ...


class EventRelay:
    """Forwards whole events only, so that a broken stream does not end within one.

    >>> from ir3de_gateway.wire import FORMATS
    >>> relay = EventRelay(FORMATS["chat/completions"], b'"ir3de":{"expert":"law"}')
    >>> relay.feed(b'data: {"id":1}\\n'), relay.feed(b'\\ndata: {"id":2}')
    (b'', b'data: {"id":1,"ir3de":{"expert":"law"}}\\n\\n')
    >>> relay.flush()
    b'data: {"id":2}'
    """

    has_ended = False  # whether the final event has come, where events are counted

    def __init__(self, wire: StreamFormat, provenance: bytes = b"") -> None:
        self._wire = wire
        self._reader = EventReader(max_bytes=MAX_RELAYED_BYTES, forwards_parts=True)
        self._provenance = provenance  # a member to add to the first event's object
        self._name = provenance.partition(b":")[0]  # of that member; experts may not send their own
        self._has_final_event = False
        self._is_inside_event = False  # a part of a large event was forwarded
        self.head = b""
        self._tail = bytearray()  # up to a quarter more than is needed, so that few pieces are copied

    def feed(self, piece: bytes) -> bytes:
        """Read a piece of the stream, and return the whole events that can be forwarded."""
        if not (ready := self._reader.feed(piece)):
            return b""
        self._is_inside_event = not ready.endswith(BLANK_LINES)
        return self._forward(ready)

    def flush(self) -> bytes:
        """What was held back, at the end of a complete stream."""
        return self._forward(self._reader.flush())

    def _forward(self, ready: bytes) -> bytes:
        if self._provenance or (self._name and self._name in ready):
            ready = b"".join(map(self._sign, read_events(ready)))
        if len(ready) > _TAIL_BYTES and self._wire.is_complete(ready):  # a final event that is longer than the tail
            self._has_final_event = True
        if self._wire.needs_head and len(self.head) < _TAIL_BYTES:  # comments may come first
            self.head = (self.head + ready)[:_TAIL_BYTES]
        self._tail += ready
        if len(self._tail) > _TAIL_BYTES + (_TAIL_BYTES >> 2):
            del self._tail[:-_TAIL_BYTES]
        return ready

    @property
    def tail(self) -> bytes:
        """The end of the stream so far."""
        return bytes(self._tail[-_TAIL_BYTES:])

    def _sign(self, event: Event) -> bytes:
        """The event without a provenance of the expert's own, and with ours if it is the first object."""
        data = event.data or b""
        if not data.startswith(b"{"):
            return event.raw
        if self._name in data:
            data = remove_member(data, self._name.strip(b'"').decode())
        is_whole = event.raw.endswith((b"\n", b"\r"))
        if self._provenance and is_whole and (signed := add_member(data, self._provenance)) is not data:
            data, self._provenance = signed, b""
        return event.raw if data is event.data else event.replace_data(data)

    @property
    def is_ending(self) -> bool:
        """Whether the stream ended with [DONE]. `is_done` is slower and knows all final events."""
        return self._tail.endswith((b"[DONE]\n\n", b"[DONE]\r\n\r\n"))

    @property
    def is_done(self) -> bool:
        """Whether the final event of the stream has come."""
        return self._has_final_event or self._wire.is_complete(self.tail)

    @property
    def is_done_at_end(self) -> bool:
        """Whether the stream is complete, given that its connection ended well."""
        return self._has_final_event or self._wire.is_complete_at_end(self.tail)

    @property
    def has_error(self) -> bool:
        """Whether the expert has reported an error itself."""
        return self._wire.has_error(self.tail)

    def build_closing(self, event: bytes) -> bytes:
        """An error event to end a broken stream with."""
        return b"\n\n" + event if self._is_inside_event else event

    def find_usage(self) -> Mapping[str, Any]:
        """The token usage that the stream reports; empty if it does not."""
        return self._wire.read_usage(find_usage(self.head, is_first=True), find_usage(self.tail)) or {}

    def find_response_id(self) -> str:
        """The id by which a later request may refer to this answer."""
        return self._wire.find_response_id(self.head)


class AccountingRelay(EventRelay):
    """Relays events, counts them, and knows when the final one has come (`has_ended`).

    With `drops_usage`, the event with the usage, which only the gateway requested, is taken out.

    >>> from ir3de_gateway.wire import FORMATS
    >>> relay = AccountingRelay(FORMATS["chat/completions"], drops_usage=True)
    >>> relay.feed(b'data: {"choices":[{}]}\\n\\ndata: {"choices":[],"usage":{"prompt_tokens":7}}\\n\\n')
    b'data: {"choices":[{}]}\\n\\n'
    >>> relay.find_usage(), relay.events
    ({'prompt_tokens': 7}, 1)
    """

    def __init__(
        self,
        wire: StreamFormat,
        provenance: bytes = b"",
        *,
        drops_usage: bool = False,
    ) -> None:
        super().__init__(wire, provenance)
        self.events = 0
        self._drops_usage = drops_usage
        self._usage: Mapping[str, Any] | None = None

    def _forward(self, ready: bytes) -> bytes:
        events = list(read_events(ready))
        if self._drops_usage and b'"usage"' in ready:
            events = [event for event in events if not self._take_usage(event)]
            ready = b"".join(event.raw for event in events)
        self.events += sum(event.data is not None for event in events)
        ready = super()._forward(ready)
        if not self.has_ended and any(map(self._wire.is_final, events)):
            self.has_ended = True
        return ready

    def find_usage(self) -> Mapping[str, Any]:
        return super().find_usage() if self._usage is None else self._usage

    def _take_usage(self, event: Event) -> bool:
        """Keep the usage of an event that has nothing else: OpenAI's API sends it with an empty list of choices."""
        content = event.parse() if event.data and b'"usage"' in event.data else None
        if content is None or content.get("choices") != [] or not isinstance(usage := content.get("usage"), dict):
            return False
        self._usage = usage
        return True


def find_usage(events: bytes, *, is_first: bool = False) -> dict[str, Any] | None:
    """The last usage among these events, or the first. The events may be cut off: a large one repeats the answer."""
    places = [match.start() for match in _usage.finditer(events)]
    if not places:
        return None
    place = places[0] if is_first else places[-1]
    try:
        text = events[place:].decode(errors="replace")
        found, _ = json.JSONDecoder().raw_decode(text, text.index("{"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def add_member(content: bytes, member: bytes) -> bytes:
    """Append a member to a JSON object without changing other bytes."""
    end = len(content.rstrip()) - 1
    if end < 1 or content[end : end + 1] != b"}":
        return content
    comma = b"" if content[:end].rstrip().endswith(b"{") else b","
    return content[:end] + comma + member + content[end:]


def remove_member(content: bytes, name: str) -> bytes:
    """A JSON object without the member of that name at its top level; without such a member, the same bytes."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):  # clients cannot read it either
        return content
    if not isinstance(found, dict) or name not in found:
        return content
    kept = {key: value for key, value in found.items() if key != name}
    return json.dumps(kept, ensure_ascii=False).encode(errors="surrogatepass")
