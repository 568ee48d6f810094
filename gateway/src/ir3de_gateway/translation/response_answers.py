"""Answers to OpenAI's responses from chat completions: whole, and as a stream of named events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import time
from typing import Any
from uuid import uuid4

from ir3de_gateway.translation.answers import (
    UnreadableAnswer,
    count_tokens,
    dump,
    read_reasoning,
    read_text,
    translate_error,
)
from ir3de_gateway.translation.streams import StreamTranslator
from ir3de_gateway.wire import FORMATS

_ECHOED = (  # fields of a request that a response repeats
    "instructions", "max_output_tokens", "temperature", "top_p", "tools", "tool_choice", "parallel_tool_calls", "text",
    "reasoning", "user", "safety_identifier", "metadata", "truncation", "service_tier",
)  # fmt: skip
_DEFAULTS: Mapping[str, Any] = {
    "instructions": None, "max_output_tokens": None, "temperature": 1.0, "top_p": 1.0, "tools": [],
    "tool_choice": "auto", "parallel_tool_calls": True, "text": {"format": {"type": "text"}},
    "reasoning": {"effort": None, "summary": None}, "metadata": {}, "truncation": "disabled",
}  # fmt: skip
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}  # by the reason of a chat's end


class ResponseHead:
    """What a response has besides its output: its id, and what it repeats of its request."""

    def __init__(self, request: Mapping[str, Any], response_id: str) -> None:
        given = {name: request[name] for name in _ECHOED if request.get(name) is not None}
        self.response_id = response_id
        self.fields: dict[str, Any] = {**_DEFAULTS, **given}
        self.previous_id: str | None = None
        self.is_stored = False
        self.created = int(time())
        self.model = ""

    def build(
        self, status: str, output: list[dict[str, Any]] | None = None, usage: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The response object."""
        return {
            "id": self.response_id, "object": "response", "created_at": self.created, "status": status,
            "background": False, "error": None, "incomplete_details": None, "model": self.model,
            "output": output or [], "previous_response_id": self.previous_id, "store": self.is_stored,
            **self.fields, "usage": build_response_usage(usage) if usage else None,
        }  # fmt: skip

    def build_end(
        self, finish: object, output: list[dict[str, Any]], usage: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """The response object at its end."""
        reason = _INCOMPLETE.get(str(finish))
        found = self.build("completed" if reason is None else "incomplete", output, usage)
        return found if reason is None else {**found, "incomplete_details": {"reason": reason}}


def build_response(answer: Mapping[str, Any], head: ResponseHead) -> dict[str, Any]:
    """A chat completion as a response."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise UnreadableAnswer("a chat completion without choices[0].message")
    head.model = str(answer.get("model") or "")
    usage = answer.get("usage")
    items = [item.build("completed") for item in _list_items(message)]
    return head.build_end(choice.get("finish_reason"), items, usage if isinstance(usage, dict) else None)


def build_response_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The usage of a chat as that of a response."""
    prompt, answer = count_tokens(usage, "prompt_tokens"), count_tokens(usage, "completion_tokens")
    cached = count_tokens(usage, "prompt_tokens_details", "cached_tokens")
    thought = count_tokens(usage, "completion_tokens_details", "reasoning_tokens")
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": answer,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": prompt + answer,
    }


class OutputItem:
    """An item of the output: reasoning, a message, or a call of a function."""

    def __init__(self, kind: str, text: str = "", key: object = None) -> None:
        self.kind, self.text, self.key = kind, text, key
        prefix = {"reasoning": "rs", "function_call": "fc"}.get(kind, "msg")
        self.item_id = f"{prefix}_{uuid4().hex}"
        self.name = self.call_id = ""
        self.place = -1  # in the output, once it has begun
        self.sent = 0  # characters of its text
        self.has_ended = False

    def build_part(self, *, is_empty: bool = False) -> dict[str, Any]:
        """The part of its content."""
        text = "" if is_empty else self.text
        if self.kind == "refusal":
            return {"type": "refusal", "refusal": text}
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def build(self, status: str) -> dict[str, Any]:
        """The item; one that has just begun has no content yet."""
        is_new = status == "in_progress"
        if self.kind == "function_call":
            call_id = self.call_id or f"call_{self.item_id[3:]}"
            arguments = "" if is_new else self.text
            found = {"type": self.kind, "id": self.item_id, "call_id": call_id, "name": self.name}
            return {**found, "arguments": arguments, "status": status}
        content = [] if is_new else [self.build_part()]
        if self.kind == "reasoning":
            return {"type": self.kind, "id": self.item_id, "summary": [], "content": content, "status": status}
        return {"type": "message", "id": self.item_id, "role": "assistant", "content": content, "status": status}


def _list_items(message: Mapping[str, Any]) -> Iterator[OutputItem]:
    if thought := read_reasoning(message):
        yield OutputItem("reasoning", thought)
    text, refusal, calls = read_text(message.get("content")), message.get("refusal"), message.get("tool_calls")
    if isinstance(refusal, str) and refusal:
        yield OutputItem("refusal", refusal)
    elif text or not calls:
        yield OutputItem("message", text)
    for place, call in enumerate(calls if isinstance(calls, list) else ()):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise UnreadableAnswer(f"tool_calls[{place}] without a function")
        item = OutputItem("function_call", str(function.get("arguments") or ""))
        item.name, item.call_id = str(function.get("name") or ""), str(call.get("id") or "")
        yield item


class ChatToResponse(StreamTranslator):
    """A stream of chat chunks as the events of a response, numbered."""

    def __init__(self, head: ResponseHead) -> None:
        super().__init__()
        self._head = head
        self._items: list[OutputItem] = []
        self._number = 0  # of the next event
        self._begun = 0  # items
        self._has_begun = False
        self._finish_reason: object = None
        self._usage: Mapping[str, Any] = {}
        self.response: dict[str, Any] | None = None  # at its end

    @property
    def usage(self) -> Mapping[str, Any]:
        return build_response_usage(self._usage) if self._usage else {}

    def _translate(self, name: str, content: Mapping[str, Any]) -> bytes:
        if content.get("error") is not None or name == "error":
            self.has_ended = True
            error = translate_error(FORMATS["responses"], 502, content, "")
            return self._write("error", {**error["error"], **error})
        if isinstance(usage := content.get("usage"), dict):
            self._usage = usage
        events = [] if self._has_begun else self._begin(content)
        choices = content.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                events += self._read_choice(choice)
        return b"".join(events)

    def _begin(self, content: Mapping[str, Any]) -> list[bytes]:
        self._has_begun, self._head.model = True, str(content.get("model") or "")
        response = self._head.build("in_progress")
        return [self._write(f"response.{name}", {"response": response}) for name in ("created", "in_progress")]

    def _read_choice(self, choice: Mapping[str, Any]) -> list[bytes]:
        delta, events = choice.get("delta"), list[bytes]()
        if isinstance(delta, dict):
            refusal = delta.get("refusal")
            events += self._add_text("reasoning", read_reasoning(delta))
            events += self._add_text("message", read_text(delta.get("content")))
            events += self._add_text("refusal", refusal if isinstance(refusal, str) else "")
            calls = delta.get("tool_calls")
            for place, call in enumerate(calls if isinstance(calls, list) else ()):
                if not isinstance(call, dict):
                    raise UnreadableAnswer("a tool call that is not an object")
                events += self._add_call(call, place)
        if choice.get("finish_reason") is not None:
            self._finish_reason = choice["finish_reason"]
        return events

    def _add_text(self, kind: str, text: str) -> list[bytes]:
        if not text:
            return []
        last, events = self._items[-1] if self._items else None, list[bytes]()
        if last is None or last.kind != kind:
            events = [] if last is None else self._end_item(last)
            last = OutputItem(kind)
            self._items.append(last)
        last.text += text
        return events + self._send(last)

    def _add_call(self, call: Mapping[str, Any], place: int) -> list[bytes]:
        """Some servers send no index. Then another id is another call."""
        key, call_id = call.get("index"), call.get("id")
        if key is None:
            key = call_id or (self._items[-1].key if self._items else None) or place
        item, events = next((one for one in self._items if one.key == key), None), list[bytes]()
        if item is None:
            if self._items and self._items[-1].kind != "function_call":
                events = self._end_item(self._items[-1])
            item = OutputItem("function_call", key=key)
            self._items.append(item)
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        item.call_id = item.call_id or str(call_id or "")
        item.name = item.name or str(function.get("name") or "")
        item.text += str(function.get("arguments") or "")
        return events + (self._send(item) if item.name else [])

    def _send(self, item: OutputItem) -> list[bytes]:
        """The events for what is new of an item."""
        events = list[bytes]()
        if item.place < 0:
            item.place, self._begun = self._begun, self._begun + 1
            added = {"output_index": item.place, "item": item.build("in_progress")}
            events.append(self._write("response.output_item.added", added))
            if item.kind != "function_call":
                part = {**self._locate(item), "part": item.build_part(is_empty=True)}
                events.append(self._write("response.content_part.added", part))
        if new := item.text[item.sent :]:
            item.sent = len(item.text)
            more: dict[str, Any] = {"logprobs": []} if item.kind == "message" else {}
            events.append(self._write(f"{_name_part(item)}.delta", {**self._locate(item), "delta": new, **more}))
        return events

    def _end_item(self, item: OutputItem) -> list[bytes]:
        if item.has_ended:
            return []
        events, item.has_ended = self._send(item), True
        field = {"function_call": "arguments", "refusal": "refusal"}.get(item.kind, "text")
        more: dict[str, Any] = {"logprobs": []} if item.kind == "message" else {}
        more |= {"name": item.name} if item.kind == "function_call" else {}
        events.append(self._write(f"{_name_part(item)}.done", {**self._locate(item), field: item.text, **more}))
        if item.kind != "function_call":
            part = {**self._locate(item), "part": item.build_part()}
            events.append(self._write("response.content_part.done", part))
        done = {"output_index": item.place, "item": item.build("completed")}
        return [*events, self._write("response.output_item.done", done)]

    def _locate(self, item: OutputItem) -> dict[str, Any]:
        found: dict[str, Any] = {"item_id": item.item_id, "output_index": item.place}
        return found if item.kind == "function_call" else {**found, "content_index": 0}

    def _finish(self) -> bytes:
        self.has_ended = True
        events = [] if self._has_begun else self._begin({})
        if not self._items:
            self._items.append(OutputItem("message"))
        for item in self._items:
            events += self._end_item(item)
        output = [item.build("completed") for item in sorted(self._items, key=lambda item: item.place)]
        self.response = self._head.build_end(self._finish_reason, output, self._usage or None)
        events.append(self._write(f"response.{self.response['status']}", {"response": self.response}))
        return b"".join(events)

    def _end(self) -> bytes:
        """Some servers end without [DONE]: then the reason for the end is enough."""
        return b"" if self._finish_reason is None else self._finish()

    def _write(self, kind: str, fields: Mapping[str, Any]) -> bytes:
        number, self._number = self._number, self._number + 1
        return b"event: %b\ndata: %b\n\n" % (
            kind.encode(),
            dump({**fields, "type": kind, "sequence_number": number}),
        )


def _name_part(item: OutputItem) -> str:
    """What the events of an item's text are called."""
    kinds = {"function_call": "function_call_arguments", "refusal": "refusal", "reasoning": "reasoning_text"}
    return f"response.{kinds.get(item.kind, 'output_text')}"
