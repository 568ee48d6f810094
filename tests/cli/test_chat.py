"""Chats on the command line: route --chat and explain --chat."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from commands import complaint, run, run_json, wrong_call

pytestmark = pytest.mark.usefixtures("plain_terminal")


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


CHAT = [
    said("system", "You are a Python agent."),
    said("user", "Can my landlord evict me?"),
    said("assistant", "Not without a court order."),
    said("user", "ok, and how long does that take?"),
    said("user", "Write a Python function that reverses a list."),
]


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    rows = [{"id": 1, "messages": CHAT}, {"id": 2, "messages": [said("user", "Is this contract void?")]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_route_shows_a_chat_turn_by_turn(fitted: Path, chats: Path) -> None:
    shown = run("route", fitted, "--chat", chats).stdout
    rows = [line.split() for line in shown.splitlines() if line.strip()[:1].isdigit()]
    assert [row[:2] for row in rows] == [["1", "law"], ["2", "law"], ["3", "coding"], ["1", "law"]]
    assert "itself" in shown and "turn 1" in shown and "a new subject" in shown and "chats.jsonl:2" in shown
    assert run("route", fitted, "--chat", chats, "-q").stdout.split() == ["law", "law", "coding", "law"]


def test_route_prints_and_writes_chats_as_json(fitted: Path, chats: Path, tmp_path: Path) -> None:
    printed = [json.loads(line) for line in run("route", fitted, "--chat", chats, "--json").stdout.splitlines()]
    first, second = (row["ir3de"] for row in printed)
    assert [row["id"] for row in printed] == [1, 2] and printed[0]["messages"] == CHAT
    assert (first["expert"], second["expert"]) == ("coding", "law")
    told = [(turn["message"], turn["expert"], turn["decided"], turn["changed"]) for turn in first["turns"]]
    assert told == [(1, "law", 0, False), (3, "law", 0, False), (4, "coding", 2, True)]
    assert first["turns"][1]["weights"] == [{"turn": 0, "weight": 1.0}]
    target = tmp_path / "routed.jsonl"
    assert run_json("route", fitted, "--chat", chats, "--output", target) == {
        "output": str(target), "chats": 2, "turns": 4,
    }  # fmt: skip
    assert [json.loads(line) for line in target.read_text("utf-8").splitlines()] == printed
    assert "exists already" in complaint("route", fitted, "--chat", chats, "--output", target)
    assert "4 turns of 2 chats" in run("route", fitted, "--chat", chats, "--output", target, "--force").stdout
    assert "fit no table" in complaint("route", fitted, "--chat", chats, "--output", tmp_path / "chats.csv")
    one = run_json("route", fitted, "--chat", "-", "--top", "1", stdin=json.dumps(CHAT, indent=1))
    assert len(one["ir3de"]["ranking"]) == len(one["ir3de"]["turns"][0]["ranking"]) == 1


@pytest.mark.parametrize("form", ["list", "object", "several"])
def test_one_document_holds_one_chat_or_several(fitted: Path, form: str) -> None:
    document: Any = {"list": CHAT, "object": {"messages": CHAT}, "several": [{"messages": CHAT}] * 2}[form]
    experts = run("route", fitted, "--chat", "-", "-q", stdin=json.dumps(document, indent=2)).stdout.split()
    assert experts == ["law", "law", "coding"] * (2 if form == "several" else 1)


def test_explain_shows_which_turn_and_which_words_decided(fitted: Path, chats: Path) -> None:
    shown = run("explain", fitted, "--chat", chats, "--words", "2").stdout
    assert shown.count("turn 1 decided") == 3 and "this turn began a new subject" in shown
    assert re.search(r"^landlord +\+\d", shown, re.MULTILINE) and "The words that speak for law (+)" in shown
    assert "The words" not in run("explain", fitted, "--chat", chats, "--words", "0").stdout
    said = json.loads(run("explain", fitted, "--chat", chats, "--json").stdout.splitlines()[0])
    assert [turn["decided"] for turn in said["turns"]] == [0, 0, 2]
    for part in ("votes", "words"):
        assert "".join(one["text"] for one in said["turns"][1][part]) == "Can my landlord evict me?"
    assert said["turns"][1]["compared"][0] == "law"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "it is empty, and has no chat"),
        ("[]", "<stdin>: messages is empty: send at least one message"),
        ('{"messages": []}', "messages is empty"),
        ('{"text": "a"}', "found an object with text"),
        ("7", "expected a list of messages or an object"),
        ('{"messages": "a"}', "messages must be a list of messages"),
        ('[{"role": "system", "content": "a"}]', "only the roles system"),
        ('[{"role": "robot", "content": "a"}]', "messages[0].role must be one of user"),
        ('[{"role": "user", "content": 7}]', "messages[0].content must be a string or a list of parts"),
        ('{"messages": [{"role": "user", "content": "a"}]}\n{"mess', "<stdin>:2: not JSON"),
    ],
)
def test_bad_chats_are_told_in_one_line(fitted: Path, given: str, said: str) -> None:
    assert said in complaint("route", fitted, "--chat", "-", stdin=given)
    assert said in complaint("explain", fitted, "--chat", "-", stdin=given)


def test_a_bad_chat_leaves_the_output_as_it_was(fitted: Path, chats: Path, tmp_path: Path) -> None:
    target = tmp_path / "routed.jsonl"
    target.write_text("before", encoding="utf-8")
    with chats.open("a", encoding="utf-8") as file:
        file.write('{"messages": []}\n')
    assert "chats.jsonl:3" in complaint("route", fitted, "--chat", chats, "--output", target, "--force")
    assert target.read_text(encoding="utf-8") == "before"


def test_a_chat_and_a_prompt_are_one_too_many(fitted: Path, chats: Path, tmp_path: Path) -> None:
    assert "leave one of them out" in wrong_call("route", fitted, "text", "--chat", chats)
    assert "leave one of them out" in wrong_call("route", fitted, "--input", chats, "--chat", chats)
    assert "leave one of them out" in wrong_call("explain", fitted, "text", "--chat", chats)
    assert "no such file" in complaint("route", fitted, "--chat", tmp_path / "missing.jsonl")
