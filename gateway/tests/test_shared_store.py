"""Gateways on several machines that share a store: limits, pins and ids of stored responses are those of all."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from client_keys import bearer, key
from raw_sockets import chat, eventually
from redis_process import RedisProcess, needs_redis, running_redis
from running_gateway import QUESTIONS
from shared_fleet import Fleet, fleet

pytestmark = [pytest.mark.slow, needs_redis]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RedisProcess]:
    with running_redis(tmp_path / "redis") as found:
        yield found


def test_a_limit_is_one_for_all_machines(tmp_path: Path, store: RedisProcess) -> None:
    with fleet(tmp_path, store, key("ada", requests_per_minute=6), key("bea", requests_per_minute=6)) as found:
        with ThreadPoolExecutor(12) as pool:
            asked = [
                pool.submit(found.ask, number, chat("x", "law"), **bearer(name))
                for number in range(18)
                for name in ("ada", "bea")
            ]
            statuses = [one.result().status for one in asked]
        assert sorted(statuses[::2]) == sorted(statuses[1::2]) == [200] * 6 + [429] * 12
        used = [found.ask(number, path="/v1/usage", **bearer("ada")).json["used"] for number in range(3)]
        assert [(one["requests"], one["concurrent"], one["day"]["requests"]) for one in used] == [(6, 0, 6)] * 3


def test_a_response_is_continued_through_any_machine(tmp_path: Path, store: RedisProcess) -> None:
    experts = {name: {"capabilities": ["responses"]} for name in ("law", "maths")}
    with fleet(tmp_path, store, key("ada"), key("bea"), experts=experts) as found:
        made = found.ask(0, {"model": "maths", "input": "x"}, "/v1/responses", **bearer("ada"))
        assert made.status == 200
        follow = {"model": "auto", "input": QUESTIONS["law"], "previous_response_id": made.json["id"]}
        for place in range(3):
            got = found.ask(place, follow, "/v1/responses", **bearer("ada"))
            assert (got.status, got.headers["x-ir3de-expert"]) == (200, "maths")
            assert found.ask(place, follow, "/v1/responses", **bearer("bea")).status == 400


def test_a_conversation_stays_with_its_expert_on_any_machine(tmp_path: Path, store: RedisProcess) -> None:
    with fleet(tmp_path, store, routing={"pinning": {"release": 1}}) as found:
        first = found.ask(0, chat(QUESTIONS["law"], "auto"), **{"x-session-id": "monday"})
        later = [found.ask(place, chat(QUESTIONS["maths"], "auto"), **{"x-session-id": "monday"}) for place in range(3)]
        assert [got.headers["x-ir3de-expert"] for got in later] == [first.headers["x-ir3de-expert"]] * 3


@pytest.mark.parametrize("policy", ["open", "closed"])
def test_a_store_that_dies_and_comes_back(tmp_path: Path, store: RedisProcess, policy: str) -> None:
    """What was acknowledged is there afterwards; with the policy `open`, no request fails, within the allowance."""
    state = {"on_failure": policy, "allowance": 0.5}
    with fleet(tmp_path, store, key("ada", requests_per_minute=10), key("bea"), state=state) as found:
        before = [found.ask(place, chat("x", "law"), **bearer("bea")).status for place in range(3)]
        store.kill()
        during = [found.ask(place, chat("x", "law"), **bearer("bea")) for place in range(9)]
        alone = [found.ask(0, chat("x", "law"), **bearer("ada")).status for _ in range(8)]
        metrics = found.ask(0, path="/metrics").body.decode()
        assert "ir3de_store_away 1.0" in metrics
        if policy == "closed":
            assert {(got.status, got.error["code"]) for got in during} == {(503, "state_unavailable")}
            assert set(alone) == {503}
        else:
            assert {got.status for got in during} == {200}
            assert alone == [200] * 5 + [429] * 3
        store.start()
        served_alone = 0 if policy == "closed" else 9
        assert before == [200] * 3 and eventually(
            lambda: [used(found, place, "bea") for place in range(3)] == [3 + served_alone] * 3
        )
        assert used(found, 1, "ada") == (0 if policy == "closed" else 5)
        assert eventually(lambda: "ir3de_store_away 0.0" in found.ask(0, path="/metrics").body.decode())
        assert found.ask(2, chat("x", "law"), **bearer("bea")).status == 200


def used(found: Fleet, place: int, name: str) -> int:
    """Requests of this day, as one machine sees them; -1 if it cannot."""
    got = found.ask(place, path="/v1/usage", **bearer(name)).json
    return int(got["used"]["day"]["requests"]) if "used" in got else -1
