"""Runs the hooks of a configuration in their order: before a request, and after its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.document import Hooks
from ir3de_gateway.hooks.hook import Hook, build_refusal
from ir3de_gateway.requests.json_body import SMALL_BYTES, check_nested, offload
from ir3de_gateway.requests.model_texts import Slot, list_answer_slots, list_request_slots, list_whole_slots
from ir3de_gateway.transport import Transport
from ir3de_gateway.wire.events import Event, read_events

Count = Callable[[str, str], None]  # the label of a hook, and the outcome of its call


class HookRunner:
    """The hooks of one configuration."""

    def __init__(self, config: Hooks, count: Count) -> None:
        self.config = config
        self._before = [Hook(one) for one in config.before]
        self._after = [(Hook(one), one.streams) for one in config.after]
        self._count = count

    def has_before(self, endpoint: str) -> bool:
        return any(hook.is_for(endpoint) for hook in self._before)

    def get_mode(self, endpoint: str, *, is_stream: bool) -> Literal["hold", "observe"] | None:
        """Whether an answer is held for the hooks, or only shown to them afterwards; None if no hook is for it."""
        modes = [mode for hook, mode in self._after if hook.is_for(endpoint)]
        if not modes:
            return None
        return "hold" if not is_stream or "hold" in modes else "observe"

    async def run_before(self, event: dict[str, Any], transport: Transport, *, is_large: bool = False) -> bool:
        """Run the hooks on a request, and return whether they changed its body in `event`; or raise an `ApiError`."""
        is_changed = False
        for hook in self._before:
            if not hook.is_for(event["endpoint"]):
                continue
            body = event["body"] or {}
            slots = await offload(_list_slots, body) if is_large else _list_slots(body)
            event["texts"] = [slot.text for slot in slots]
            verdict = await self._call(hook, event, transport)
            if "body" in verdict and event["body"] is not None:
                event["body"], is_changed = verdict["body"], True
            elif "texts" in verdict:
                for slot, old, new in reversed([*zip(slots, event["texts"], verdict["texts"], strict=True)]):
                    if new != old:
                        slot.put(new)
                        is_changed = True
        return is_changed

    async def run_after(self, event: dict[str, Any], content: bytes, transport: Transport, *, is_held: bool) -> bytes:
        """Run the hooks on an answer, and return what the client gets; or raise an `ApiError`."""
        is_stream = event.pop("is_stream")
        parsed: StreamEvents | None = StreamEvents.parse(content) if is_stream else None
        body: dict[str, Any] | None = None if is_stream else json.loads(content)
        for hook, mode in self._after:
            if not hook.is_for(event["endpoint"]):
                continue
            parts = [body] if parsed is None else list(parsed.objects.values())
            texts = AnswerTexts([part for part in parts if isinstance(part, dict)])
            seen = {**event, "body": body, "events": None if parsed is None else parts, "texts": texts.texts}
            verdict = await self._call(hook, seen, transport, may_refuse=is_held)
            if not is_held or (is_stream and mode == "observe"):
                continue
            if "texts" in verdict:
                texts.replace(verdict["texts"])
                content = _encode(body) if parsed is None else parsed.build()
            elif "body" in verdict and parsed is None:
                body = verdict["body"]
                content = _encode(body)
            elif "events" in verdict and parsed is not None:
                content = parsed.build(verdict["events"])
                parsed = StreamEvents.parse(content)
        return content

    async def _call(
        self, hook: Hook, event: Mapping[str, Any], transport: Transport, *, may_refuse: bool = True
    ) -> dict[str, Any]:
        try:
            verdict = await hook.call(await _dump(event), event["key"], len(event["texts"]), transport)
        except ApiError as problem:
            self._count(hook.config.label, "timeout" if problem.code == "hook_timeout" else "failed")
            if may_refuse:
                raise
            return {}  # the client already has the answer
        if verdict is None:
            self._count(hook.config.label, "failed")
            return {}
        if "refuse" in verdict:
            self._count(hook.config.label, "refused")
            if may_refuse:
                raise build_refusal(verdict["refuse"], hook.config.public_label)
            return {}
        self._count(hook.config.label, "changed" if verdict else "ok")
        return verdict


async def _dump(event: Mapping[str, Any]) -> bytes:
    """The event as JSON: a hook gets a copy, and only what it returns counts."""
    is_long = sum(map(len, event["texts"])) > SMALL_BYTES
    return await offload(_encode, event) if is_long else _encode(event)


def _list_slots(body: Mapping[str, Any]) -> list[Slot]:
    return list(list_request_slots(body))


def _encode(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


async def dump_body(body: Any) -> bytes:
    """The body of a request as JSON, encoded in a thread."""
    return await offload(_encode, body)


def load_hooks(config: Hooks) -> None:
    """Load all callables, or raise an `InputError` that names the one that cannot be loaded."""
    for one in (*config.before, *config.after):
        Hook(one)


async def parse_body(content: bytes) -> Any:
    """The JSON of a request, with all its fields; a large one is parsed in a thread."""
    return json.loads(content) if len(content) <= SMALL_BYTES else await offload(_parse_large, content)


def _parse_large(content: bytes) -> Any:
    values = json.loads(content)
    check_nested(values)
    return values


# the texts of answers ------------------------------------------------------------------------------------------------


class AnswerTexts:
    """The texts of a whole answer, or of the events of a stream."""

    def __init__(self, parts: Sequence[dict[str, Any]]) -> None:
        self._parts = parts
        self._slots: dict[tuple[Hashable, ...], list[tuple[Slot, dict[str, Any]]]] = {}
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
        """Replace the texts: in the first event that had a part, and wherever the whole text is repeated."""
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


class StreamEvents(NamedTuple):
    """A complete stream, and the JSON objects among its events."""

    all: list[Event]
    objects: dict[int, dict[str, Any]]  # by the index of their event

    @classmethod
    def parse(cls, content: bytes) -> StreamEvents:
        """Read a stream of server-sent events."""
        events = list(read_events(content))
        found = {index: parsed for index, event in enumerate(events) if (parsed := event.parse()) is not None}
        return cls(events, found)

    def build(self, objects: Sequence[Mapping[str, Any]] | None = None) -> bytes:
        """The stream with its objects as they are now, or with others."""
        changed = list(self.objects.values()) if objects is None else objects
        if len(changed) == len(self.objects):
            data = dict(zip(self.objects, map(_encode, changed), strict=True))
            events = [event.replace_data(data[i]) if i in data else event.raw for i, event in enumerate(self.all)]
        else:
            rest = [event.raw for index, event in enumerate(self.all) if index not in self.objects]
            events = [*map(_write_event, changed), *rest]
        return b"".join(events)


def _write_event(content: Mapping[str, Any]) -> bytes:
    kind = content.get("type")
    name = f"event: {kind}\n".encode() if isinstance(kind, str) else b""
    return name + b"data: " + _encode(content) + b"\n\n"
