"""Places at an expert, and whether it is asked at all: nothing is lost, nobody waits in vain."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir3de_gateway.experts.circuit_breaker import CircuitBreaker
from ir3de_gateway.experts.concurrency import ConcurrencyLimit, LimitReached
from ir3de_gateway.experts.retry import parse_retry_after

steps = st.lists(st.tuples(st.sampled_from(["come", "go", "cancel", "both", "turn"]), st.integers(0, 20)), max_size=40)


@given(st.integers(1, 3), st.integers(0, 3), steps)
@settings(max_examples=100, deadline=None)
def test_places_are_never_overdrawn_nor_lost_and_first_come_is_first_served(
    limit: int, queue: int, told: list[tuple[str, int]]
) -> None:
    """Coming, going, giving up, and giving up in the moment of getting a place, in any order."""

    async def play() -> None:
        slots, inside, came, served = ConcurrencyLimit(limit, queue, wait=60), set[int](), [], []
        tasks: dict[int, asyncio.Task[None]] = {}

        async def visit(number: int) -> None:
            await slots.acquire()
            inside.add(number)
            served.append(number)

        def go(place: int) -> None:
            if inside:
                inside.remove(sorted(inside)[place % len(inside)])
                slots.release()

        for number, (step, place) in enumerate(told):
            waiting = [task for one, task in tasks.items() if one not in inside and not task.done()]
            if step == "come":
                tasks[number] = asyncio.ensure_future(visit(number))
                came.append(number)
            if step in ("go", "both"):
                go(place)
            if step in ("cancel", "both") and waiting:
                waiting[place % len(waiting)].cancel()
            if step != "both":
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            assert len(inside) <= limit
            assert slots.waiting <= queue
        for task in tasks.values():
            if not task.done():
                task.cancel()
        done = await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert all(found is None or isinstance(found, (LimitReached, asyncio.CancelledError)) for found in done)
        assert served == sorted(served)
        assert slots.in_use == len(inside)
        while inside:
            go(0)
        assert (slots.in_use, slots.waiting) == (0, 0)

    asyncio.run(play())


def test_waiting_too_long_is_busy_and_leaves_the_line() -> None:
    async def play() -> None:
        slots = ConcurrencyLimit(1, 1, wait=0.01)
        await slots.acquire()
        with pytest.raises(LimitReached):
            await slots.acquire()
        assert (slots.in_use, slots.waiting) == (1, 0)
        slots.release()
        await slots.acquire()

    asyncio.run(play())


class Model:
    """A breaker in the words of its description."""

    def __init__(self, failures: int, rest: float) -> None:
        self.allowed, self.rest = failures, rest
        self.row, self.until, self.probing, self.cool = 0, None, False, 0.0  # type: ignore[var-annotated]

    def state(self, now: float) -> str:
        if self.until is not None and not self.probing and now < self.until:
            return "open"
        if now < self.cool:
            return "cooling"
        return "closed" if self.until is None else "half-open"

    def allows(self, now: float) -> bool:
        return self.state(now) in ("closed", "half-open") and (self.until is None or now >= self.until)


@given(
    st.integers(1, 3),
    st.lists(st.sampled_from(["ask", "begins", "well", "fails", "refuses", "leaves", "wait", "rest"]), max_size=40),
)
@settings(max_examples=200, deadline=None)
def test_a_breaker_is_the_machine_it_describes(failures: int, told: list[str]) -> None:
    """Requests one after the other: each that is admitted ends in one of four ways before the next is asked for."""
    now, model = [0.0], Model(failures, 10.0)
    breaker = CircuitBreaker(failures, 10.0, clock=lambda: now[0])
    admitted = False
    for step in told:
        if step == "ask" and not admitted:
            expected = model.allows(now[0])
            admitted = breaker.allow_request()
            assert admitted == expected
            if admitted and model.until is not None:
                model.probing, model.until = True, now[0] + 10.0
        elif step == "begins" and admitted:
            breaker.record_beginning()
            if model.until is not None:
                model.row, model.until, model.probing = failures - 1, None, False
        elif step == "well" and admitted:
            breaker.record_success()
            model.row, model.until, model.probing, admitted = 0, None, False, False
        elif step == "fails" and admitted:
            breaker.record_failure()
            model.row += 1
            if model.probing or model.row >= failures:
                model.until, model.probing = now[0] + 10.0, False
            admitted = False
        elif step in ("leaves", "refuses") and admitted:
            if step == "refuses":
                breaker.cool_down(4.0)
                model.cool = now[0] + 4.0
            else:
                breaker.record_abandoned()
            if model.probing:
                model.until, model.probing = now[0], False
            admitted = False
        elif step in ("wait", "rest"):
            now[0] += 3.0 if step == "wait" else 10.0
        assert breaker.state == model.state(now[0])
        assert breaker.retry_after == max(0.0, (model.until or 0.0) - now[0], model.cool - now[0])


def test_a_probe_is_alone_until_it_ends_or_is_lost() -> None:
    now = [0.0]
    breaker = CircuitBreaker(1, 10.0, clock=lambda: now[0])
    breaker.record_failure()
    now[0] = 10.0
    assert [breaker.allow_request() for _ in range(3)] == [True, False, False]
    breaker.record_abandoned()
    assert [breaker.allow_request() for _ in range(2)] == [True, False]
    now[0] = 20.0  # never heard of again
    assert breaker.allow_request()


def test_an_expert_is_back_when_its_probe_begins_to_answer_and_gone_again_if_that_answer_breaks() -> None:
    now = [0.0]
    breaker = CircuitBreaker(5, 10.0, clock=lambda: now[0])
    for _ in range(5):
        breaker.record_failure()
    now[0] = 10.0
    assert breaker.allow_request()
    breaker.record_beginning()
    assert [breaker.allow_request() for _ in range(3)] == [True] * 3
    breaker.record_failure()  # the probe's stream broke off
    assert breaker.state == "open"
    now[0] = 20.0
    assert breaker.allow_request()
    breaker.record_beginning()
    breaker.record_success()
    breaker.record_failure()  # a failure after a success is the first in a row
    assert breaker.state == "closed"


def test_answers_that_begin_well_and_always_break_open_a_breaker() -> None:
    breaker = CircuitBreaker(3, 10.0, clock=lambda: 1.0)
    for _ in range(3):
        assert breaker.allow_request()
        breaker.record_beginning()
        breaker.record_failure()
    assert breaker.state == "open"


def test_a_stream_that_began_long_ago_does_not_close_a_breaker_when_it_ends() -> None:
    now = [0.0]
    breaker = CircuitBreaker(2, 10.0, clock=lambda: now[0])
    assert breaker.allow_request()
    breaker.record_beginning()  # a long stream
    for _ in range(2):
        breaker.record_failure()  # nobody can connect any more
    breaker.record_success()  # the stream ends
    assert breaker.state == "open"
    now[0] = 10.0
    assert breaker.allow_request()  # the probe
    breaker.record_success()
    assert breaker.state == "closed"


def test_a_request_that_fails_again_and_again_counts_once() -> None:
    breaker = CircuitBreaker(3, 10.0, clock=lambda: 1.0)
    for _ in range(10):
        breaker.record_failure(request=7)
    assert breaker.state == "closed"
    breaker.record_failure(request=8)
    breaker.record_failure()  # could not be reached: that is nobody's request
    assert breaker.state == "open"


def test_a_request_counts_anew_after_a_success() -> None:
    breaker = CircuitBreaker(2, 10.0, clock=lambda: 1.0)
    breaker.record_failure(request=7)
    breaker.record_success()
    breaker.record_failure(request=7)
    breaker.record_failure(request=8)
    assert breaker.state == "open"


def test_a_probe_that_fails_as_before_is_a_failed_probe() -> None:
    now = [0.0]
    breaker = CircuitBreaker(1, 10.0, clock=lambda: now[0])
    breaker.record_failure(request=7)
    now[0] = 10.0
    assert breaker.allow_request()
    breaker.record_failure(request=7)
    assert breaker.state == "open"


def test_waiting_in_vain_counts_only_if_nobody_was_answered_meanwhile() -> None:
    now = [100.0]
    breaker = CircuitBreaker(1, 10.0, clock=lambda: now[0])
    breaker.record_beginning()
    now[0] = 150.0
    breaker.record_failure(waited=60.0)
    assert breaker.state == "closed"
    breaker.record_failure(waited=50.0)
    assert breaker.state == "open"


@pytest.mark.parametrize(("asked", "seconds"), [(7.0, 7.0), (3600.0, 60.0), (None, 1.0), (0.0, 1.0)])
def test_an_expert_is_left_alone_as_long_as_it_asks_within_bounds(asked: float | None, seconds: float) -> None:
    now = [5.0]
    breaker = CircuitBreaker(1, 10.0, max_retry_after=60.0, cooldown=1.0, clock=lambda: now[0])
    breaker.cool_down(asked)
    if not asked:  # a single refusal may be about the request alone
        assert (breaker.state, breaker.allow_request()) == ("closed", True)
        breaker.record_beginning()
        breaker.cool_down(asked)
        assert breaker.state == "closed"
        breaker.cool_down(asked)
    assert (breaker.state, breaker.retry_after, breaker.allow_request()) == ("cooling", seconds, False)
    breaker.cool_down(0.5)  # of a request that was under way: it does not shorten the time
    assert breaker.retry_after == seconds
    now[0] += seconds
    assert (breaker.state, breaker.retry_after, breaker.allow_request()) == ("closed", 0.0, True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "120"}, 120.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e400"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2014 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:00 GMT"}, None),
        ({"retry-after": "\xff"}, None),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "1"}, 1.0),
        ({}, None),
    ],
)
def test_how_long_an_expert_asks_to_be_left_alone(headers: dict[str, str], seconds: float | None) -> None:
    found = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
    assert parse_retry_after(found, lambda: 1445412450.0) == seconds
