"""A teacher labels what people did not; whoever is forgotten takes all of the teacher's labels along."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny
from commands import complaint, run_json, wrong_call
from ir3de import Router
from ir3de.errors import InputError
from ir3de.scorers import Blend
from ir3de.statistics.sample import TAUGHT
from ir3de.traffic import Journal, Selection, SourcePattern, TrafficRecord, forget, learn
from ir3de.traffic.learning import forget_in_journal, without_feedback
from ir3de.traffic.sources import find_feedback
from ir3de.traffic.taught_traffic import TAUGHT_TRAFFIC_ID, is_taught_traffic
from labelled_traffic import FIRST_DAY, NAMES, LabelledTraffic, make_prompt

RIGHT = {text: name for name in NAMES for text in tiny.sentences(name, 120, seed=33)}
FEW = {name: tiny.sentences(name, 3, seed=5) for name in NAMES}


def answer(texts: list[str]) -> list[str | None]:
    """A teacher that knows what was asked, whatever the case and spaces."""
    known = {"".join(text.split()).lower(): name for text, name in RIGHT.items()}
    return [known.get("".join(text.split()).lower()) for text in texts]


def ask(traffic: LabelledTraffic, key: str, texts: list[str], keep: str = "text") -> None:
    """Requests that nobody labels."""
    for number, text in enumerate(texts):
        record = TrafficRecord(f"{key}-{number}", FIRST_DAY + number, key=key, prompt=make_prompt(text, keep))
        traffic.journal.append([record])


def fit() -> Router:
    return Router.fit(FEW, embedding=tiny.embedding(), scorer=Blend())


def assert_same(one: Router, other: Router, folder: Path) -> None:
    assert tiny.contents(one.save(folder / "one")) == tiny.contents(other.save(folder / "other"))


@pytest.fixture
def traffic(tmp_path: Path) -> LabelledTraffic:
    made, texts = LabelledTraffic(tmp_path / "feedback"), list(RIGHT)
    ask(made, "alice", texts[::3])
    ask(made, "bob", texts[1::3])
    for name in NAMES:
        made.add("carol", tiny.sentences(name, 3, seed=20), name)
    return made


def taught_by(router: Router) -> list[str]:
    return [one.id for one in find_feedback(router).values() if is_taught_traffic(one)]


def test_requests_that_nobody_labelled_are_one_contribution_of_each_expert(traffic: LabelledTraffic) -> None:
    found = learn(fit(), traffic.journal, teacher=answer)
    assert found.teaching is not None and found.teaching.is_used
    assert found.teaching.texts == len([*RIGHT][::3] + [*RIGHT][1::3])
    assert set(taught_by(found.candidate)) == {TAUGHT_TRAFFIC_ID} and found.removed == 0
    taught = [one for one in find_feedback(found.candidate).values() if is_taught_traffic(one)]
    assert {one.owner for one in taught} == {"feedback:teacher:answer"} and all(one.is_taught for one in taught)
    samples = [one.sample() for one in taught]
    assert all((sample.sources >= TAUGHT).all() for sample in samples if sample is not None)
    assert found.labels == 9 and found.to_dict()["teaching"]["teacher"] == "answer"


@pytest.mark.nightly
def test_learning_again_changes_nothing_and_without_the_teacher_its_labels_go(
    traffic: LabelledTraffic, tmp_path: Path
) -> None:
    first = learn(fit(), traffic.journal, teacher=answer).candidate
    assert_same(learn(first, traffic.journal, teacher=answer).candidate, first, tmp_path)
    plain = learn(first, traffic.journal)
    assert not taught_by(plain.candidate) and plain.removed == 0
    assert_same(plain.candidate, learn(fit(), traffic.journal).candidate, tmp_path)
    assert_same(without_feedback(first), fit(), tmp_path)


@pytest.mark.parametrize(
    "source",
    ["key:alice", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("author:carol", "day:2026-11-17"))],
)
def test_who_is_forgotten_was_never_heard_by_the_teacher(traffic: LabelledTraffic, tmp_path: Path, source: str) -> None:
    """Also a key whose requests only the teacher labelled; and learning again gives what the others would give."""
    pattern, taught = SourcePattern.parse(source), learn(fit(), traffic.journal, teacher=answer).candidate
    gone = forget(taught, pattern)
    assert gone.taught and not taught_by(gone.candidate) and gone.labels == (0 if source == "key:alice" else 9)
    forget_in_journal(traffic.journal, pattern)
    assert_same(gone.candidate, learn(fit(), traffic.journal).candidate, tmp_path)
    again = learn(gone.candidate, traffic.journal, teacher=answer).candidate
    assert_same(again, learn(fit(), traffic.journal, teacher=answer).candidate, tmp_path)


def test_a_source_that_was_not_there_takes_nothing_along(traffic: LabelledTraffic) -> None:
    taught = learn(fit(), traffic.journal, teacher=answer).candidate
    gone = forget(taught, SourcePattern.parse("author:dave"))
    assert not gone.removed and taught_by(gone.candidate) == taught_by(taught)


def test_people_s_labels_are_not_taught_again(traffic: LabelledTraffic) -> None:
    """A request that a person labelled is left to the person."""
    texts = list(RIGHT)[::3][:6]
    traffic.add("carol", texts, "law", day=1)
    journal = traffic.journal
    journal.delete(Selection(key="alice"))
    found = learn(fit(), journal, teacher=answer, trust=["carol"])
    assert found.teaching is not None and found.teaching.texts == len(RIGHT) // 3


def test_tokens_can_be_taught_and_statistics_cannot(tmp_path: Path) -> None:
    for keep, is_possible in (("tokens", True), ("statistics", False)):
        traffic = LabelledTraffic(tmp_path / keep)
        ask(traffic, "alice", list(RIGHT)[::3], keep)
        if is_possible:
            found = learn(fit(), traffic.journal, teacher=answer)
            assert found.teaching is not None and found.teaching.is_used
        else:
            with pytest.raises(InputError, match="no request is left for the teacher"):
                learn(fit(), traffic.journal, teacher=answer)


def test_a_teacher_that_has_no_answer_changes_nothing(traffic: LabelledTraffic, tmp_path: Path) -> None:
    found = learn(fit(), traffic.journal, teacher=lambda texts: [None for _ in texts])
    assert found.teaching is not None and not found.teaching.is_used and not taught_by(found.candidate)
    assert_same(found.candidate, learn(fit(), traffic.journal).candidate, tmp_path)


def test_an_unknown_teacher_is_rejected_before_anything_is_learnt(tmp_path: Path) -> None:
    Journal.create(tmp_path / "state").close()
    fit().save(tmp_path / "router")
    common = ("learn", str(tmp_path / "router"), "--from", str(tmp_path / "state"), "-o", str(tmp_path / "candidate"))
    assert "unknown teacher 'nobody'" in complaint(*common, "--teacher", "nobody")
    assert "add --teacher minilm-l6" in wrong_call(*common, "--answers", "kept.jsonl")
    assert not (tmp_path / "candidate").exists()


def test_forget_reports_what_went_with_the_source(traffic: LabelledTraffic, tmp_path: Path) -> None:
    learn(fit(), traffic.journal, teacher=answer).candidate.save(tmp_path / "candidate")
    told = run_json("forget", tmp_path / "candidate", "--source", "key:bob")
    assert told["taught"] > 100 and told["labels"] == 0
    assert not taught_by(Router.load(tmp_path / "candidate"))
