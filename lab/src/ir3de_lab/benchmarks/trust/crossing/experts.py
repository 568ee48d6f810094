"""Experts on one real socket: they answer in the API that they are asked in, fail on demand, and keep what they saw."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

ANSWER = ("Well", ", it ", "depends.")
PROMPT_TOKENS = 7  # that every expert reports
SLOW_S = 0.1  # of an answer that others should overtake
UNLIMITED_TOKENS = 300  # of an answer that the request does not limit
FAILURE = "the expert failed on purpose"
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_TARGET = re.compile(rb"POST /([a-z]+)(?:-2)?/v1/(\S+) ")


@dataclass
class Experts:
    """All experts of a gateway: /NAME/v1/…"""

    url: str = ""
    faults: dict[str, str] = field(default_factory=dict)  # by the name of the expert
    seen: list[tuple[str, str, bytes]] = field(default_factory=list)  # expert, path, body
    in_flight: int = 0

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        self.in_flight += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await reader.readexactly(int(length[1])) if length else b""
            if (target := _TARGET.match(head)) is None:  # a health check
                writer.write(_write_whole(200, {"object": "list", "data": []}))
                return
            expert, path = target[1].decode(), target[2].decode()
            self.seen.append((expert, path, body))
            await self._answer(self.faults.get(expert, "none"), path, json.loads(body), reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.in_flight -= 1
            with suppress(OSError):
                writer.close()

    async def _answer(
        self, fault: str, path: str, asked: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if fault == "silent":
            await reader.read()  # until the gateway has had enough
        elif fault == "reset":
            writer.transport.abort()
        elif fault in ("429", "500"):
            writer.write(_write_whole(int(fault), _build_error(path)))
        else:
            if fault == "slow":
                await asyncio.sleep(SLOW_S)
            data = write_answer(path, asked)
            writer.write(data[: len(data) * 2 // 3] if fault == "cut" else data)
        with suppress(OSError):
            await writer.drain()


def count_answer_tokens(asked: dict[str, Any]) -> int:
    """The tokens that a request is charged: the most that any server would take it for."""
    limits = [asked.get(name) for name in ("max_tokens", "max_completion_tokens", "max_output_tokens")]
    given = [limit for limit in limits if isinstance(limit, int)]
    several = asked.get("n", 1)
    return (max(given) if given else UNLIMITED_TOKENS) * (several if isinstance(several, int) else 1)


def write_answer(path: str, asked: dict[str, Any]) -> bytes:
    """The whole HTTP answer to a request: an object, or a stream of events."""
    model, tokens, text = asked.get("model"), count_answer_tokens(asked), "".join(ANSWER)
    is_stream = asked.get("stream") is True
    usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": tokens, "total_tokens": PROMPT_TOKENS + tokens}
    if path == "messages":
        used = {"input_tokens": PROMPT_TOKENS, "output_tokens": tokens}
        content = [{"type": "text", "text": text}]
        fields = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "stop_sequence": None}
        whole = {**fields, "content": content, "stop_reason": "end_turn", "usage": used}
        return _write_stream(_list_message_events(fields, used), named=True) if is_stream else _write_whole(200, whole)
    if path == "responses":
        part = {"type": "output_text", "text": text, "annotations": []}
        output = [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}]
        used = {"input_tokens": PROMPT_TOKENS, "output_tokens": tokens, "total_tokens": PROMPT_TOKENS + tokens}
        fields = {"id": "resp_1", "object": "response", "created_at": 1, "model": model}
        whole = {**fields, "status": "completed", "output": output, "usage": used}
        return (
            _write_stream(_list_response_events(fields, whole), named=True) if is_stream else _write_whole(200, whole)
        )
    is_chat = path == "chat/completions"
    kind = "chat.completion" if is_chat else "text_completion"
    fields = {"id": "x", "object": f"{kind}.chunk" if is_stream and is_chat else kind, "created": 1, "model": model}
    if is_stream:
        return _write_stream(_list_chunks(fields, usage, is_chat), named=False)
    said = {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
    choice = {"index": 0, "finish_reason": "stop", "logprobs": None, **said}
    return _write_whole(200, {**fields, "choices": [choice], "usage": usage})


def _list_chunks(fields: dict[str, Any], usage: dict[str, int], is_chat: bool) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"delta": {"content": word}} if is_chat else {"text": word} for word in ANSWER]
    said.append({**({"delta": {}} if is_chat else {"text": ""}), "finish_reason": "stop"})
    chunks = [{**fields, "choices": [{"index": 0, "finish_reason": None, **one}]} for one in said]
    return [*chunks, {**fields, "choices": [], "usage": usage}]


def _list_message_events(fields: dict[str, Any], used: dict[str, int]) -> list[dict[str, Any]]:
    begun = {**fields, "content": [], "stop_reason": None, "usage": {**used, "output_tokens": 1}}
    deltas = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}} for word in ANSWER
    ]
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *deltas,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": used["output_tokens"]}},
        {"type": "message_stop"},
    ]


def _list_response_events(fields: dict[str, Any], whole: dict[str, Any]) -> list[dict[str, Any]]:
    begun = {**fields, "status": "in_progress", "output": []}
    where = {"item_id": "m", "output_index": 0, "content_index": 0}
    deltas = [{"type": "response.output_text.delta", "delta": word, **where} for word in ANSWER]
    return [
        {"type": "response.created", "response": begun},
        *deltas,
        {"type": "response.completed", "response": whole},
    ]


def _build_error(path: str) -> dict[str, Any]:
    error = {"message": FAILURE, "type": "api_error"}
    return {"type": "error", "error": error} if path == "messages" else {"error": {**error, "param": None, "code": "x"}}


def _write_whole(status: int, document: object) -> bytes:
    content = json.dumps(document).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


def _write_stream(events: list[dict[str, Any]], *, named: bool) -> bytes:
    head = (
        b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    texts = [(f"event: {one['type']}\n" if named else "") + f"data: {json.dumps(one)}\n\n" for one in events]
    pieces = [text.encode() for text in ([*texts] if named else [*texts, "data: [DONE]\n\n"])]
    return head + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in pieces) + b"0\r\n\r\n"


@contextmanager
def running_experts() -> Iterator[Experts]:
    """Experts on a free port, in a thread of their own."""
    experts, loop = Experts(), asyncio.new_event_loop()
    started, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        server = await asyncio.start_server(experts.meet, "127.0.0.1", 0)
        experts.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await stop.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    started.wait()
    try:
        yield experts
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
