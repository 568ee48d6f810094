"""What the translators of both directions share: pieces of one format go in, events of the other come out."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ir3de_gateway.translation.faults import UnreadableAnswer
from ir3de_gateway.wire.event_stream import Event, EventReader, EventTooLargeError, read_events


class StreamTranslator(ABC):
    """A stream of events in the client's format, from one in the expert's."""

    def __init__(self) -> None:
        self._reader = EventReader()
        self.has_ended = False  # with its final event, or with an error

    @property
    @abstractmethod
    def usage(self) -> Mapping[str, Any]:
        """The token usage in the client's format, whether or not the client's stream tells it; empty if not known."""

    def feed(self, piece: bytes) -> bytes:
        """The events that a piece of the expert's stream gives."""
        try:
            return b"".join(map(self._pass, self._reader.read(piece)))
        except EventTooLargeError as error:
            raise UnreadableAnswer(str(error)) from error

    def flush(self) -> bytes:
        """The events at the end of the expert's stream. One that ended in the middle gets no final event."""
        rest = b"".join(map(self._pass, read_events(self._reader.flush())))
        return rest if self.has_ended else rest + self._end()

    def _pass(self, event: Event) -> bytes:
        if event.data is None:
            is_comment = event.raw.startswith(b":")  # which keeps the client's connection alive, too
            return event.raw.rstrip(b"\r\n") + b"\n\n" if is_comment else b""
        if self.has_ended:
            return b""
        if event.data == b"[DONE]":
            return self._finish()
        if (content := event.parse()) is None:
            raise UnreadableAnswer("an event that is not a JSON object")
        return self._translate(event.name, content)

    @abstractmethod
    def _translate(self, name: str, content: Mapping[str, Any]) -> bytes:
        """The events that one event of the expert gives."""

    def _finish(self) -> bytes:
        """The events at `[DONE]`, which only chats have."""
        return b""

    def _end(self) -> bytes:
        """The events at the end of a stream that had no final event."""
        return b""


def dump(content: Mapping[str, Any]) -> bytes:
    """JSON in UTF-8. Halves of characters, which models may write, stay escaped as they came."""
    try:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(content, separators=(",", ":")).encode()
