"""Server-Timing: the phases of a request, in the syntax that browsers read, for whoever asks for it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import exchange_records as made
import raw_sockets
import tiny
from ir3de_gateway.exchange_record import build_server_timing
from running_gateway import QUESTIONS, failing, running

METRIC = r'([a-z]+)(?:;desc="([^"\\]*)")?;dur=([0-9]+\.[0-9]{3})'


def parse(value: str) -> dict[str, tuple[str, float]]:
    """The phases by name: their description, and their milliseconds. Whatever is not the standard's syntax fails."""
    assert re.fullmatch(rf"{METRIC}(?:, {METRIC})*", value), value
    return {name: (description, float(ms)) for name, description, ms in re.findall(METRIC, value)}


def test_every_phase_is_told_and_they_do_not_exceed_the_total(tmp_path: Path) -> None:
    with running(tmp_path, server={"timing": True}, routing={"default": "maths"}) as gateway:
        for extra in ({}, {"stream": True}):
            got = raw_sockets.ask(gateway.url, raw_sockets.chat(QUESTIONS["law"], **extra))
            phases = parse(got.headers["server-timing"])
            assert list(phases) == ["read", "route", "queue", "upstream", "total"]
            assert phases["upstream"][0] == "law"
            parts = [ms for name, (_, ms) in phases.items() if name != "total"]
            assert 0 < sum(parts) <= phases["total"][1] + 0.01
        gateway.upstream.behaviour["law"] = failing(503)
        phases = parse(raw_sockets.ask(gateway.url, raw_sockets.chat(QUESTIONS["law"])).headers["server-timing"])
        assert list(phases) == ["read", "route", "fallback", "queue", "upstream", "total"]
        assert phases["fallback"][0] == "law" != phases["upstream"][0]
        refused = raw_sockets.ask(gateway.url, raw_sockets.chat(QUESTIONS["law"], "nobody"))
        assert refused.status == 404 and list(parse(refused.headers["server-timing"])) == ["read", "total"]


def test_an_answer_of_the_cache_is_told_apart(tmp_path: Path) -> None:
    with running(tmp_path, server={"timing": True}, cache={"ttl": 60}) as gateway:
        first, second = (raw_sockets.ask(gateway.url, raw_sockets.chat(QUESTIONS["law"])) for _ in range(2))
    assert "upstream" in parse(first.headers["server-timing"])
    assert list(parse(second.headers["server-timing"])) == ["read", "route", "cache", "total"]


def test_nobody_is_told_unless_it_is_switched_on(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        assert "server-timing" not in raw_sockets.ask(gateway.url, raw_sockets.chat(QUESTIONS["law"])).headers


def test_pages_of_other_origins_may_read_it(tmp_path: Path) -> None:
    with running(tmp_path, server={"timing": True, "cors_origins": ["https://chat.example"]}) as gateway:
        got = raw_sockets.ask(gateway.url, raw_sockets.chat(QUESTIONS["law"]), origin="https://chat.example")
    assert "server-timing" in got.headers["access-control-expose-headers"]


@tiny.LAW
@given(st.text(max_size=50), st.floats(0, 1e5))
def test_no_name_of_an_expert_breaks_the_header(name: str, seconds: float) -> None:
    if any("\ud800" <= char <= "\udfff" for char in name):
        return  # the configuration refuses them
    record = made.record(expert=name, asked_seconds=0.0, fallbacks=[(name, name, "5xx")])
    value = build_server_timing(record, seconds).decode("ascii")
    assert parse(value)["total"][1] == pytest.approx(seconds * 1e3, abs=0.001)


@pytest.mark.browser
def test_a_browser_reads_every_phase(tmp_path: Path) -> None:
    pytest.importorskip("selenium")
    from browser import open_browser

    ask = "return fetch('/v1/chat/completions', {method: 'POST', body: arguments[0]}).then(answer => answer.text())"
    read = """
        const entries = performance.getEntriesByType('resource').filter(one => one.name.endsWith('/chat/completions'))
        return entries.at(-1)?.serverTiming.map(({name, duration, description}) => [name, duration, description])"""
    with running(tmp_path, server={"timing": True}) as gateway, open_browser(tmp_path / "profile") as browser:
        browser.open(gateway.url)
        browser.run(ask, json.dumps(raw_sockets.chat(QUESTIONS["law"])))
        phases = browser.until(lambda: browser.run(read))
    assert [name for name, _, _ in phases] == ["read", "route", "queue", "upstream", "total"]
    assert phases[3][2] == "law" and all(duration >= 0 for _, duration, _ in phases)
