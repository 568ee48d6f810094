"""Where hooks see a request or its answer, and what they may change."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

from starlette.types import Message

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.experts.retry import UpstreamFailure
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.experts.upstream import UpstreamResponse
from ir3de_gateway.hooks.runner import HookRunner, dump_body, parse_body
from ir3de_gateway.requests.json_body import SMALL_BYTES, JsonBody, read_json
from ir3de_gateway.stages.relay import read_pieces
from ir3de_gateway.stages.values import Accepted, Answered

MAX_HELD_BYTES = 64 << 20  # of a stream
MAX_OBSERVED_BYTES = 8 << 20  # of a stream; of a longer one, hooks see the beginning


async def show_form(accepted: Accepted) -> None:
    """Let hooks see a request that is a form with files: they may reject it."""
    if (runner := _find_runner(accepted)) is not None:
        event = {**_describe(accepted), "body": None, "texts": []}
        await runner.run_before(event, accepted.gateway.transport)


async def show_request(accepted: Accepted, body: JsonBody) -> JsonBody:
    """Let hooks see a request before it is routed. Its body, as they left it."""
    if (runner := _find_runner(accepted)) is None:
        return body
    event = {**_describe(accepted), "body": await parse_body(body.content), "texts": []}
    is_large = len(body.content) > SMALL_BYTES
    if not await runner.run_before(event, accepted.gateway.transport, is_large=is_large):
        return body
    content = await dump_body(event["body"])
    return await read_json(content, accepted.snapshot.config.server.limits.json_depth)


async def show_answer(answered: Answered, source: UpstreamResponse, expert: Expert) -> Answered:
    """Let hooks see an answer: now, while it is held, or when the client has it."""
    accepted = answered.accepted
    runner = accepted.gateway.get_hooks(accepted.snapshot)
    mode = None if runner is None else runner.get_mode(accepted.wire.capability, is_stream=source.is_stream)
    if runner is None or mode is None or not _is_shown(answered, source):
        return answered
    event = {**_describe(accepted), "expert": expert.name, "model": expert.model, "is_stream": source.is_stream}
    if mode == "observe":
        kept = _Kept(MAX_OBSERVED_BYTES)
        accepted.response.also_send_to(kept.observe)
        return answered._replace(observe=partial(_observe, runner, event, kept, accepted))
    return await _hold(answered, runner, event)


def _is_shown(answered: Answered, source: UpstreamResponse) -> bool:
    """Whether an answer is one that hooks understand. Routed endpoints read JSON, whatever its content type is."""
    if not 200 <= source.status < 300:
        return False
    is_read = source.status == 200 and not answered.accepted.wire.is_opaque
    return is_read or source.is_stream or source.content_type.endswith("json")


async def _hold(answered: Answered, runner: HookRunner, event: dict[str, Any]) -> Answered:
    """Read the whole answer, let hooks see it, and give what they leave of it."""
    accepted, content = answered.accepted, answered.body
    progress = accepted.progress
    if content is None:
        kept = _Kept(MAX_HELD_BYTES)
        try:
            await kept.hold(await read_pieces(answered, kept.hold))
        except (UpstreamFailure, OSError):
            if not progress.is_complete:
                progress.relay = None  # the client has nothing yet, so others can answer
                raise
        content = kept.content
    since = perf_counter()
    content = await runner.run_after(event, content, accepted.gateway.transport, is_held=True)
    return answered._replace(body=content, hook_seconds=perf_counter() - since)


async def _observe(runner: HookRunner, event: dict[str, Any], kept: _Kept, accepted: Accepted) -> None:
    await runner.run_after(event, kept.content, accepted.gateway.transport, is_held=False)


def _find_runner(accepted: Accepted) -> HookRunner | None:
    """The hooks, if any of them is for such requests."""
    runner = accepted.gateway.get_hooks(accepted.snapshot)
    return runner if runner is not None and runner.has_before(accepted.wire.capability) else None


def _describe(accepted: Accepted) -> dict[str, Any]:
    return {
        "request_id": accepted.request_id,
        "endpoint": accepted.wire.capability,
        "path": f"/v1/{accepted.wire.path}",
        "key": accepted.key.name,
    }


class _Kept:
    """What will be sent to the client, or was."""

    def __init__(self, limit: int) -> None:
        self._limit, self._pieces, self._size = limit, list[bytes](), 0

    @property
    def content(self) -> bytes:
        return b"".join(self._pieces)

    async def observe(self, message: Message) -> None:
        """Keep what was sent, up to the limit; this is what ASGI servers call `send`."""
        if message["type"] == "http.response.body":
            self._add(message["body"])

    async def hold(self, piece: bytes) -> None:
        """Keep what will be sent, or raise an `ApiError` beyond the limit."""
        if not self._add(piece):
            message = f"the answer is larger than {self._limit >> 20} MB, which is too much to hold for hooks"
            raise ApiError(502, message, "answer_too_large")

    def _add(self, piece: bytes) -> bool:
        self._size += len(piece)
        if self._size <= self._limit:
            self._pieces.append(piece)
        return self._size <= self._limit
