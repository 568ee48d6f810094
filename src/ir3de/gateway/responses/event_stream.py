"""Relays server-sent events: whole events only, provenance added to the first, token usage read from the last."""

from __future__ import annotations

import json
import re
from typing import Any

_ENDS = {  # the final event of a stream, which may be an error
    "": re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]"),  # only at the beginning of a line: an answer may quote it
    "responses": re.compile(
        rb"(?m)^data: ?\[DONE\]|^event: ?(?:response\.(?:completed|incomplete|failed)|error)\s"
        rb'|"type": ?"response\.(?:completed|incomplete|failed)"'
    ),
    "messages": re.compile(rb'(?m)^event: ?(?:message_stop|error)\s|^data: ?\{"type": ?"(?:message_stop|error)"'),
}
MAX_EVENT_BYTES = 1 << 20  # larger events are sent on in parts
_TAIL_BYTES = 1 << 13  # kept of the beginning and of the end of a stream, to find the usage

_GAPS = (b"\n\n", b"\n\r\n", b"\r\r")  # between events
_data = re.compile(rb"(?:^|(?<=[\r\n]))data: ?(?=\{)")
_line_end = re.compile(rb"[\r\n]")
_response = re.compile(rb'"response": ?\{[^{}]*?"id": ?"([!-~]{1,256}?)"')


class EventRelay:
    """Sends on whole events only, so that a broken stream does not end within one.

    >>> relay = EventRelay(b'"ir3de":{"expert":"law"}')
    >>> relay.feed(b'data: {"id":1}\\n'), relay.feed(b'\\ndata: {"id":2}')
    (b'', b'data: {"id":1,"ir3de":{"expert":"law"}}\\n\\n')
    >>> relay.flush()
    b'data: {"id":2}'
    """

    def __init__(self, signature: bytes = b"", endpoint: str = "") -> None:
        self._signature = signature  # a member to add to the first event's object
        self._ends = _ENDS.get(endpoint, _ENDS[""])
        self._ended = False
        self._held = b""
        self._inside = False  # a part of an event was sent, because it was too large to hold
        self._endpoint = endpoint
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
        if self._signature:
            ready = self._add_provenance(ready)
        self._remember(ready)
        return ready

    def flush(self) -> bytes:
        """What was held back, at the end of a complete stream."""
        rest, self._held = self._held, b""
        self._remember(rest)
        return rest

    def _remember(self, passed: bytes) -> None:
        if len(passed) > _TAIL_BYTES and self._ends.search(passed):  # a final event that is longer than the tail
            self._ended = True
        if not self.head:
            self.head = passed[:_TAIL_BYTES]
        self.tail = (self.tail + passed)[-_TAIL_BYTES:]

    @property
    def is_ending(self) -> bool:
        """Whether the stream ended with [DONE]. `is_done` is slower and knows all final events."""
        return self.tail.endswith((b"[DONE]\n\n", b"[DONE]\r\n\r\n"))

    @property
    def is_done(self) -> bool:
        """Whether the final event of the stream has come."""
        return self._ended or self._ends.search(self.tail) is not None

    def build_closing(self, event: bytes) -> bytes:
        """An error event to end a broken stream with."""
        return b"\n\n" + event if self._inside else event

    def find_usage(self) -> dict[str, Any] | None:
        """The token usage near the end of the stream; Anthropic's messages give the prompt's at the beginning."""
        found = _find_usage(self.tail)
        if self._endpoint == "messages" and (before := _find_usage(self.head)) is not None:
            return {**before, **(found or {})}
        return found

    def find_response_id(self) -> str:
        """The id by which a later request may refer to this answer; only OpenAI's responses have one."""
        found = _response.search(self.head) if self._endpoint == "responses" else None
        return found.group(1).decode() if found is not None else ""

    def _add_provenance(self, ready: bytes) -> bytes:
        found = _data.search(ready)
        if found is None or (line_end := _line_end.search(ready, found.end())) is None:
            return ready
        signed = add_member(ready[found.end() : line_end.start()], self._signature)
        self._signature = b""
        return ready[: found.end()] + signed + ready[line_end.start() :]


def _find_usage(events: bytes) -> dict[str, Any] | None:
    place = max(events.rfind(b'"usage":{'), events.rfind(b'"usage": {'))
    if place < 0:
        return None
    try:
        text = events[place:].decode(errors="replace")
        found, _ = json.JSONDecoder().raw_decode(text, text.index("{"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def add_member(content: bytes, member: bytes) -> bytes:
    """Append a member to a JSON object without changing other bytes, unless the object has it already."""
    end = len(content.rstrip()) - 1
    if end < 1 or content[end : end + 1] != b"}" or member.partition(b":")[0] + b":" in content:
        return content
    comma = b"" if content[:end].rstrip().endswith(b"{") else b","
    return content[:end] + comma + member + content[end:]
