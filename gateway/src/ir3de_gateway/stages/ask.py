"""Stage 4, ask: sends the request to the experts of the choice, one after the other, until an answer begins.

Of an expert with several replicas, they get the request one after the other, or two at once if the first is slow. When
the next expert or replica gets it, and when an expert gets none for a while, is the rule of `experts/retry`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from time import perf_counter
from typing import NamedTuple

from ir3de_gateway.experts.expert import Replica, ReplicatedExpert
from ir3de_gateway.experts.retry import (
    RETRYABLE_STATUSES,
    UpstreamFailure,
    admit,
    admit_to_replicas,
    build_absence,
    choose_backoff,
    what_next,
)
from ir3de_gateway.experts.snapshot import Expert, log_change
from ir3de_gateway.experts.upstream import UpstreamResponse, as_failure, is_overdue, read_failure
from ir3de_gateway.stages.attempt import attempt, send, translate
from ir3de_gateway.stages.cache import find_cached
from ir3de_gateway.stages.values import Answered, Chosen, Outcome, count_replica, note_failure
from ir3de_gateway.translation.translation import TranslatedResponse


async def ask(chosen: Chosen) -> Outcome:
    """Send the request to the first expert, and if that fails before its answer begins, to its fallbacks."""
    accepted, choice = chosen.accepted, chosen.choice
    if accepted.snapshot.caches_answers:
        chosen, answered = await find_cached(chosen)
        if answered is not None:
            return answered
    if (seconds := accepted.snapshot.config.routing.deadline) is not None:
        now = asyncio.get_running_loop().time()
        chosen = chosen._replace(deadline=now + seconds - (perf_counter() - accepted.clock))
    found = await _ask_expert(chosen, choice.first)
    if not isinstance(found, UpstreamFailure):
        return found
    record = accepted.progress.record
    for expert in choice.list_fallbacks():
        if is_overdue(chosen.deadline):
            break
        record.fallbacks.append((record.expert, expert.name, found.reason))
        record.replica, record.retries = "", 0  # those were of the expert before
        found = await _ask_expert(chosen, expert)
        if not isinstance(found, UpstreamFailure):
            return found
    if is_overdue(chosen.deadline):
        found = UpstreamFailure("deadline", f"no answer has begun within {seconds:g} s", 504)
    if record.fallbacks:
        found.message += f". Tried before: {', '.join(f'{name} ({reason})' for name, _, reason in record.fallbacks)}"
    if choice.refusal is not None and choice.refusal.text:
        found.message += f". {choice.decided} was chosen: {choice.refusal.text}"
    return found


async def _ask_expert(chosen: Chosen, expert: Expert) -> Outcome:
    """Send the request to one expert, or to one of its replicas."""
    accepted = chosen.accepted
    progress = accepted.progress
    progress.begin_expert(chosen.choice, expert)
    if accepted.wire.capability in expert.translated:
        translated = await translate(chosen, expert)
        if isinstance(translated, Answered):
            return translated
        progress.translation = translated
    if expert.replicas:
        return await _ask_replicas(chosen, expert)
    arrived = perf_counter()
    try:
        ticket = await admit(expert, chosen.deadline)
    except UpstreamFailure as failure:
        return failure.drop_frames()
    started = perf_counter()
    progress.record.queue_seconds = started - arrived
    return await attempt(chosen, expert, ticket, started)


# replicas ----------------------------------------------------------------------------------------------------------


async def _ask_replicas(chosen: Chosen, expert: Expert) -> Outcome:
    """Send the request to a replica, and if it fails before its answer begins, to others."""
    assert isinstance(expert, ReplicatedExpert)
    record, arrived = chosen.accepted.progress.record, perf_counter()
    try:
        await admit_to_replicas(expert, chosen.deadline)
    except UpstreamFailure as refusal:
        return refusal.drop_frames()
    record.queue_seconds = perf_counter() - arrived
    found = None
    try:
        found = await _ask_in_turn(chosen, expert)
        return found
    finally:
        if isinstance(found, Answered) and found.body is None and found.attempt is not None:
            found.attempt.place = expert.concurrency  # released when the answer ends
        else:
            expert.concurrency.release()


async def _ask_in_turn(chosen: Chosen, expert: ReplicatedExpert) -> Outcome:
    record, is_repeatable = chosen.accepted.progress.record, chosen.body.is_repeatable
    tried, failures = list[Replica](), list[UpstreamFailure]()
    if chosen.replica in (replica.label for replica in expert.replicas):
        # others do not have what the request is about
        tried = [replica for replica in expert.replicas if replica.label != chosen.replica]
    is_hedged = is_repeatable and chosen.accepted.wire.is_hedged and expert.config.hedge_after is not None
    pick = partial(expert.pick, beginning=chosen.beginning)
    while (replica := pick(tried, may_probe=is_repeatable and not tried)) is not None:
        ticket = replica.breaker.ticket
        tried.append(replica)
        record.replica, record.retries = replica.label, len(failures)
        if is_hedged:
            found = await _ask_hedged(chosen, expert, tried)
        else:
            found = await attempt(chosen, replica, ticket, perf_counter())
            _check_health(replica, found)
        if not isinstance(found, UpstreamFailure):
            return found
        failures.append(found)
        may_go_on = len(failures) <= expert.config.retries.others and not is_overdue(chosen.deadline)
        may_go_on = may_go_on and what_next(found, is_repeatable=is_repeatable).other_replica
        if not may_go_on or not expert.has_another(tried):
            break  # at once: there is no replica to wait for
        await asyncio.sleep(choose_backoff(expert, len(failures)))
    return _sum_up(expert, failures, chosen.replica)


async def _ask_hedged(chosen: Chosen, expert: ReplicatedExpert, tried: list[Replica]) -> Outcome:
    """Send the request to the replica that is the last one in `tried`; if it is slow to begin, to another one, too."""
    accepted = chosen.accepted
    progress = accepted.progress

    def translate(answer: UpstreamResponse, replica: Replica) -> UpstreamResponse:
        translation = progress.translation
        return answer if translation is None else TranslatedResponse(answer, translation, accepted.wire, replica.name)

    def note(replica: Replica, failure: UpstreamFailure, ticket: int, seconds: float) -> None:
        note_failure(accepted, replica, failure, ticket, seconds, chosen.deadline, chosen.body.digest)
        count_replica(accepted, replica.label, has_failed=True)
        _check_health(replica, failure)

    assert expert.config.hedge_after is not None
    race, first = Race(expert, lambda replica: send(chosen, replica), translate, note), tried[-1]
    hedges = accepted.gateway.observer.metrics.replicas.hedges
    progress.is_sent = True
    try:
        winner, begun = await race.run(first, tried, expert.config.hedge_after)
    except UpstreamFailure as last_failure:
        progress.is_sent = False
        if race.second is not None:
            hedges[expert.name, "lost"] += 1
            tried.append(race.second)
        return last_failure.drop_frames()
    if race.second is not None:
        hedges[expert.name, "won" if winner is race.second else "lost"] += 1
        tried.append(race.second)
    progress.record.replica = winner.label
    found = await attempt(chosen, winner, begun.ticket, begun.started, begun.source)
    _check_health(winner, found)
    return found


def _check_health(replica: Replica, found: Outcome) -> None:
    """A request that could not connect is as good as a health check that failed."""
    if not isinstance(found, UpstreamFailure) or found.reason != "connect" or not found.is_expert_fault:
        return
    if replica.config.health.active and replica.record_check(is_good=False):
        log_change(replica, "requests cannot connect")


def _sum_up(expert: ReplicatedExpert, failures: list[UpstreamFailure], owner: str) -> UpstreamFailure:
    """The failure of an expert whose replicas have all failed, or get no requests now."""
    described = f"the replica of '{expert.name}' that has what the request refers to"
    if not failures:
        failure = build_absence(expert)
        if owner:
            failure.message = f"{described} is not available now"
        return failure
    if any(failure.reason != "connect" for failure in failures):
        return failures[-1]
    message = f"no replica of '{expert.name}' can be reached: {len(failures)} of {len(expert.replicas)} were tried"
    if owner:  # the others did not get the request
        message = f"{described} cannot be reached"
    return UpstreamFailure("connect", message, 503, retry_after=max(1.0, expert.breaker.retry_after))


# hedging -------------------------------------------------------------------------------------------------------------


class Begun(NamedTuple):
    """An answer that has begun, and the ticket of the replica's circuit breaker."""

    source: UpstreamResponse
    ticket: int
    started: float


class Race:
    """One request to two replicas. The loser is cancelled, and may get requests again: it has not failed."""

    def __init__(
        self,
        expert: ReplicatedExpert,
        send: Callable[[Replica], Awaitable[UpstreamResponse]],
        translate: Callable[[UpstreamResponse, Replica], UpstreamResponse],
        record_failure: Callable[[Replica, UpstreamFailure, int, float], None],
    ) -> None:
        """`translate` gives an answer as the client understands it; `record_failure` gets what went wrong with a
        replica, the ticket of its circuit breaker, and after how many seconds.
        """
        self._expert, self._send, self._translate, self._record_failure = expert, send, translate, record_failure
        self._running: dict[asyncio.Task[Begun], Replica] = {}
        self.second: Replica | None = None

    async def run(self, first: Replica, tried: Collection[Replica], hedge_after: float) -> tuple[Replica, Begun]:
        """The replica that answers first, and its answer; or the failure of the last one.

        `first` was picked by the caller; the second one is none of those in `tried`.
        """
        self._start(first)
        winner: tuple[Replica, Begun] | None = None
        try:
            done, _ = await asyncio.wait(self._running, timeout=hedge_after)
            if not done:
                self._start_second((first, *tried))
            winner = await self._find_winner()
            return winner
        finally:
            try:
                await asyncio.shield(self._cancel_others())
            except asyncio.CancelledError:  # the client has disconnected meanwhile
                if winner is not None:
                    _drop(*winner)
                raise

    def _start_second(self, tried: Collection[Replica]) -> None:
        """Send the request to another replica, too, if one can get it."""
        if not self._expert.concurrency.try_acquire():
            return
        self.second = self._expert.pick(tried, may_probe=False)
        if self.second is None:
            self._expert.concurrency.release()
        else:
            self._start(self.second)

    def _start(self, replica: Replica) -> None:
        self._running[asyncio.create_task(self._begin(replica, replica.breaker.ticket))] = replica

    async def _begin(self, replica: Replica, ticket: int) -> Begun:
        """Send the request, and wait for the first byte of a good answer."""
        started, source = perf_counter(), None
        try:
            source = await self._send(replica)
            if source.status in RETRYABLE_STATUSES:
                raise await read_failure(self._translate(source, replica), replica)
            if source.is_stream:
                await source.await_first_piece()
            return Begun(source, ticket, started)
        except (UpstreamFailure, OSError) as error:
            raise self._fail(error, replica, source, ticket, perf_counter() - started) from None
        except BaseException:
            if source is not None:
                source.close()
            replica.breaker.record_abandoned(ticket)
            replica.leave()
            raise

    def _fail(
        self,
        error: UpstreamFailure | OSError,
        replica: Replica,
        source: UpstreamResponse | None,
        ticket: int,
        seconds: float,
    ) -> UpstreamFailure:
        """Record a failure, which is returned: a frame that raises it must not keep it."""
        failure = as_failure(error, replica)
        if source is not None:
            source.close()
        self._record_failure(replica, failure, ticket, seconds)
        replica.leave()
        return failure

    async def _find_winner(self) -> tuple[Replica, Begun]:
        while True:
            done, running = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task.exception() is None:
                    return self._running.pop(task), task.result()
            if not running:
                raise next(iter(done)).exception() or AssertionError("a task has no outcome")
            for task in done:
                del self._running[task]

    async def _cancel_others(self) -> None:
        for task in self._running:
            task.cancel()
        ended = await asyncio.gather(*self._running, return_exceptions=True)
        for replica, begun in zip(self._running.values(), ended, strict=True):
            if isinstance(begun, Begun):  # both began at once
                _drop(replica, begun)
        self._running.clear()  # a task keeps its error, whose frames keep this race and the request
        if self.second is not None:
            self._expert.concurrency.release()


def _drop(replica: Replica, begun: Begun) -> None:
    """Close an answer that is not needed."""
    begun.source.close()
    replica.breaker.record_abandoned(begun.ticket)
    replica.leave()
