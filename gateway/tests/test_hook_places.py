"""No text slips past the hooks, wherever a request or an answer has it; and no key keeps them from the others."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from api_answers import saying, serving
from hook_functions import DOES, SEEN
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.document import HookConfig
from ir3de_gateway.hooks import hook as one_hook
from ir3de_gateway.hooks.hook import Hook
from raw_sockets import ask, chat
from request_texts import PLACES, SECRET
from running_gateway import Running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    hooks = {which: [{"call": f"hook_functions:{which}", "timeout": 60}] for which in ("before", "after")}
    with serving(tmp_path_factory.mktemp("places"), hooks=hooks) as found:
        yield found


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    SEEN.clear()
    DOES.clear()


def refuse_secret(event: dict[str, Any]) -> Any:
    return {"refuse": {}} if SECRET in "\n".join(event["texts"]) else None


def redact(event: dict[str, Any]) -> Any:
    return {"texts": [text.replace(SECRET, "[redacted]") for text in event["texts"]]}


def test_a_hook_sees_every_text_that_a_model_reads(gateway: Running) -> None:
    DOES["before"] = refuse_secret
    passed = [
        place
        for place, (path, body) in PLACES.items()
        if ask(gateway.url, {"model": "law", **body}, f"/v1/{path}").status != 403
    ]
    assert passed == []
    DOES["before"] = redact
    for path, body in PLACES.values():
        assert ask(gateway.url, {"model": "law", **body}, f"/v1/{path}").status == 200
        assert SECRET not in gateway.upstream.bodies[-1].decode()


def _message(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": None, **fields}}]}


def _block(**fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [fields]}


def _item(**fields: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "output": [fields]}


def _function(arguments: str) -> dict[str, Any]:
    return {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}}


WHOLE = {
    "content": ("chat/completions", _message(content=SECRET)),
    "reasoning_content": ("chat/completions", _message(reasoning_content=SECRET)),
    "reasoning": ("chat/completions", _message(reasoning=SECRET)),
    "refusal": ("chat/completions", _message(refusal=SECRET)),
    "arguments": ("chat/completions", _message(tool_calls=[_function(SECRET)])),
    "transcript": ("chat/completions", _message(audio={"id": "1", "data": "AAAA", "transcript": SECRET})),
    "text": ("messages", _block(type="text", text=SECRET)),
    "thinking": ("messages", _block(type="thinking", thinking=SECRET, signature="s")),
    "tool use": ("messages", _block(type="tool_use", id="1", name="f", input={"x": SECRET})),
    "output text": ("responses", _item(type="message", content=[{"type": "output_text", "text": SECRET}])),
    "output refusal": ("responses", _item(type="message", content=[{"type": "refusal", "refusal": SECRET}])),
    "reasoning summary": ("responses", _item(type="reasoning", summary=[{"type": "summary_text", "text": SECRET}])),
    "function call": ("responses", _item(type="function_call", name="f", arguments=SECRET)),
}


def _delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def _block_delta(**fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 1, "delta": fields}


def _event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": 0, "content_index": 0, **fields}


STREAMED = {  # the event of a piece of the text
    "content": ("chat/completions", lambda piece: _delta(content=piece)),
    "reasoning_content": ("chat/completions", lambda piece: _delta(reasoning_content=piece)),
    "refusal": ("chat/completions", lambda piece: _delta(refusal=piece)),
    "arguments": ("chat/completions", lambda piece: _delta(tool_calls=[_function(piece)])),
    "text": ("messages", lambda piece: _block_delta(type="text_delta", text=piece)),
    "thinking": ("messages", lambda piece: _block_delta(type="thinking_delta", thinking=piece)),
    "partial JSON": ("messages", lambda piece: _block_delta(type="input_json_delta", partial_json=piece)),
    "output text": ("responses", lambda piece: _event("output_text.delta", delta=piece)),
    "output refusal": ("responses", lambda piece: _event("refusal.delta", delta=piece)),
    "reasoning": ("responses", lambda piece: _event("reasoning_summary_text.delta", summary_index=0, delta=piece)),
    "function call": ("responses", lambda piece: _event("function_call_arguments.delta", delta=piece)),
}
ENDS = {
    "chat/completions": b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
    "messages": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    "responses": b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"resp_1"}}\n\n',
}
ASKED = {
    "chat/completions": chat("Is it void?", "law"),
    "messages": {**chat("Is it void?", "law"), "max_tokens": 9},
    "responses": {"model": "law", "input": "Is it void?"},
}


def answer(gateway: Running, path: str, said: bytes, kind: str = "application/json", **more: Any) -> Any:
    gateway.upstream.behaviour["law"] = saying(said, content_type=kind)
    return ask(gateway.url, {**ASKED[path], **more}, f"/v1/{path}")


@pytest.mark.parametrize("place", WHOLE)
def test_a_hook_sees_and_changes_every_text_that_a_model_writes(gateway: Running, place: str) -> None:
    path, said = WHOLE[place]
    DOES["after"] = refuse_secret
    assert answer(gateway, path, json.dumps(said).encode()).status == 403
    DOES["after"] = redact
    got = answer(gateway, path, json.dumps(said).encode())
    assert got.status == 200 and SECRET not in got.body.decode() and "[redacted]" in got.body.decode()


@pytest.mark.parametrize("place", STREAMED)
def test_a_hook_sees_a_text_whole_that_a_stream_has_in_pieces(gateway: Running, place: str) -> None:
    path, build = STREAMED[place]
    events = [build(piece) for piece in (SECRET[:5], SECRET[5:11], SECRET[11:])]
    said = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events) + ENDS[path]
    DOES["after"] = refuse_secret
    assert answer(gateway, path, said, "text/event-stream", stream=True).status == 403
    DOES["after"] = redact
    got = answer(gateway, path, said, "text/event-stream", stream=True)
    assert got.status == 200 and got.body.count(b"[redacted]") == 1 and SECRET[11:] not in got.body.decode()


def test_a_text_that_comes_only_with_the_last_event_is_seen(gateway: Running) -> None:
    last = _event("completed", response=WHOLE["output text"][1])
    said = f"event: response.completed\ndata: {json.dumps(last)}\n\n".encode()
    DOES["after"] = redact
    got = answer(gateway, "responses", said, "text/event-stream", stream=True)
    assert got.status == 200 and got.body.count(b"[redacted]") == 1 and SECRET not in got.body.decode()


# a share of each key ------------------------------------------------------------------------------------------------


def test_prompts_of_one_key_that_hang_a_hook_leave_it_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_hook, "MAX_THREADS", 8)
    hook, let_go = Hook(HookConfig(call="hook_functions:before", timeout=60)), threading.Event()
    DOES["before"] = lambda event: None if event["key"] == "b" else let_go.wait(60) and None

    async def call(key: str) -> str:
        try:
            await hook.call(json.dumps({"key": key, "texts": []}).encode(), key, 0, None)  # type: ignore[arg-type]
        except ApiError as problem:
            return problem.code
        return "ok"

    async def hang(key: str, number: int) -> list[asyncio.Task[str]]:
        """Those of so many calls that the hook has taken: they hang, and the others have failed at once."""
        calls = [asyncio.create_task(call(key)) for _ in range(number)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert {task.result() for task in calls if task.done()} <= {"hook_failed"}
        return [task for task in calls if not task.done()]

    async def run() -> None:
        hanging = await hang("a", 12)
        assert len(hanging) == 4  # half of what there is
        assert [await call("b") for _ in range(12)] == ["ok"] * 12
        assert not await hang("a", 12)
        hanging += await hang("", 12)
        assert len(hanging) == 6  # half of the rest, for all who have no name
        for number in range(8):  # whoever has no call under way has one, whatever the others do
            hanging += await hang(f"late {number}", 2)
        assert len(hanging) == 14 and await call("b") == "ok"
        let_go.set()
        assert await asyncio.gather(*hanging) == ["ok"] * 14
        assert not hook.calls.total() and await call("a") == "ok"

    try:
        asyncio.run(run())
    finally:
        let_go.set()
