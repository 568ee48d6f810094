"""What an expert's answer tells about itself: its model, its id, and why it ended. The text is not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ir3de_gateway.wire.event_stream import read_events

MAX_CHARS = 200  # of a value that an expert chooses
_MAX_EVENTS = 8  # read at the end of a stream: several choices may end one after the other


@dataclass(slots=True)
class AnswerFacts:
    """Filled in as an answer becomes known; what it does not tell stays empty.

    >>> facts = AnswerFacts()
    >>> facts.read({"id": "chatcmpl-1", "model": "law-7b", "choices": [{"finish_reason": "stop"}]})
    >>> facts
    AnswerFacts(model='law-7b', response_id='chatcmpl-1', finish_reasons=['stop'])
    """

    model: str = ""
    response_id: str = ""
    finish_reasons: list[str] = field(default_factory=list)

    def read(self, answer: Mapping[str, Any]) -> None:
        """Read a whole answer of any API, or one event of a stream."""
        inner = answer.get("response", answer.get("message"))  # responses and messages put it there in a stream
        if isinstance(inner, dict):
            self.read(inner)
        self.model = _read_text(answer.get("model")) or self.model
        if not isinstance(inner, dict):
            self.response_id = _read_text(answer.get("id")) or self.response_id
        self._read_end(answer)

    def read_events(self, head: bytes, tail: bytes) -> None:
        """Read the first and the last events of a stream."""
        first, last = ([event for event in read_events(part) if event.data is not None] for part in (head, tail))
        for event in first[:1] + last[-_MAX_EVENTS:]:
            if (found := event.parse()) is not None:  # else it is cut off, or not JSON
                self.read(found)

    def _read_end(self, answer: Mapping[str, Any]) -> None:
        choices, delta = answer.get("choices"), answer.get("delta")
        if isinstance(choices, list):
            for choice in choices[:_MAX_EVENTS]:
                self._add_reason(choice.get("finish_reason") if isinstance(choice, dict) else None)
        self._add_reason(answer.get("stop_reason"))
        if isinstance(delta, dict):
            self._add_reason(delta.get("stop_reason"))
        if answer.get("object") == "response" and answer.get("status") in ("completed", "incomplete", "failed"):
            details = answer.get("incomplete_details")
            self._add_reason(details.get("reason") if isinstance(details, dict) else answer["status"])

    def _add_reason(self, reason: object) -> None:
        if isinstance(reason, str) and reason:
            self.finish_reasons.append(reason[:MAX_CHARS])


def _read_text(value: object) -> str:
    return value[:MAX_CHARS] if isinstance(value, str) else ""
