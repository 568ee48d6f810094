"""learn and forget on the command line: a candidate with its proof, receipts that verify, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tiny
from commands import complaint, run, run_json, wrong_call
from ir3de import Router
from ir3de.scorers import Blend
from ir3de.traffic import Journal, Selection
from labelled_traffic import NAMES, TEXTS, LabelledTraffic


@pytest.fixture
def router(tmp_path: Path) -> Path:
    return Router.fit(TEXTS, embedding=tiny.embedding(), scorer=Blend()).save(tmp_path / "router")


@pytest.fixture
def feedback(tmp_path: Path) -> Path:
    """Labels of alice, and labels of admin for requests of bob; one of them is for an expert that has gone."""
    traffic = LabelledTraffic(tmp_path / "state" / "feedback")
    for name in NAMES:
        traffic.add("alice", tiny.sentences(name, 40, seed=50), name)
        traffic.add("admin", tiny.sentences(name, 2, seed=51), name, key="bob", day=1)
    traffic.add("admin", ["what about this"], "physics", key="bob", day=1)
    traffic.journal.close()
    return tmp_path / "state"


def read(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in tiny.contents(folder).items() if name != "learning.json"}


def test_a_candidate_is_made_proven_and_can_be_undone(router: Path, feedback: Path, tmp_path: Path) -> None:
    candidate, before = tmp_path / "candidate", read(router)
    shown = run("learn", router, "--from", feedback, "-o", candidate).stdout
    assert "held-out labels" in shown and "'physics', which is not an expert" in shown and "alice" in shown
    assert read(router) == before
    report = json.loads((candidate / "learning.json").read_text())
    assert report["added"] == 6 and report["proof"]["difference"] is not None
    assert report["sha256"] == json.loads((candidate / "router.json").read_text())["sha256"]
    again = run_json("learn", candidate, "--from", feedback, "-o", tmp_path / "again")
    assert (again["unchanged"], again["added"]) == (6, 0) and read(tmp_path / "again") == read(candidate)

    gone = run_json("forget", candidate, "--source", "author:alice", "--receipts", tmp_path / "receipts")
    assert gone["labels"] == report["labels"] - 6 and len(gone["contributions"]) == len(gone["receipts"]) == 3
    assert not (candidate / "learning.json").exists()
    for path in gone["receipts"]:
        checks = run_json("verify", candidate, "--receipt", path)
        assert checks["holds"], checks
    run("forget", candidate, "--source", "key:bob")
    assert read(candidate) == before
    assert "nothing to take out" in run("forget", candidate, "--source", "key:bob").stdout


def test_forgetting_a_key_deletes_it_in_the_journal(router: Path, feedback: Path, tmp_path: Path) -> None:
    candidate = tmp_path / "candidate"
    run("learn", router, "--from", feedback, "-o", candidate)
    gone = run_json("forget", candidate, "--source", "key:bob", "--from", feedback)
    assert gone["journal"] == {"requests": 7, "feedback": 7} and gone["labels"] == 6
    with Journal.open(feedback) as journal:
        assert journal.count(Selection(key="bob")) == 0 and journal.count() == 120
    alone = tmp_path / "alone"
    run("learn", router, "--from", feedback, "-o", alone)
    assert read(alone) == read(candidate)


def test_of_an_author_or_a_day_only_the_feedback_is_deleted(router: Path, feedback: Path, tmp_path: Path) -> None:
    candidate = tmp_path / "candidate"
    run("learn", router, "--from", feedback, "-o", candidate)
    late = run_json("forget", candidate, "--source", "author:alice", "--since", "2026-11-18", "--from", feedback)
    assert late["labels"] == 0 and late["journal"]["feedback"] == 0
    day = run_json("forget", candidate, "--source", "day:2026-11-18", "--from", feedback)
    assert day["labels"] == 6 and day["journal"] == {"requests": 0, "feedback": 7}
    with Journal.open(feedback) as journal:
        assert journal.count() == 127 and journal.count(Selection(has_feedback=True)) == 120


def test_what_is_refused(router: Path, feedback: Path, tmp_path: Path) -> None:
    assert "has no journal" in complaint("learn", router, "--from", tmp_path, "-o", tmp_path / "candidate")
    assert "--from names" in wrong_call("learn", router, "-o", tmp_path / "candidate")
    assert "another folder than ROUTER" in wrong_call("learn", router, "--from", feedback, "-o", router, "--force")
    assert "key:alice" in complaint("forget", router, "--source", "alice")
    assert "2026-11-17" in complaint("forget", router, "--source", "key:alice", "--since", "last week")
    assert "has no journal" in complaint("forget", router, "--source", "key:alice", "--from", tmp_path / "none")


def test_too_few_labels_are_reported(router: Path, tmp_path: Path) -> None:
    traffic = LabelledTraffic(tmp_path / "few")
    traffic.add("alice", TEXTS["law"][:3], "law")
    shown = run("learn", router, "--from", tmp_path / "few", "-o", tmp_path / "candidate").stdout
    assert "too few labels for a proof" in shown
