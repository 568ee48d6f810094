"""learn and forget of scores on the command line: sources, caps and the proof are printed, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny
from commands import run, run_json, wrong_call
from ir3de.traffic.score_learning import MAX_SCORES
from scored_traffic import ScoredTraffic, fit_router


@pytest.fixture
def router(tmp_path: Path) -> Path:
    return fit_router().save(tmp_path / "router")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Scores of alice on five days, more of bob than count, one of an expert that has gone, and a label."""
    traffic = ScoredTraffic(tmp_path / "state" / "feedback")
    for day in range(5):
        traffic.add_source("alice", day=day, prompts=10, seed=40 + day)
    traffic.add("bob", tiny.sentences("maths", 1, seed=3) * (MAX_SCORES + 4), "small", 1.0)
    traffic.add("bob", tiny.sentences("law", 1, seed=3), "gone", 1.0, label="large")
    traffic.journal.close()
    return tmp_path / "state"


def test_a_candidate_shows_sources_caps_and_its_proof(router: Path, state: Path, tmp_path: Path) -> None:
    candidate, before = tmp_path / "candidate", tiny.contents(router)
    shown = run("learn", router, "--from", state, "-o", candidate).stdout
    for words in (
        "over the cap",
        "4 scores",
        "'gone', which is not an expert",
        "1 are not learnt",
        "held-out requests",
    ):
        assert words in shown
    again = run_json("learn", candidate, "--from", state, "-o", tmp_path / "again")
    assert (again["unchanged"], again["added"], again["scores"], again["over_cap"]) == (16, 0, 450 + MAX_SCORES, 4)
    assert again["experts"]["small"]["scores"] == 150 + MAX_SCORES + 4 and not again["left_out"]["bad_propensity"]

    gone = run_json("forget", candidate, "--source", "key:bob", "--receipts", tmp_path / "receipts")
    assert (gone["what"], gone["labels"]) == ("scores", MAX_SCORES)
    assert all(run_json("verify", candidate, "--receipt", path)["holds"] for path in gone["receipts"])
    assert "450 scores" in run("forget", candidate, "--source", "author:alice").stdout
    assert tiny.contents(candidate) == before == tiny.contents(router)


def test_inspect_and_ledger_name_the_sources(router: Path, state: Path, tmp_path: Path) -> None:
    run("learn", router, "--from", state, "-o", tmp_path / "candidate")
    assert "feedback:alice" in run("ledger", tmp_path / "candidate").stdout
    assert run("inspect", tmp_path / "candidate").stdout
    assert run_json("verify", tmp_path / "candidate")["holds"]


def test_options_of_labels_are_refused(router: Path, state: Path, tmp_path: Path) -> None:
    for option in (("--trust", "alice"), ("--scorer", "keep")):
        said = wrong_call("learn", router, "--from", state, "-o", tmp_path / "candidate", *option)
        assert "learns from scores" in said and not (tmp_path / "candidate").exists()
