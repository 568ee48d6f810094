"""ir3de compare: journals and decision logs, prices, the page, and clear errors."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

import exchange_records as made
from commands import complaint, run, run_json, wrong_call
from ir3de.errors import InputError
from ir3de.traffic import Feedback, Journal, JournalPrompt, TrafficRecord
from ir3de.traffic.prices import read_prices
from ir3de_gateway.config.experts import Price
from ir3de_gateway.telemetry.log_lines import format_decision_line

pytestmark = pytest.mark.usefixtures("plain_terminal")
QUESTIONS = ["Solve 3x = 12.", "Is my contract void?", "What is 12 times 8?", "字 🙂 <script>alert(1)</script>"]


def log_line(text: str, *, price: Price | None = None) -> bytes:
    """The line that a gateway writes."""
    decision = made.router().route(text)
    record = made.record(decision=decision, expert=decision.best, text=text)
    return format_decision_line(record, prompts=True, price=price)


@pytest.fixture
def live(tmp_path: Path) -> Path:
    return made.router().save(tmp_path / "live")


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    """A router with one expert less, so that everything moves to the other."""
    folder = made.router().save(tmp_path / "candidate")
    run("remove", folder, "maths")
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state folder of a gateway, with a journal in it."""
    journal = Journal.create(tmp_path / "state" / "feedback")
    for number, text in enumerate(QUESTIONS * 5):
        expert = made.router().route(text).best
        numbers = {"prompt_tokens": 100 + number, "completion_tokens": 20 + number % 7}
        cost = (numbers["prompt_tokens"] * (2 if expert == "maths" else 1) + numbers["completion_tokens"] * 8) / 1e6
        prompt = JournalPrompt.from_text([text])
        time = 1.76e9 + number * 20_000
        record = TrafficRecord(f"r{number}", time, decided=expert, served=expert, cost=cost, prompt=prompt, **numbers)
        journal.append([record])
        journal.put_feedback(record.id, Feedback("alice", time, expert=expert, score=0.75))
    journal.close()
    return tmp_path / "state"


def test_a_journal_is_compared(live: Path, candidate: Path, state: Path) -> None:
    shown = run("compare", live, candidate, "--from", state).stdout
    assert "live → candidate  20 requests" in shown and "candidate chooses the right expert less often" in shown
    for part in ("agreement", "accuracy", "expected score", "saving a month", "maths → law", "Not known"):
        assert part in shown, part
    found = run_json("compare", live, candidate, "--from", state)
    assert found["names"] == ["live", "candidate"] and found["requests"] == 20 and found["moved"] == 15
    assert found["accuracy"]["lost"] == 15 and found["cost"]["prices"]["maths"]["input_per_1m"] == 2.0
    assert found["verdict"] and found["unknown"]
    quiet = run("compare", live, candidate, "--from", state, "-q").stdout
    assert "Moves" not in quiet and "accuracy" in quiet


def test_a_decision_log_is_compared_with_what_was_decided(candidate: Path, tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    lines = [log_line(text, price=Price(input_per_1m=2.0, output_per_1m=4.0)) for text in QUESTIONS]
    log.write_bytes(b"".join(lines) + b'{"no": "decision"}\n{"half')
    result = run("compare", candidate, "--from", log, "--json")
    found = json.loads(result.stdout)
    assert found["names"] == ["log", "candidate"] and found["requests"] == len(QUESTIONS) and found["damaged"] == 2
    assert "2 rows are damaged or not decisions" in " ".join(result.stderr.split())
    assert found["unknown"][0].startswith("2 rows of the log are left out")
    assert found["cost"]["prices"]["law"]["output_per_1m"] == 4.0


def test_one_expert_for_everything(live: Path, state: Path) -> None:
    found = run_json("compare", live, "--against", "always law", "--from", state)
    assert found["names"] == ["always law", "live"]
    assert {(move["live"], move["candidate"]) for move in found["moves"]} == {("law", "maths")}
    assert "no expert 'gpt-4o'" in complaint("compare", live, "--against", "always gpt-4o", "--from", state)
    assert "leave out one" in wrong_call("compare", live, live, "--against", "law", "--from", state)


def test_prices_from_a_file(live: Path, state: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text('{"maths": {"input_per_1m": 50, "output_per_1m": 0}, "gpt-4o": {"input_per_1m": 5}}')
    found = run_json("compare", live, "--against", "gpt-4o", "--from", state, "--prices", prices)
    assert found["names"][0] == "always gpt-4o" and found["cost"]["prices"]["gpt-4o"]["input_per_1m"] == 5.0
    assert found["cost"]["prices"]["maths"]["input_per_1m"] == 50.0  # not what the log's costs tell
    assert found["cost"]["saving"]["value"] < 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "are an object of experts"),
        ("{}", "has no price"),
        ('{"law": 3}', "a price has input_per_1m"),
        ('{"law": {"input_per_1m": -1}}', "is a price of a million tokens, found -1"),
        ('{"law": {"input_per_1m": 1, "inputs": 2}}', "unknown field 'inputs'"),
        ('{"experts": {"law": {"url": "x"}}}', "has no price"),
    ],
)
def test_prices_that_are_wrong(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "prices.json"
    path.write_text(content)
    with pytest.raises(InputError, match=said):
        read_prices(path)


def test_prices_of_a_gateway(tmp_path: Path) -> None:
    path = tmp_path / "ir3de.yaml"
    path.write_text("experts:\n  law: {url: x, price: {input_per_1m: 2, output_per_1m: 8}}\n  maths: {url: y}\n")
    assert read_prices(path)["law"].output_per_1m == 8.0 and len(read_prices(path)) == 1
    path.write_text("experts:\n  - {name: law, price: {input_per_1m: 2, output_per_1m: 8}}\n  - {name: maths}\n")
    assert read_prices(path)["law"].output_per_1m == 8.0 and len(read_prices(path)) == 1


def test_the_page_is_complete_and_safe(live: Path, candidate: Path, state: Path, tmp_path: Path) -> None:
    page = tmp_path / "out" / "page.html"
    run("compare", live, candidate, "--from", state, "--html", page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and "candidate routes worse than live" in text
    assert "<script" not in text and "alert(1)" in text and "http" not in text.replace("http-equiv", "")
    assert "What is not known" in text and "Saving a month" in text
    assert "exists" in complaint("compare", live, candidate, "--from", state, "--html", page)
    assert "is a web page" in wrong_call("compare", live, candidate, "--from", state, "--html", tmp_path / "page.pdf")


def test_a_page_without_labels_scores_and_prices(candidate: Path, tmp_path: Path) -> None:
    log, page = tmp_path / "decisions.jsonl", tmp_path / "page.html"
    rows = [json.loads(log_line(text)) for text in QUESTIONS]
    log.write_text("".join(json.dumps({**row, "cost": None, "prompt_tokens": None}) + "\n" for row in rows))
    run("compare", candidate, "--from", log, "--html", page)
    text = page.read_text(encoding="utf-8")
    assert "No difference between candidate and log is shown" in text and "Cost is not known" in text


def test_only_some_days(live: Path, candidate: Path, state: Path) -> None:
    some = partial(run_json, "compare", live, candidate, "--from", state)
    first, rest = some("--until", "2025-10-11"), some("--since", "2025-10-11")
    assert 0 < first["requests"] < 20 and first["requests"] + rest["requests"] == 20


def test_a_damaged_row_is_skipped_and_said(live: Path, candidate: Path, state: Path) -> None:
    with closing(sqlite3.connect(state / "feedback" / "journal.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE requests SET details = '{half' WHERE id = 'r3'")
    found = run_json("compare", live, candidate, "--from", state)
    assert found["requests"] == 19 and found["damaged"] == 1


def test_an_empty_journal_and_no_journal(live: Path, candidate: Path, tmp_path: Path) -> None:
    Journal.create(tmp_path / "empty").close()
    assert "there are no requests" in complaint("compare", live, candidate, "--from", tmp_path / "empty")
    (tmp_path / "other").mkdir()
    assert "has no journal" in complaint("compare", live, candidate, "--from", tmp_path / "other")
    assert "nothing.jsonl" in complaint("compare", live, candidate, "--from", tmp_path / "nothing.jsonl")
