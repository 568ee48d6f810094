"""Runs the hooks of a configuration, one after the other: before a request, and after its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.models import Hooks
from ir3de_gateway.experts.transport import Transport
from ir3de_gateway.hooks.calling import Hook, build_refusal
from ir3de_gateway.hooks.texts import AnswerTexts, EventTexts
from ir3de_gateway.requests.field_names import check_nested
from ir3de_gateway.requests.json_body import SMALL_BYTES, run_beside
from ir3de_gateway.requests.model_texts import Slot, list_request_slots

Count = Callable[[str, str], None]  # the hook's label, and what came of it


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
        """What becomes of an answer: it is held for the hooks, or shown to them afterwards, or none is for it."""
        modes = [mode for hook, mode in self._after if hook.is_for(endpoint)]
        if not modes:
            return None
        return "hold" if not is_stream or "hold" in modes else "observe"

    async def run_before(self, event: dict[str, Any], transport: Transport, *, is_large: bool = False) -> bool:
        """Let the hooks see a request. Whether they changed its body, which is then in `event`; or an `ApiError`."""
        is_changed = False
        for hook in self._before:
            if not hook.is_for(event["endpoint"]):
                continue
            body = event["body"] or {}
            slots = await run_beside(_list_slots, body) if is_large else _list_slots(body)
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
        """Let the hooks see an answer, and return what the client gets; or an `ApiError`."""
        is_stream = event.pop("is_stream")
        parsed: EventTexts | None = EventTexts.parse(content) if is_stream else None
        body: dict[str, Any] | None = None if is_stream else json.loads(content)
        for hook, mode in self._after:
            if not hook.is_for(event["endpoint"]):
                continue
            parts = [body] if parsed is None else list(parsed.events.values())
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
                parsed = EventTexts.parse(content)
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
            return {}  # the client has the answer already
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
    """What a hook gets is its own: only what it returns counts, even if it goes on after its time."""

    def dump(event: Mapping[str, Any]) -> bytes:
        return json.dumps(event, ensure_ascii=False).encode(errors="replace")

    is_long = sum(map(len, event["texts"])) > SMALL_BYTES
    return await run_beside(dump, event) if is_long else dump(event)


def _list_slots(body: Mapping[str, Any]) -> list[Slot]:
    return list(list_request_slots(body))


def _encode(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode(errors="replace")


async def dump_body(body: Any) -> bytes:
    """The body of a request as JSON: of a large one, beside other requests."""
    return await run_beside(_encode, body)


def load_hooks(config: Hooks) -> None:
    """Load all callables, or raise an `InputError` that names the one that is missing."""
    for one in (*config.before, *config.after):
        Hook(one)


async def parse_body(content: bytes) -> Any:
    """The JSON of a request, which was read before: large ones beside other requests, and now with all their names."""
    return json.loads(content) if len(content) <= SMALL_BYTES else await run_beside(_parse_large, content)


def _parse_large(content: bytes) -> Any:
    values = json.loads(content)
    check_nested(values)
    return values
