"""Relays server-sent events: whole events only, provenance in the first, the end and the usage read from the last."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ir3de_gateway.wire.format import WireFormat

MAX_EVENT_BYTES = 1 << 20  # larger events are sent on in parts
_TAIL_BYTES = 1 << 13  # kept of the beginning and of the end of a stream, to find the usage

_GAPS = (b"\n\n", b"\n\r\n", b"\r\r")  # between events
_data = re.compile(rb"(?:^|(?<=[\r\n]))data: ?(?=\{)")
_data_lines = re.compile(rb"(?:^|(?<=[\r\n]))(data: ?)(\{[^\r\n]*)")
_usage = re.compile(rb'"usage": ?\{')
_line_end = re.compile(rb"[\r\n]")


class EventRelay:
    """Sends on whole events only, so that a broken stream does not end within one.

    >>> from ir3de_gateway.wire import FORMATS
    >>> relay = EventRelay(FORMATS["chat/completions"], b'"ir3de":{"expert":"law"}')
    >>> relay.feed(b'data: {"id":1}\\n'), relay.feed(b'\\ndata: {"id":2}')
    (b'', b'data: {"id":1,"ir3de":{"expert":"law"}}\\n\\n')
    >>> relay.flush()
    b'data: {"id":2}'
    """

    def __init__(self, wire: WireFormat, provenance: bytes = b"") -> None:
        self._wire = wire
        self._provenance = provenance  # a member to add to the first event's object
        self._name = provenance.partition(b":")[0]  # of that member; experts may not send their own
        self._has_final_event = False
        self._held = b""
        self._inside = False  # a part of an event was sent, because it was too large to hold
        self.head = b""
        self.tail = b""

    def feed(self, piece: bytes) -> bytes:
        """Take a piece of the stream, and return the whole events that can be sent on."""
        held = self._held + piece if self._held else piece
        if held.endswith(b"\n\n"):
            ready, self._held = held, b""
        else:
            ends = [place + len(gap) for gap in _GAPS if (place := held.rfind(gap)) >= 0]
            if not ends and len(held) < MAX_EVENT_BYTES:
                self._held = held
                return b""
            end = max(ends, default=len(held))
            ready, self._held = held[:end], held[end:]
        self._inside = not ready.endswith(_GAPS)
        return self._pass(ready)

    def flush(self) -> bytes:
        """What was held back, at the end of a complete stream."""
        rest, self._held = self._held, b""
        return self._pass(rest)

    def _pass(self, ready: bytes) -> bytes:
        if self._name and self._name in ready:
            ready = _data_lines.sub(self._remove_foreign_member, ready)
        if self._provenance:
            ready = self._add_provenance(ready)
        if len(ready) > _TAIL_BYTES and self._wire.is_complete(ready):  # a final event that is longer than the tail
            self._has_final_event = True
        if not self.head and self._wire.needs_head:
            self.head = ready[:_TAIL_BYTES]
        self.tail = (self.tail + ready)[-_TAIL_BYTES:]
        return ready

    @property
    def is_ending(self) -> bool:
        """Whether the stream ended with [DONE]. `is_done` is slower and knows all final events."""
        return self.tail.endswith((b"[DONE]\n\n", b"[DONE]\r\n\r\n"))

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
        return b"\n\n" + event if self._inside else event

    def find_usage(self) -> Mapping[str, Any]:
        """The token usage that the stream tells; empty if it does not."""
        return self._wire.read_usage(find_usage(self.head, is_first=True), find_usage(self.tail)) or {}

    def find_response_id(self) -> str:
        """The id by which a later request may refer to this answer."""
        return self._wire.find_response_id(self.head)

    def _add_provenance(self, ready: bytes) -> bytes:
        found = _data.search(ready)
        if found is None or (line_end := _line_end.search(ready, found.end())) is None:
            return ready
        signed = add_member(ready[found.end() : line_end.start()], self._provenance)
        self._provenance = b""
        return ready[: found.end()] + signed + ready[line_end.start() :]

    def _remove_foreign_member(self, line: re.Match[bytes]) -> bytes:
        return line.group(1) + remove_member(line.group(2), self._name.strip(b'"').decode())


def find_usage(events: bytes, *, is_first: bool = False) -> dict[str, Any] | None:
    """The last usage among these events, or the first: a short stream has both in one piece."""
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
    return json.dumps({key: value for key, value in found.items() if key != name}, ensure_ascii=False).encode(
        errors="surrogatepass"
    )
