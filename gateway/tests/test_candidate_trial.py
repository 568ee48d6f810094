"""The trial of a candidate: a worse one is stopped by itself, a better one is promoted by hand or by itself."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from admin_client import ENDPOINT, TOKEN
from candidate_routers import read_rows, save_candidate, trying
from ir3de import Router
from ir3de.files.router_folder import read_header
from ir3de.traffic import Feedback, Journal
from ir3de_gateway.admin import trial
from raw_sockets import ask, chat, eventually
from running_gateway import QUESTIONS, TEXTS, Running

LAW, CONVERSATIONS = QUESTIONS["law"], 60


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "CHECK_INTERVAL_S", 0.05)
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
    monkeypatch.delenv("IR3DE_API_KEY", raising=False)


@contextmanager
def canary(folder: Path, **candidate: Any) -> Iterator[Running]:
    with trying(folder, **{"mode": "canary", "share": 0.5, **candidate}) as gateway:
        yield gateway


def admin(gateway: Running, path: str, body: Any = None, method: str | None = None) -> Any:
    return ask(gateway.url, body, path, method=method, authorization=f"Bearer {TOKEN}")


def judge(gateway: Running, folder: Path, good: str) -> None:
    """Ask in many conversations, and like the answers of one expert alone."""
    for number in range(CONVERSATIONS):
        ask(gateway.url, chat(LAW), x_session_id=f"{good}-{number}", x_request_id=f"{good}-{number}")
    rows = read_rows(gateway, folder, CONVERSATIONS)
    with Journal.open(folder / "kept") as journal:
        journal.put_all((row.id, Feedback("alice", row.time, score=float(row.served == good))) for row in rows.values())


def state_of(gateway: Running) -> Any:
    return admin(gateway, "/admin/candidate").json


def tries(gateway: Running) -> bool:
    return "x-ir3de-candidate" in ask(gateway.url, chat(LAW)).headers


def test_a_worse_candidate_is_stopped_for_good(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with canary(tmp_path) as gateway, caplog.at_level(logging.WARNING, "ir3de.gateway"):
        assert state_of(gateway)["state"] == "trial"
        judge(gateway, tmp_path, "law")
        assert eventually(lambda: state_of(gateway)["state"] == "stopped")
        found = state_of(gateway)
        assert found["ended"]["who"] == "sequential test" and found["ended"]["how"] == "stopped"
        assert found["test"]["verdict"] == "worse" and found["test"]["against"] >= 20
        assert found["test"]["requests"] == found["test"]["observed"] == CONVERSATIONS
        assert not tries(gateway)
        experts = {ask(gateway.url, chat(LAW), x_session_id=f"late-{n}").headers["x-ir3de-expert"] for n in range(20)}
        assert experts == {"law"}
        assert eventually(lambda: b"ir3de_candidate_state 3.0" in ask(gateway.url, path="/metrics").body)
        refused = admin(gateway, "/admin/candidate/promote", {})
        assert (refused.status, refused.error["code"]) == (409, "no_candidate")
        assert "stopped" in refused.error["message"]
        line = admin(gateway, "/admin/audit").json["data"][1]
        assert (line["action"], line["who"]) == ("stop candidate", "sequential test")
    assert sum("was stopped" in one.message for one in caplog.records) == 1
    with canary(tmp_path) as gateway:  # a restart
        assert state_of(gateway)["state"] == "stopped" and not tries(gateway)
    save_candidate(tmp_path, Router.fit({**TEXTS, "law": TEXTS["cooking"], "cooking": [*TEXTS["law"], "Evict me!"]}))
    with canary(tmp_path) as gateway:  # another candidate has a trial of its own
        assert state_of(gateway)["state"] == "trial" and tries(gateway)
        assert eventually(lambda: state_of(gateway)["test"] is not None)
        assert state_of(gateway)["test"]["requests"] <= 1


def test_a_better_candidate_waits_for_an_admin(tmp_path: Path) -> None:
    with canary(tmp_path) as gateway:
        live, digest = admin(gateway, "/admin/router").json["digest"], state_of(gateway)["digest"]
        judge(gateway, tmp_path, "cooking")
        assert eventually(lambda: (state_of(gateway)["test"] or {}).get("verdict") == "better")
        assert eventually(lambda: b"ir3de_candidate_state 2.0" in ask(gateway.url, path="/metrics").body)
        assert state_of(gateway)["state"] == "trial" and admin(gateway, "/admin/router").json["digest"] == live
        proof = {"prompts": 40, "live": None, "candidate": None, "difference": None}
        (tmp_path / "candidate" / "learning.json").write_text(json.dumps({"sha256": digest, "proof": proof}))
        made = admin(gateway, "/admin/candidate/promote", {"why": "people like it"})
        assert (made.status, made.json["digest"]) == (200, digest)
        assert ask(gateway.url, chat(LAW)).headers["x-ir3de-expert"] == "cooking"
        assert state_of(gateway)["state"] == "promoted" and not tries(gateway)
        newest = admin(gateway, "/admin/router/history").json["data"][0]
        assert (newest["digest"], newest["action"], newest["why"]) == (digest, "promote candidate", "people like it")
        assert newest["who"].startswith("token ") and newest["live"] and newest["kept"]
        assert newest["proof"]["learning"] == proof and newest["proof"]["accuracy"] > 0
        assert newest["path"] == str(tmp_path / "candidate")
    for path in (tmp_path / "candidate").iterdir():
        path.unlink()  # the state folder has a copy
    with canary(tmp_path) as gateway:
        assert admin(gateway, "/admin/router").json["digest"] == digest
        back = admin(gateway, "/admin/router/rollback", {"why": "a mistake"})
        assert (back.status, back.json["digest"]) == (200, live)
        assert ask(gateway.url, chat(LAW)).headers["x-ir3de-expert"] == "law"


def test_a_better_candidate_may_promote_itself(tmp_path: Path) -> None:
    with canary(tmp_path, promote="auto") as gateway:
        digest = state_of(gateway)["digest"]
        judge(gateway, tmp_path, "cooking")
        assert eventually(lambda: admin(gateway, "/admin/router").json["digest"] == digest)
        newest = admin(gateway, "/admin/router/history").json["data"][0]
        assert newest["who"] == "sequential test" and "better than the live router" in newest["why"]


def test_a_candidate_can_be_withdrawn(tmp_path: Path) -> None:
    with canary(tmp_path) as gateway:
        got = admin(gateway, "/admin/candidate?why=too%20early", method="DELETE")
        assert (got.status, got.json["state"], got.json["ended"]["why"]) == (200, "withdrawn", "too early")
        assert not tries(gateway)
        again = admin(gateway, "/admin/candidate", method="DELETE")
        assert (again.status, again.error["code"]) == (409, "no_candidate")


def test_a_shadow_is_judged_by_labels_that_were_asked_for(tmp_path: Path) -> None:
    with trying(tmp_path) as gateway:
        for number in range(40):
            ask(gateway.url, chat(LAW), x_session_id=f"s{number}")
        rows = read_rows(gateway, tmp_path, 40)
        with Journal.open(tmp_path / "kept") as journal:
            journal.put_all((row.id, Feedback("alice", row.time, score=1.0)) for row in rows.values())
            journal.put_all((row.id, Feedback("label:bob", row.time, expert="law")) for row in list(rows.values())[:2])
        assert eventually(lambda: (state_of(gateway)["test"] or {}).get("observed") == 2)  # scores say nothing here
        with Journal.open(tmp_path / "kept") as journal:
            journal.put_all((row.id, Feedback("label:bob", row.time, expert="law")) for row in rows.values())
        assert eventually(lambda: state_of(gateway)["state"] == "stopped")


def test_an_expert_of_the_candidate_cannot_be_removed(tmp_path: Path) -> None:
    with canary(tmp_path) as gateway:
        got = admin(gateway, "/admin/experts/law", method="DELETE")
        assert got.status == 422 and "the candidate" in got.error["message"] and tries(gateway)


@pytest.mark.nightly
def test_a_new_router_at_the_candidates_place_is_another_candidate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with trying(tmp_path, changes={"router": {"path": str(tmp_path / "router"), "follow": 0.05}}) as gateway:
        before = state_of(gateway)["digest"]
        save_candidate(tmp_path, Router.fit({**TEXTS, "law": [*TEXTS["law"], "Is the lease void?"]}))
        assert eventually(lambda: state_of(gateway)["digest"] != before)
        assert state_of(gateway)["state"] == "trial"
        now = state_of(gateway)["digest"]
        save_candidate(tmp_path, Router.fit({**TEXTS, "history": ["When did Rome fall?", "Who was an emperor?"]}))
        assert eventually(lambda: any("The candidate before stays" in one.message for one in caplog.records))
        assert state_of(gateway)["digest"] == now and tries(gateway)


def count_lines(caplog: pytest.LogCaptureFixture, part: str) -> int:
    return sum(part in one.getMessage() for one in caplog.records)


def test_a_new_candidate_is_tried_once_its_missing_expert_has_an_endpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with trying(tmp_path, changes={"router": {"path": str(tmp_path / "router"), "follow": 0.05}}) as gateway:
        before = state_of(gateway)["digest"]
        history = {"history": ["When did Rome fall?", "Who was an emperor?"]}
        wanted = Router.fit({**TEXTS, **history})
        digest = read_header(save_candidate(tmp_path, wanted))["sha256"]
        assert eventually(lambda: count_lines(caplog, "The candidate before stays") > 0)
        sleep(0.5)  # several checks
        assert state_of(gateway)["digest"] == before and count_lines(caplog, "The candidate before stays") == 1
        assert admin(gateway, "/admin/experts", {"name": "history", "upstream": ENDPOINT}).status == 201
        assert eventually(lambda: state_of(gateway)["digest"] == digest)
        assert state_of(gateway)["state"] == "trial"


@pytest.mark.parametrize(
    "way",
    ["the candidate is withdrawn", pytest.param("another candidate is published", marks=pytest.mark.nightly)],
)
def test_a_new_live_router_serves_once_the_candidate_that_needs_the_old_one_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    """Nobody serves poetry: the candidate may know it as long as the live router does."""
    poetry = {**TEXTS, "poetry": ["Write a sonnet.", "Does this line rhyme?"]}
    Router.fit(poetry).save(tmp_path / "live")
    save_candidate(tmp_path, Router.fit({**poetry, "law": [*TEXTS["law"], "Is the lease void?"]}))
    with trying(tmp_path, changes={"router": {"path": str(tmp_path / "live"), "follow": 0.05}}) as gateway:
        before = admin(gateway, "/admin/router").json["digest"]
        digest = read_header(Router.fit(TEXTS).save(tmp_path / "live"))["sha256"]
        assert eventually(lambda: count_lines(caplog, "The current router stays") > 0)
        sleep(0.5)  # several checks
        assert admin(gateway, "/admin/router").json["digest"] == before
        assert count_lines(caplog, "cannot serve yet: the candidate") == 1
        assert count_lines(caplog, "The current router stays") == 1
        if way == "the candidate is withdrawn":
            assert admin(gateway, "/admin/candidate", method="DELETE").status == 200
        else:
            save_candidate(tmp_path)
        assert eventually(lambda: admin(gateway, "/admin/router").json["digest"] == digest)
        assert eventually(lambda: admin(gateway, "/admin/router/history").json["data"][0]["digest"] == digest)
        assert tries(gateway) == (way != "the candidate is withdrawn")


def test_another_live_router_begins_the_test_anew(tmp_path: Path) -> None:
    with canary(tmp_path, promote="by_hand") as gateway:
        for number in range(8):
            ask(gateway.url, chat(LAW), x_session_id=f"s{number}")
        read_rows(gateway, tmp_path, 8)
        assert eventually(lambda: (state_of(gateway)["test"] or {}).get("requests") == 8)
        third = Router.fit({name: [*texts, "Please."] for name, texts in TEXTS.items()}).save(tmp_path / "third")
        assert admin(gateway, "/admin/router", {"path": str(third)}, "PUT").status == 200
        assert eventually(lambda: state_of(gateway)["test"]["requests"] == 0)
        assert state_of(gateway)["state"] == "trial"


def test_a_damaged_note_of_the_test_is_no_test(tmp_path: Path) -> None:
    with trying(tmp_path) as gateway:
        (tmp_path / "state" / "candidate.json").write_text(json.dumps({"digest": state_of(gateway)["digest"]}))
        assert state_of(gateway)["state"] == "trial"
