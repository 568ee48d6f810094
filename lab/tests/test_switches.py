"""bench agents and bench affinity: traces are what they say, and switches and kept tokens are counted right."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

import tiny
from commands import run
from ir3de import Conversation
from ir3de_lab.benchmarks.chats import Sources
from ir3de_lab.benchmarks.gateway.near import QUICK, measure_affinity
from ir3de_lab.benchmarks.gateway.switching import ONE_PIN, PINS, PRICED_HISTORY, hold_traces
from ir3de_lab.benchmarks.switch_choice import Rule, choose_defaults, replay, route_traces
from ir3de_lab.benchmarks.switches import add_up, count_switches
from ir3de_lab.benchmarks.traces import MAIN, SWITCHING, Ask, build_traces
from test_conversations import write_suite

PROMPTS = {name: tiny.sentences(name, 40, seed=3, longest=12) for name in tiny.DOMAINS}
SOURCES = Sources("tiny", "test", PROMPTS)


def test_traces_are_the_same_in_every_run_and_have_all_kinds_of_conversations() -> None:
    traces = build_traces(SOURCES, SWITCHING)
    assert traces == build_traces(SOURCES, SWITCHING) != build_traces(Sources("tiny", "train", PROMPTS), SWITCHING)
    for number, asks in enumerate(traces):
        counted = Counter(ask.conversation for ask in asks)
        assert set(counted) == {"main", "title", "sub-agent 1", "sub-agent 2", "summary"}
        assert counted["title"] == counted["summary"] == 1 and counted["main"] > 10
        systems = {ask.conversation: ask.messages[0]["content"] for ask in asks}
        assert systems["main"] == MAIN and len(set(systems.values())) >= 4
        main = [ask for ask in asks if ask.conversation == "main"]
        assert len({ask.expert for ask in main}) == (2 if number == 0 else 1)
        for one, other in pairwise(main):
            assert other.messages[: len(one.messages)] == one.messages  # a cache has the beginning


def test_switches_and_kept_tokens_are_those_of_each_conversation() -> None:
    messages = [{"role": "user", "content": "x" * 45 * number} for number in range(1, 5)]
    asks = [Ask("main", messages[:end], "law") for end in (1, 2)]
    asks += [Ask("side", messages[:1], None), Ask("main", messages[:3], "maths"), Ask("main", messages, "maths")]
    sizes = [ask.tokens for ask in asks]
    row = count_switches("x", "way", [asks], [["law", "maths", "law", "maths", "law"]])
    assert (row.requests, row.switches, row.needed, row.unneeded) == (5, 2, 1, 2)
    assert row.accuracy == 50  # the side request has no right expert
    assert row.kept == pytest.approx(100 * (0 + sizes[1] + sizes[0]) / (sizes[0] + sizes[1] + sizes[3]))
    perfect = count_switches("y", "way", [asks], [["law", "law", "cooking", "maths", "maths"]])
    assert (perfect.switches, perfect.unneeded, perfect.accuracy) == (1, 0, 100)
    both = add_up([row, perfect])[0]
    assert (both.data, both.switches, both.accuracy) == ("all", 3, 75)


def test_a_replay_follows_the_gateways_rule() -> None:
    router, traces = tiny.router(), build_traces(SOURCES, 4)
    material = route_traces("tiny", router, traces)
    free = replay(material, "none", None)
    last = [ask for ask in traces[0] if ask.conversation == "main"][-1]
    assert len(Conversation.from_messages(router, last.messages)) == len(material.routed[0][0].decisions)
    still = replay(material, "dear", Rule(0.4, 0))
    assert still.switches < free.switches  # those that are left are abstentions
    assert still.requests == free.requests
    found = choose_defaults([material], [material])
    assert found["chosen"] in found["tried"] and min(found["chosen"]["accuracy"]) >= 0


@pytest.mark.nightly
def test_agents_through_a_gateway(tmp_path: Path) -> None:
    router, traces = tiny.router(), build_traces(SOURCES, 3)
    one, each = (count_switches("tiny", way.name, traces, hold_traces(router, traces, way)) for way in (ONE_PIN, PINS))
    assert each.switches <= one.switches and each.accuracy >= one.accuracy
    priced = count_switches("tiny", "priced", traces, hold_traces(router, traces, PRICED_HISTORY))
    assert priced == replay(route_traces("tiny", router, traces), "priced", Rule(0.4, 50_000))  # the gateway's defaults
    data, kept = write_suite(tmp_path), tmp_path / "agents.json"
    run("bench", "agents", "--data", data, "--traces", 1, "--choose", "--save", kept)
    document = json.loads(kept.read_text("utf-8"))
    assert {"circumstances", "traces", "rows", "choice"} <= set(document)
    assert len(document["rows"]) == 12


@pytest.mark.nightly
def test_affinity_keeps_what_turns_lose() -> None:
    without, affine = measure_affinity(QUICK)
    assert (without.affinity, affine.affinity, without.requests) == (0, 2, affine.requests)
    assert affine.kept > 95 > without.kept and affine.moved < without.moved
