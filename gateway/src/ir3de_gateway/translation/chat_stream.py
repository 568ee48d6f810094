"""A stream of chat chunks as the events of Anthropic's messages."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from ir3de_gateway.translation.answers import (
    build_message_id,
    build_message_usage,
    build_stop,
    read_reasoning,
    read_text,
)
from ir3de_gateway.translation.errors import build_message_error
from ir3de_gateway.translation.faults import UnreadableAnswer
from ir3de_gateway.translation.streams import StreamTranslator, dump


class _Block:
    """A block of content. A call whose name is not known yet cannot begin."""

    def __init__(self, kind: str, key: object = None) -> None:
        self.kind, self.key = kind, key
        self.name = self.call_id = ""
        self.unsent = ""
        self.sent = ""  # the arguments of a call so far; other texts are not kept
        self.has_begun = False

    @property
    def is_whole(self) -> bool:
        """Whether it can end now: a text always can, a call once its arguments are whole."""
        if self.kind != "tool_use":
            return True
        if not self.sent.rstrip().endswith("}"):
            return False
        try:
            return isinstance(json.loads(self.sent), dict)
        except (ValueError, RecursionError):
            return False

    def build_start(self, place: int) -> dict[str, Any]:
        if self.kind == "text":
            return {"type": "text", "text": ""}
        if self.kind == "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        return {"type": "tool_use", "id": self.call_id or f"toolu_{place}", "name": self.name, "input": {}}

    def take_delta(self) -> dict[str, str]:
        """What was not sent yet."""
        text, self.unsent = self.unsent, ""
        if self.kind == "text":
            return {"type": "text_delta", "text": text}
        if self.kind == "thinking":
            return {"type": "thinking_delta", "thinking": text}
        self.sent += text
        return {"type": "input_json_delta", "partial_json": text}


class ChatToMessages(StreamTranslator):
    """Anthropic's events have one block after the other, while chunks may go to and fro between calls. So a block is
    sent as it comes as long as it is the first that has not ended; what belongs to later ones waits."""

    def __init__(self, stops: Collection[str] = ()) -> None:
        super().__init__()
        self._stops = stops
        self._blocks: list[_Block] = []
        self._live = 0  # the first block that has not ended
        self._has_begun = False
        self._finish_choice: Mapping[str, Any] | None = None
        self._is_refusal = False
        self._usage: Mapping[str, Any] = {}

    @property
    def usage(self) -> Mapping[str, Any]:
        return build_message_usage(self._usage) if self._usage else {}

    def _translate(self, name: str, content: Mapping[str, Any]) -> bytes:
        if (error := content.get("error")) is not None or name == "error":
            self.has_ended = True
            return _write(build_message_error(502, {"error": error} if error is not None else content))
        if isinstance(usage := content.get("usage"), dict):
            self._usage = usage
        before = b"" if self._has_begun else self._begin(content)
        choices = content.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                self._read_choice(choice)
        return before + self._send_live()

    def _begin(self, content: Mapping[str, Any]) -> bytes:
        self._has_begun = True
        message: dict[str, Any] = {
            "id": build_message_id(content.get("id")),
            "type": "message",
            "role": "assistant",
            "model": content.get("model") or "",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": build_message_usage(self._usage),
        }
        return _write({"type": "message_start", "message": message})

    def _read_choice(self, choice: Mapping[str, Any]) -> None:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._add_text("thinking", read_reasoning(delta))
            self._add_text("text", read_text(delta.get("content")))
            if isinstance(refusal := delta.get("refusal"), str) and refusal:
                self._is_refusal = True
                self._add_text("text", refusal)
            calls = delta.get("tool_calls")
            for place, call in enumerate(calls if isinstance(calls, list) else ()):
                if not isinstance(call, dict):
                    raise UnreadableAnswer("a tool call that is not an object")
                self._add_call(call, place)
        if choice.get("finish_reason") is not None:
            self._finish_choice = choice

    def _add_text(self, kind: str, text: str) -> None:
        if not text:
            return
        if not self._blocks or self._blocks[-1].kind != kind:
            self._blocks.append(_Block(kind))
        self._blocks[-1].unsent += text

    def _add_call(self, call: Mapping[str, Any], place: int) -> None:
        """Some servers give no index: then another id is another call."""
        key, call_id = call.get("index"), call.get("id")
        if key is None:
            key = call_id or (self._blocks[-1].key if self._blocks else None) or place
        block = next((one for one in self._blocks if one.kind == "tool_use" and one.key == key), None)
        if block is None:
            block = _Block("tool_use", key)
            self._blocks.append(block)
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        block.call_id = block.call_id or str(call_id or "")
        block.name = block.name or str(function.get("name") or "")
        block.unsent += str(function.get("arguments") or "")

    def _send_live(self, *, is_end: bool = False) -> bytes:
        """What can be sent of the blocks that have not ended."""
        events: list[bytes] = []
        while self._live < len(self._blocks):
            block, place = self._blocks[self._live], self._live
            if block.kind == "tool_use" and not block.name and not is_end:
                break
            if not block.has_begun:
                block.has_begun = True
                events.append(
                    _write({"type": "content_block_start", "index": place, "content_block": block.build_start(place)})
                )
            if block.unsent:
                delta = block.take_delta()
                events.append(_write({"type": "content_block_delta", "index": place, "delta": delta}))
            has_more = place + 1 < len(self._blocks)
            if not is_end and not (has_more and block.is_whole):
                break
            events.append(_write({"type": "content_block_stop", "index": place}))
            self._live += 1
        return b"".join(events)

    def _finish(self) -> bytes:
        self.has_ended = True
        before = b"" if self._has_begun else self._begin({})
        has_calls = any(block.kind == "tool_use" for block in self._blocks)
        stop = build_stop(self._finish_choice or {}, self._stops, has_calls=has_calls, is_refusal=self._is_refusal)
        usage = build_message_usage(self._usage)
        end = _write({"type": "message_delta", "delta": stop, "usage": usage}) + _write({"type": "message_stop"})
        return before + self._send_live(is_end=True) + end

    def _end(self) -> bytes:
        """Some servers end without [DONE]: then the reason for the end is enough."""
        return self._finish() if self._finish_choice is not None else b""


def _write(content: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(content["type"]).encode(), dump(content))
