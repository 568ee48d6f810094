"""`ir3de feedback`: what people think of answers, listed, exported and deleted for ever."""

import csv
import json
from pathlib import Path

import pytest

from commands import complaint, run, run_json
from ir3de.traffic import Feedback, Journal, JournalPrompt, TrafficRecord

DAY_S, START = 86_400.0, 1_770_000_000.0  # 2026-02-02 02:40 UTC


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three requests of two keys on three days; bob also gives feedback on a request of alice."""
    kept = tmp_path / "kept"
    with Journal.create(kept) as journal:
        for number, key in enumerate(("alice", "bob", "alice")):
            prompt = JournalPrompt.from_text([f"secret number {number} of {key}"])
            moment = START + number * DAY_S
            journal.append([TrafficRecord(f"r{number}", moment, key=key, decided="law", served="law", prompt=prompt)])
        journal.put_feedback("r0", Feedback("alice", START, expert="maths", comment="a sum"))
        journal.put_feedback("r0", Feedback("bob", START, score=0.25))
        journal.put_feedback("r1", Feedback("bob", START, score=1.0))
    return kept


def test_the_list_shows_who_wanted_what(folder: Path) -> None:
    shown = run("feedback", "list", "--from", folder).stdout
    assert [word in shown for word in ("2026-02-02 02:40:00", "should be maths", "a sum", "0.25", "1.00")] == [True] * 5
    assert "2 of 3 requests have feedback" in shown
    assert "3 requests" in run("feedback", "list", "--from", folder, "--all").stdout
    (only,) = run_json("feedback", "list", "--from", folder, "--key", "bob")["data"]
    assert (only["id"], only["feedback"][0]["author"]) == ("r1", "bob")
    found = run_json("feedback", "list", "--from", folder, "--since", "2026-02-03", "--until", "2026-02-04")
    assert [one["id"] for one in found["data"]] == ["r1"]


def test_exports_have_every_feedback(folder: Path, tmp_path: Path) -> None:
    run("feedback", "export", "--from", folder, tmp_path / "all.jsonl", "--all")
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [len(one["feedback"]) for one in lines] == [2, 1, 0]
    assert lines[0]["prompt"] == {"keep": "text", "turns": ["secret number 0 of alice"]}
    run("feedback", "export", "--from", folder, tmp_path / "some.csv")
    with (tmp_path / "some.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["request"], row["author"], row["expert"], row["score"]) for row in rows] == [
        ("r0", "alice", "maths", ""), ("r0", "bob", "", "0.25"), ("r1", "bob", "", "1.0"),
    ]  # fmt: skip
    assert run("feedback", "export", "--from", folder, "-").stdout.count("\n") == 2
    assert "exists already" in complaint("feedback", "export", "--from", folder, tmp_path / "some.csv")
    assert "must end in .jsonl or .csv" in complaint("feedback", "export", "--from", folder, tmp_path / "some.txt")


def test_one_command_leaves_nothing_of_a_key(folder: Path) -> None:
    """Not in the bytes of any file, and what is not of the key stays as it is."""
    with Journal.open(folder) as journal:
        before = [one for one in journal.read() if one.key == "bob"]
    assert run_json("feedback", "forget", "--from", folder, "--key", "alice", "--yes") == {
        "folder": str(folder), "requests": 2, "feedback": 1,
    }  # fmt: skip
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"alice" not in content and b"secret number 0" not in content and b"a sum" not in content
    with Journal.open(folder) as journal:
        assert list(journal.read()) == before


def test_feedback_on_requests_of_others_goes_with_its_author(folder: Path) -> None:
    assert run_json("feedback", "forget", "--from", folder, "--key", "bob", "--yes")["feedback"] == 2
    with Journal.open(folder) as journal:
        assert [(one.id, [given.author for given in one.feedback]) for one in journal.read()] == [
            ("r0", ["alice"]), ("r2", []),
        ]  # fmt: skip


def test_labels_that_a_key_was_asked_for_go_with_it(folder: Path) -> None:
    with Journal.open(folder) as journal:
        journal.put_feedback("r1", Feedback("label:alice", START, expert="law"))
    forgotten = run_json("feedback", "forget", "--from", folder, "--key", "alice", "--yes")
    assert (forgotten["requests"], forgotten["feedback"]) == (2, 2)
    with Journal.open(folder) as journal:
        assert {one.author for row in journal.read() for one in row.feedback} == {"bob"}


def test_deletion_asks_and_needs_a_choice(folder: Path) -> None:
    run("feedback", "forget", "--from", folder, "--key", "alice", stdin="n\n", code=1)
    assert "--all" in complaint("feedback", "forget", "--from", folder, "--yes")
    with Journal.open(folder) as journal:
        assert journal.count() == 3
    run("feedback", "forget", "--from", folder, "--until", "2026-02-03", stdin="y\n")
    with Journal.open(folder) as journal:
        assert [one.id for one in journal.read()] == ["r1", "r2"]
    assert run_json("feedback", "forget", "--from", folder, "--all", "--yes")["requests"] == 2


def test_a_folder_without_a_journal_is_named(tmp_path: Path) -> None:
    assert "has no journal" in complaint("feedback", "list", "--from", tmp_path)
    (tmp_path / "journal.sqlite").write_bytes(b"half of a file" * 100)
    assert "cannot be opened" in complaint("feedback", "list", "--from", tmp_path)
