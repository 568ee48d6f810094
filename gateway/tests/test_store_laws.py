"""The laws of a store: the embedded one and the one over the network decide alike, request by request."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir3de_gateway.store.contract import LimitStore, PinStore
from ir3de_gateway.store.embedded import EmbeddedLimits, EmbeddedPins
from ir3de_gateway.store.limits import Charge, FileLimits, Limits, Rejection, Spending
from ir3de_gateway.store.pins import StoredPins
from ir3de_gateway.store.shared.connection import StoreConnection
from ir3de_gateway.store.shared.limits import RedisLimits
from ir3de_gateway.store.shared.pins import SharedPins
from redis_process import RedisProcess, needs_redis, running_redis

pytestmark = [pytest.mark.slow, needs_redis]
NEW_YEAR = datetime(2027, 12, 31, 23, 58, 30, tzinfo=UTC).timestamp()

T = TypeVar("T")


class Clock:
    def __init__(self, now: float = NEW_YEAR) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Pair(NamedTuple):
    """The same keys in both stores, with one clock."""

    clock: Clock
    loop: asyncio.AbstractEventLoop
    embedded: EmbeddedLimits
    shared: RedisLimits

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with running_redis(tmp_path_factory.mktemp("redis"), {"appendfsync": "no"}) as found:
        yield found


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture(scope="module")
def connection(server: RedisProcess, loop: asyncio.AbstractEventLoop) -> Iterator[StoreConnection]:
    made = StoreConnection(server.url, "laws", 5.0)
    yield made
    loop.run_until_complete(made.close())


limits_of_keys = st.builds(
    Limits,
    requests_per_minute=st.none() | st.integers(0, 6),
    tokens_per_minute=st.none() | st.integers(1, 60),
    concurrent=st.none() | st.integers(1, 4),
    budget_per_day=st.none() | st.integers(1, 20).map(lambda number: number / 4),
    budget_per_month=st.none() | st.integers(1, 40).map(lambda number: number / 4),
)
amounts = st.tuples(st.integers(0, 40), st.integers(0, 16).map(lambda number: number / 4))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.floats(0, 50) | st.sampled_from([59.5, 60.0, 61.0, 3_600.0, 86_400.0])),
        st.tuples(st.just("admit"), st.booleans()),
        st.tuples(st.just("reserve"), st.integers(0, 5), amounts),
        st.tuples(st.just("settle"), st.integers(0, 5), st.none() | amounts, st.booleans()),
        st.tuples(st.just("settle instead"), st.integers(0, 5), amounts, amounts),
    ),
    max_size=40,
)


@given(limits_of_keys, steps)
@settings(deadline=None, max_examples=150)
def test_both_stores_give_the_same_answers(
    connection: StoreConnection, loop: asyncio.AbstractEventLoop, limits: Limits, told: list[Any]
) -> None:
    clock = Clock()
    pair = Pair(clock, loop, EmbeddedLimits(FileLimits(None, 1), clock), RedisLimits(connection, clock))
    key = f"key {id(pair)} {told!r}"
    pair.run(connection.do("FLUSHALL"))
    open_requests: list[tuple[Charge, Charge]] = []
    for what, *values in told:
        if what == "wait":
            clock.now += values[0]
            pair.run(pair.shared.renew())
        elif what == "admit":
            found = [pair.run(store.admit(key, limits, spends=values[0])) for store in (pair.embedded, pair.shared)]
            compare(*found)
            if isinstance(found[0], Charge):
                open_requests.append((found[0], found[1]))  # type: ignore[arg-type]
        elif values[0] < len(open_requests):
            act(pair, key, limits, open_requests, what, values)
        compare_usage(pair, key, limits)


def compare(one: Rejection | Charge | None, other: Rejection | Charge | None) -> None:
    if isinstance(one, Rejection):
        assert isinstance(other, Rejection) and other[:2] == one[:2]
        assert other.retry_after == pytest.approx(one.retry_after, abs=1e-5) and other.reserved == one.reserved
    elif one is None:
        assert other is None
    else:
        assert isinstance(other, Charge) and other[:3] == one[:3]


def act(pair: Pair, key: str, limits: Limits, requests: list[Any], what: str, values: list[Any]) -> None:
    """Reserve for a request in flight, or settle it, in both stores."""
    charges = requests[values[0]]
    stores: tuple[LimitStore, LimitStore] = pair.embedded, pair.shared  # type: ignore[assignment]
    if what == "reserve":
        if charges[0].tokens or charges[0].cost:
            return
        bounds = [charge._replace(tokens=values[1][0], cost=values[1][1]) for charge in charges]
        found = [pair.run(store.reserve(key, limits, bound)) for store, bound in zip(stores, bounds, strict=True)]
        compare(*found)
        requests[values[0]] = charges if found[0] is not None else bounds
        if found[0] is not None:  # a request that is rejected ends
            for store, charge in zip(stores, charges, strict=True):
                pair.run(store.settle(key, limits, charge, None))
            del requests[values[0]]
        return
    spent = None if values[1] is None else Spending("law", values[1][0], 0, values[1][1], values[-1] is True)
    instead = Charge(*values[2], int(pair.clock.now) - 30) if what == "settle instead" else None
    rates = [
        pair.run(store.settle(key, limits, charge, spent, instead=instead))
        for store, charge in zip(stores, charges, strict=True)
    ]
    for one, other in zip(*rates, strict=True):
        assert (one is None and other is None) or one[:2] == other[:2]
    del requests[values[0]]


def compare_usage(pair: Pair, key: str, limits: Limits) -> None:
    one, other = (pair.run(store.read_usage(key, ["law", "maths"])) for store in (pair.embedded, pair.shared))
    assert other.in_flight == one.in_flight
    assert (other.usage.requests, other.usage.tokens) == (one.usage.requests, one.usage.tokens)
    for mine, theirs in ((one.usage, other.usage), *zip(one.by_expert.values(), other.by_expert.values(), strict=True)):
        assert (mine.day, mine.month, mine.estimated) == (theirs.day, theirs.month, theirs.estimated)


# pins -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["embedded", "shared"])
def pins(request: pytest.FixtureRequest, connection: StoreConnection, loop: asyncio.AbstractEventLoop) -> PinStore:
    loop.run_until_complete(connection.do("FLUSHALL"))
    return EmbeddedPins(StoredPins(60)) if request.param == "embedded" else SharedPins(connection, 60)


def test_a_pin_is_found_by_its_name_and_replaced(pins: PinStore, loop: asyncio.AbstractEventLoop) -> None:
    async def use() -> None:
        assert await pins.get("monday") is None
        await pins.put("monday", "law")
        await pins.put("tuesday", "maths", 0.05)
        assert await pins.get("monday") == "law"
        await pins.put("monday", "maths é\n")
        assert await pins.get("monday") == "maths é\n"
        await asyncio.sleep(0.06)
        assert await pins.get("tuesday") is None

    loop.run_until_complete(use())


def test_one_of_many_takes_a_pin(pins: PinStore, loop: asyncio.AbstractEventLoop) -> None:
    async def use() -> None:
        await pins.put("charge", "7")
        assert sorted(await asyncio.gather(*(pins.take("charge") for _ in range(20))), key=str)[0] == "7"
        assert [await pins.take("charge"), await pins.get("charge")] == [None, None]

    loop.run_until_complete(use())
