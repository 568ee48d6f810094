"""Relays an expert's answer to the client, whole or as a stream, with provenance."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter

from ir3de_gateway.api_errors import ApiError, ClientDisconnect
from ir3de_gateway.exchange.accounting import build_relay
from ir3de_gateway.exchange.exchange import ERROR_CODES, Exchange
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.experts.upstream import UpstreamFailure, UpstreamResponse, parse_object
from ir3de_gateway.requests.controls import FIELD
from ir3de_gateway.wire.event_relay import EventRelay, add_member, remove_member

_log = logging.getLogger("ir3de.gateway")


async def relay_whole(exchange: Exchange, answer: UpstreamResponse, expert: Expert) -> None:
    """A whole answer, as one piece. What is too large to be held is sent on as it comes."""
    body = await answer.read_whole()
    if body is None:
        await relay_unparsed(exchange, answer, expert)
        return
    if answer.status == 200:
        body = _sign(exchange, body, answer, expert)
    elif answer.status >= 400:
        note_refusal(exchange, answer, expert)
    expert.breaker.record_beginning(exchange.ticket)
    exchange.record.first_seconds = perf_counter() - exchange.clock
    await exchange.response.send_whole(answer.status, exchange.build_headers(answer), body)


def note_refusal(exchange: Exchange, answer: UpstreamResponse, expert: Expert) -> None:
    """The expert refuses the request, which is the client's affair, or the operator's if it is about the key."""
    if answer.status == 401 and expert.should_warn():
        variable = expert.config.api_key_env or "none"
        _log.warning("'%s' refuses the gateway's key (api_key_env: %s)", expert.name, variable)
    exchange.record.outcome, exchange.record.error = "client_error", f"upstream_{answer.status}"


def _sign(exchange: Exchange, body: bytes, answer: UpstreamResponse, expert: Expert) -> bytes:
    """A whole answer with provenance; its usage and id are kept. An expert may not send a provenance of its own."""
    content, kind = parse_object(body), answer.content_type or "something"
    if content is None:
        raise UpstreamFailure("garbage", f"'{expert.name}' answered with {kind} that is not a JSON object")
    if exchange.record.stream:  # it cannot stream, which is no illness
        raise UpstreamFailure(
            "garbage", f"'{expert.name}' answered with {kind}, asked for a stream of events", is_expert_fault=False
        )
    exchange.usage = usage if isinstance(usage := content.get("usage"), dict) else {}
    if exchange.wire.stores_answers and (response_id := exchange.wire.read_response_id(content)):
        _remember(exchange, response_id, expert)
    exchange.answer_bytes = len(body)
    if exchange.trace is not None:
        exchange.trace.read_answer(content)
    if not (member := exchange.build_member(expert)):
        return body
    return add_member(remove_member(body, FIELD) if FIELD in content else body, member)


async def relay_stream(exchange: Exchange, answer: UpstreamResponse, expert: Expert) -> None:
    """A stream of events, as they come."""
    if not exchange.record.stream and "stream" not in expert.config.defaults:
        raise UpstreamFailure("garbage", f"'{expert.name}' answered with a stream of events, asked for a whole answer")
    piece = await answer.read_first_piece()
    if not piece:
        raise UpstreamFailure("broken", f"'{expert.name}' ended its stream before it began")
    exchange.body = None  # nobody else will be asked
    expert.breaker.record_beginning(exchange.ticket)
    relay = exchange.relay = build_relay(exchange, expert, answer)
    exchange.record.first_seconds = perf_counter() - exchange.clock
    exchange.response.stall_limit = expert.config.timeouts.idle
    await exchange.response.start(answer.status, exchange.build_headers(answer))
    is_unknown = exchange.wire.stores_answers  # others may ask for it before it is complete, or cancel it
    try:
        while piece:
            if ready := relay.feed(piece):
                if is_unknown and (response_id := relay.find_response_id()):
                    _remember(exchange, response_id, expert)
                    is_unknown = False
                await exchange.response.send_piece(ready)
            piece = await answer.read_piece(last=relay.is_ending)
        rest = relay.flush()
        if relay.has_error:  # the expert has told the client itself
            exchange.record.outcome, exchange.record.error = "broken_stream", "upstream_error"
        elif not relay.is_done_at_end:
            raise UpstreamFailure("broken", f"'{expert.name}' ended its stream in the middle")
    finally:
        exchange.usage = relay.find_usage() or answer.find_usage()
        if exchange.trace is not None:
            exchange.trace.read_events(relay.head, relay.tail)
    await exchange.response.end(rest)


def _remember(exchange: Exchange, response_id: str, expert: Expert) -> None:
    """Remember which expert has a response."""
    exchange.response_id = response_id
    exchange.stored_objects.remember("response", response_id, expert.name)


async def relay_unparsed(
    exchange: Exchange, answer: UpstreamResponse, expert: Expert, watch: Callable[[bytes], None] | None = None
) -> None:
    """An answer that is not changed, as it comes; `watch` is called with each piece before it is sent."""
    piece = await answer.read_first_piece()
    exchange.body = None
    expert.breaker.record_beginning(exchange.ticket)
    exchange.record.first_seconds = perf_counter() - exchange.clock
    exchange.response.stall_limit = expert.config.timeouts.idle
    await exchange.response.start(answer.status, exchange.build_headers(answer))
    while piece:
        if watch is not None:
            watch(piece)
        await exchange.response.send_piece(piece)
        piece = await answer.read_piece()
    await exchange.response.end()


async def end_broken_stream(exchange: Exchange, failure: UpstreamFailure) -> None:
    """End a broken stream with an error event. Other answers are cut off, so that they do not look complete."""
    problem = ApiError(failure.status, failure.message, ERROR_CODES.get(failure.reason, ""))
    exchange.record.outcome, exchange.record.error = "broken_stream", problem.code
    if exchange.relay is None:
        raise ClientDisconnect from failure
    await close_stream(exchange, exchange.relay, problem)


async def close_stream(exchange: Exchange, relay: EventRelay, problem: ApiError) -> None:
    """End a stream that is not complete with an error event, unless the expert has sent one itself."""
    told = b"" if relay.has_error else relay.build_closing(exchange.wire.build_error_event(problem))
    await exchange.response.end(told)
