"""The tools that measure the gateway measure what they say, and see what goes wrong."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de_lab.benchmarks.gateway.comparing import (
    added,
    busy_share,
    latency,
    percentiles,
    processor_time,
    throughput,
)
from ir3de_lab.benchmarks.gateway.fates import Fate, fate, judge
from ir3de_lab.benchmarks.gateway.heavy_requests import BODY_BYTES, SOME, Cost, heavy_requests, judge_costs
from ir3de_lab.benchmarks.gateway.holding import hold_streams
from ir3de_lab.benchmarks.gateway.load import Job, Result, moments, perform
from ir3de_lab.benchmarks.gateway.measuring import PATH, Bench, Plan, bodies
from ir3de_lab.benchmarks.gateway.processes import Server, module, started
from ir3de_lab.benchmarks.gateway.soaking import Plan as SoakPlan
from ir3de_lab.benchmarks.gateway.soaking import Soak, growth_of, watched
from ir3de_lab.benchmarks.gateway.upstream import WAYS, answer_json, event, whole
from ir3de_lab.benchmarks.gateway.versions import VersionPlan, compare_costs, measure_versions
from ir3de_lab.benchmarks.gateway.wire import Answer, run

pytestmark = pytest.mark.slow

DELAY = 0.05
CHAT = ['{"model": "auto", "messages": [{"role": "user", "content": "Is this void?"}]}']
STREAM = ['{"model": "auto", "stream": true, "messages": [{"role": "user", "content": "Is this void?"}]}']


@pytest.fixture(scope="module")
def upstream() -> Iterator[Server]:
    with started(module("upstream", latency=0.002, tokens=4, interval=0.001), measured=False) as server:
        yield server


@pytest.fixture(scope="module")
def bare(upstream: Server) -> Iterator[Server]:
    with started(module("bare", upstream=upstream.port), measured=True) as server:
        yield server


def job(port: int, **changes: object) -> Job:
    given = {"bodies": CHAT, "seconds": 0.2, "connections": 4, "warm": 0.02, **changes}
    return Job(port, PATH, **given)  # type: ignore[arg-type]


def test_prompts_are_of_a_hundred_tokens_and_differ() -> None:
    made = bodies(stream=False, count=40)
    texts = [json.loads(body)["messages"][0]["content"] for body in made]
    assert len(set(texts)) == 40
    assert all(90 <= len(Embedding.default().tokenizer.encode(text)) <= 100 for text in texts)


@pytest.mark.nightly
def test_a_proxy_that_is_slower_by_so_much_is_seen_to_be(upstream: Server, bare: Server) -> None:
    with started(module("bare", upstream=upstream.port, delay=DELAY), measured=True) as slow:
        servers = {"direct": upstream, "bare": bare, "gateway": slow}
        bench = Bench(Plan(), servers, CHAT, connections=20)
        measured = bench.rounds(tuple(servers), 1, 0.3, dict.fromkeys(servers, 60.0))
        saturated = bench.rounds(("bare", "gateway"), 1, 0.3)
    assert percentiles(measured, 50)["gateway"][0] >= 1e3 * DELAY
    assert added(measured, "gateway", 50)[0] > added(measured, "bare", 50)[0]
    assert latency(measured, 50, 1.3).reached is False
    assert throughput(saturated, bar=80.0).reached is False
    assert all(result.cpu_us > 0 for results in saturated.values() for result in results)


def test_at_a_fixed_rate_waiting_for_a_connection_counts(upstream: Server) -> None:
    with started(module("upstream", latency=0.1), measured=False) as slow:
        result = run(perform(job(slow.port, connections=1, rate=100.0, seconds=0.1, warm=0.0)))
    # one after the other: the last of ten answers comes a second after the first was due, at the earliest
    assert len(result.latencies) == 10
    assert max(result.latencies) >= 10 * 0.1 - 0.1


@pytest.mark.parametrize("poisson", [False, True])
def test_moments_keep_the_rate(poisson: bool) -> None:
    asked = job(1, rate=200.0, seconds=2.0, warm=0.5, poisson=poisson)
    due = moments(asked)
    assert len(due) == 500 and due == sorted(due) and due[0] >= 0 and due[-1] < 2.5
    assert due == moments(asked)
    if not poisson:
        assert [int(moment * 200) for moment in due] == list(range(500))


def test_the_first_token_comes_before_the_last(upstream: Server) -> None:
    result = run(perform(job(upstream.port, bodies=STREAM)))
    assert result.firsts and result.failed == 0
    assert all(first < last for first, last in zip(result.firsts, result.latencies, strict=True))


@pytest.mark.parametrize("way", [way for way in WAYS if way != "silent"])
def test_an_upstream_fails_as_told_and_counts_it(way: str) -> None:
    with started(module("upstream", latency=0.001, failing=1, ways=way), measured=False) as failing:
        result = run(perform(job(failing.port, seconds=0.05)))
        counts = json.loads(failing.get("/counts"))
    assert result.latencies == [] and result.failed == sum(result.statuses.values()) > 0
    assert set(result.statuses) == {way if way.isdigit() else "0"}
    assert counts[way] == counts["requests"] >= result.failed


@pytest.mark.nightly
def test_a_soak_through_an_honest_proxy_finds_what_the_upstream_did() -> None:
    plan = SoakPlan(requests=300, concurrency=16, failing=0.2, cancelled=0.1, latency=0.001, tokens=4, settling=0)
    options = {"latency": 0.001, "tokens": 4, "interval": 0.001, "failing": 0.2, "ways": "500,429", "slow": 0.2}
    with (
        started(module("upstream", **options), measured=False) as upstream,
        started(module("bare", upstream=upstream.port), measured=True) as bare,
    ):
        report = watched(bare, upstream, plan)
    kinds, notes = report.verdict.kinds, report.verdict.notes
    assert sum(kinds.values()) == 300 and kinds["answered"] > kinds["refused"] > 0 and kinds["cancelled"] > 0
    assert not report.verdict.examples and report.surplus == 0
    assert notes["ignored"] > 0  # a bare proxy does not mind that a client leaves
    unmet = {figure.name for figure in report.figures() if figure.reached is False}
    assert not unmet & {"lost answers", "doubled answers", "errors that were not the upstream's last word"}
    assert "clients that left, seen by the upstream" in unmet
    assert len(report.samples) == 100 and report.samples[-1][0] == 300


async def _crooked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that loses, swaps, doubles and refuses, by the number of the request."""
    while head := await reader.readline():
        while (line := await reader.readline()) != b"\r\n":
            head += line
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        identity = json.loads(await reader.readexactly(size))["user"]
        good = whole(200, answer_json(identity, 3))
        number = int(identity.removeprefix("soak-"))
        answers = (good, b"", whole(200, answer_json("soak-0", 3)), good + good, whole(502, b'{"error": {}}'))
        writer.write(answers[number % 5])
        if number % 5 == 1:
            break
    writer.close()
    await writer.wait_closed()


def test_lost_swapped_doubled_and_unjust_answers_are_found() -> None:
    async def soaked() -> Soak:
        async with await asyncio.start_server(_crooked, "127.0.0.1", 0) as server:
            plan = SoakPlan(requests=20, concurrency=1, streamed=0, cancelled=0, tokens=3)
            soak = Soak(server.sockets[0].getsockname()[1], plan, lambda _: None)
            await soak.run()
        return soak

    soak = asyncio.run(soaked())
    seen = {f"soak-{n}": ["served", "served"] if n == 5 else ["served"] for n in range(20)}
    verdict = judge(soak.fates, seen)
    assert verdict.kinds == {"answered": 8, "lost": 4, "wrong": 4, "refused": 4}
    assert verdict.notes["doubled"] == 1 and verdict.examples["doubled"] == ["soak-5"]
    assert verdict.notes["unjust error"] == 4
    assert soak.surplus > 0


def test_errors_are_just_only_where_every_attempt_failed() -> None:
    seen = {"a": ["500", "reset"], "b": ["500", "left"], "c": ["half"], "d": ["500", "served"], "e": ["left"]}
    fates = [Fate(name, "refused", 502) for name in "abx"] + [Fate("c", "cut", 200), Fate("d", "cut", 200)]
    verdict = judge([*fates, Fate("e", "cancelled")], seen)
    assert verdict.examples == {"unjust error": ["b", "x"], "unjust cut": ["d"]}
    assert verdict.notes["hung up"] == 1 and verdict.notes["propagated"] == 1
    assert judge([Fate("d", "answered", 200)], seen).notes == {"fallback": 1}
    assert judge([Fate("x", "refused", 429), Fate("b", "refused", 429)], seen).notes["resting"] == 1


def _streamed(*events: bytes, complete: bool = True) -> Answer:
    return Answer(status=200, complete=complete, body=bytearray(b"".join(events)))


def test_a_stream_is_whole_cut_or_wrong() -> None:
    tokens = [event("x", {"content": f"tok{n} "}) for n in range(3)]
    done, error = b"data: [DONE]\n\n", b'data: {"error": {"message": "broken"}}\n\n'
    kinds = {
        "whole": _streamed(*tokens, done),
        "without its end": _streamed(*tokens),
        "a token short": _streamed(*tokens[:2], done),
        "out of order": _streamed(tokens[1], tokens[0], tokens[2], done),
        "doubled": _streamed(*tokens, *tokens, done),
        "another's": _streamed(*tokens[:2], event("y", {"content": "tok2 "}), done),
        "told to be broken": _streamed(*tokens[:2], error),
        "broken off": _streamed(*tokens[:2], complete=False),
    }
    found = {name: fate("x", answer, 3, stream=True).kind for name, answer in kinds.items()}
    cut = {"told to be broken", "broken off"}
    assert found == {name: "answered" if name == "whole" else "cut" if name in cut else "wrong" for name in kinds}


def test_memory_that_grows_is_told_from_memory_that_has_grown() -> None:
    assert growth_of([(n, 100.0 + n / 10) for n in range(101)]) == pytest.approx(5.0)
    assert growth_of([(n, 100.0 + min(n, 50)) for n in range(101)]) == pytest.approx(0.0)
    assert growth_of([]) == 0.0


def test_rates_are_of_the_seconds_that_count() -> None:
    assert Result(latencies=[0.1] * 50, seconds=2.0).rate == 25.0


@pytest.mark.nightly
def test_both_proxies_are_driven_to_the_same_busy_share(upstream: Server, bare: Server) -> None:
    plan = Plan(saturation_seconds=0.6, probes=2, busy=0.3)
    with started(module("bare", upstream=upstream.port), measured=True) as second:
        bench = Bench(plan, {"direct": upstream, "bare": bare, "gateway": second}, CHAT, connections=20)
        rates = bench.rates_at_busy_share()
        measured = bench.rounds(("bare", "gateway"), 1, 0.6, rates)
    assert rates["direct"] == pytest.approx((rates["bare"] + rates["gateway"]) / 2)
    figure = busy_share(measured, rates)
    assert set(figure.raw) == {"bare", "gateway"} and 10 < figure.value < 60
    assert processor_time(measured).raw["gateway_us"][0] > 0


def test_a_stall_and_a_growth_are_seen_from_outside() -> None:
    costs = [
        Cost("small", 1_000, 200, growth_mb=50.0, stall_ms=3.0, cpu_s=0.1, pings=50),
        Cost("large", 10_000_000, 200, growth_mb=40.0, stall_ms=30.0, cpu_s=0.1, pings=50),
        Cost("lost", 2_000_000, 0, growth_mb=1.0, stall_ms=1.0, cpu_s=0.1, pings=50),
    ]
    growth, most, stall, unanswered = judge_costs(costs)
    assert growth.value == 4.0 and growth.reached is False and "large" in growth.name
    assert most.value == 50.0 and "small" in most.name
    assert stall.value == 30.0 and stall.reached is False
    assert unanswered.value == 1 and unanswered.reached is False


@pytest.mark.nightly
def test_heavy_requests_are_within_the_limits_and_differ() -> None:
    requests = {heavy.name: heavy.build() for heavy in heavy_requests() if heavy.name in SOME}
    assert set(requests) == set(SOME)
    for name, data in requests.items():
        body = data.partition(b"\r\n\r\n")[2]
        assert len(body) <= BODY_BYTES or "trailers" in name
        if "trailers" not in name:
            json.loads(body)


def test_a_gateway_that_stands_still_is_seen_to(bare: Server) -> None:
    with started(["-c", STILL], measured=True) as still:
        waits = pinged(still.port, seconds=0.6)
    assert max(waits) >= 0.2


STILL = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
for n in range(10_000):
    if not connection.recv(1000): break
    if n == 20: time.sleep(0.2)  # the first ping that counts
    connection.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\n{}")
"""


def pinged(port: int, seconds: float) -> list[float]:
    with subprocess.Popen(
        [sys.executable, *module("pinging", port=port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as pinger:
        time.sleep(seconds)
        told, _ = pinger.communicate("\n")
    return list(json.loads(told))


@pytest.mark.nightly
def test_streams_are_held_until_their_client_leaves(upstream: Server, bare: Server) -> None:
    for port in (upstream.port, bare.port):
        opened, kept, _ = hold_streams(Server(bare.process, port), 20)
        assert (opened, kept) == (20, 20)


def test_a_version_that_costs_more_than_two_equal_ones_differ_is_seen() -> None:
    equal = [{"before": 100.0, "now": 100.0, "again": 104.0}, {"before": 100.0, "now": 102.0, "again": 100.0}]
    assert compare_costs("cost", equal, "us", has_bar=True).reached
    dearer = [{"before": 90.0, "now": 100.0, "again": 104.0}, {"before": 90.0, "now": 102.0, "again": 100.0}]
    figure = compare_costs("cost", dearer, "us", has_bar=True)
    assert figure.reached is False and figure.bar == pytest.approx(1.04) and figure.value > 1.1


def test_an_earlier_version_must_be_a_checkout(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no src/ir3de"):
        next(measure_versions(tmp_path, VersionPlan()))
