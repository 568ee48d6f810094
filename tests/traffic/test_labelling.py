"""Which prompts to label: unsure and frequent ones, no near copies; new domains; and the command that asks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tiny
from ir3de import Router
from ir3de.cli import cli
from ir3de.errors import InputError
from ir3de.traffic import Feedback, Journal, JournalPrompt, TrafficRecord, choose_prompts, find_new_domains
from ir3de.traffic import new_domains as groups
from ir3de.traffic.labelling import KnownPrompt, spread

NAMES = ("maths", "law", "cooking")


@pytest.fixture(scope="module")
def router() -> Router:
    return Router.fit({name: tiny.sentences(name, 30, seed=1) for name in NAMES}, embedding=tiny.embedding())


def make_records(texts: list[str], keep: str = "text", given: tuple[Feedback, ...] = ()) -> list[TrafficRecord]:
    def make(text: str) -> JournalPrompt:
        ids = np.asarray(tiny.embedding().tokenizer.encode(text), np.uint32)
        return JournalPrompt.from_text([text]) if keep == "text" else JournalPrompt.from_ids(keep, [ids])  # type: ignore[arg-type]

    records = enumerate(texts)
    return [TrafficRecord(f"r{number}", float(number), prompt=make(text), feedback=given) for number, text in records]


def test_unsure_prompts_come_before_clear_ones(router: Router) -> None:
    law, maths = (tiny.sentences(name, 20, seed=9) for name in ("law", "maths"))
    found = choose_prompts(router, make_records([*law, *maths]), 40)
    assert found[0].margin == min(one.margin for one in found)
    first, last = found[:10], found[-10:]
    assert np.mean([one.margin for one in first]) < np.mean([one.margin for one in last])


def test_copies_are_counted_and_shown_once(router: Router) -> None:
    texts = tiny.sentences("law", 4, seed=9)
    found = choose_prompts(router, make_records([texts[0]] * 5 + texts[1:]), 10)
    assert sorted(one.requests for one in found) == [1, 1, 1, 5] and len({one.text for one in found}) == 4


def test_labelled_prompts_are_not_asked_again(router: Router) -> None:
    texts = tiny.sentences("law", 3, seed=9)
    labelled = make_records(texts[:1], given=(Feedback("eve", 1.0, expert="law"),))
    found = choose_prompts(router, [*labelled, *make_records(texts[1:])], 10)
    assert texts[0] not in {one.text for one in found}
    with pytest.raises(InputError, match="no prompt to label"):
        choose_prompts(router, labelled, 10)


@pytest.mark.parametrize("keep", ["tokens", "statistics"])
def test_token_ids_are_enough(router: Router, keep: str) -> None:
    found = choose_prompts(router, make_records(tiny.sentences("law", 4, seed=9), keep), 2)
    assert len(found) == 2 and all(one.text and one.ranking for one in found)


def test_near_copies_of_a_chosen_prompt_are_left_out() -> None:
    vectors = np.array([[1.0, 0.0], [0.999, 0.0447], [0.0, 1.0]])
    assert spread(vectors, np.array([1.0, 0.9, 0.1]), 3) == [0, 2]


def test_new_domains_are_named_by_their_words(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [tiny.sentences(name, 20, seed=9) for name in NAMES]
    texts = [text for own in known for text in own]

    def read(*_: object) -> list[KnownPrompt]:  # which prompts are strange is not at issue here
        return [
            KnownPrompt(str(place), np.array([place], np.uint32), text, 1, None, place < 20, ())
            for place, text in enumerate(texts)
        ]

    monkeypatch.setattr(groups, "read_prompts", read)
    (found,) = find_new_domains(router, [])
    assert found.requests == 20 and set(found.prompts) == set(known[0])
    shares = [np.mean([word in text.casefold() for text in own]) for own in known for word in found.words[:1]]
    assert shares[0] > max(shares[1:])


# the command --------------------------------------------------------------------------------------------------------


@pytest.fixture
def state(router: Router, tmp_path: Path) -> Path:
    router.save(tmp_path / "router")
    with Journal.create(tmp_path / "state" / "feedback") as journal:
        journal.append(make_records([text for name in NAMES for text in tiny.sentences(name, 4, seed=9)]))
    return tmp_path


def call(state: Path, *more: str, answers: str = "") -> str:
    given = ["label", str(state / "router"), "--from", str(state / "state"), "--author", "eve", *more]
    found = CliRunner().invoke(cli, given, input=answers)
    assert found.exit_code == 0, found.output
    return found.output


def read_labels(state: Path) -> list[tuple[str, str | None]]:
    with Journal.open(state / "state") as journal:
        return [(one.author, one.expert) for record in journal.read() for one in record.feedback]


def test_answers_are_in_the_journal_at_once(state: Path) -> None:
    shown = call(state, "-n", "5", answers="law\n\nnonsense\nmaths\n")  # then the input ends, as after Ctrl-C
    assert "no expert 'nonsense'" in shown
    assert sorted(read_labels(state)) == [("label:eve", "law"), ("label:eve", "maths")]


def test_a_label_is_undone(state: Path) -> None:
    call(state, "-n", "5", answers="law\nu\nu\ncooking\nq\n")
    assert read_labels(state) == [("label:eve", "cooking")]


def test_a_number_names_the_expert_beside_it(state: Path) -> None:
    first = json.loads(call(state, "-n", "1", "--json"))["prompts"][0]
    call(state, "-n", "1", answers="1\n")
    assert read_labels(state) == [("label:eve", first["ranking"][0][0])]


def test_a_new_domain_that_is_not_there_is_an_error(state: Path) -> None:
    given = ["label", str(state / "router"), "--from", str(state / "state"), "--take", "99"]
    found = CliRunner().invoke(cli, [*given, "-o", str(state / "new.jsonl")])
    assert found.exit_code == 2 and "--new-domains" in found.output
    assert CliRunner().invoke(cli, given).exit_code == 2  # without -o
