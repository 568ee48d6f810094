"""Where hooks see a request or its answer, and what they may change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter
from typing import Any

from starlette.types import Message

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.exchange.exchange import Exchange
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.experts.upstream import UpstreamFailure, UpstreamResponse
from ir3de_gateway.hooks.runner import HookRunner, dump_body, parse_body
from ir3de_gateway.requests.client_response import ClientResponse
from ir3de_gateway.requests.json_body import SMALL_BYTES, JsonBody, read_json
from ir3de_gateway.telemetry.server_timing import build_server_timing

MAX_HELD_BYTES = 64 << 20  # of a stream
MAX_OBSERVED_BYTES = 8 << 20  # of a stream; of a longer one, hooks see the beginning

Relay = Callable[[Exchange, UpstreamResponse, Expert], Awaitable[None]]


async def show_form(exchange: Exchange) -> None:
    """Let hooks see a request that is a form with files: they may refuse it."""
    if (runner := _find_runner(exchange)) is not None:
        event = {**_describe(exchange), "body": None, "texts": []}
        await runner.run_before(event, exchange.gateway.transport)


async def show_request(exchange: Exchange, body: JsonBody) -> JsonBody:
    """Let hooks see a request before it is routed. Its body, as they left it."""
    if (runner := _find_runner(exchange)) is None:
        return body
    event = {**_describe(exchange), "body": await parse_body(body.content), "texts": []}
    is_large = len(body.content) > SMALL_BYTES
    if not await runner.run_before(event, exchange.gateway.transport, is_large=is_large):
        return body
    content = await dump_body(event["body"])
    return await read_json(content, exchange.snapshot.config.server.limits.json_depth)


async def relay_hooked(exchange: Exchange, answer: UpstreamResponse, expert: Expert, relay: Relay) -> None:
    """Relay an answer that hooks see: held until they have seen it, or shown to them afterwards."""
    runner = exchange.gateway.get_hooks(exchange.snapshot)
    mode = None if runner is None else runner.get_mode(exchange.wire.capability, is_stream=answer.is_stream)
    if runner is None or mode is None or not _is_shown(exchange, answer):
        await relay(exchange, answer, expert)
        return
    event = {**_describe(exchange), "expert": expert.name, "model": expert.config.served_model}
    event["is_stream"] = answer.is_stream
    if mode == "observe":
        await _relay_observed(exchange, answer, expert, relay, runner, event)
    else:
        await _relay_held(exchange, answer, expert, relay, runner, event)


def _is_shown(exchange: Exchange, answer: UpstreamResponse) -> bool:
    """Whether an answer is one that hooks understand. Routed endpoints read JSON, whatever the expert calls it."""
    if not 200 <= answer.status < 300:
        return False
    is_read = answer.status == 200 and not exchange.wire.is_opaque
    return is_read or answer.is_stream or answer.content_type.endswith("json")


async def _relay_held(
    exchange: Exchange, answer: UpstreamResponse, expert: Expert, relay: Relay, runner: HookRunner, event: Any
) -> None:
    """Take in the whole answer, let hooks see it, and send what they leave of it."""
    real, body, kept = exchange.response, exchange.body, _Kept(MAX_HELD_BYTES, is_held=True)
    exchange.response = ClientResponse(kept.take, exchange.gateway.stalls)
    try:
        await relay(exchange, answer, expert)
    except (UpstreamFailure, OSError):  # an OSError is of the expert's connection, and becomes a failure where it ends
        if not exchange.is_complete:
            exchange.body, exchange.relay = body, None  # the client has nothing yet, so others can be asked
            raise
    finally:
        exchange.response = real
        exchange.record.first_seconds = None  # what was taken in is not sent yet
    since = perf_counter()
    content = await runner.run_after(event, kept.content, exchange.gateway.transport, is_held=True)
    now = perf_counter()
    exchange.record.first_seconds = seconds = now - exchange.clock
    if exchange.snapshot.config.server.timing:  # then it is the last header
        kept.headers[-1] = (b"server-timing", build_server_timing(exchange.record, seconds, hooks=now - since))
    await real.send_whole(kept.status, kept.headers, content)


async def _relay_observed(
    exchange: Exchange, answer: UpstreamResponse, expert: Expert, relay: Relay, runner: HookRunner, event: Any
) -> None:
    """Relay the answer as it comes, and show it to the hooks when the client has it and the expert is free again."""
    kept = _Kept(MAX_OBSERVED_BYTES, is_held=False)
    exchange.response.also_send_to(kept.take)
    await relay(exchange, answer, expert)
    exchange.afterwards = partial(runner.run_after, event, kept.content, exchange.gateway.transport, is_held=False)


def _find_runner(exchange: Exchange) -> HookRunner | None:
    """The hooks, if any of them is for such requests."""
    runner = exchange.gateway.get_hooks(exchange.snapshot)
    return runner if runner is not None and runner.has_before(exchange.wire.capability) else None


def _describe(exchange: Exchange) -> dict[str, Any]:
    return {
        "request_id": exchange.request_id,
        "endpoint": exchange.wire.capability,
        "path": f"/v1/{exchange.wire.path}",
        "key": exchange.key.name,
    }


class _Kept:
    """What would have been sent to the client, or was."""

    def __init__(self, limit: int, *, is_held: bool) -> None:
        self._limit, self._is_held = limit, is_held
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def content(self) -> bytes:
        return b"".join(self._pieces)

    async def take(self, message: Message) -> None:
        """What ASGI servers call `send`."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [pair for pair in message["headers"] if pair[0] != b"content-length"]
        else:
            self._keep(message["body"])

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit:
            self._pieces.append(piece)
        elif self._is_held:
            message = f"the answer is larger than {self._limit >> 20} MB, which is too much to hold for hooks"
            raise ApiError(502, message, "answer_too_large")
