"""The benchmark of replicas: what its figures make of who answered when."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ir3de_lab.benchmarks.gateway.replicas import QUICK, Plan, Report, measure_replicas, read_log

EVENTS = {"kill": 105.0, "back": 110.0, "slow": 120.0, "fast": 125.0}


def tell(away: dict[str, tuple[float, float]]) -> Report:
    """A hundred answers a second, in turn, but for replicas that are away."""
    report = Report(Plan(after=8.0, interval=4.0), dict(EVENTS), total=3_000)
    for step in range(3_000):
        moment = 100.0 + step / 100
        there = [name for name in "abc" if not away.get(name, (0, 0))[0] <= moment < away.get(name, (0, 0))[1]]
        report.answers.append((moment, there[step % len(there)]))
    return report


@pytest.mark.parametrize(("returns", "reached"), [(111.0, True), (113.9, False)])
def test_the_time_until_a_share_is_back_is_held_against_the_health_interval(returns: float, reached: bool) -> None:
    failed, killed, slowed, share = tell({"a": (105.0, returns), "b": (120.0, 125.0)}).figures()
    assert failed.reached and failed.raw["requests"] == 3_000
    assert killed.reached is reached and killed.value == pytest.approx(returns - 110 + 0.85, abs=0.15)
    assert slowed.reached and share.value == 0
    shares = failed.raw["shares"]
    assert [row["second"] for row in shares] == list(range(1, 30)) and shares[7] == {
        "second": 8,
        "a": 0,
        "b": 0.5,
        "c": 0.5,
    }


def test_a_failed_answer_and_a_replica_that_stays_away_are_seen() -> None:
    report = tell({"a": (105.0, 999.0)})
    report.failed = 1
    failed, killed, *_ = report.figures()
    assert failed.reached is False and killed.reached is False and killed.value == 8.0


def test_the_log_says_who_answered(tmp_path: Path) -> None:
    rows = [
        {"time": "2026-01-01T00:00:01.500+00:00", "replica": "b", "retries": 1},
        {"time": "2026-01-01T00:00:00.500+00:00", "replica": "a", "retries": 0},
        {"time": "2026-01-01T00:00:00.000+00:00", "endpoint": "/readyz"},
    ]
    (tmp_path / "log").write_text("\n".join(map(json.dumps, rows)))
    report = Report(Plan())
    read_log(tmp_path / "log", report)
    assert [name for _, name in report.answers] == ["a", "b"] and report.retries == 1


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.nightly
def test_nothing_fails_while_replicas_come_and_go() -> None:
    report = measure_replicas(QUICK)
    assert report.failed == 0 and report.total > 500 and set(report.events) == set(EVENTS)
