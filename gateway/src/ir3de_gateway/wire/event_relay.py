"""Relays server-sent events: whole events only, provenance in the first, the end and the usage read from the last."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ir3de_gateway.wire.event_stream import BLANK_LINES, MAX_RELAYED_BYTES, Event, EventReader, read_events
from ir3de_gateway.wire.formats import WireFormat

_TAIL_BYTES = 1 << 13  # kept of the beginning and of the end of a stream, to find the usage
_usage = re.compile(rb'"usage": ?\{')


class EventRelay:
    """Forwards whole events only, so that a broken stream does not end within one.

    >>> from ir3de_gateway.wire import FORMATS
    >>> relay = EventRelay(FORMATS["chat/completions"], b'"ir3de":{"expert":"law"}')
    >>> relay.feed(b'data: {"id":1}\\n'), relay.feed(b'\\ndata: {"id":2}')
    (b'', b'data: {"id":1,"ir3de":{"expert":"law"}}\\n\\n')
    >>> relay.flush()
    b'data: {"id":2}'
    """

    def __init__(self, wire: WireFormat, provenance: bytes = b"") -> None:
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
    """Relays events, counts them, and calls `on_end` before the final event is forwarded.

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
        wire: WireFormat,
        provenance: bytes = b"",
        *,
        drops_usage: bool = False,
        on_end: Callable[[AccountingRelay], None] = lambda relay: None,
    ) -> None:
        super().__init__(wire, provenance)
        self.events = 0
        self._drops_usage, self._on_end, self._has_ended = drops_usage, on_end, False
        self._usage: Mapping[str, Any] | None = None

    def _forward(self, ready: bytes) -> bytes:
        events = list(read_events(ready))
        if self._drops_usage and b'"usage"' in ready:
            events = [event for event in events if not self._take_usage(event)]
            ready = b"".join(event.raw for event in events)
        self.events += sum(event.data is not None for event in events)
        ready = super()._forward(ready)
        if not self._has_ended and any(map(self._wire.is_final, events)):
            self._has_ended = True
            self._on_end(self)
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
