"""The texts of answers and streams, for hooks: found in every format, and put back where they were."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ir3de_gateway.requests.model_texts import Slot, read_index, walk

_blank_line = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2,}")  # the ends of its lines may differ
_line_end = re.compile(rb"\r\n|\n|\r")
_PLACES = ("output_index", "content_index", "summary_index")
_WHOLE = ("item", "part", "text", "refusal", "arguments", "transcript", "input", "code")  # of OpenAI's named events

AnswerSlot = tuple[Slot, dict[str, Any]]  # with the object that may have log-probabilities, which repeat the text


def list_answer_slots(answer: dict[str, Any]) -> Iterator[AnswerSlot]:
    """Where an answer, or one event of a stream, has a text of the model or a part of one."""
    for place, choice in enumerate(_list_objects(answer.get("choices"))):
        path = ("choice", read_index(choice, place))
        yield from ((slot, choice) for slot in walk(choice, "message", "delta", path=path))
        yield from ((slot, choice) for slot in walk(choice, "text", path=(*path, "text")))
    kind = str(answer.get("type"))
    if kind == "message":
        yield from ((slot, {}) for slot in walk(answer, "content", path=("block",)))
    elif kind in ("content_block_start", "content_block_delta"):
        path = ("block", read_index(answer, 0))
        yield from ((slot, {}) for slot in walk(answer, "content_block", "delta", path=path))
    elif kind.startswith("response.") and kind.endswith(".delta") and not kind.endswith("audio.delta"):
        places = (json.dumps(answer.get(place)) for place in _PLACES)
        yield from ((slot, answer) for slot in walk(answer, "delta", path=(kind, *places)))
    if answer.get("object") == "response":
        yield from ((slot, {}) for slot in walk(answer, "output", path=("item",)))


def list_whole_slots(event: dict[str, Any]) -> Iterator[Slot]:
    """Where an event of a stream has whole texts: those that came in parts, once more, and perhaps others."""
    response, kind = event.get("response"), event.get("type")
    if isinstance(response, dict):
        yield from walk(response, "output")
    if isinstance(kind, str) and kind.startswith("response."):
        yield from walk(event, *_WHOLE)


def _list_objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


class AnswerTexts:
    """The texts of a whole answer, or of the events of a stream."""

    def __init__(self, parts: Sequence[dict[str, Any]]) -> None:
        self._parts = parts
        self._slots: dict[tuple[Hashable, ...], list[AnswerSlot]] = {}
        for part in parts:
            for slot, choice in list_answer_slots(part):
                self._slots.setdefault(slot.path, []).append((slot, choice))
        self.texts = ["".join(slot.text for slot, _ in slots) for slots in self._slots.values()]
        seen = {*self.texts, ""}
        for slot in self._list_whole():
            if (text := slot.text) not in seen:
                seen.add(text)
                self._slots["whole", text] = [(slot, {})]
                self.texts.append(text)

    def replace(self, texts: Sequence[str]) -> None:
        """Put other texts in their place: into the first event that had a part, and wherever a whole is repeated."""
        changed = {old: new for old, new in zip(self.texts, texts, strict=True) if old != new}
        for slot in reversed(list(self._list_whole())):
            if slot.text and slot.text in changed:
                _put(slot, changed[slot.text], {})
        ways = zip(self._slots.items(), self.texts, texts, strict=True)
        for (path, slots), old, new in reversed(list(ways)):
            if old != new and path[:1] != ("whole",):
                for place, (slot, choice) in enumerate(slots):
                    _put(slot, "" if place else new, choice)
        self.texts = list(texts)

    def _list_whole(self) -> Iterator[Slot]:
        for part in self._parts:
            yield from list_whole_slots(part)


def _put(slot: Slot, text: str, choice: dict[str, Any]) -> None:
    """Change a text, and drop the log-probabilities that repeat it."""
    slot.put(text)
    for holder in (slot.holder, choice):
        if isinstance(holder, dict) and "logprobs" in holder:
            holder["logprobs"] = [] if isinstance(holder["logprobs"], list) else None


class EventTexts(NamedTuple):
    """A complete stream: its blocks, and which of them hold the events."""

    blocks: list[bytes]
    events: dict[int, dict[str, Any]]  # by the number of their block

    @classmethod
    def parse(cls, content: bytes) -> EventTexts:
        """Read a stream of server-sent events."""
        blocks = [block for block in _blank_line.split(content) if block.strip()]
        events: dict[int, dict[str, Any]] = {}
        for number, block in enumerate(blocks):
            lines = [line[5:].removeprefix(b" ") for line in _line_end.split(block) if line.startswith(b"data:")]
            try:
                value = json.loads(b"\n".join(lines))
            except (ValueError, RecursionError):
                continue  # [DONE], or a comment
            if isinstance(value, dict):
                events[number] = value
        return cls(blocks, events)

    def build(self, events: Sequence[Mapping[str, Any]] | None = None) -> bytes:
        """The stream with its events as they are now, or with others."""
        if events is None or len(events) == len(self.events):
            given = dict(zip(self.events, self.events.values() if events is None else events, strict=True))
            blocks = [self._write(number, given) if number in given else self.blocks[number] for number in self._all]
        else:
            rest = [block for number, block in enumerate(self.blocks) if number not in self.events]
            blocks = [*(_write_event(event) for event in events), *rest]
        return b"".join(block + b"\n\n" for block in blocks)

    @property
    def _all(self) -> range:
        return range(len(self.blocks))

    def _write(self, number: int, given: Mapping[int, Mapping[str, Any]]) -> bytes:
        lines = [line for line in _line_end.split(self.blocks[number]) if not line.startswith(b"data:")]
        return b"\n".join([*lines, b"data: " + _encode(given[number])])


def _write_event(event: Mapping[str, Any]) -> bytes:
    kind = event.get("type")
    name = f"event: {kind}\n".encode() if isinstance(kind, str) else b""
    return name + b"data: " + _encode(event)


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
