"""Which replica gets the next request: the least busy one, in turn, less of those that come back; over all workers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.config.findings import list_variables
from ir3de_gateway.experts import expert as expert_module
from ir3de_gateway.experts.expert import Replica, ReplicatedExpert, create_expert
from ir3de_gateway.store import numbers as tables
from ir3de_gateway.store.workers import VARIABLE


class Clock:
    """A clock that stands still until a test moves it."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(expert_module, "monotonic", clock)
    return clock


def law(*replicas: Any, **more: Any) -> ExpertConfig:
    return ExpertConfig.model_validate({"name": "law", "replicas": replicas, **more})


def three(**more: Any) -> ReplicatedExpert:
    expert = create_expert(law("http://a/v1", "http://b/v1", "http://c/v1", **more))
    assert isinstance(expert, ReplicatedExpert)
    return expert


def picked(expert: ReplicatedExpert, **more: Any) -> Replica:
    found = expert.pick(**more)
    assert found is not None
    return found


def test_one_address_is_an_expert_as_ever_and_several_have_one_concurrency_limit() -> None:
    assert create_expert(ExpertConfig(name="law", base_url="http://a/v1")).replicas == ()
    config = law({"base_url": "http://a/v1", "api_key_env": "A", "name": "east"}, "http://b:1/v1")
    east, other = create_expert(config).replicas
    assert (east.name, east.label) == (other.name, "east") == ("law", "east")
    assert (east.config.base_url, east.config.api_key_env) == ("http://a/v1", "A")
    assert (other.label, other.config.base_url, other.config.api_key_env) == ("b:1/v1", "http://b:1/v1", None)
    assert east.concurrency is other.concurrency
    named = list_variables(config.model_dump(mode="json"))
    assert config.base_url == "http://a/v1" and [*named] == [(("replicas", 0, "api_key_env"), "A")]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "base_url or replicas is needed"),
        ({"replicas": ["http://a/v1", "http://a/v1/"]}, "the replicas http://a/v1 occur twice"),
        ({"replicas": ["http://a/v1", {"base_url": "http://b", "name": "a/v1"}]}, "the replicas a/v1 occur twice"),
        ({"base_url": "http://x/v1", "replicas": ["http://a/v1"]}, "but not others in both"),
        ({"replicas": ["http://a/v1", "b"]}, "must look like http"),
        ({"replicas": [{"base_url": "http://me:secret@a/v1"}]}, "must not contain a user or password"),
        ({"replicas": ["https://a/v1", "http://b/v1"], "http2": True}, "http2 needs an address"),
        ({"replicas": [{"base_url": "http://a/v1", "weight": 0}]}, "greater than 0"),
        ({"replicas": [{"base_url": "http://a/v1", "wait": 0}]}, "Extra inputs"),
    ],
)
def test_addresses_that_do_not_fit_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ExpertConfig.model_validate({"name": "law", **fields})


def test_replicas_that_have_nothing_to_do_take_turns() -> None:
    expert = three()
    order = []
    for _ in range(9):
        replica = picked(expert)
        replica.leave()
        order.append(replica.label)
    assert order == ["a/v1", "b/v1", "c/v1"] * 3


def test_weights_are_shares() -> None:
    expert = create_expert(law({"base_url": "http://a/v1", "weight": 3}, "http://b/v1"))
    assert isinstance(expert, ReplicatedExpert)
    kept = Counter(picked(expert).label for _ in range(40))
    assert kept == {"a/v1": 30, "b/v1": 10}
    for replica in expert.replicas:
        for _ in range(replica.in_flight):
            replica.leave()
    in_turn: Counter[str] = Counter()
    for _ in range(40):
        replica = picked(expert)
        replica.leave()
        in_turn[replica.label] += 1
    assert in_turn == {"a/v1": 30, "b/v1": 10}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2)), max_size=60), st.lists(st.integers(0, 2), max_size=2))
@settings(max_examples=60, deadline=None)
def test_the_least_busy_of_those_that_can_be_asked_gets_the_next_request(
    told: list[tuple[bool, int]], drained: list[int]
) -> None:
    """Each step: a request comes, or one of a replica ends."""
    expert = three()
    for number in drained:
        expert.replicas[number].set_drained(True)
    for comes, number in told:
        if not comes:
            if expert.replicas[number].in_flight:
                expert.replicas[number].leave()
            continue
        before = {replica: replica.in_flight for replica in expert.replicas if not replica.is_drained}
        chosen = expert.pick()
        assert chosen is not None and before[chosen] == min(before.values())
        assert chosen.in_flight == before[chosen] + 1


def test_the_tried_the_drained_the_down_and_those_with_open_breakers_are_left_out() -> None:
    expert = three(breaker={"failures": 1, "rest": 1_000}, health={"unhealthy": 1})
    a, b, c = expert.replicas
    assert {picked(expert, tried=(a,)) for _ in range(4)} == {b, c}
    b.set_drained(True)
    assert {picked(expert) for _ in range(4)} == {a, c}
    a.breaker.record_failure()
    assert {picked(expert) for _ in range(4)} == {c} and expert.breaker.state == "closed"
    assert c.record_check(is_good=False)
    assert expert.pick() is None and expert.breaker.state == "open"
    assert expert.describe_absence() == (
        "no replica of 'law' is available: 1 resting after failures, 1 drained, 1 down"
    )
    assert 0 < expert.breaker.retry_after <= 1_000
    assert [replica.state for replica in expert.replicas] == ["open", "drained", "down"]


def test_a_replica_that_rested_gets_one_probe_from_a_request_that_may_be_repeated() -> None:
    expert = three(breaker={"failures": 1, "rest": 1e-9}, slow_start=0)
    a, b, c = expert.replicas
    a.breaker.record_failure()
    assert {picked(expert, may_probe=False) for _ in range(6)} == {b, c}
    assert picked(expert) is a  # the probe
    a.breaker.record_beginning()
    assert a.state == "up"
    for replica in (b, c):
        replica.set_drained(True)
    a.breaker.record_failure()
    assert picked(expert, may_probe=False) is a  # there is no other


def test_a_replica_that_comes_back_gets_its_share_little_by_little(clock: Clock) -> None:
    expert = three(slow_start=10, health={"unhealthy": 1})
    late = expert.replicas[0]
    assert late.record_check(is_good=False) and late.record_check(is_good=True)
    assert late.state == "warming"

    def measure_share() -> float:
        shares: Counter[Replica] = Counter()
        for _ in range(300):
            replica = picked(expert)
            replica.leave()
            shares[replica] += 1
        return shares[late] / 300

    found = []
    for passed in (0.0, 2.5, 5.0, 10.0):
        clock.now = 1_000.0 + passed
        found.append(measure_share())
    assert found == pytest.approx([0, 1 / 12, 1 / 6, 1 / 3], abs=0.03)
    assert late.state == "up"


def test_slow_start_bounds_the_requests_at_once_too(clock: Clock) -> None:
    expert = three(slow_start=10, health={"unhealthy": 1})
    late = expert.replicas[0]
    late.record_check(is_good=False)
    for _ in range(40):
        picked(expert)
    late.record_check(is_good=True)
    clock.now += 5
    for _ in range(20):
        picked(expert)
    assert late.in_flight <= 10 < min(replica.in_flight for replica in expert.replicas[1:])


def test_if_all_are_warming_they_are_asked_all_the_same(clock: Clock) -> None:
    expert = three(slow_start=10, health={"unhealthy": 1})
    for replica in expert.replicas:
        replica.record_check(is_good=False)
    assert expert.pick() is None
    for replica in expert.replicas:
        replica.record_check(is_good=True)
    assert {picked(expert) for _ in range(9)} == set(expert.replicas)


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_checks_in_a_row_decide_on_up_and_down(told: list[bool], unhealthy: int, healthy: int) -> None:
    expert = three(health={"unhealthy": unhealthy, "healthy": healthy})
    replica, is_down = expert.replicas[0], False
    for number in range(len(told)):
        replica.record_check(is_good=told[number])
        good = told[max(0, number + 1 - healthy) : number + 1]
        bad = told[max(0, number + 1 - unhealthy) : number + 1]
        if is_down and len(good) == healthy and all(good):
            is_down = False
        elif not is_down and len(bad) == unhealthy and not any(bad):
            is_down = True
        assert replica.is_down == is_down


def test_good_checks_close_a_breaker_only_if_checks_saw_the_replica_go() -> None:
    expert = three(breaker={"failures": 1, "rest": 1_000}, health={"unhealthy": 2})
    replica = expert.replicas[0]
    replica.breaker.record_failure()
    replica.record_check(is_good=False)
    replica.record_check(is_good=True)
    assert replica.state == "open"  # it answers checks, but not requests
    replica.record_check(is_good=False)
    replica.record_check(is_good=False)
    assert replica.state == "down"
    replica.record_check(is_good=True)
    assert replica.state == "warming" and replica.breaker.state == "closed"


def open_in_two_workers(folder: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> list[ReplicatedExpert]:
    """One expert as two workers have it; here both are in one process."""
    monkeypatch.setenv(VARIABLE, str(folder))
    found = []
    for _ in range(2):
        table = tables.WorkerTable(folder, 2)
        monkeypatch.setattr(tables, "_open_table", lambda folder, workers, table=table: table)
        expert = create_expert(law("http://a/v1", "http://b/v1", "http://c/v1", **more), 2)
        assert isinstance(expert, ReplicatedExpert)
        found.append(expert)
    return found


def test_workers_count_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = open_in_two_workers(tmp_path, monkeypatch, health={"unhealthy": 1}, slow_start=0)
    kept = [(one, other)[number % 2].pick() for number in range(30)]
    assert [replica.in_flight for replica in one.replicas] == [10, 10, 10]
    assert [replica.in_flight for replica in other.replicas] == [10, 10, 10]
    for replica in kept[:20]:
        assert replica is not None
        replica.leave()
    assert sum(replica.in_flight for replica in other.replicas) == 10
    one.replicas[1].record_check(is_good=False)
    assert other.replicas[1].state == "down"
    assert {picked(other).label for _ in range(6)} == {"a/v1", "c/v1"}
    other.replicas[1].record_check(is_good=True)
    assert one.replicas[1].state == "up"


def test_of_all_workers_one_makes_each_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    one, other = open_in_two_workers(tmp_path, monkeypatch)
    pair = one.replicas[0], other.replicas[0]
    assert [replica.claim_check() for replica in (*pair, *pair)] == [True, False, False, False]
    pair[0].record_check(is_good=True)
    clock.now += 9.0
    assert [replica.claim_check() for replica in pair] == [False, False]
    clock.now += 1.0
    assert [replica.claim_check() for replica in reversed(pair)] == [True, False]
    for _ in range(2):
        pair[0].record_check(is_good=False)
    clock.now += 2.0  # the interval of a replica that is down
    assert [replica.claim_check() for replica in pair] == [True, False]
    clock.now += 12.0  # whoever made that check has died, or hangs
    assert [replica.claim_check() for replica in pair] == [True, False]
