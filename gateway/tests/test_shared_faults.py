"""What goes wrong with a shared store: it is full, slow, frozen, not ours, forbidden; gateways die; clocks differ."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from client_keys import bearer, key
from ir3de.errors import InputError
from ir3de_gateway.config.state import SharedState
from ir3de_gateway.store import check_shared_state, open_shared_store
from ir3de_gateway.store.contract import StoreUnavailableError
from ir3de_gateway.store.limits import Charge, Limits, Rejection, Spending
from ir3de_gateway.store.shared import connection, guarded
from ir3de_gateway.store.shared.connection import StoreConnection, name_keys
from ir3de_gateway.store.shared.guarded import SharedLimits
from ir3de_gateway.store.shared.limits import RedisLimits
from raw_sockets import chat, eventually
from redis_process import RedisProcess, needs_redis, running_redis
from shared_fleet import fleet
from slow_proxy import slow_proxy

pytestmark = [pytest.mark.slow, needs_redis]
LIMITS = Limits(requests_per_minute=5, concurrent=2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RedisProcess]:
    with running_redis(tmp_path / "redis") as found:
        yield found


# bad input --------------------------------------------------------------------------------------------------------


def test_a_store_of_another_version_or_with_the_keys_of_others_is_refused(store: RedisProcess) -> None:
    config = SharedState(store=store.url)
    with store.connect() as client:
        client.set("ir3de:users", "somebody else's")
        with pytest.raises(InputError, match=r"such as 'ir3de:users': name another state\.prefix"):
            check_shared_state(config)
        check_shared_state(SharedState(store=store.url, prefix="gateways"))
        client.delete("ir3de:users")
        check_shared_state(config)
        check_shared_state(config)
        client.set("ir3de:format", "ir3de 7")
        with pytest.raises(InputError, match=r"'ir3de 7'.*needs 'ir3de 1': run one version on all machines"):
            check_shared_state(config)
        client.delete("ir3de:format")
        client.lpush("ir3de:format", "x")
        with pytest.raises(InputError, match=r"has ir3de:format = b'list'"):
            check_shared_state(config)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("http://store", "begins with one of redis, rediss"),
        ("store:6379", "begins with one of redis, rediss"),
        ("redis://", "names no host"),
        ("redis://store:port/0", "cannot be read"),
        ("redis://user:secret@store/0", "named in store_env"),
        ("unix://relative", "names no host"),
    ],
)
def test_a_wrong_address_is_refused(address: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refused:
        SharedState(store=address)
    assert "user:secret" not in str(refused.value).partition("input_value")[0]


def test_an_address_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SharedState(store_env="STORE")
    with pytest.raises(InputError, match="the variable STORE is not set"):
        config.read_address()
    monkeypatch.setenv("STORE", "redis://:secret@store/0")
    assert config.read_address() == "redis://:secret@store/0"
    assert connection.hide_password(config.read_address()) == "redis://:…@store/0"
    with pytest.raises(ValueError, match="either `store` or `store_env`"):
        SharedState()


def test_a_store_that_nobody_serves_stops_a_closed_gateway_alone(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InputError, match=r"does not answer: .*set state\.on_failure: open to start without it"):
        check_shared_state(SharedState(store="redis://127.0.0.1:1/0", on_failure="closed"))
    check_shared_state(SharedState(store="redis://127.0.0.1:1/0"))
    assert "This gateway starts without it" in caplog.text


def test_no_rights_are_a_clear_error_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_redis(tmp_path, {"requirepass": "secret"}) as store:
        with pytest.raises(InputError, match=r"refuses this gateway: .*authenticat"):
            check_shared_state(SharedState(store=store.url))
        with store.connect(password="secret") as client:
            client.execute_command("ACL", "SETUSER", "weak", "on", ">weak", "~other:*", "+@all")
            client.execute_command("ACL", "SETUSER", "reads", "on", ">reads", "~ir3de:*", "+@read", "+@connection")
            client.execute_command(
                "ACL", "SETUSER", "able", "on", ">able", "~ir3de:*", "+@all", "-@admin", "-@dangerous"
            )
        for user in ("weak", "reads", "nobody"):
            monkeypatch.setenv("STORE", f"redis://{user}:{user}@127.0.0.1:{store.port}/0")
            with pytest.raises(InputError, match="refuses this gateway"):
                check_shared_state(SharedState(store_env="STORE"))
        monkeypatch.setenv("STORE", f"redis://able:able@127.0.0.1:{store.port}/0")
        check_shared_state(SharedState(store_env="STORE"))


def test_redis_py_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(InputError, match=r"state\.store needs redis-py: pip install .*redis"):
        check_shared_state(SharedState(store="redis://127.0.0.1:1/0"))


@pytest.mark.parametrize("foreign", ["another type", "another length"])
def test_the_numbers_of_a_key_that_are_not_ours_reject_that_key_alone(
    tmp_path: Path, store: RedisProcess, foreign: str
) -> None:
    with fleet(tmp_path, store, key("ada"), key("bea")) as found, store.connect() as client:
        numbers = name_keys("ir3de", "ada")[0]
        client.lpush(numbers, "x") if foreign == "another type" else client.set(numbers, "x" * 100)
        got = found.ask(0, chat("x", "law"), **bearer("ada"))
        assert (got.status, got.error["code"]) == (503, "usage_unreadable")
        assert found.ask(0, chat("x", "law"), **bearer("bea")).status == 200
        client.delete(numbers)
        assert found.ask(0, chat("x", "law"), **bearer("ada")).status == 200


# faults -----------------------------------------------------------------------------------------------------------


def test_a_full_store_is_the_policy_and_what_was_used_is_written_when_there_is_room(
    tmp_path: Path, store: RedisProcess
) -> None:
    with fleet(tmp_path, store, key("ada")) as found, store.connect() as client:
        assert found.ask(0, chat("x", "law"), **bearer("ada")).status == 200
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "1")
        assert [found.ask(place, chat("x", "law"), **bearer("ada")).status for place in range(6)] == [200] * 6
        metrics = found.ask(0, path="/metrics").body.decode()
        assert "ir3de_store_away 1.0" in metrics and 'ir3de_store_failures_total{kind="full"}' in metrics
        client.config_set("maxmemory", "0")

        def count() -> int:
            used = found.ask(1, path="/v1/usage", **bearer("ada")).json
            return int(used["used"]["day"]["requests"]) if "used" in used else -1

        assert eventually(lambda: count() == 7)
        assert eventually(lambda: "ir3de_store_away 0.0" in found.ask(0, path="/metrics").body.decode())


def test_a_store_that_is_50_ms_away_counts_exactly(tmp_path: Path, store: RedisProcess) -> None:
    with (
        slow_proxy(store.port, 0.05) as proxy,
        fleet(tmp_path, store, key("ada", requests_per_minute=20), url=proxy.url) as found,
        ThreadPoolExecutor(10) as pool,
    ):
        asked = [pool.submit(found.ask, place, chat("x", "law"), **bearer("ada")) for place in range(30)]
        statuses = [one.result().status for one in asked]
        assert (statuses.count(200), statuses.count(429)) == (20, 10)
        assert "ir3de_store_away 0.0" in found.ask(0, path="/metrics").body.decode()


def test_a_store_that_freezes_holds_requests_up_for_its_timeout_once(tmp_path: Path, store: RedisProcess) -> None:
    with (
        slow_proxy(store.port, 0.0) as proxy,
        fleet(tmp_path, store, key("ada"), url=proxy.url, state={"timeout": 0.3}) as found,
    ):
        assert found.ask(0, chat("x", "law"), **bearer("ada")).status == 200
        proxy.is_frozen = True
        assert [found.ask(place, chat("x", "law"), **bearer("ada")).status for place in range(12)] == [200] * 12
        proxy.is_frozen = False

        def count() -> int:
            used = found.ask(1, path="/v1/usage", **bearer("ada")).json
            return int(used["used"]["day"]["requests"]) if "used" in used else -1

        assert eventually(lambda: count() == 13)  # those whose answer was lost are not counted twice


def test_a_client_that_leaves_at_once_keeps_no_place(tmp_path: Path, store: RedisProcess) -> None:
    with (
        slow_proxy(store.port, 0.05) as proxy,
        fleet(tmp_path, store, key("ada", concurrent=4), url=proxy.url) as found,
    ):
        from raw_sockets import sent

        for _ in range(8):
            body = b'{"model": "law", "messages": [{"role": "user", "content": "x"}]}'
            line = sent(found.urls[0], body, **bearer("ada"))
            line.close()
        assert eventually(lambda: found.ask(1, path="/v1/usage", **bearer("ada")).json["used"]["concurrent"] == 0)


# gateways that die, clocks that differ ------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


def test_what_a_dead_gateway_had_in_flight_ends_and_what_it_reserved_stays_charged(store: RedisProcess) -> None:
    async def use() -> None:
        clock, limits = Clock(), Limits(concurrent=2, budget_per_day=5.0)
        link = StoreConnection(store.url, "ir3de", 1.0)
        dead, alive = RedisLimits(link, clock), RedisLimits(link, clock)
        first, second = [await dead.admit("ada", limits) for _ in range(2)]
        assert isinstance(first, Charge) and isinstance(second, Charge)
        await dead.reserve("ada", limits, first._replace(tokens=10, cost=2.0))
        assert isinstance(await alive.admit("ada", limits), Rejection)
        clock.now += 20
        await dead.renew()
        clock.now += 20
        assert isinstance(await alive.admit("ada", limits), Rejection)  # it was renewed
        clock.now += 20
        found = await alive.admit("ada", limits)
        assert isinstance(found, Charge)
        usage, in_flight, _ = await alive.read_usage("ada")
        assert (in_flight, usage.day.cost) == (1, 2.0)
        spent = Spending("law", 5, 0, 0.5, is_estimated=False)
        await dead.settle("ada", limits, first._replace(tokens=10, cost=2.0), spent)  # it was only asleep
        assert (await alive.read_usage("ada")).usage.day.cost == 0.5
        await link.close()

    asyncio.run(use())


def test_machines_whose_clocks_differ_by_a_minute_share_one_limit(
    tmp_path: Path, store: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's clock counts, so what the machines' own clocks show does not matter."""

    async def use() -> None:
        link = StoreConnection(store.url, "ir3de", 1.0)
        machines = []
        for ahead in (-60.0, 0.0, 60.0):
            clock = Clock()
            clock.now += ahead
            machines.append(SharedLimits(RedisLimits(link), is_open=True, allowance=0.2, clock=clock))
        found = [await machines[place % 3].admit("ada", LIMITS._replace(concurrent=None)) for place in range(15)]
        assert sum(isinstance(one, Charge) for one in found) == 5
        assert len({one.since for one in found if isinstance(one, Charge)}) <= 2
        await link.close()

    asyncio.run(use())


def test_an_operation_whose_answer_was_lost_is_made_once(store: RedisProcess) -> None:
    async def use() -> None:
        link = StoreConnection(store.url, "ir3de", 1.0)
        limits = SharedLimits(RedisLimits(link), is_open=True, allowance=1.0)
        admitted = await limits.admit("ada", LIMITS)
        assert isinstance(admitted, Charge)
        bound = admitted._replace(tokens=100, cost=1.0)
        assert await limits.reserve("ada", LIMITS, bound) is None
        assert await limits.reserve("ada", LIMITS, bound) is None
        spent = Spending("law", 30, 5, 0.25, is_estimated=False)
        alone = Charge(0, 0.0, admitted.since, "local 1")
        for is_again in (False, True, True, False):
            await limits._redis.settle("ada", LIMITS, bound, spent, is_again=is_again)
            await limits._redis.settle("ada", LIMITS, alone, spent, is_again=is_again)
        assert await limits.reserve("ada", LIMITS, bound) is None  # which comes late
        for lease in ("late", "early"):  # one was cancelled before it came, the other after that
            if lease == "late":
                await limits._redis.cancel("ada", lease)
            assert isinstance(await limits._redis.admit("ada", LIMITS, lease=lease), Charge)
            await limits._redis.cancel("ada", lease)
        usage, in_flight, by_expert = await limits.read_usage("ada", ["law"])
        assert (usage.day, in_flight) == ((2, 70, 0.5), 0)
        assert by_expert["law"].day == (2, 70, 0.5)
        await link.close()

    asyncio.run(use())


def test_beyond_the_most_that_memory_holds_the_oldest_usage_is_lost_and_counted(
    store: RedisProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guarded, "MAX_UNSETTLED", 3)

    async def use() -> None:
        made = open_shared_store(SharedState(store=store.url, allowance=1.0), counts_keys=True, pin_seconds=60)
        assert made.limits is not None and made.shared is not None and made.shared.limits is not None
        store.kill()
        for _ in range(5):
            charge = await made.limits.admit("ada", Limits())
            assert isinstance(charge, Charge) and charge.lease.startswith("local ")
            await made.limits.settle("ada", Limits(), charge, None)
        assert (made.shared.limits.unsettled, made.shared.limits.lost) == (3, 2)
        with pytest.raises(StoreUnavailableError):
            await made.limits.read_usage("ada")
        await made.close()
        assert made.shared.limits.lost == 5

    asyncio.run(use())
    assert "the usage of 3 requests was not written" in caplog.text


def test_requests_in_flight_when_the_store_dies_are_charged_what_they_took(tmp_path: Path, store: RedisProcess) -> None:
    release = threading.Event()

    async def wait(request: Request, asked: dict[str, Any]) -> Response:
        while not release.is_set():
            await asyncio.sleep(0.01)
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        choice = {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}
        return JSONResponse({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage})

    with fleet(tmp_path, store, key("ada", tokens_per_minute=100_000)) as found, ThreadPoolExecutor(3) as pool:
        found.upstream.behaviour["law"] = wait
        asked = [pool.submit(found.ask, place, chat("x", "law"), **bearer("ada")) for place in range(3)]
        assert eventually(lambda: len(found.upstream.asked) == 3)
        store.kill()
        release.set()
        assert [one.result().status for one in asked] == [200] * 3
        store.start()

        def read() -> Any:
            used = found.ask(0, path="/v1/usage", **bearer("ada")).json.get("used")
            return used and (used["day"]["requests"], used["day"]["tokens"], used["concurrent"])

        assert eventually(lambda: read() == (3, 45, 0))
