"""The last minutes of traffic: what is in the window is counted once, whoever is asked."""

import asyncio
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import gateway_parts
import gateway_records as made
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de.gateway.telemetry.tallies import SLOT, Slot, latency_bin, quantile_ms
from ir3de.gateway.telemetry.traffic import PER_SECOND, WINDOW, Traffic


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def label(name: str) -> str:
    return name if name in made.EXPERTS else "none"


def row(report: dict[str, Any], expert: str) -> dict[str, Any]:
    return next(row for row in report["experts"] if row["expert"] == expert)


@tiny.LAW
@given(st.lists(st.floats(1e-4, 1_000), min_size=1, max_size=50), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_is_right_to_a_tenth(latencies: list[float], share: float) -> None:
    bins: dict[int, int] = {}
    for seconds in latencies:
        bins[latency_bin(seconds)] = bins.get(latency_bin(seconds), 0) + 1
    rank = max(0, -int(-share * len(latencies) // 1) - 1)  # the smallest rank that covers the share
    assert quantile_ms(bins, share) == pytest.approx(1e3 * sorted(latencies)[rank], rel=0.1)


@tiny.LAW
@given(st.lists(st.tuples(st.floats(0, 40), st.sampled_from(["law", "maths", "nobody"])), max_size=60))
def test_the_window_holds_what_ended_in_it_and_no_more(steps: list[tuple[float, str]]) -> None:
    clock = Clock()
    traffic, ended = Traffic(clock=clock), []
    for wait, expert in steps:
        clock.now += wait
        ended.append((clock.now, label(expert)))
        traffic.observe(made.record(expert=expert), label)
    report = traffic.report(made.EXPERTS)
    start = int(clock.now) - WINDOW
    inside = [expert for when, expert in ended if when - when % SLOT > start]
    assert report["totals"]["requests"] == len(inside)
    for expert in ("law", "maths"):
        assert row(report, expert)["requests"] == inside.count(expert)
        assert row(report, expert)["share"] == pytest.approx(inside.count(expert) / max(1, len(inside)), abs=1e-4)
    seconds = report["per_second"]
    assert [second["t"] for second in seconds] == list(range(int(clock.now) - PER_SECOND + 1, int(clock.now) + 1))
    recent = sum(int(when) > int(clock.now) - PER_SECOND for when, _ in ended)
    assert sum(second["requests"] for second in seconds) == recent
    assert len(traffic._slots) <= WINDOW // SLOT + 2


def test_each_kind_of_end_is_counted_where_it_belongs() -> None:
    traffic = Traffic(clock=Clock())
    traffic.began("law")
    traffic.observe(made.record(outcome="ok", confidence=0.95), label)
    traffic.observe(made.record(outcome="cancelled", confidence=1.0), label)
    traffic.observe(made.record(outcome="client_error", expert="", decision=None), label)
    failed = {"outcome": "upstream_error", "fallbacks": [("maths", "law", "5xx")], "decision": made.decided("")}
    traffic.observe(made.record(**failed, confidence=0.0), label)
    report = traffic.report(made.EXPERTS)
    assert report["totals"] == {"requests": 4, "errors": 1, "cancelled": 1, "abstained": 1, "in_flight": 1}
    assert report["confidence"]["counts"] == [1, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    assert report["confidence"]["edges"][0] == 0 and report["confidence"]["edges"][-1] == 1
    law, maths = row(report, "law"), row(report, "maths")
    assert (law["errors"], law["fallbacks_to"], maths["fallbacks_from"]) == (1, 1, 1)
    assert law["tokens"] == 45 and law["cost"] == pytest.approx(60e-6)
    assert law["p50_ms"] == pytest.approx(500, rel=0.1) and law["ttft_p50_ms"] == pytest.approx(100, rel=0.1)
    assert maths["requests"] == 0 and maths["p50_ms"] is None
    assert [found["expert"] for found in report["experts"]] == ["maths", "law", "none"]


@tiny.LAW
@given(st.lists(st.sampled_from(["law", "maths"]), max_size=20))
def test_a_slot_is_the_same_after_a_file(experts: list[str]) -> None:
    slot = Slot(1_000_000)
    for expert in experts:
        slot.count(made.record(confidence=0.5), expert, 1_000_003)
    assert Slot.from_dict(json.loads(json.dumps(slot.to_dict()))) == slot


def test_what_other_workers_left_is_added_and_what_is_broken_or_old_passed_over(tmp_path: Path) -> None:
    clock = Clock()
    mine, theirs = Traffic(tmp_path, clock), Traffic(tmp_path, clock)
    theirs.began("law")
    theirs.observe(made.record(), label)
    theirs.publish()
    (written,) = tmp_path.iterdir()
    start = written.stem.rpartition("_")[2]
    written.rename(tmp_path / f"traffic_{os.getppid()}_{start}.json")  # as if another process, alive, had written it
    (tmp_path / f"traffic_7_{start}.json").write_text('{"start": 1')
    (tmp_path / f"traffic_8_{start}.json").write_text("[]")
    mine.observe(made.record(expert="maths"), label)
    report = mine.report(made.EXPERTS)
    assert report["totals"]["requests"] == 2 and report["totals"]["in_flight"] == 1
    clock.now += WINDOW + 3 * SLOT
    mine.observe(made.record(), label)
    mine.publish()
    assert [path.name for path in tmp_path.iterdir()] == [f"traffic_{os.getpid()}_{int(clock.now) // SLOT * SLOT}.json"]
    assert mine.report(made.EXPERTS)["totals"]["requests"] == 1


@tiny.LAW
@given(st.lists(st.tuples(st.floats(0, 4), st.booleans()), max_size=40))
def test_once_told_the_others_know_all(steps: list[tuple[float, bool]]) -> None:
    with TemporaryDirectory() as folder:
        clock = Clock()
        told, asked = Traffic(Path(folder), clock), Traffic(Path(folder), clock)
        for wait, publishes in steps:
            clock.now += wait
            told.observe(made.record(), label)
            if publishes:
                told.publish()
        told.publish()
        expected = told.report(made.EXPERTS)
        for path in Path(folder).iterdir():
            path.rename(path.with_name(path.name.replace(str(os.getpid()), str(os.getppid()))))
        assert asked.report(made.EXPERTS) == expected


def test_a_clock_set_back_begins_anew() -> None:
    clock = Clock()
    traffic = Traffic(clock=clock)
    traffic.observe(made.record(), label)
    clock.now -= 100
    traffic.observe(made.record(), label)
    assert traffic.report(made.EXPERTS)["totals"]["requests"] == 1


def test_a_gateway_tells_its_traffic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", "token")

    async def ask(url: str) -> Any:
        async with aiohttp.ClientSession(headers={"authorization": "Bearer token"}) as session:
            for question in gateway_parts.QUESTIONS.values():
                body = {"model": "auto", "messages": [{"role": "user", "content": question}]}
                async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
                    assert answer.status == 200
            async with session.get(f"{url}/admin/traffic") as answer:
                return await answer.json()

    with gateway_parts.running(tmp_path) as running:
        running.upstream.behaviour["law"] = gateway_parts.failing(503)
        report = asyncio.run(ask(running.url))
    assert report["totals"]["requests"] == 3 and report["totals"]["in_flight"] == 0
    assert [found["expert"] for found in report["experts"]] == list(gateway_parts.QUESTIONS)
    assert row(report, "law")["fallbacks_from"] == 1 and row(report, "law")["requests"] == 0
    assert sum(found["fallbacks_to"] for found in report["experts"]) == 1
    assert sum(report["confidence"]["counts"]) == 3
