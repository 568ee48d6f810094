"""Which replica a conversation prefers: the same on every worker and machine, within a bound of the load."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ir3de_gateway.experts.affinity import MIN_BOUND_REQUESTS, hash_beginning, rank
from ir3de_gateway.experts.expert import ReplicatedExpert, create_expert
from raw_sockets import ask
from replicated_expert import LAW, NAMES, fail_all, is_quiet, replicas_of, replicated
from running_gateway import failing
from test_replica_choice import law, open_in_two_workers

BEGINNINGS = [hash_beginning("You are helpful.", f"question {number}") for number in range(400)]
AFFINE = {"affinity": 2.0}


def create(addresses: list[str] | None = None, **more: Any) -> ReplicatedExpert:
    expert = create_expert(law(*(addresses or [f"http://{name}/v1" for name in "abcd"]), **more))
    assert isinstance(expert, ReplicatedExpert)
    return expert


def find_homes(expert: ReplicatedExpert) -> list[str]:
    """Where each conversation goes while nothing else is in flight."""
    found = []
    for beginning in BEGINNINGS:
        replica = expert.pick(beginning=beginning)
        assert replica is not None
        replica.leave()
        found.append(replica.label)
    return found


def test_the_order_of_a_conversation_is_a_function_of_its_beginning_and_the_addresses() -> None:
    """The expected labels are constants: another machine, processor or version must find the same ones."""
    assert find_homes(create())[:12] == [f"{name}/v1" for name in "caacaaacaaca"]
    addresses = [f"http://{name}/v1" for name in "cadb"]
    assert find_homes(create(addresses)) == find_homes(create())
    assert hash_beginning("a", "bc") != hash_beginning("ab", "c") != hash_beginning("", "abc")


@given(st.integers(2, 8), st.integers(0, 7))
@settings(max_examples=30, deadline=None)
def test_without_a_replica_only_its_own_conversations_move(count: int, gone: int) -> None:
    replicas = create([f"http://10.0.0.{number}/v1" for number in range(count)]).replicas
    left = [replica for number, replica in enumerate(replicas) if number != gone % count]
    for beginning in BEGINNINGS[:100]:
        order = rank(beginning, replicas)
        assert rank(beginning, left) == [replica for replica in order if replica in left]


def test_weights_are_shares_of_the_conversations() -> None:
    config = [{"base_url": "http://a/v1", "weight": 3}, "http://b/v1"]
    homes = Counter(find_homes(create(config)))  # type: ignore[arg-type]
    assert homes["a/v1"] / len(BEGINNINGS) == pytest.approx(0.75, abs=0.07)
    assert all(count == pytest.approx(100, abs=30) for count in Counter(find_homes(create())).values())


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 5)), max_size=120),
    st.sampled_from([1.0, 1.25, 2.0]),
)
@settings(max_examples=60, deadline=None)
def test_no_replica_gets_more_than_its_bound(told: list[tuple[bool, int, int]], affinity: float) -> None:
    """Each step: a request of one of six conversations comes, or one of a replica ends."""
    expert = create(affinity=affinity)
    for comes, number, conversation in told:
        if not comes:
            if expert.replicas[number].in_flight:
                expert.replicas[number].leave()
            continue
        before = {replica: replica.in_flight for replica in expert.replicas}
        chosen = expert.pick(beginning=BEGINNINGS[conversation])
        bound = max(MIN_BOUND_REQUESTS, math.ceil(affinity * (sum(before.values()) + 1) / 4))
        assert chosen is not None and before[chosen] < bound
        for replica in rank(BEGINNINGS[conversation], expert.replicas):
            if replica is chosen:
                break
            assert before[replica] >= bound  # whom the conversation prefers more has no room


def test_a_conversation_returns_when_its_replica_has_room_or_is_back() -> None:
    expert = create(slow_start=0, breaker={"failures": 1, "rest": 1_000}, health={"unhealthy": 1})
    first, second, *_ = rank(BEGINNINGS[0], expert.replicas)
    for _ in range(MIN_BOUND_REQUESTS):
        assert expert.pick(beginning=BEGINNINGS[0]) is first
    assert expert.pick(beginning=BEGINNINGS[0]) is second
    first.leave()
    assert expert.pick(beginning=BEGINNINGS[0]) is first
    for replica in (first, second):
        for _ in range(replica.in_flight):
            replica.leave()
    assert expert.pick((first,), beginning=BEGINNINGS[0]) is second  # it was tried
    first.set_drained(True)
    assert expert.pick(beginning=BEGINNINGS[0]) is second
    first.set_drained(False)
    assert first.record_check(is_good=False) and expert.pick(beginning=BEGINNINGS[0]) is second
    assert first.record_check(is_good=True) and expert.pick(beginning=BEGINNINGS[0]) is first
    first.breaker.record_failure()
    assert expert.pick(beginning=BEGINNINGS[0]) is second


def test_workers_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = open_in_two_workers(tmp_path, monkeypatch)
    assert find_homes(one) == find_homes(other)
    for _ in range(MIN_BOUND_REQUESTS):
        one.pick(beginning=BEGINNINGS[0])
    first, second, _ = rank(BEGINNINGS[0], other.replicas)
    assert first.in_flight == MIN_BOUND_REQUESTS and other.pick(beginning=BEGINNINGS[0]) is second


def test_affinity_can_be_off_and_is_never_less_than_a_share() -> None:
    assert find_homes(create(affinity=0))[:4] == ["a/v1", "b/v1", "c/v1", "d/v1"]
    with pytest.raises(ValidationError, match="must be 0, or at least 1"):
        law("http://a/v1", affinity=0.5)


# through the gateway -------------------------------------------------------------------------------------------------


def hold(
    url: str, first: str, turns: int = 3, system: str = "", path: str = "chat/completions", **more: Any
) -> list[Any]:
    """A chat of some turns."""
    messages = [{"role": "user", "content": first}]
    if path == "messages":
        more |= {"max_tokens": 5} | ({"system": system} if system else {})
    elif system:
        messages.insert(0, {"role": "system", "content": system})
    answers = []
    for turn in range(turns):
        answers.append(ask(url, {"model": "law", "messages": messages, **more}, path=f"/v1/{path}"))
        answer = {"role": "assistant", "content": f"answer {turn}"}
        messages = [*messages, answer, {"role": "user", "content": f"{LAW} {turn}"}]
    return answers


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"path": "messages"}, {"system": "You are brief."}])
def test_a_chat_stays_with_a_replica_and_chats_are_spread(tmp_path: Path, more: dict[str, Any]) -> None:
    with replicated(tmp_path, law=AFFINE) as gateway:
        homes = []
        for number in range(12):
            before = len(gateway.upstream.asked)
            assert {answer.status for answer in hold(gateway.url, f"{LAW} {number}", **more)} == {200}
            (home,) = set(gateway.upstream.asked[before:])
            homes.append(home)
        assert len(set(homes)) > 1 and set(homes) <= set(NAMES) and is_quiet(gateway)


def test_drains_failures_and_retries_come_first(tmp_path: Path) -> None:
    with replicated(tmp_path, law={**AFFINE, "breaker": {"failures": 100}}) as gateway:
        hold(gateway.url, LAW, 1)
        home = gateway.upstream.asked[-1]
        drained = next(replica for replica in replicas_of(gateway) if replica.label == home)
        drained.set_drained(True)
        hold(gateway.url, LAW)
        (second,) = set(gateway.upstream.asked[1:])
        assert second != home
        drained.set_drained(False)
        gateway.upstream.behaviour[home] = failing(500)
        hold(gateway.url, LAW)
        assert gateway.upstream.asked[4:] == [home, second] * 3  # it is tried first, and its next one answers
        fail_all(gateway, failing(500))
        assert hold(gateway.url, LAW, 1)[0].status == 500
