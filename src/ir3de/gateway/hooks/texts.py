"""The texts of requests, answers and streams, for hooks: found in every format, and put back where they were."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_READ_BY_MODELS = ("system", "instructions", "messages", "input", "prompt", "query", "documents")
_INSIDE = ("text", "content", "output")  # of messages, items, parts and results of tools
_blank_line = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2,}")  # the ends of its lines may differ
_line_end = re.compile(rb"\r\n|\n|\r")


class Slot(NamedTuple):
    """A place that holds a text, or a part of one; slots of a stream with the same key are parts of one text."""

    key: Hashable
    holder: Any  # an object or a list
    name: Any  # the field or the index there
    choice: dict[str, Any]  # the object that may have log-probabilities, which repeat the text

    @property
    def text(self) -> str:
        return str(self.holder[self.name])

    def put(self, text: str) -> None:
        """Change the text."""
        self.holder[self.name] = text
        if "logprobs" in self.choice:
            self.choice["logprobs"] = [] if isinstance(self.choice["logprobs"], list) else None


def list_request_slots(body: Mapping[str, Any]) -> list[Slot]:
    """Where a request has texts that a model reads.

    >>> [slot.text for slot in list_request_slots({"messages": [{"role": "user", "content": "Hi"}], "model": "m"})]
    ['Hi']
    """
    found: list[Slot] = []
    waiting: list[tuple[Any, Any]] = [(body, name) for name in reversed(_READ_BY_MODELS) if name in body]
    while waiting:
        holder, name = waiting.pop()
        value = holder[name]
        if isinstance(value, str):
            found.append(Slot(len(found), holder, name, {}))
        elif isinstance(value, list):
            waiting += [(value, index) for index in reversed(range(len(value)))]
        elif isinstance(value, dict):
            waiting += [(value, inner) for inner in reversed(_INSIDE) if inner in value]
    return found


def list_answer_slots(answer: Mapping[str, Any]) -> Iterator[Slot]:
    """Where an answer, or one event of a stream, has a text of the model or a part of one."""
    for choice in _list_objects(answer.get("choices")):
        key = ("choice", choice.get("index"))
        for holder in (choice.get("message"), choice.get("delta")):
            if isinstance(holder, dict) and isinstance(holder.get("content"), str):
                yield Slot(key, holder, "content", choice)
        if isinstance(choice.get("text"), str):
            yield Slot(key, choice, "text", choice)
    kind = answer.get("type")
    if kind == "message":
        yield from _list_parts(answer.get("content"), ("block",))
    elif kind == "content_block_delta" and isinstance((delta := answer.get("delta") or {}).get("text"), str):
        yield Slot(("block", answer.get("index")), delta, "text", {})
    elif kind == "response.output_text.delta" and isinstance(answer, dict):
        yield Slot(("item", answer.get("output_index"), answer.get("content_index")), answer, "delta", answer)
    if answer.get("object") == "response":
        for index, item in enumerate(_list_objects(answer.get("output"))):
            yield from _list_parts(item.get("content"), ("item", index))


def _list_parts(parts: Any, key: tuple[Any, ...]) -> Iterator[Slot]:
    for index, part in enumerate(_list_objects(parts)):
        if isinstance(part.get("text"), str):
            yield Slot((*key, index), part, "text", part)


def _list_objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


class AnswerTexts:
    """The texts of a whole answer, or of the events of a stream."""

    def __init__(self, parts: Sequence[Mapping[str, Any]]) -> None:
        self._parts = parts
        self._slots: dict[Hashable, list[Slot]] = {}
        for part in parts:
            for slot in list_answer_slots(part):
                self._slots.setdefault(slot.key, []).append(slot)
        self.texts = ["".join(slot.text for slot in slots) for slots in self._slots.values()]

    def replace(self, texts: Sequence[str]) -> None:
        """Put other texts in their place: into the first event that had a part, and wherever a whole is repeated."""
        changed = {old: new for old, new in zip(self.texts, texts, strict=True) if old != new}
        for slots, old, new in zip(self._slots.values(), self.texts, texts, strict=True):
            if old != new:
                for place, slot in enumerate(slots):
                    slot.put("" if place else new)
        changed.pop("", None)
        if changed and len(self._parts) > 1:
            for part in self._parts:
                _replace_equal(part, changed)
        self.texts = list(texts)


def _replace_equal(value: Any, changed: Mapping[str, str]) -> None:
    """Replace fields `text` that are such a text as a whole: some streams repeat it at their end."""
    waiting = [value]
    while waiting:
        inside = waiting.pop()
        for name, inner in inside.items() if isinstance(inside, dict) else enumerate(inside):
            if isinstance(inner, str):
                if name == "text" and inner in changed:
                    inside[name] = changed[inner]
            elif isinstance(inner, (dict, list)):
                waiting.append(inner)


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
