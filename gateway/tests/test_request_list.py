"""/admin/requests: the last requests with their feedback, page by page, and of a prompt no more than is kept."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from time import time
from typing import Any

import pytest

from client_keys import bearer, key, write_keys
from ir3de.traffic import Feedback, Journal, JournalPrompt, Selection, TrafficRecord
from ir3de_gateway.store.workers import create_worker_folder
from raw_sockets import Got, ask, chat, eventually
from running_gateway import QUESTIONS, TEXTS, Running, running

ROOT = {"authorization": "Bearer root"}
LAW = chat(QUESTIONS["law"])
DAY_S = 86_400.0


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", "root")
    monkeypatch.delenv("IR3DE_API_KEY", raising=False)


def listed(gateway: Running, query: str = "", **headers: str) -> Got:
    return ask(gateway.url, path=f"/admin/requests{query}", **(headers or ROOT))


def name_all(found: Any) -> list[str]:
    return [one["request_id"] for one in found["data"]]


def test_a_request_has_its_decision_its_price_and_everybodys_feedback(tmp_path: Path) -> None:
    file = write_keys(tmp_path / "keys.yaml", key("alice"), key("chief", scopes=["admin", "inference"]))
    prices = {"law": {"price": {"input_per_1m": 100.0, "output_per_1m": 400.0}}}
    feedback = {"folder": str(tmp_path / "kept"), "keep": "text"}
    with running(tmp_path, server={"keys_file": str(file)}, experts=prices, feedback=feedback) as gateway:
        request_id = ask(gateway.url, LAW, **bearer("alice")).headers["x-request-id"]
        ask(gateway.url, {"request_id": request_id, "score": 0.25, "comment": "<b>"}, "/v1/feedback", **bearer("alice"))
        ask(gateway.url, {"request_id": request_id, "expert": "maths"}, "/v1/feedback", **ROOT)
        found = listed(gateway).json
        (row,) = found["data"]  # at once, although rows are written in batches
        assert (row["request_id"], row["key"], row["decided"], row["served"]) == (request_id, "alice", "law", "law")
        assert (row["why"], row["status"], row["text"], row["turns"]) == ("routed", 200, QUESTIONS["law"], 1)
        assert row["cost"] == pytest.approx(0.003) and 0 < row["confidence"] <= 1 and row["seconds"] > 0
        given = [(one["author"], one["expert"], one["score"], one["comment"]) for one in row["feedback"]]
        assert given == [("admin", "maths", None, ""), ("alice", None, 0.25, "<b>")]
        assert (found["author"], found["keep"], found["older"]) == ("admin", "text", None)
        assert found["experts"] == list(TEXTS)
        assert listed(gateway, **bearer("chief")).json["author"] == "chief"  # as /v1/feedback names it
        assert listed(gateway, **bearer("alice")).status == 403
        assert ask(gateway.url, path="/admin/requests").status == 401


def test_pages_go_back_while_requests_come_and_go(tmp_path: Path) -> None:
    now = time()
    with running(tmp_path, feedback={"folder": str(tmp_path / "kept")}) as gateway:
        with Journal.create(tmp_path / "kept") as journal:
            journal.append(TrafficRecord(f"r{n}", now - 60 + n, key=("", "bob")[n % 2]) for n in range(10))
            first = listed(gateway, "?limit=4").json
            assert name_all(first) == ["r9", "r8", "r7", "r6"]
            journal.append([TrafficRecord("new", now)])
            second = listed(gateway, f"?limit=4&before={first['older']}").json
            assert name_all(second) == ["r5", "r4", "r3", "r2"]  # none twice, none left out
            journal.delete(Selection(key="bob"))
            third = listed(gateway, f"?limit=4&before={second['older']}").json
            assert (name_all(third), third["older"]) == (["r0"], None)
            assert name_all(listed(gateway).json) == ["new", "r8", "r6", "r4", "r2", "r0"]
        for query in ("limit=0", "limit=201", "limit=x", "before=0", "before=-1", f"before={2**63}", "before="):
            refused = listed(gateway, f"?{query}")
            assert refused.status == 422 and query.partition("=")[0] in refused.error["message"]


@pytest.mark.parametrize("keep", ["tokens", "statistics"])
def test_no_text_is_listed_where_none_is_kept(tmp_path: Path, keep: str) -> None:
    with running(tmp_path, feedback={"folder": str(tmp_path / "kept"), "keep": keep}) as gateway:
        ask(gateway.url, LAW)
        got = listed(gateway)
    (row,) = got.json["data"]
    assert (row["text"], row["turns"], got.json["keep"]) == (None, 0, keep)
    assert b"contract" not in got.body


def test_the_requests_of_all_workers_are_listed_by_each(tmp_path: Path) -> None:
    options: Any = {"server": {"workers": 2}, "feedback": {"folder": str(tmp_path / "kept")}}
    one = running(tmp_path / "one", **options)
    with create_worker_folder(), one as first, running(tmp_path / "other", **options) as second:
        asked = {ask(worker.url, LAW).headers["x-request-id"] for worker in (first, second)}
        for worker in (first, second):
            assert eventually(lambda: set(name_all(listed(worker).json)) == asked)  # noqa: B023 - it is called now


def test_strange_requests_are_listed_too(tmp_path: Path) -> None:
    """Half a character, a long prompt, an expert that is gone, no answer, and requests that are too old."""
    now = time()
    long = JournalPrompt.from_text(["first", "x" * 9_000])
    feedback = {"folder": str(tmp_path / "kept"), "days": 7, "keep": "text"}
    with running(tmp_path, feedback=feedback) as gateway:
        with Journal.create(tmp_path / "kept") as journal:
            journal.append([TrafficRecord("old", now - 8 * DAY_S), TrafficRecord("long", now, prompt=long)])
            journal.append([TrafficRecord("gone", now, decided="physics", served="physics"), TrafficRecord("no", now)])
            journal.put_feedback("gone", Feedback("anyone", now, expert="physics"))
        ask(gateway.url, chat("Is my contract void \ud83d?"), x_request_id="half")
        half = {"request_id": "half", "score": 1, "comment": "\ud83d"}
        assert ask(gateway.url, half, "/v1/feedback").status == 400  # it cannot be kept
        rows = {row["request_id"]: row for row in listed(gateway).json["data"]}
        asked = ask(gateway.url, path="/admin/labels/next", **ROOT).json["data"]
    assert list(rows) == ["half", "no", "gone", "long"]
    assert (len(rows["long"]["text"]), rows["long"]["turns"]) == (2_000, 2)
    assert rows["half"]["text"] == "Is my contract void ??"
    assert [one["text"] for one in asked if one["request"] == "half"] == ["Is my contract void ??"]
    assert (rows["no"]["served"], rows["gone"]["feedback"][0]["expert"]) == ("", "physics")


def test_a_damaged_row_hides_no_other(tmp_path: Path) -> None:
    import sqlite3

    with Journal.create(tmp_path) as journal:
        journal.append(TrafficRecord(f"r{n}", 1.0) for n in range(5))
    with closing(sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE requests SET details = 'x' WHERE id IN ('r0', 'r3')")
    with Journal.open(tmp_path) as journal:
        first, found = journal.read_before(None, 2)
        assert [one.id for one in found] == ["r4"]
        second, found = journal.read_before(first, 2)
        assert [one.id for one in found] == ["r1", "r2"]
        assert journal.read_before(second, 2) == (0, [])


def test_without_a_journal_there_is_no_list(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        assert listed(gateway).error["code"] == "feedback_off"
