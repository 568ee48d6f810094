"""bench conversations: the chats are what they say, the same in every run, and the figures are counted right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tiny
from commands import run
from ir3de import Conversation
from ir3de.policies import TurnWeights
from ir3de_lab.benchmarks import conversations as bench
from ir3de_lab.benchmarks import follow_ups
from ir3de_lab.benchmarks.chats import Chat, Sources, Turn, build_chats, split_held_out
from ir3de_lab.benchmarks.gateway.chatting import list_requests

PROMPTS = {name: tiny.sentences(name, 40, seed=3, longest=12) for name in tiny.DOMAINS}
DOCUMENTS = [" ".join(tiny.mixed(20, seed=seed)) for seed in range(5)]


def test_follow_ups_for_choosing_and_for_measuring_never_meet() -> None:
    train = {*follow_ups.TRAIN_EMPTY, *follow_ups.TRAIN_PRONOUNS}
    test = {*follow_ups.TEST_EMPTY, *follow_ups.TEST_PRONOUNS}
    assert len(train) >= 80 and len(test) >= 80 and not train & test


def test_prompts_are_split_by_their_texts() -> None:
    fitted, held = split_held_out(PROMPTS)
    for name, texts in PROMPTS.items():
        assert not {*fitted[name]} & {*held[name]} and {*fitted[name], *held[name]} == {*texts}


@pytest.mark.parametrize("documents", [(), DOCUMENTS])
def test_chats_are_the_same_in_every_run(documents: list[str]) -> None:
    sources = Sources("tiny", "test", PROMPTS, documents)
    chats = build_chats(sources, 4)
    assert chats == build_chats(sources, 4) != build_chats(Sources("tiny", "train", PROMPTS, documents), 4)
    kinds = {"follow-ups", "pronouns", "switch", "tool loop"} | ({"paste", "lone paste"} if documents else set())
    assert {chat.kind for chat in chats} == kinds
    router = tiny.router()
    for chat in chats:  # what the conversation hears is what the chat says that the user said
        heard = [turn.text for turn in Conversation.from_messages(router, chat.messages).turns]
        assert all(said.text in text for said, text in zip(chat.turns, heard, strict=True))


def test_documents_of_the_set_itself_are_cut_to_questions() -> None:
    texts = {name: [" ".join(tiny.sentences(name, 40, seed=seed)) for seed in range(6)] for name in tiny.DOMAINS}
    chats = build_chats(Sources("long", "test", texts), 2)
    pastes = [turn for chat in chats for turn in chat.turns if turn.kind.startswith("paste")]
    assert len(pastes) == 4 and all("\n\n" in turn.text and len(turn.text) > 1_000 for turn in pastes)
    assert all(len(turn.text.split()) <= 40 for chat in chats for turn in chat.turns if turn.kind == "first")


def test_shares_are_counted_by_kind_of_turn() -> None:
    turns = [Turn("a", "law", "first"), Turn("b", "law", "follow-up"), Turn("c", "maths", "switch")]
    row = bench.count_right(
        "x", "way", [Chat("switch", [], turns)] * 2, [["law", "law", "law"], ["law", "maths", "maths"]]
    )
    assert row.accuracy == {
        "all": pytest.approx(400 / 6), "first": 100, "follow-ups": 50, "without content": 50, "switches": 50,
        "follow-ups that stay": 50,
    }  # fmt: skip
    other = bench.Row("y", "way", 6, {"all": 0.0})
    assert bench.average([row, other])[0].accuracy["all"] == pytest.approx(200 / 6)


def write_suite(folder: Path) -> Path:
    for domain in tiny.DOMAINS:
        (folder / "suites" / "one" / domain).mkdir(parents=True)
        for split, seed in (("train", 0), ("test", 1)):
            lines = [json.dumps({"text": text}) for text in tiny.sentences(domain, 60, seed=seed)]
            (folder / "suites" / "one" / domain / f"{split}.jsonl").write_text("\n".join(lines), "utf-8")
    return folder / "suites"


def test_every_turn_of_a_chat_is_a_request_that_ends_with_it() -> None:
    router = tiny.router()
    for chat in build_chats(Sources("tiny", "test", PROMPTS, DOCUMENTS), 3):
        asked = list(list_requests(chat))
        assert len(asked) == len(chat.turns) and all(messages[-1]["role"] == "user" for messages in asked)
        heard = [Conversation.from_messages(router, messages).turns[-1].text for messages in asked]
        assert all(turn.text in text for turn, text in zip(chat.turns, heard, strict=True))


@pytest.mark.slow
@pytest.mark.usefixtures("plain_terminal")
@pytest.mark.nightly
def test_chats_with_a_gateway_go_where_the_library_sends_them(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    shown = run("bench", "chats", "--data", write_suite(tmp_path), "--chats", "2", "--save", kept)
    document = json.loads(kept.read_text("utf-8"))
    assert "0 of" in shown.stdout and document["different"] == 0 < document["turns"]
    by_way = {row["routing"]: row["accuracy"] for row in document["rows"] if row["data"] == "mean"}
    assert by_way["gateway"] == by_way["library"] != by_way["last message"]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.usefixtures("plain_terminal")
def test_the_command_measures_and_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "GRID", {"decay": (0.5, 1.0), "cap": (16,)})
    kept = tmp_path / "kept.json"
    shown = run("bench", "conversations", "--data", write_suite(tmp_path), "--chats", "3", "--choose", "--save", kept)
    document = json.loads(kept.read_text("utf-8"))
    assert "Cost of a turn" in shown.stdout and document["weights"]["decay"] == TurnWeights().decay
    by_way = {row["routing"]: row["accuracy"] for row in document["rows"] if row["data"] == "mean"}
    assert by_way["conversation"]["without content"] > by_way["last message"]["without content"]
    assert len(document["choice"]["tried"]) == 2 and all(cost["ratio"] > 0 for cost in document["costs"])
