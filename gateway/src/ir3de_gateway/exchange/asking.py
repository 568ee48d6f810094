"""Asks one expert, or one of its replicas, and relays its answer."""

from __future__ import annotations

from functools import partial
from time import perf_counter

from ir3de_gateway.exchange.accounting import build_content
from ir3de_gateway.exchange.caching import CopiedResponse
from ir3de_gateway.exchange.exchange import Exchange
from ir3de_gateway.exchange.hedging import BegunRequest
from ir3de_gateway.exchange.hooked import Relay, relay_hooked
from ir3de_gateway.exchange.opaque import relay_opaque
from ir3de_gateway.exchange.preparing import prepare_translation
from ir3de_gateway.exchange.relaying import end_broken_stream, relay_stream, relay_whole
from ir3de_gateway.experts.admission import admit, record_failure
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.experts.upstream import (
    RETRYABLE_STATUSES,
    UpstreamFailure,
    UpstreamRequest,
    UpstreamResponse,
    read_refusal,
)
from ir3de_gateway.headers import compile_header_filter
from ir3de_gateway.requests.forwarding import build_head, build_path
from ir3de_gateway.translation.translation import TranslatedResponse
from ir3de_gateway.transport import RequestBody

SLOW_CLIENT_S = 1.0  # an expert may break off an answer that the client does not take for that long


async def ask(
    exchange: Exchange, expert: Expert, ticket: int | None = None, begun: BegunRequest | None = None
) -> UpstreamFailure | None:
    """Ask one expert and relay its answer. Return why it failed, if others can be asked: nothing was sent yet.

    For a replica with its `ticket`, whoever picked it has done what comes before; in a race, its answer has `begun`.
    """
    exchange.expert = expert
    exchange.record.expert, exchange.record.model = expert.name, expert.config.served_model
    if ticket is None:
        exchange.translation = None
        if exchange.wire.capability in expert.translated and await prepare_translation(exchange, expert):
            return None
        arrived = perf_counter()
        try:
            ticket = await admit(expert, exchange.deadline)
        except UpstreamFailure as failure:
            return failure.forget_frames()
        exchange.record.queue_seconds = perf_counter() - arrived
    exchange.ticket = ticket
    observer, started = exchange.gateway.observer, perf_counter() if begun is None else begun.started
    exchange.record.asked_seconds = started - exchange.clock
    observer.request_started(expert.name)
    exchange.is_sent = True
    try:
        async with begun or build_request(exchange, expert) as response:
            answer = _wrap_answer(exchange, response, expert)
            if answer.status in RETRYABLE_STATUSES or answer.status >= 500:
                raise await read_refusal(answer, expert)
            if 300 <= answer.status < 400:
                raise UpstreamFailure("garbage", f"'{expert.name}' points to another address: correct its base_url")
            await _choose_relay(exchange, answer)(exchange, answer, expert)
            if isinstance(answer, CopiedResponse):
                answer.keep()
        expert.breaker.record_success(ticket)
        return None
    except UpstreamFailure as failure:
        return await _handle_failure(exchange, expert, failure, perf_counter() - started)
    except BaseException:
        expert.breaker.record_abandoned(ticket)
        raise
    finally:
        exchange.record.upstream_seconds = perf_counter() - started
        expert.leave()
        observer.request_ended(expert.name)


def _wrap_answer(exchange: Exchange, answer: UpstreamResponse, expert: Expert) -> UpstreamResponse:
    """The answer in the client's format, and copied on its way if it may be kept. Resends are counted."""
    if exchange.trace is not None:
        exchange.trace.begin_answer(answer.headers)
    if exchange.translation is not None:
        answer = TranslatedResponse(answer, exchange.translation, exchange.wire, expert.name)
    if exchange.cache_key:
        answer = CopiedResponse(answer, exchange, exchange.snapshot.config.cache.answer_bytes)
    if answer.resends:
        exchange.record.resends += answer.resends
        exchange.gateway.observer.metrics.resends[expert.name] += answer.resends
    return answer


def _choose_relay(exchange: Exchange, answer: UpstreamResponse) -> Relay:
    """How the answer is sent on. Idle streams are many, so there is no coroutine around the one that relays them."""
    relay = relay_stream if answer.is_stream else relay_whole
    if exchange.wire.is_opaque:
        relay = relay_opaque
    return partial(relay_hooked, relay=relay) if exchange.snapshot.has_after_hooks else relay


def build_request(exchange: Exchange, expert: Expert) -> UpstreamRequest:
    """The request as this expert gets it."""
    assert exchange.body is not None
    trace = {} if exchange.trace is None else exchange.trace.forward()
    forwarded = compile_header_filter(exchange.snapshot.config.routing.forward_headers)
    content: RequestBody
    exchange.adds_usage = False
    if (translation := exchange.translation) is not None:
        wire, path, content = translation.wire, translation.wire.path, translation.content
        trace = {**trace, **translation.headers}
    else:
        wire, path = exchange.wire, build_path(exchange.wire, exchange.query)
        content = build_content(exchange, exchange.body, expert)
    head = build_head(wire, expert, exchange.all_received, exchange.request_id, trace, forwarded, exchange.body.kinds)
    repeatable, method = exchange.body.is_repeatable, exchange.wire.method
    return UpstreamRequest(
        exchange.gateway.transport,
        expert,
        path,
        head,
        content,
        is_repeatable=repeatable,
        method=method,
        deadline=exchange.deadline,
    )


async def _handle_failure(
    exchange: Exchange, expert: Expert, failure: UpstreamFailure, seconds: float
) -> UpstreamFailure | None:
    """Return the failure, so that others are asked. Once the answer has begun, the client is told that it broke."""
    if exchange.is_complete:
        expert.breaker.record_success(exchange.ticket)
        await exchange.response.end()
        return None
    note_failure(exchange, expert, failure, exchange.ticket, seconds)
    if not exchange.response.status:
        exchange.is_sent = False
        return failure.forget_frames()
    await end_broken_stream(exchange, failure)
    return None


def note_failure(exchange: Exchange, expert: Expert, failure: UpstreamFailure, ticket: int, seconds: float) -> None:
    """Tell the expert's circuit breaker. That the request as a whole took too long is nobody's fault."""
    if failure.status == 504 and exchange.is_overdue:
        failure.is_expert_fault = False
    has_begun, is_client_slow = exchange.response.status != 0, exchange.response.longest_stall >= SLOW_CLIENT_S
    request = 0 if exchange.body is None else exchange.body.digest
    if exchange.trace is not None:
        error = f"upstream_{failure.status}" if failure.reason in ("408", "429", "5xx") else failure.reason
        exchange.trace.add_failure(exchange.record, expert.config, error, seconds)
    record_failure(
        expert, failure, ticket, request=request, seconds=seconds, has_begun=has_begun, is_client_slow=is_client_slow
    )
