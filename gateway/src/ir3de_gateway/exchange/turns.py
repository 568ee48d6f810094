"""Asks the experts that may answer, and their replicas, one after the other, until one of them does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import uniform
from time import perf_counter
from typing import Any

from ir3de_gateway.exchange.asking import ask, build_request, note_failure
from ir3de_gateway.exchange.exchange import Exchange
from ir3de_gateway.exchange.hedging import Race
from ir3de_gateway.exchange.preparing import prepare_translation
from ir3de_gateway.experts.admission import admit_to_replicas, build_absence, may_ask_another
from ir3de_gateway.experts.health import log_change
from ir3de_gateway.experts.replicas import Replica, ReplicatedExpert
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.experts.upstream import UpstreamFailure, UpstreamResponse
from ir3de_gateway.requests.choice import Choice
from ir3de_gateway.translation.translation import TranslatedResponse


async def ask_in_turn(exchange: Exchange, choice: Choice) -> None:
    """Ask the first expert, and if it fails before its answer begins, its fallbacks."""
    if (seconds := exchange.snapshot.config.routing.deadline) is not None:
        exchange.deadline = asyncio.get_running_loop().time() + seconds - (perf_counter() - exchange.clock)
    failure = await _choose_way(choice.first)(exchange, choice.first)
    for expert in () if failure is None else choice.list_fallbacks():
        if exchange.is_overdue:
            break
        assert failure is not None
        exchange.record.fallbacks.append((exchange.record.expert, expert.name, failure.reason))
        exchange.record.replica, exchange.record.retries = "", 0  # those were of the expert before
        failure = await _choose_way(expert)(exchange, expert)
        if failure is None:
            return
    if failure is not None:
        if exchange.is_overdue:
            failure = UpstreamFailure("deadline", f"no answer has begun within {seconds:g} s", 504)
        await exchange.send_failure(failure)


def _choose_way(expert: Expert) -> Callable[[Exchange, Any], Coroutine[Any, Any, UpstreamFailure | None]]:
    return ask_replicas if expert.replicas else ask


async def ask_replicas(exchange: Exchange, expert: ReplicatedExpert) -> UpstreamFailure | None:
    """Ask a replica, and if it fails before its answer begins, others; return why the last one failed."""
    exchange.expert = expert
    exchange.record.expert, exchange.record.model = expert.name, expert.config.served_model
    exchange.translation = None
    if exchange.wire.capability in expert.translated and await prepare_translation(exchange, expert):
        return None
    arrived = perf_counter()
    try:
        await admit_to_replicas(expert, exchange.deadline)
    except UpstreamFailure as refusal:
        return refusal.forget_frames()
    exchange.record.queue_seconds = perf_counter() - arrived
    try:
        assert exchange.body is not None
        is_repeatable, tried = exchange.body.is_repeatable, list[Replica]()
        if exchange.keeper in (replica.label for replica in expert.replicas):
            # others do not have what the request is about
            tried = [replica for replica in expert.replicas if replica.label != exchange.keeper]
        is_hedged = is_repeatable and exchange.wire.is_hedged and expert.config.hedge_after is not None
        failures: list[UpstreamFailure] = []
        while (replica := expert.pick(tried, may_probe=is_repeatable and not tried)) is not None:
            ticket = replica.breaker.ticket
            tried.append(replica)
            exchange.record.replica, exchange.record.retries = replica.label, len(failures)
            if is_hedged:
                failure = await _ask_hedged(exchange, expert, tried)
            else:
                failure = await ask(exchange, replica, ticket)
                _count(exchange, replica, failure)
            if failure is None:
                return None
            failures.append(failure)
            may_go_on = len(failures) <= expert.config.retries.others and not exchange.is_overdue
            may_go_on = may_go_on and may_ask_another(failure, is_repeatable=is_repeatable)
            if not may_go_on or not expert.has_another(tried):
                break  # at once: nobody waits for a replica that will not be asked
            await asyncio.sleep(_choose_backoff(expert, len(failures)))
        return _sum_up(expert, failures, exchange.keeper)
    finally:
        expert.concurrency.release()


async def _ask_hedged(exchange: Exchange, expert: ReplicatedExpert, tried: list[Replica]) -> UpstreamFailure | None:
    """Ask the replica that is the last one in `tried`; if it is slow to begin, ask another one, too."""

    def translate(answer: UpstreamResponse, replica: Replica) -> UpstreamResponse:
        translation = exchange.translation
        return answer if translation is None else TranslatedResponse(answer, translation, exchange.wire, replica.name)

    def note(replica: Replica, failure: UpstreamFailure, ticket: int, seconds: float) -> None:
        note_failure(exchange, replica, failure, ticket, seconds)
        _count(exchange, replica, failure)

    assert expert.config.hedge_after is not None
    race, first = Race(expert, lambda replica: build_request(exchange, replica), translate, note), tried[-1]
    hedges = exchange.gateway.observer.metrics.replicas.hedges
    exchange.is_sent = True
    try:
        winner, begun = await race.run(first, tried, expert.config.hedge_after)
    except UpstreamFailure as last_failure:
        exchange.is_sent = False
        if race.second is not None:
            hedges[expert.name, "lost"] += 1
            tried.append(race.second)
        return last_failure.forget_frames()
    if race.second is not None:
        hedges[expert.name, "won" if winner is race.second else "lost"] += 1
        tried.append(race.second)
    exchange.record.replica = winner.label
    failure = await ask(exchange, winner, begun.ticket, begun)
    _count(exchange, winner, failure)
    return failure


def _count(exchange: Exchange, replica: Replica, failure: UpstreamFailure | None) -> None:
    """Count a request to a replica. One that could not connect is as good as a health check that failed."""
    has_failed = failure is not None or exchange.record.outcome == "broken_stream"
    counted = exchange.gateway.observer.metrics.replicas.requests
    counted[replica.name, replica.label, "failed" if has_failed else "ok"] += 1
    if failure is None or failure.reason != "connect" or not failure.is_expert_fault:
        return
    if replica.config.health.active and replica.record_check(is_good=False):
        log_change(replica, "requests cannot connect")


def _choose_backoff(expert: Expert, failures: int) -> float:
    """Seconds until the next replica is asked: doubled each time, and scattered so that not all ask at once."""
    retries = expert.config.retries
    longest = min(retries.backoff * 2.0 ** (failures - 1), retries.max_backoff)
    return uniform(longest / 2, longest)  # noqa: S311 - no secret


def _sum_up(expert: ReplicatedExpert, failures: list[UpstreamFailure], keeper: str) -> UpstreamFailure:
    """What to say of an expert whose replicas have all failed, or cannot be asked."""
    if not failures:
        failure = build_absence(expert)
        if keeper:
            failure.message = f"{_describe_keeper(expert)} cannot be asked now"
        return failure
    if any(failure.reason != "connect" for failure in failures):
        return failures[-1]
    message = f"no replica of '{expert.name}' can be reached: {len(failures)} of {len(expert.replicas)} were tried"
    if keeper:  # the others were not asked
        message = f"{_describe_keeper(expert)} cannot be reached"
    return UpstreamFailure("connect", message, 503, retry_after=max(1.0, expert.breaker.retry_after))


def _describe_keeper(expert: ReplicatedExpert) -> str:
    return f"the replica of '{expert.name}' that has what the request refers to"
