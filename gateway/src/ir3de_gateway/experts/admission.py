"""Whether an expert may be asked now, and what its answers say about it."""

from __future__ import annotations

import asyncio
import logging
from math import inf

from ir3de_gateway.experts.circuit_breaker import parse_retry_after
from ir3de_gateway.experts.concurrency import LimitReached
from ir3de_gateway.experts.expert import Expert
from ir3de_gateway.experts.replicas import ReplicatedExpert
from ir3de_gateway.experts.upstream import UpstreamFailure

_log = logging.getLogger("ir3de.gateway")


async def admit(expert: Expert, deadline: float = inf) -> int:
    """Pass the circuit breaker, and wait for the concurrency limit; or raise an `UpstreamFailure`.

    Returns the circuit breaker's ticket, with which the outcome is to be recorded.
    """
    if not expert.breaker.allow_request():
        wait = expert.breaker.retry_after
        if expert.breaker.state == "cooling":
            message = f"'{expert.name}' has too much to do and asked to be left alone"
            raise UpstreamFailure("cooling", message, 429, retry_after=wait, is_expert_fault=False)
        message = f"'{expert.name}' has failed repeatedly; its circuit breaker is open"
        raise UpstreamFailure("resting", message, 503, retry_after=wait, is_expert_fault=False)
    ticket = expert.breaker.ticket
    try:
        if deadline == inf:
            await expert.concurrency.acquire()
        else:
            await _acquire_by(expert, deadline)
        return ticket
    except LimitReached:
        expert.breaker.record_abandoned(ticket)
        message = f"'{expert.name}' has reached its concurrency limit"
        raise UpstreamFailure("busy", message, 429, retry_after=1.0, is_expert_fault=False) from None
    except BaseException:
        expert.breaker.record_abandoned(ticket)
        raise


async def admit_to_replicas(expert: ReplicatedExpert, deadline: float = inf) -> None:
    """Wait for the concurrency limit, if any replica can be asked at all; or raise an `UpstreamFailure`."""
    state = expert.breaker.state
    if state in ("open", "cooling"):
        raise build_absence(expert)
    try:
        await _acquire_by(expert, deadline)
    except LimitReached:
        message = f"'{expert.name}' has reached its concurrency limit"
        raise UpstreamFailure("busy", message, 429, retry_after=1.0, is_expert_fault=False) from None


async def _acquire_by(expert: Expert, deadline: float) -> None:
    try:
        async with asyncio.timeout_at(deadline if deadline < inf else None):
            await expert.concurrency.acquire()
    except TimeoutError:
        raise LimitReached from None


def build_absence(expert: ReplicatedExpert) -> UpstreamFailure:
    """The failure of an expert none of whose replicas can be asked."""
    reason, status = ("cooling", 429) if expert.breaker.state == "cooling" else ("resting", 503)
    wait = expert.breaker.retry_after
    return UpstreamFailure(reason, expert.describe_absence(), status, retry_after=wait, is_expert_fault=False)


def may_ask_another(failure: UpstreamFailure, *, is_repeatable: bool) -> bool:
    """Whether another replica may get the request: if it may be repeated, or has not arrived or was turned away."""
    if failure.reason == "resources":  # the gateway's own, which another replica would need as well
        return False
    return is_repeatable or failure.is_refusal or failure.reason in ("connect", "busy", "resting", "cooling")


def record_failure(
    expert: Expert,
    failure: UpstreamFailure,
    ticket: int | None = None,
    *,
    request: int = 0,
    seconds: float = 0.0,
    has_begun: bool = False,
    is_client_slow: bool = False,
) -> None:
    """Record a failure that the expert is to blame for, and log a warning when it opens the circuit breaker.

    `ticket` is the circuit breaker's, `request` a hash of what was asked, `seconds` how long ago, and `has_begun`
    whether the answer had begun.
    """
    breaker, reason = expert.breaker, failure.reason
    if failure.is_refusal:
        breaker.record_refusal(parse_retry_after(dict(failure.headers)), ticket)
        return
    asked_too_much = reason == "timeout" and has_begun and seconds >= expert.config.timeouts.total
    gave_up_on_client = reason == "broken" and has_begun and is_client_slow
    if not failure.is_expert_fault or asked_too_much or gave_up_on_client:
        breaker.record_abandoned(ticket)
        return
    was_closed = breaker.state == "closed"
    is_late = reason in ("timeout", "408") or (reason == "5xx" and failure.status == 504)
    breaker.record_failure(
        ticket,
        request=request if failure.body is not None else 0,  # it could still say that it failed: is it the request?
        waited=seconds if is_late and not has_begun else 0.0,
    )
    if was_closed and breaker.state == "open":
        rest, address = expert.config.breaker.rest, expert.config.base_url
        _log.warning("%s at %s: no requests for %g s, then one is tried", failure.message, address, rest)
