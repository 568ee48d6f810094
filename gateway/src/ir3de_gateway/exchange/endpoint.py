"""One request's way through the gateway, from its first byte to the last byte of its answer.

    read      the body, within limits                                 requests/client, requests/json_body
    choose    the experts that may answer, in their order             requests/prompt, controls, choice
    ask       one after the other, until one of them answers          asking, experts/upstream
    relay     its answer, whole or as a stream, with provenance       relaying, wire/, provenance
    record    what happened, once, at the end                         exchange_record, telemetry

One thing alone cancels the task of a request from outside: the client that disconnects (or the server that stops).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

from starlette.types import Receive, Scope, Send

from ir3de_gateway.api_errors import (
    ApiError,
    ClientDisconnect,
    build_internal_error,
    build_stopping_error,
    build_type_error,
)
from ir3de_gateway.config.experts import RESERVED
from ir3de_gateway.exchange.accounting import measure, reserve_usage, restrict_to_key
from ir3de_gateway.exchange.caching import answer_from_cache
from ir3de_gateway.exchange.exchange import Exchange
from ir3de_gateway.exchange.hooked import show_request
from ir3de_gateway.exchange.preparing import mark_untranslatable
from ir3de_gateway.exchange.relaying import close_stream
from ir3de_gateway.exchange.turns import ask_in_turn
from ir3de_gateway.exchange_record import read_usage
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.requests.choice import Choice, choose, route_prompt
from ir3de_gateway.requests.client import DisconnectWatcher, read_body
from ir3de_gateway.requests.controls import FIELD, read_controls
from ir3de_gateway.requests.forwarding import OutgoingBody
from ir3de_gateway.requests.json_body import read_json, read_values, run_beside
from ir3de_gateway.requests.prompt import read_prompt
from ir3de_gateway.store.pins import scope_id, scope_session
from ir3de_gateway.wire.formats import WireFormat

MAX_LOGGED_CHARS = 100_000  # of a prompt, where the decision log has prompts: routing reads a thousand tokens
_log = logging.getLogger("ir3de.gateway")

Reading = Callable[[Exchange], Awaitable[None]]
Choosing = Callable[[Exchange], Awaitable[Choice]]


class InferenceEndpoint:
    """An endpoint that experts answer, as an ASGI application."""

    def __init__(self, gateway: Gateway, wire: WireFormat) -> None:
        self._gateway, self._wire = gateway, wire

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return run(Exchange(self._gateway, self._wire, scope, receive, send), read_content, choose_routed)


async def run(exchange: Exchange, read: Reading, choose: Choosing) -> None:
    """The whole way. Whatever happens, it is recorded."""
    if exchange.lease is not None:
        exchange.lease.measure = partial(measure, exchange)
    try:
        await _answer(exchange, read, choose)
    except ClientDisconnect:
        if exchange.record.outcome == "ok" and not exchange.is_complete:
            exchange.record.outcome = "cancelled"
    except Exception as error:
        exchange.record.outcome = "failed"
        _log.error("request %s failed", exchange.request_id, exc_info=error)
        if exchange.response.status:
            raise
        await exchange.send_error(build_internal_error(exchange.request_id))
    except BaseException as error:
        exchange.record.outcome = "cancelled"
        if isinstance(error, asyncio.CancelledError):
            await _tell_stop(exchange)
        exchange.response.status = exchange.response.status or 500
        raise
    finally:
        _finish_record(exchange)


async def _answer(exchange: Exchange, read: Reading, choose: Choosing) -> None:
    """Read, choose, ask and relay, as long as the client is there."""
    try:
        await read(exchange)
    except ApiError as problem:  # the rest of the request may still be on its way
        exchange.record.outcome, exchange.record.error = "client_error", problem.code
        headers, refusal = exchange.build_error(problem)
        await exchange.response.send_early(problem.status, headers, refusal, exchange.receive)
        return
    watcher = exchange.response.watcher = DisconnectWatcher(exchange.receive, exchange.connection)
    try:
        exchange.choice = await choose(exchange)
        if not exchange.snapshot.caches_answers or not await answer_from_cache(exchange, exchange.choice):
            await ask_in_turn(exchange, exchange.choice)
        _pin(exchange, exchange.choice)
        if exchange.afterwards is not None:
            await exchange.afterwards()
    except ApiError as problem:
        exchange.record.outcome = "client_error" if problem.status < 500 else "failed"
        await exchange.send_error(problem)
    except asyncio.CancelledError:
        if watcher.absorb_cancellation():
            raise ClientDisconnect from None
        raise
    finally:
        exchange.response.stop()


async def _tell_stop(exchange: Exchange) -> None:
    """The gateway stops, and the client has no answer yet, or only a part of one."""
    problem = build_stopping_error()
    with suppress(ClientDisconnect):
        if not exchange.response.status:
            await exchange.send_error(problem)
        elif exchange.relay is not None and not exchange.is_complete and not exchange.response.has_ended:
            exchange.record.error = problem.code
            await close_stream(exchange, exchange.relay, problem)


async def read_content(exchange: Exchange) -> None:
    """Read the body."""
    limits = exchange.snapshot.config.server.limits
    exchange.content = await read_body(exchange.receive, exchange.received, limits, exchange.connection)
    exchange.record.received_bytes = len(exchange.content)
    exchange.record.read_seconds = perf_counter() - exchange.clock


async def choose_routed(exchange: Exchange) -> Choice:
    """The experts that may answer, and which of them comes first."""
    snapshot, routing = exchange.snapshot, exchange.snapshot.config.routing
    body = await read_json(exchange.content, snapshot.config.server.limits.json_depth)
    exchange.content = b""
    if snapshot.has_before_hooks:
        body = await show_request(exchange, body)
    values = body.values
    _read_model(exchange, values)
    if exchange.trace is not None:
        exchange.trace.read_request(values)
    prompt = await read_values(
        body,
        lambda values: read_prompt(
            exchange.wire,
            values,
            routing.text,
            routing.envelopes,
            counts_tokens=snapshot.has_context_windows or exchange.lease is not None,
        ),
    )
    if exchange.wire.capability in snapshot.translated and not body.is_large:
        prompt = mark_untranslatable(prompt, exchange.wire, values)
    if exchange.key.name and exchange.wire.stores_answers:
        _reject_conversation(values.get("conversation"))
    if prompt.follows:
        prompt = prompt._replace(follows=_scope_response(exchange, prompt.follows))
    exchange.body = OutgoingBody.from_request(exchange.wire, body)
    if snapshot.config.logs.prompts:
        exchange.record.text, exchange.record.turns = prompt.text[:MAX_LOGGED_CHARS], prompt.turns
    asked, controls, routed = exchange.record.asked, exchange.controls, None
    if prompt.turns and not prompt.is_quick and asked in RESERVED:
        routed = await run_beside(partial(route_prompt, snapshot, controls=controls), prompt)
    choice = choose(snapshot, asked, prompt, controls, exchange.gateway.pins, routed)
    exchange.record.add_choice(choice)
    if choice.build_refusal is not None:
        raise choice.build_refusal()
    exchange.is_background = exchange.wire.stores_answers and bool(values.get("background"))
    if exchange.lease is not None:
        reserve_usage(exchange, exchange.lease, choice, prompt, body)
    return choice


def _read_model(exchange: Exchange, values: Mapping[str, Any]) -> None:
    """The model, whether a stream is wanted, and the controls."""
    model, stream = values.get("model", "auto"), values.get("stream")
    if not isinstance(model, str) or not model:
        raise build_type_error("model", "a name such as 'auto'", model)
    if stream is not None and not isinstance(stream, bool):
        raise build_type_error("stream", "true or false", stream)
    exchange.record.asked, exchange.record.stream = model, bool(stream) and exchange.wire.can_stream
    exchange.controls = read_controls(values.get(FIELD), exchange.received, exchange.gateway.session_headers)
    if session := exchange.controls.session:
        exchange.record.session = session
        exchange.controls = replace(exchange.controls, session=scope_session(session, exchange.key.name))
    if exchange.key.experts is not None:
        exchange.controls = restrict_to_key(exchange, model, exchange.key.experts)


def _scope_response(exchange: Exchange, response_id: str) -> str:
    """The id of the answer that a request continues, as the pins know it: keys continue their own answers only."""
    key = exchange.key.name
    if key and exchange.stored_objects.find("response", response_id) is None:
        message = f"no response {response_id[:200]!r}: it was not made here, or it is gone"
        raise ApiError(400, message, "previous_response_not_found", "previous_response_id")
    exchange.keeper = exchange.stored_objects.find_replica("response", response_id)
    return scope_id(response_id, key)


def _reject_conversation(conversation: object) -> None:
    """Keys continue their own conversations only, and none can be made here: it may be anybody's at the expert."""
    if conversation is not None:
        named = conversation.get("id") if isinstance(conversation, dict) else conversation
        message = (
            f"no conversation {str(named)[:200]!r}: none is made here. Continue an answer with previous_response_id"
        )
        raise ApiError(400, message, "conversation_not_found", "conversation")


def _pin(exchange: Exchange, choice: Choice) -> None:
    """Remember which expert a conversation is with."""
    if exchange.record.outcome != "ok" or exchange.expert is None:
        return
    if exchange.controls.session and choice.routed is not None and choice.why != "shadow":
        exchange.gateway.pins.put(exchange.controls.session, exchange.expert.name)


def _finish_record(exchange: Exchange) -> None:
    """Fill in what is known at the end, and hand the record to metrics, logs and traces."""
    record, response = exchange.record, exchange.response
    record.status = response.status or (499 if record.outcome == "cancelled" else 0)
    record.sent_bytes = response.sent_bytes
    record.total_seconds = perf_counter() - exchange.clock
    if exchange.choice is not None and exchange.expert is not None:
        record.add_answer(exchange.choice)
    if exchange.lease is not None:
        exchange.lease.close()  # which fills in what it took
    elif exchange.usage and exchange.expert is not None and record.cache != "hit":  # which nobody was asked for
        prompt, answer = record.prompt_tokens, record.completion_tokens = read_usage(exchange.usage)
        record.cost = exchange.expert.config.price.compute_cost(prompt or 0, answer or 0)
    exchange.gateway.observer.observe(record)
    if exchange.trace is not None:
        exchange.trace.finish(record, None if exchange.expert is None else exchange.expert.config, exchange.usage)
    exchange.relay = None  # one that counts refers to the exchange, which would keep its router until a collection
