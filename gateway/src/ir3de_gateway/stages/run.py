"""Calls the stages for a request; stage 6, record: what happened, once, at the end, for metrics, logs and traces."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter
from typing import TypeVar

from starlette.types import Receive, Scope, Send

from ir3de_gateway.api_errors import ApiError, ClientDisconnect, build_internal_error
from ir3de_gateway.experts.retry import UpstreamFailure
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.stages.accept import accept
from ir3de_gateway.stages.ask import ask
from ir3de_gateway.stages.charge import measure
from ir3de_gateway.stages.choose import choose
from ir3de_gateway.stages.read import read
from ir3de_gateway.stages.relay import relay, send_error, send_failure, send_stop
from ir3de_gateway.stages.values import Accepted, Answered, Chosen, Relayed
from ir3de_gateway.wire.answer_facts import find_streamed_id
from ir3de_gateway.wire.formats import WireFormat, count_cached, count_usage

R = TypeVar("R")
_PLAIN_COUNTS = frozenset(("prompt_tokens", "completion_tokens", "total_tokens"))  # of a usage without details
_log = logging.getLogger("ir3de.gateway")


class InferenceEndpoint:
    """An endpoint whose requests are routed, as an ASGI application."""

    def __init__(self, gateway: Gateway, wire: WireFormat) -> None:
        self._gateway, self._wire = gateway, wire

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return run(accept(self._gateway, self._wire, scope, receive, send), read, choose)


async def run(
    accepted: Accepted, read: Callable[[Accepted], Awaitable[R]], choose: Callable[[R], Awaitable[Chosen | Answered]]
) -> None:
    """The whole way. Whatever happens, it is recorded."""
    record, response = accepted.progress.record, accepted.response
    if accepted.lease is not None:
        accepted.lease.measure = partial(measure, accepted)
    try:
        try:
            chosen = await choose(await read(accepted))
            answered = chosen if isinstance(chosen, Answered) else await ask(chosen)
            del chosen  # it has the body of the request, and a stream lasts for minutes
            if isinstance(answered, UpstreamFailure):
                await send_failure(accepted, answered)
            else:
                await remember(await relay(answered))
        except ApiError as problem:
            is_early = not response.was_watched
            record.outcome = "client_error" if problem.status < 500 or is_early else "failed"
            await send_error(accepted, problem, is_early=is_early)
        except asyncio.CancelledError:
            if response.absorb_cancellation():
                raise ClientDisconnect from None
            raise
        finally:
            response.stop_watching()
    except ClientDisconnect:
        if record.outcome == "ok" and not accepted.progress.is_complete:
            record.outcome = "cancelled"
    except Exception as error:
        record.outcome = "failed"
        _log.error("request %s failed", accepted.request_id, exc_info=error)
        if response.status:
            raise
        await send_error(accepted, build_internal_error(accepted.request_id))
    except BaseException as error:
        record.outcome = "cancelled"
        if isinstance(error, asyncio.CancelledError):
            await send_stop(accepted)
        response.status = response.status or 500
        raise
    finally:
        await finish(accepted)


async def remember(relayed: Relayed) -> None:
    """Keep what later requests need: the conversation's expert, and the answer. Then call hooks that observe it."""
    accepted, record = relayed.accepted, relayed.accepted.progress.record
    if relayed.copy is not None:
        relayed.copy.store(accepted)
    if record.outcome == "ok" and relayed.session:
        await accepted.gateway.pins.put(relayed.session, record.expert)
    if relayed.observe is not None:
        await relayed.observe()


async def finish(accepted: Accepted) -> None:
    """Charge the key, and record what happened, even if the gateway stops meanwhile."""
    try:
        if accepted.lease is not None:
            await accepted.lease.close()  # which fills in what it took
    finally:
        record_end(accepted)
    keeps = accepted.snapshot.keeps_journal and _is_kept(accepted)
    if keeps and (mailbox := accepted.gateway.get_mailbox()) is not None:
        await mailbox.note(accepted.progress.record)


def record_end(accepted: Accepted) -> None:
    """Fill in what is known at the end, and hand the record to metrics, logs and traces."""
    progress, response = accepted.progress, accepted.response
    record, expert, usage = progress.record, progress.expert, progress.usage
    record.status = response.status or (499 if record.outcome == "cancelled" else 0)
    record.sent_bytes = response.sent_bytes
    record.total_seconds = perf_counter() - accepted.clock
    if accepted.lease is None and usage and expert is not None and record.cache != "hit":  # a hit costs nothing
        prompt, answer = record.prompt_tokens, record.completion_tokens = count_usage(usage)
        cached = record.cached_tokens = None if usage.keys() <= _PLAIN_COUNTS else count_cached(usage)
        price = expert.config.price
        record.cost = price.compute_cost(prompt or 0, answer or 0, cached or 0) if expert.has_price else 0.0
    accepted.gateway.observer.observe(record)
    if accepted.snapshot.keeps_journal and _is_kept(accepted):
        keep_record(accepted)
    if accepted.trace is not None:
        accepted.trace.finish(record, None if expert is None else expert.config, usage)
    progress.relay = None  # one that counts refers to the request, which would keep its router until a collection


def _is_kept(accepted: Accepted) -> bool:
    """Whether the journal gets the request: it was routed."""
    keeps_journal = accepted.snapshot.keeps_journal
    return keeps_journal and accepted.progress.record.decision is not None and accepted.wire.is_sampled


def keep_record(accepted: Accepted) -> None:
    """Hand the record of a request that was routed to the journal, with the id of its answer."""
    progress, record = accepted.progress, accepted.progress.record
    if progress.response_id:
        record.response_id = progress.response_id
    elif progress.relay is not None:
        record.response_id = find_streamed_id(progress.relay.head, progress.relay.tail)
    if record.fallbacks:  # a failure decided, and not chance
        record.propensity, record.arm = 1.0, ""
    if (journal := accepted.gateway.get_journal()) is not None:
        journal.put(record, accepted.snapshot.router)
