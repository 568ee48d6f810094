"""The events of Anthropic's messages as a stream of chat chunks."""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Any

from ir3de_gateway.translation.answers import build_chat_id, build_chat_usage, build_finish_reason, read_refusal
from ir3de_gateway.translation.errors import build_chat_error
from ir3de_gateway.translation.faults import UnreadableAnswer
from ir3de_gateway.translation.messages_request import write_json
from ir3de_gateway.translation.streams import StreamTranslator, dump


class MessagesToChat(StreamTranslator):
    """Each event becomes one chunk, or none. The usage is told in a chunk of its own, if the client asked for it."""

    def __init__(self, *, tells_usage: bool = False) -> None:
        super().__init__()
        self._tells_usage = tells_usage
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
            return b"data: " + dump(build_chat_error(502, content)) + b"\n\n"
        if kind == "ping":
            return b": ping\n\n"
        if kind == "message_start":
            return self._begin(_get_object(content, "message"))
        if not self._head:
            raise UnreadableAnswer(f"{str(kind)[:50]} before message_start")
        if kind == "content_block_start":
            return self._begin_block(_get_index(content), _get_object(content, "content_block"))
        if kind == "content_block_delta":
            return self._translate_delta(_get_index(content), _get_object(content, "delta"))
        if kind == "content_block_stop":
            return self._end_block(_get_index(content))
        if kind == "message_delta":
            return self._read_end(content)
        return self._end_message() if kind == "message_stop" else b""

    def _begin(self, message: Mapping[str, Any]) -> bytes:
        self._head = {
            "id": build_chat_id(message.get("id")),
            "object": "chat.completion.chunk",
            "created": int(time()),
            "model": message.get("model") or "",
        }
        self._add_usage(message.get("usage"))
        return self._write({"role": "assistant", "content": ""})

    def _begin_block(self, place: int, block: Mapping[str, Any]) -> bytes:
        kind = block.get("type")
        if kind == "text":
            return self._write_text("content", block.get("text"))
        if kind == "thinking":
            return self._write_text("reasoning_content", block.get("thinking"))
        if kind != "tool_use":
            return b""
        number = len(self._calls)
        self._calls[place] = number, block.get("input") or {}
        function = {"name": block.get("name") or "", "arguments": ""}
        call = {"index": number, "id": block.get("id") or "", "type": "function", "function": function}
        return self._write({"tool_calls": [call]})

    def _translate_delta(self, place: int, delta: Mapping[str, Any]) -> bytes:
        kind = delta.get("type")
        if kind == "text_delta":
            return self._write_text("content", delta.get("text"))
        if kind == "thinking_delta":
            return self._write_text("reasoning_content", delta.get("thinking"))
        if kind == "input_json_delta" and (text := delta.get("partial_json")):
            if place not in self._calls:
                raise UnreadableAnswer("input of a tool that was not called")
            number = self._calls[place][0]
            self._calls[place] = number, None  # its input comes in parts
            return self._write_arguments(number, str(text))
        return b""

    def _end_block(self, place: int) -> bytes:
        """A call whose input did not come in parts: all of it, even if it is empty."""
        number, given = self._calls.get(place, (0, None))
        return b"" if given is None else self._write_arguments(number, write_json(given))

    def _read_end(self, content: Mapping[str, Any]) -> bytes:
        self._add_usage(content.get("usage"))
        delta = _get_object(content, "delta")
        refusal = read_refusal(delta.get("stop_details"))
        return self._write(
            {} if refusal is None else {"refusal": refusal}, build_finish_reason(delta.get("stop_reason"))
        )

    def _end_message(self) -> bytes:
        self.has_ended = True
        told = {**self._head, "choices": [], "usage": build_chat_usage(self._usage)}
        return (b"data: " + dump(told) + b"\n\n" if self._tells_usage else b"") + b"data: [DONE]\n\n"

    def _add_usage(self, usage: object) -> None:
        """The counts of later events replace those of earlier ones; what they leave out stays."""
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _write_text(self, name: str, text: object) -> bytes:
        return self._write({name: text}) if text else b""

    def _write_arguments(self, number: int, text: str) -> bytes:
        return self._write({"tool_calls": [{"index": number, "function": {"arguments": text}}]})

    def _write(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk = {**self._head, "choices": [choice], **({"usage": None} if self._tells_usage else {})}
        return b"data: " + dump(chunk) + b"\n\n"


def _get_object(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    if not isinstance(found, dict):
        raise UnreadableAnswer(f"an event without {name}")
    return found


def _get_index(content: Mapping[str, Any]) -> int:
    found = content.get("index")
    if not isinstance(found, int):
        raise UnreadableAnswer("an event without index")
    return found
