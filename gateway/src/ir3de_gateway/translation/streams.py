"""Streams: chat chunks as the events of Anthropic's messages, and the reverse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from ir3de_gateway.translation.answers import (
    FINISH_REASONS,
    UnreadableAnswer,
    build_chat_usage,
    build_completion_head,
    build_message_head,
    build_message_usage,
    build_stop,
    dump,
    read_reasoning,
    read_refusal,
    read_text,
    translate_error,
)
from ir3de_gateway.translation.requests import parse_arguments, write_json
from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.events import Event, EventReader, EventTooLargeError, read_events

_T = TypeVar("_T")


class StreamTranslator(ABC):
    """A stream of events in the client's format, from one in the expert's."""

    def __init__(self) -> None:
        self._reader = EventReader()
        self.has_ended = False  # with its final event, or with an error

    @property
    @abstractmethod
    def usage(self) -> Mapping[str, Any]:
        """The token usage in the client's format, even if the client did not request it; empty if not known."""

    def feed(self, piece: bytes) -> bytes:
        """The events that a piece of the expert's stream gives."""
        try:
            return b"".join(map(self._pass, self._reader.read(piece)))
        except EventTooLargeError as error:
            raise UnreadableAnswer(str(error)) from error

    def flush(self) -> bytes:
        """The events at the end of the expert's stream. A stream that broke off gets no final event."""
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


# chat chunks as messages ---------------------------------------------------------------------------------------------


class _Block:
    """A block of content. A tool call cannot begin before its name is known."""

    def __init__(self, kind: str, key: object = None) -> None:
        self.kind, self.key = kind, key
        self.name = self.call_id = ""
        self.unsent = ""
        self.sent = ""  # the arguments of a call so far; other texts are not kept
        self.has_begun = False

    @property
    def is_whole(self) -> bool:
        """Whether it can end now: a text always can, a call only with complete arguments."""
        if self.kind != "tool_use":
            return True
        return self.sent.rstrip().endswith("}") and parse_arguments(self.sent) is not None

    def build_start(self, place: int) -> dict[str, Any]:
        if self.kind == "tool_use":
            return {"type": "tool_use", "id": self.call_id or f"toolu_{place}", "name": self.name, "input": {}}
        return {"type": self.kind, self.kind: "", **({"signature": ""} if self.kind == "thinking" else {})}

    def take_delta(self) -> dict[str, str]:
        """The text that was not sent yet."""
        text, self.unsent = self.unsent, ""
        if self.kind != "tool_use":
            return {"type": f"{self.kind}_delta", self.kind: text}
        self.sent += text
        return {"type": "input_json_delta", "partial_json": text}


class ChatToMessages(StreamTranslator):
    """A stream of chat chunks as the events of Anthropic's messages.

    Anthropic's events send one block after the other, while chunks may alternate between calls. So the first block that
    has not ended is sent as it comes, and later ones wait.
    """

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
        if content.get("error") is not None or name == "error":
            self.has_ended = True
            return _write(translate_error(FORMATS["messages"], 502, content, ""))
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
        return _write({"type": "message_start", "message": build_message_head(content, self._usage)})

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
        """Some servers send no index. Then another id is another call."""
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
        """The events that can be sent of the blocks that have not ended."""
        events: list[bytes] = []
        while self._live < len(self._blocks):
            block, place = self._blocks[self._live], self._live
            if block.kind == "tool_use" and not block.name and not is_end:
                break
            if not block.has_begun:
                block.has_begun = True
                start = {"type": "content_block_start", "index": place, "content_block": block.build_start(place)}
                events.append(_write(start))
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


# messages as chat chunks ---------------------------------------------------------------------------------------------


class MessagesToChat(StreamTranslator):
    """The events of Anthropic's messages as chat chunks. The usage is a separate chunk, if the client requested it."""

    def __init__(self, *, sends_usage: bool = False) -> None:
        super().__init__()
        self._sends_usage = sends_usage
        self._head: dict[str, Any] = {}  # what all chunks have in common
        self._calls: dict[int, tuple[int, object]] = {}  # by the index of the block: that of the call, and its input
        self._usage: dict[str, Any] = {}

    @property
    def usage(self) -> Mapping[str, Any]:
        return build_chat_usage(self._usage) if self._usage else {}

    def _translate(self, name: str, content: Mapping[str, Any]) -> bytes:
        kind = content.get("type", name)
        if kind == "error":
            self.has_ended = True
            return b"data: " + dump(translate_error(FORMATS["chat/completions"], 502, content, "")) + b"\n\n"
        if kind == "ping":
            return b": ping\n\n"
        if kind == "message_start":
            return self._begin(_get(content, "message", dict))
        if not self._head:
            raise UnreadableAnswer(f"{str(kind)[:50]} before message_start")
        if kind == "content_block_start":
            return self._begin_block(_get(content, "index", int), _get(content, "content_block", dict))
        if kind == "content_block_delta":
            return self._translate_delta(_get(content, "index", int), _get(content, "delta", dict))
        if kind == "content_block_stop":
            return self._end_block(_get(content, "index", int))
        if kind == "message_delta":
            return self._read_end(content)
        return self._end_message() if kind == "message_stop" else b""

    def _begin(self, message: Mapping[str, Any]) -> bytes:
        self._head = build_completion_head(message, "chat.completion.chunk")
        self._add_usage(message.get("usage"))
        return self._write({"role": "assistant", "content": ""})

    def _begin_block(self, place: int, block: Mapping[str, Any]) -> bytes:
        if block.get("type") != "tool_use":
            return self._write_text(str(block.get("type")), block)
        number = len(self._calls)
        self._calls[place] = number, block.get("input") or {}
        function = {"name": block.get("name") or "", "arguments": ""}
        call = {"index": number, "id": block.get("id") or "", "type": "function", "function": function}
        return self._write({"tool_calls": [call]})

    def _translate_delta(self, place: int, delta: Mapping[str, Any]) -> bytes:
        kind = str(delta.get("type"))
        if kind != "input_json_delta":
            return self._write_text(kind.removesuffix("_delta"), delta)
        if not (text := delta.get("partial_json")):
            return b""
        if place not in self._calls:
            raise UnreadableAnswer("input of a tool that was not called")
        number = self._calls[place][0]
        self._calls[place] = number, None  # its input comes in parts
        return self._write_arguments(number, str(text))

    def _end_block(self, place: int) -> bytes:
        """The whole input of a call that did not come in parts, even if it is empty."""
        number, given = self._calls.get(place, (0, None))
        return b"" if given is None else self._write_arguments(number, write_json(given))

    def _read_end(self, content: Mapping[str, Any]) -> bytes:
        self._add_usage(content.get("usage"))
        delta = _get(content, "delta", dict)
        refusal = read_refusal(delta.get("stop_details"))
        finish = FINISH_REASONS.get(str(delta.get("stop_reason")), "stop")
        return self._write({} if refusal is None else {"refusal": refusal}, finish)

    def _end_message(self) -> bytes:
        self.has_ended = True
        usage = {**self._head, "choices": [], "usage": build_chat_usage(self._usage)}
        return (b"data: " + dump(usage) + b"\n\n" if self._sends_usage else b"") + b"data: [DONE]\n\n"

    def _add_usage(self, usage: object) -> None:
        """The counts of later events replace those of earlier ones; missing counts stay."""
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _write_text(self, kind: str, block: Mapping[str, Any]) -> bytes:
        name = {"text": "content", "thinking": "reasoning_content"}.get(kind)
        return self._write({name: block[kind]}) if name is not None and block.get(kind) else b""

    def _write_arguments(self, number: int, text: str) -> bytes:
        return self._write({"tool_calls": [{"index": number, "function": {"arguments": text}}]})

    def _write(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk = {**self._head, "choices": [choice], **({"usage": None} if self._sends_usage else {})}
        return b"data: " + dump(chunk) + b"\n\n"


def _get(content: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
    if not isinstance(found := content.get(name), kind):
        raise UnreadableAnswer(f"an event without {name}")
    return found
