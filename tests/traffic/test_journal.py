"""The journal: what is acknowledged stays, feedback can be changed and deleted, and deleted rows are gone."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ir3de.errors import ArtifactError, InputError, VersionError
from ir3de.traffic import Feedback, Journal, JournalPrompt, Selection, TrafficRecord
from ir3de.traffic.journal import JOURNAL_FILE, READ_ROWS


def make_record(number: int, **fields: object) -> TrafficRecord:
    return TrafficRecord(f"r{number}", float(number), **{"key": "alice", "served": "law", **fields})  # type: ignore[arg-type]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(tmp_path / "feedback")


def test_a_record_comes_back_as_it_was(journal: Journal) -> None:
    record = make_record(
        1,
        response="resp_1",
        router="abc",
        decided="law",
        propensity=0.25,
        arm="explore",
        ranking=(("law", 0.75), ("maths", 0.25)),
        prompt=JournalPrompt.from_text(["Is it void?", "\ud800 and ünïcode"]),
        prompt_tokens=12,
        cost=0.5,
    )
    journal.append([record, make_record(2)])
    assert list(journal.read()) == [record, make_record(2)]
    assert journal.find("resp_1") == record


@pytest.mark.parametrize("turns", [[[5, 3, 3], [9]], [[]], [[7]], []])
def test_ids_come_back(turns: list[list[int]]) -> None:
    ids = [np.array(one, dtype=np.uint32) for one in turns]
    kept = JournalPrompt.from_ids("tokens", ids)
    found = JournalPrompt.decode("tokens", kept.encode())
    assert [one.tolist() for one in found.ids] == turns
    bag = JournalPrompt.from_ids("statistics", ids)
    assert sorted(np.concatenate([np.array([], dtype=np.uint32), *bag.ids]).tolist()) == sorted(
        one for ids in turns for one in ids
    )
    assert len(bag.ids) <= 1


def test_feedback_is_repeated_changed_and_deleted(journal: Journal) -> None:
    journal.append([make_record(1)])
    for score in (0.0, 0.0, 1.0):
        journal.put_feedback("r1", Feedback("alice", 5.0, score=score))
    journal.put_feedback("r1", Feedback("admin", 6.0, expert="maths"))
    (record,) = journal.read(Selection(has_feedback=True))
    assert record.feedback == (Feedback("admin", 6.0, expert="maths"), Feedback("alice", 5.0, score=1.0))
    assert journal.delete_feedback("r1", "alice") and not journal.delete_feedback("r1", "alice")
    assert [one.author for one in next(journal.read()).feedback] == ["admin"]


def test_another_keys_request_is_unknown(journal: Journal) -> None:
    journal.append([make_record(1)])
    with pytest.raises(InputError, match=r"no request 'r1'.*another key"):
        journal.put_feedback("r1", Feedback("bob", 5.0, score=1.0), key="bob")
    journal.put_feedback("r1", Feedback("alice", 5.0, score=1.0), key="alice")


def test_a_repeated_request_id_means_the_last_one(journal: Journal) -> None:
    journal.append([make_record(1, served="law"), make_record(1, served="maths")])
    journal.put_feedback("r1", Feedback("alice", 5.0, score=1.0))
    assert [len(one.feedback) for one in journal.read()] == [0, 1]


def test_what_is_read_in_pieces_is_whole(journal: Journal) -> None:
    journal.append(make_record(number) for number in range(2 * READ_ROWS + 1))
    for number in (0, READ_ROWS - 1, READ_ROWS, 2 * READ_ROWS):
        journal.put_feedback(f"r{number}", Feedback("alice", 1.0, score=1.0))
    found = list(journal.read())
    assert [one.id for one in found] == [f"r{number}" for number in range(2 * READ_ROWS + 1)]
    assert [one.id for one in found if one.feedback] == ["r0", "r1999", "r2000", "r4000"]


def test_what_is_deleted_is_gone_from_the_file(journal: Journal) -> None:
    secret = "a very private sentence"
    journal.append([make_record(1, key="bob", prompt=JournalPrompt.from_text([secret])), make_record(2)])
    journal.put_feedback("r1", Feedback("bob", 5.0, score=1.0, comment=f"{secret}, too"))
    assert journal.delete(Selection(key="bob")) == 1
    assert [one.id for one in journal.read()] == ["r2"]
    left = b"".join(path.read_bytes() for path in journal.path.parent.iterdir())
    assert secret.encode() not in left


def test_selections(journal: Journal) -> None:
    journal.append([make_record(number, key="bob" if number % 2 else "alice") for number in range(6)])
    journal.put_feedback("r2", Feedback("admin", 9.0, expert="law"))
    assert journal.count(Selection(key="bob", since=2.0, until=5.0)) == 1
    assert [one.id for one in journal.read(Selection(author="admin"))] == ["r2"]


def test_a_folder_without_a_journal_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no journal .*feedback\.folder"):
        Journal.open(tmp_path)


def test_the_state_folder_leads_to_the_journal(tmp_path: Path) -> None:
    Journal.create(tmp_path / "feedback").append([make_record(1)])
    assert Journal.open(tmp_path).count() == 1


def test_foreign_newer_and_damaged_files_are_refused(tmp_path: Path) -> None:
    foreign = sqlite3.connect(tmp_path / JOURNAL_FILE)
    foreign.execute("CREATE TABLE other (x)")
    foreign.close()
    with pytest.raises(ArtifactError, match="not a journal of IR3DE"):
        Journal.open(tmp_path)
    newer = Journal.create(tmp_path / "newer")
    newer._database.execute("PRAGMA user_version=9")
    newer.close()
    with pytest.raises(VersionError, match="version 9"):
        Journal.open(tmp_path / "newer")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / JOURNAL_FILE).write_bytes(b"no database at all" * 400)
    with pytest.raises(ArtifactError, match="cannot be opened"):
        Journal.open(broken)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, "needs 'expert'"),
        ({"score": "1"}, "number from 0 to 1"),
        ({"score": float("nan")}, "number from 0 to 1"),
        ({"score": True}, "number from 0 to 1"),
        ({"score": 1.5}, "number from 0 to 1"),
        ({"thumb": "sideways"}, "up or down"),
        ({"thumb": "up", "score": 0.0}, "contradict"),
        ({"expert": 3}, "name of an expert"),
        ({"expert": ""}, "name of an expert"),
        ({"score": 1, "comment": "x" * 2_001}, "at most 2,000"),
        ([], "an object with"),
    ],
)
def test_bad_feedback_is_refused(given: object, error: str) -> None:
    with pytest.raises(InputError, match=error):
        Feedback.parse(given, author="alice", time=0.0)


WRITER = """
import sys
from ir3de.traffic import Feedback, Journal, TrafficRecord
journal = Journal.create(sys.argv[1])
for number in range(1_000_000):
    journal.append([TrafficRecord(f"r{number}", float(number))])
    journal.put_feedback(f"r{number}", Feedback("alice", 1.0, score=1.0))
    print(number, flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    for pause in (0.0, 0.03, 0.1):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / str(pause))], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline())]
        time.sleep(pause)
        writer.send_signal(signal.SIGKILL)
        acknowledged += map(int, writer.stdout.read().split())
        writer.wait()
        writer.stdout.close()
        kept = [one for one in Journal.open(tmp_path / str(pause)).read() if one.feedback]
        assert len(kept) >= acknowledged[-1] + 1


def test_requests_of_one_candidate_are_read_without_their_prompts(tmp_path: Path) -> None:
    prompt = JournalPrompt.from_text(["Is it void?"])
    with Journal.create(tmp_path) as journal:
        tried = [TrafficRecord(f"r{n}", 1.0, candidate=name, prompt=prompt) for n, name in enumerate(("a", "b", ""))]
        journal.append([*tried, TrafficRecord("r3", 1.0, decided="law", candidate="b", candidate_expert="maths")])
        journal.append([TrafficRecord("r4", 1.0, router="live", decided="law", candidate="b")])
        assert journal.count(Selection(router="live", candidate="b")) == 1
        found = list(journal.read(Selection(candidate="b"), prompts=False))
        differing = list(journal.read(Selection(candidate="b", disagrees=True)))
    assert [(one.id, one.prompt) for one in found] == [("r1", None), ("r3", None), ("r4", None)]
    assert [one.id for one in differing] == ["r3", "r4"]
