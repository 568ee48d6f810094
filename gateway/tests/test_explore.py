"""Exploration: a share of the uncertain prompts goes elsewhere, and the chance of each choice is recorded truly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from configurations import GOOD, parsed
from ir3de.traffic import Journal, TrafficRecord
from ir3de_gateway.requests.client import NO_CONTROLS
from ir3de_gateway.stages.choice import Choice, Prompt
from ir3de_gateway.stages.choose import choose_expert
from ir3de_gateway.stages.explore import draw_number, explore, list_others
from ir3de_gateway.validation import check_consistency
from raw_sockets import ask, chat
from running_gateway import QUESTIONS, Running, failing, running

UNCERTAIN = "Why does the sum of my landlord not rise?"  # law, cooking or maths
SECRET = b"of the tests"
SIGMAS = 4.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("explore")


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[Running]:
    routing = {"explore": 0.5, "threshold": 0.0}
    with running(folder, routing=routing, feedback={"folder": str(folder / "kept"), "keep": "text"}) as found:
        found.gateway.secret = SECRET
        yield found


def choose(gateway: Running, text: str, **fields: Any) -> tuple[Choice, Prompt]:
    prompt = Prompt(text, frozenset(["chat"]), 0, **{"tool_loop": False, **fields})
    return choose_expert(gateway.gateway.live.snapshot, "auto", prompt, NO_CONTROLS, {}), prompt


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_shares_are_those_that_are_recorded(gateway: Running, share: float) -> None:
    """Each expert's share of many draws is its propensity, within four standard errors."""
    choice, prompt = choose(gateway, UNCERTAIN)
    others = [expert.name for expert in list_others(choice, prompt)]
    assert others
    trials, served, recorded = 20_000, Counter[str](), dict[str, float]()
    for number in range(trials):
        found = explore(choice, prompt, share, draw_number(SECRET, f"r{number}", prompt.text))
        served[found.choice.first.name] += 1
        recorded[found.choice.first.name] = found.propensity
        assert found.arm == ("live" if found.choice is choice else "explore")
    assert sorted(recorded) == sorted([choice.first.name, *others])
    assert sum(recorded.values()) == pytest.approx(1.0)
    assert recorded[choice.first.name] == pytest.approx(1 - share)
    for name, chance in recorded.items():
        assert abs(served[name] / trials - chance) <= SIGMAS * sqrt(chance * (1 - chance) / trials), name


def test_only_what_is_uncertain_is_explored(gateway: Running) -> None:
    assert list_others(*choose(gateway, UNCERTAIN))
    assert not list_others(*choose(gateway, QUESTIONS["law"]))  # the router is sure
    assert not list_others(*choose(gateway, UNCERTAIN, tool_loop=True))
    assert not list_others(*choose(gateway, "What is it?"))  # no content
    choice, prompt = choose(gateway, UNCERTAIN)
    choice.why = "pinned"
    assert not list_others(choice, prompt)
    assert explore(choice, prompt, 0.5, 0.0) == (choice, 1.0, "")


def rows_of(gateway: Running, folder: Path) -> dict[str, TrafficRecord]:
    writer = gateway.gateway.get_journal()
    assert writer is not None
    writer.flush()
    with Journal.open(folder / "kept") as journal:
        return {row.id: row for row in journal.read()}


def find_id(explored: bool, text: str = UNCERTAIN) -> str:
    """A request id whose draw is below a half, or above."""
    ids = (f"id-{number}" for number in range(100))
    return next(one for one in ids if (draw_number(SECRET, one, text) < 0.5) == explored)


def test_clients_and_the_journal_learn_of_it(gateway: Running, folder: Path) -> None:
    one, other = (ask(gateway.url, chat(UNCERTAIN), x_request_id=find_id(explored)) for explored in (True, False))
    decided = other.headers["x-ir3de-expert"]
    assert "x-ir3de-why" not in other.headers
    assert one.headers["x-ir3de-why"] == "explore" and one.headers["x-ir3de-decided"] == decided
    assert one.headers["x-ir3de-expert"] != decided
    assert one.json["ir3de"]["why"] == "explore"
    rows = rows_of(gateway, folder)
    live, tried = rows[find_id(False)], rows[find_id(True)]
    others = len(list_others(*choose(gateway, UNCERTAIN)))
    assert (live.arm, live.propensity, live.served) == ("live", 0.5, decided)
    assert (tried.arm, tried.decided, tried.why) == ("explore", decided, "explore")
    assert tried.propensity == pytest.approx(0.5 / others) and tried.served == one.headers["x-ir3de-expert"]
    scraped = ask(gateway.url, path="/metrics").body.decode()
    assert f'ir3de_explored_total{{expert="{tried.served}"}}' in scraped
    assert f'answered="{tried.served}",decided="{decided}",reason="explore"' in scraped


def test_a_conversation_is_not_pinned_to_an_experiment(gateway: Running) -> None:
    """Its next prompt goes where the router sends it; and a pinned one is never explored."""
    first = ask(gateway.url, chat(UNCERTAIN), x_request_id=find_id(True), x_session_id="s1")
    assert first.headers["x-ir3de-why"] == "explore"
    after = ask(gateway.url, chat(UNCERTAIN), x_request_id=find_id(False), x_session_id="s1")
    assert after.headers["x-ir3de-expert"] == first.headers["x-ir3de-decided"]
    pinned = ask(gateway.url, chat(UNCERTAIN), x_request_id=find_id(True), x_session_id="s1")
    assert pinned.headers["x-ir3de-why"] == "pinned"


def test_a_failure_decides_where_it_happens(gateway: Running, folder: Path) -> None:
    """Then chance did not choose the expert, and its chance is not recorded as one."""
    request_id = find_id(True)
    explored = ask(gateway.url, chat(UNCERTAIN), x_request_id=request_id).headers["x-ir3de-expert"]
    gateway.upstream.behaviour[explored] = failing(500)
    try:
        got = ask(gateway.url, chat(UNCERTAIN), x_request_id=request_id)
    finally:
        gateway.upstream.behaviour.clear()
    row = rows_of(gateway, folder)[request_id]
    assert (got.status, got.headers["x-ir3de-fallbacks"]) == (200, "1")
    assert got.headers["x-ir3de-why"] == f"instead of {explored}"
    assert (row.served, row.propensity, row.arm) == (got.headers["x-ir3de-expert"], 1.0, "")


def test_named_experts_are_not_explored(gateway: Running) -> None:
    got = ask(gateway.url, chat(UNCERTAIN, "law"), x_request_id=find_id(True))
    assert got.headers["x-ir3de-why"] == "asked by name"


def test_without_the_option_chance_plays_no_part(tmp_path: Path) -> None:
    with running(tmp_path, routing={"threshold": 0.0}, feedback={"folder": str(tmp_path / "kept")}) as gateway:
        experts = {ask(gateway.url, chat(UNCERTAIN)).headers["x-ir3de-expert"] for _ in range(20)}
        assert len(experts) == 1
        assert {(row.propensity, row.arm) for row in rows_of(gateway, tmp_path).values()} == {(1.0, "")}


def test_validation_warns_of_exploring_for_nothing() -> None:
    for feedback, wanted in (("", ["routing.explore"]), ("feedback: {folder: kept}\n", [])):
        found = check_consistency(parsed(f"{GOOD}routing: {{explore: 0.01}}\n{feedback}"), None)
        assert [one.where for one in found] == wanted
