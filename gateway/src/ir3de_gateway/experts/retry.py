"""The rule for retrying, falling back and cooling down. It stands here alone.

A request is tried again only as long as no byte of an answer was sent to the client.

| what happened | reason | status for the client | another replica | next expert | circuit breaker of the expert |
|---|---|---|---|---|---|
| no connection | `connect` | 502, 504 | yes | yes | a failure |
| no answer in time | `timeout` | 504 | if repeatable | yes | a failure, unless it answered others meanwhile |
| an answer broke off | `broken` | 502 | if repeatable | yes | a failure, unless the client was slow to read it |
| an answer that cannot be read | `garbage` | 502 | if repeatable | yes | a failure |
| status 408 | `408` | 408 | if repeatable | yes | a failure, unless it answered others meanwhile |
| status 429 | `429` | 429 | yes | yes | cools down |
| status 503 with Retry-After | `5xx` | 503 | yes | yes | cools down |
| status 501, 505 | `5xx` | the same | if repeatable | yes | nothing |
| another status from 500 on | `5xx` | the same | if repeatable | yes | a failure; equal requests count once |
| the breaker is open | `resting` | 503 | yes | yes | nothing |
| the expert cools down | `cooling` | 429 | yes | yes | nothing |
| its queue is full, or its connections are in use | `busy` | 429 | yes | yes | nothing |
| no file descriptors or memory left here | `resources` | 503 | no | yes | nothing |
| `routing.deadline` has passed | `deadline` | 504 | no | no | nothing |
| any other status, such as 400, 401 or 404 | | the same | no | no | a success: it is the answer |

"Repeatable" is a request that an expert may get twice: its answer is not stored, and no tool runs on its way. An expert
cools down for the time of its Retry-After, at most `breaker.max_retry_after`; without one, for `breaker.cooldown`
from the second time in a row on. After `breaker.failures` failures in a row, the breaker opens for `breaker.rest`.
Between replicas, the gateway waits `retries.backoff`, doubled each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from math import inf, isfinite
from random import uniform
from time import time
from typing import Literal, NamedTuple, Self

from ir3de_gateway.experts.concurrency import LimitReached
from ir3de_gateway.experts.expert import Expert, ReplicatedExpert

# a response with such a status is a failure, after which another replica or expert may get the request
RETRYABLE_STATUSES = frozenset((408, 429, *range(500, 1000)))
_NO_FAULT_STATUSES = frozenset((429, 501, 505))  # it is overloaded, or does not have what the request needs
_NOT_ARRIVED = frozenset(("connect", "busy", "resting", "cooling"))
_log = logging.getLogger("ir3de.gateway")


@dataclass(eq=False)
class UpstreamFailure(Exception):  # noqa: N818 - not always an error of the expert
    """An expert that did not answer: the reason, and its own error body if it sent one."""

    reason: str  # one of a few words: a label of metrics
    message: str
    status: int = 502  # for the client, if no other expert answers
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes | None = None  # the expert's error object
    is_expert_fault: bool = True  # counts as a failure of the circuit breaker
    is_overload: bool = False  # the expert cools down
    retry_after: float | None = None

    def drop_frames(self) -> Self:
        """This failure as a value to return and keep: without the frames that it came through.

        They lead on to their callers, also where these are coroutines (since Python 3.12). A caller that keeps the
        failure would be kept by it in turn, with the request and its router, until a collection.
        """
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


def build_status_failure(
    name: str, status: int, headers: list[tuple[bytes, bytes]], body: bytes | None
) -> UpstreamFailure:
    """The failure of a response with one of the `RETRYABLE_STATUSES`."""
    message, is_overload = f"'{name}' answered with status {status}", status == 429
    if is_overload or status == 503:
        wait = parse_retry_after(dict(headers))
        is_overload = is_overload or wait is not None
    reason = str(status) if status < 500 else "5xx"
    return UpstreamFailure(reason, message, status, headers, body, status not in _NO_FAULT_STATUSES, is_overload)


class Next(NamedTuple):
    """What follows a failure. The next expert gets the request in any case, if there is one, and time is left."""

    other_replica: bool
    breaker: Literal["failure", "cool down", "nothing"]


def what_next(failure: UpstreamFailure, *, is_repeatable: bool = False) -> Next:
    """The rows of the table above."""
    may_repeat = is_repeatable or failure.is_overload or failure.reason in _NOT_ARRIVED
    other_replica = may_repeat and failure.reason != "resources"  # these are the gateway's own
    if failure.is_overload:
        return Next(other_replica, "cool down")
    return Next(other_replica, "failure" if failure.is_expert_fault else "nothing")


def record_failure(
    expert: Expert,
    failure: UpstreamFailure,
    ticket: int | None = None,
    *,
    request: int = 0,
    seconds: float = 0.0,
    has_begun: bool = False,
    is_out_of_time: bool = False,
    is_client_slow: bool = False,
) -> None:
    """Let a failure act on the expert's circuit breaker, and log a warning when it opens.

    `ticket` is the circuit breaker's, `request` a hash of the body, `seconds` how long ago it was sent, `has_begun`
    whether the answer had begun, and `is_out_of_time` whether the time for all of it has passed.
    """
    breaker, reason, effect = expert.breaker, failure.reason, what_next(failure).breaker
    if effect == "cool down":
        breaker.cool_down(parse_retry_after(dict(failure.headers)), ticket)
        return
    was_too_long = reason == "timeout" and has_begun and is_out_of_time
    gave_up_on_client = reason == "broken" and has_begun and is_client_slow
    if effect == "nothing" or was_too_long or gave_up_on_client:
        breaker.record_abandoned(ticket)
        return
    was_closed = breaker.state == "closed"
    is_late = reason in ("timeout", "408") or (reason == "5xx" and failure.status == 504)
    breaker.record_failure(
        ticket,
        request=request if failure.body is not None else 0,  # it could still report the failure: is it the request?
        waited=seconds if is_late and not has_begun else 0.0,
    )
    if was_closed and breaker.state == "open":
        rest, address = expert.config.breaker.rest, expert.config.base_url
        _log.warning("%s at %s: no requests for %g s, then one is tried", failure.message, address, rest)


def parse_retry_after(headers: Mapping[bytes, bytes], now: Callable[[], float] = time) -> float | None:
    """The seconds to wait that a response names: `retry-after-ms`, or `retry-after` as seconds or as a date.

    >>> parse_retry_after({b"retry-after": b"2.5"}), parse_retry_after({b"retry-after-ms": b"250"})
    (2.5, 0.25)
    >>> parse_retry_after({b"retry-after": b"Thu, 01 Jan 1970 00:01:40 GMT"}, lambda: 40.0)
    60.0
    >>> parse_retry_after({b"retry-after": b"soon"}), parse_retry_after({})
    (None, None)
    """
    for name, unit in ((b"retry-after-ms", 1e-3), (b"retry-after", 1.0)):
        if (text := headers.get(name)) is None:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:
            try:
                seconds = parsedate_to_datetime(text.decode("latin-1")).timestamp() - now()
            except (ValueError, TypeError, OverflowError):
                continue
        if isfinite(seconds):
            return max(0.0, seconds)
    return None


def choose_backoff(expert: Expert, failures: int) -> float:
    """Seconds until the next replica gets the request: doubled each time, with jitter."""
    retries = expert.config.retries
    longest = min(retries.backoff * 2.0 ** (failures - 1), retries.max_backoff)
    return uniform(longest / 2, longest)  # noqa: S311 - not a secret


# admission -----------------------------------------------------------------------------------------------------------


async def admit(expert: Expert, deadline: float = inf) -> int:
    """Pass the circuit breaker, and wait for the concurrency limit; or raise an `UpstreamFailure`.

    Returns the circuit breaker's ticket, with which the outcome is to be recorded.
    """
    breaker = expert.breaker
    if not breaker.allow_request():
        raise build_absence(expert)
    ticket = breaker.ticket
    try:
        await _acquire_by(expert, deadline)
        return ticket
    except BaseException:
        breaker.record_abandoned(ticket)
        raise


async def admit_to_replicas(expert: ReplicatedExpert, deadline: float = inf) -> None:
    """Wait for the concurrency limit, if any replica can get a request; or raise an `UpstreamFailure`."""
    if expert.breaker.state in ("open", "cooling"):
        raise build_absence(expert)
    await _acquire_by(expert, deadline)


async def _acquire_by(expert: Expert, deadline: float) -> None:
    try:
        if expert.concurrency.try_acquire():
            return
        async with asyncio.timeout_at(deadline if deadline < inf else None):
            await expert.concurrency.acquire()
    except (LimitReached, TimeoutError):
        message = f"'{expert.name}' has reached its concurrency limit"
        raise UpstreamFailure("busy", message, 429, retry_after=1.0, is_expert_fault=False) from None


def build_absence(expert: Expert) -> UpstreamFailure:
    """The failure of an expert that gets no requests now."""
    wait, is_cooling = expert.breaker.retry_after, expert.breaker.state == "cooling"
    if isinstance(expert, ReplicatedExpert):
        message = expert.describe_absence()
    elif is_cooling:
        message = f"'{expert.name}' is rate limited, retry in {max(1, round(wait))} s"
    else:
        message = f"'{expert.name}' has failed repeatedly; its circuit breaker is open"
    reason, status = ("cooling", 429) if is_cooling else ("resting", 503)
    return UpstreamFailure(reason, message, status, retry_after=wait, is_expert_fault=False)
