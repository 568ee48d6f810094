"""Whether an expert may be asked now, and what its answers say about it."""

from __future__ import annotations

import logging

from ir3de.gateway.experts.concurrency import LimitReached
from ir3de.gateway.experts.snapshot import Expert
from ir3de.gateway.experts.upstream import UpstreamFailure

_log = logging.getLogger("ir3de.gateway")


async def admit(expert: Expert) -> None:
    """Pass the circuit breaker, and wait for the concurrency limit; or raise an `UpstreamFailure`."""
    if not expert.breaker.allow_request():
        wait = expert.breaker.retry_after
        message = f"'{expert.name}' has failed repeatedly; its circuit breaker is open"
        raise UpstreamFailure("resting", message, 503, retry_after=wait, is_expert_fault=False)
    try:
        await expert.concurrency.acquire()
    except LimitReached:
        expert.breaker.record_abandoned()
        message = f"'{expert.name}' has reached its concurrency limit"
        raise UpstreamFailure("busy", message, 429, retry_after=1.0, is_expert_fault=False) from None
    except BaseException:
        expert.breaker.record_abandoned()
        raise


def record_failure(expert: Expert, failure: UpstreamFailure) -> None:
    """Record a failure that the expert is to blame for, and log a warning when it opens the circuit breaker."""
    if not failure.is_expert_fault:
        expert.breaker.record_abandoned()
        return
    was_closed = expert.breaker.state == "closed"
    expert.breaker.record_failure()
    if was_closed and expert.breaker.state == "open":
        rest, address = expert.config.breaker.rest, expert.config.base_url
        _log.warning("%s at %s: no requests for %g s, then one is tried", failure.message, address, rest)
