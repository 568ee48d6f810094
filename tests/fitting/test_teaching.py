"""A teacher labels what people did not: laws of change, what is counted, and bad input."""

from __future__ import annotations

import json
from collections.abc import Iterable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ir3de
import tiny
from ir3de.corpora import examples
from ir3de.errors import ArtifactError, InputError
from ir3de.evaluation import prove
from ir3de.evaluation.advice import advise
from ir3de.fitting import teachers, teaching
from ir3de.fitting.teachers import AnswerFile, Class, FunctionTeacher
from ir3de.scorers import Blend, Logistic
from ir3de.statistics.sample import TAUGHT, hash_text

EXPERTS = dict(list(examples.prompts().items())[:3])
FEW = {name: texts[:5] for name, texts in EXPERTS.items()}
TRUTH = {text: name for name, texts in EXPERTS.items() for text in texts}
TRAFFIC = [text for texts in EXPERTS.values() for text in texts[5:60]]


def oracle(texts: list[str]) -> list[str | None]:
    return [TRUTH.get(text) for text in texts]


def liar(texts: list[str]) -> list[str | None]:
    """Names the next expert."""
    names = list(EXPERTS)
    return [names[(names.index(TRUTH[text]) + 1) % len(names)] for text in texts]


@pytest.fixture(scope="module")
def taught() -> ir3de.Router:
    return ir3de.Router.fit(FEW, scorer=Logistic(), unlabelled=TRAFFIC, teacher=oracle)


@pytest.fixture(scope="module")
def plain() -> ir3de.Router:
    return ir3de.Router.fit(FEW, scorer=Logistic())


def alike(one: ir3de.Router, other: ir3de.Router) -> bool:
    """Whether two routers are the same, to the bit."""
    tables = np.array_equal(one.compiled.table.scores, other.compiled.table.scores)
    rules = one.compiled.rules, other.compiled.rules
    same = all(
        getattr(rules[0], name) == getattr(rules[1], name) for name in ("calibration", "familiarity", "membership")
    )
    return tables and same and one.statistics == other.statistics and one.experts == other.experts


def forget(router: ir3de.Router) -> ir3de.Router:
    """The router without anything that was taught."""
    left = copy(router)
    for name, own in router.contributions.items():
        for one in own:
            if one.is_taught:
                left.remove(name, contribution=one.id)
    return left


def test_a_teacher_raises_the_accuracy_and_says_by_how_much(taught: ir3de.Router, plain: ir3de.Router) -> None:
    found = taught.teaching
    assert found is not None and found.is_used and found.teacher == "oracle" and found.texts == len(TRAFFIC)
    assert found.gain == pytest.approx(found.accuracy_with - found.accuracy_without, abs=1e-5) and found.gain > 0
    assert found.gain_low < found.gain < found.gain_high and "points" in found.describe()
    assert sum(found.taught.values()) == sum(one.prompts for own in taught.contributions.values() for one in own)
    aside = [(text, name) for name, texts in EXPERTS.items() for text in texts[60:]]
    right = [
        sum(d.best == name for d, (_, name) in zip(one.route_batch([t for t, _ in aside]), aside, strict=True))
        for one in (taught, plain)
    ]
    assert right[0] > right[1]


def test_what_was_taught_is_a_contribution_named_in_the_ledger(taught: ir3de.Router, tmp_path: Path) -> None:
    taught.save(tmp_path / "router")
    loaded = ir3de.Router.load(tmp_path / "router")
    entries = [entry.change.given for entry in loaded.history if entry.change.given and entry.change.given.id]
    assert {one.kind for one in entries} == {"taught"} and {one.owner for one in entries} == {"teacher oracle"}
    assert loaded.teaching == taught.teaching and alike(loaded, taught)
    assert loaded.prompts == dict.fromkeys(EXPERTS, 5)  # what people gave
    assert all(one.is_taught for own in loaded.contributions.values() for one in own)


def test_removing_what_was_taught_gives_the_router_that_never_had_a_teacher(
    taught: ir3de.Router, plain: ir3de.Router, tmp_path: Path
) -> None:
    left = forget(taught)
    assert alike(left, plain) and left.teaching is None
    assert alike(taught.without_teacher(), plain) and alike(plain.without_teacher(), plain)
    taught.save(tmp_path / "taught")
    assert alike(forget(ir3de.Router.load(tmp_path / "taught")), plain)


@pytest.mark.nightly
def test_changes_commute_with_what_was_taught(taught: ir3de.Router) -> None:
    name, more = "news", examples.prompts()[list(examples.prompts())[-1]][:9]
    first, *_ = EXPERTS
    one, other = copy(taught), copy(taught)
    one.add(name, more)
    one.merge(first, EXPERTS[first][70:80])
    other.merge(first, EXPERTS[first][70:80])
    other.add(name, more)
    assert alike(one, other) and one.teaching is not None
    assert alike(forget(one), forget(other))
    one.remove(name)
    twice = copy(taught)
    twice.merge(first, EXPERTS[first][70:80])
    assert alike(one, twice)


def test_a_taught_contribution_can_be_given_to_a_router_elsewhere(taught: ir3de.Router, plain: ir3de.Router) -> None:
    other = copy(plain)
    for name, own in taught.contributions.items():
        for one in own:
            other.merge(name, one)
    assert alike(other, taught)
    name, own = next(iter(taught.contributions.items()))
    with pytest.raises(InputError, match="has this contribution already"):
        other.merge(name, own[0])


@pytest.mark.nightly
def test_only_people_are_held_out_and_the_proof_counts_them_alone(taught: ir3de.Router, plain: ir3de.Router) -> None:
    assert len(taught.route_kept()) == len(plain.route_kept()) == sum(map(len, FEW.values()))
    more = {name: texts[:20] for name, texts in EXPERTS.items()}
    router = ir3de.Router.fit(more, scorer=Logistic(), unlabelled=TRAFFIC, teacher=oracle)
    alone = prove(router=ir3de.Router.fit(more, scorer=Logistic()), contenders=False)
    found = prove(router=router, contenders=False)
    assert (found.prompts, found.known, found.accuracy) == (alone.prompts, alone.known, alone.accuracy)
    assert found.abstained == alone.abstained and any("What the teacher brought" in note for note in found.notes)


def test_the_advice_counts_what_the_teacher_brought(taught: ir3de.Router) -> None:
    found, advice = taught.teaching, advise(taught)
    assert found is not None and advice is not None and advice.accuracy is not None
    assert advice.accuracy.value == pytest.approx(found.accuracy_with, abs=1e-5)
    assert "teacher" not in {one.kind for one in advice.helps} and advice.most == 5


def test_a_teacher_that_brings_nothing_leaves_the_router_as_it_is(plain: ir3de.Router) -> None:
    router = ir3de.Router.fit(FEW, scorer=Logistic(), unlabelled=TRAFFIC, teacher=liar)
    assert alike(router, plain) and not any(router.contributions.values())
    found = router.teaching
    assert found is not None and not found.is_used and found.gain <= 0 and "brought nothing" in found.describe()


@pytest.mark.nightly
def test_probabilities_are_answers_too() -> None:
    def judge(texts: list[str]) -> np.ndarray:
        return np.array([[0.8 if TRUTH[text] == name else 0.1 for name in EXPERTS] for text in texts])

    router = ir3de.Router.fit(FEW, scorer=Logistic(), unlabelled=TRAFFIC, teacher=judge)
    assert router.teaching is not None and router.teaching.is_used


def test_texts_that_are_labelled_repeated_or_blank_are_counted_and_left_out() -> None:
    labelled = next(iter(FEW.values()))[:3]
    texts = [*TRAFFIC, *labelled, *TRAFFIC[:4], " ", "", *({"text": text} for text in TRAFFIC[:2])]
    given: Any = {"scorer": Blend(), "embedding": tiny.embedding()}
    router = ir3de.Router.fit(FEW, unlabelled=iter(texts), teacher=oracle, **given)
    found = router.teaching
    assert found is not None
    assert (found.texts, found.labelled, found.repeated, found.blank) == (len(texts), 3, 6, 2)
    assert sum(found.taught.values()) <= len(TRAFFIC)


def test_texts_for_which_the_teacher_has_no_expert_stay_out() -> None:
    foreign = [f"{word} {place}" for place in range(10) for word in ("zebra crossing", "football scores")]
    router = ir3de.Router.fit(FEW, scorer=Logistic(), unlabelled=[*TRAFFIC, *foreign], teacher=oracle)
    assert router.teaching is not None and router.teaching.out_of_domain >= 20
    kept = [own.sample for own in router.statistics.values()]
    hashes = {int(value) for sample in kept if sample is not None for value in sample.hashes}
    assert not hashes & {hash_text(text) for text in foreign}


@pytest.mark.nightly
def test_tuning_with_a_teacher_replaces_what_an_earlier_one_taught() -> None:
    router = ir3de.Router.fit(FEW, scorer=Blend(), unlabelled=TRAFFIC[:80], teacher=oracle)
    before = router.teaching
    router.tune(unlabelled=TRAFFIC, teacher=oracle)
    assert before is not None and router.teaching is not None and router.teaching.texts == len(TRAFFIC)
    assert all(len(own) <= 1 for own in router.contributions.values())
    anew = ir3de.Router.fit(FEW, tune=True, unlabelled=TRAFFIC, teacher=oracle)
    assert router.statistics == anew.statistics


def test_an_added_expert_gets_the_texts_that_the_teacher_gives_to_it() -> None:
    *others, new = EXPERTS
    router = ir3de.Router.fit({name: FEW[name] for name in others}, scorer=Logistic())
    router.add(new, FEW[new], unlabelled=TRAFFIC, teacher=oracle)
    assert router.teaching is not None
    assert set(router.teaching.taught) <= {new}
    assert not any(router.contributions[name] for name in others)


def test_the_trust_in_taught_labels_makes_confidence_more_modest(taught: ir3de.Router) -> None:
    sources = [own.sample.sources for own in taught.statistics.values() if own.sample is not None]
    trust = {int(value) - TAUGHT for own in sources for value in own if value >= TAUGHT}
    assert len(trust) == 1 and 1 <= trust.pop() <= 255


# a file of answers --------------------------------------------------------------------------------------------------


def test_labelling_continues_where_it_was_stopped(
    taught: ir3de.Router, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teachers, "CALLED_AT_ONCE", 20)
    asked: list[str] = []

    def slow(texts: list[str]) -> list[str | None]:
        asked.extend(texts)
        if len(asked) > 60 and not (tmp_path / "stopped").exists():
            (tmp_path / "stopped").touch()
            raise KeyboardInterrupt
        return oracle(texts)

    kept = tmp_path / "answers.jsonl"
    teacher = FunctionTeacher(slow, at_once=20)
    with pytest.raises(KeyboardInterrupt, match="60 of"):
        ir3de.Router.fit(FEW, scorer=Logistic(), unlabelled=TRAFFIC, teacher=teacher, answers=kept)
    assert len(kept.read_text().splitlines()) == 61
    before = len(asked)
    router = ir3de.Router.fit(FEW, scorer=Logistic(), unlabelled=TRAFFIC, teacher=teacher, answers=kept)
    again = min(100, max(10, round(0.02 * len(TRAFFIC))))
    assert len(asked) - before == len(TRAFFIC) + 15 - 60 + again
    assert router.statistics == taught.statistics


def test_a_line_that_was_cut_off_is_answered_again(tmp_path: Path) -> None:
    teacher, school = FunctionTeacher(oracle), Class(tuple(EXPERTS))
    path = tmp_path / "answers.jsonl"
    AnswerFile(path, teacher, school).add(["a", "b"], ["x", None])
    path.write_bytes(path.read_bytes()[:-7])
    found = AnswerFile(path, teacher, school)
    assert found.known == {"a": "x"}
    found.add(["c"], [[0.5, 0.5]])
    assert AnswerFile(path, teacher, school).known == {"a": "x", "c": [0.5, 0.5]}


def test_a_full_disk_keeps_the_answers_before(tmp_path: Path) -> None:
    import resource

    teacher, school = FunctionTeacher(oracle), Class(tuple(EXPERTS))
    path = tmp_path / "answers.jsonl"
    found = AnswerFile(path, teacher, school)
    found.add(["a"], ["x"])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, limits[1]))
    try:
        with pytest.raises(ArtifactError, match="The 1 answers before are kept"):
            found.add([f"key {place}" for place in range(100)], ["y"] * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert AnswerFile(path, teacher, school).known == {"a": "x"}


def test_answers_of_another_teacher_are_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    AnswerFile(path, FunctionTeacher(oracle), Class(tuple(EXPERTS))).add(["a"], ["x"])
    with pytest.raises(InputError, match="to another question"):
        AnswerFile(path, FunctionTeacher(liar), Class(tuple(EXPERTS)))
    path.write_text(json.dumps({"kind": "recipe"}) + "\n")
    with pytest.raises(ArtifactError, match="not a file of a teacher's answers"):
        AnswerFile(path, FunctionTeacher(oracle), Class(tuple(EXPERTS)))


# bad input ----------------------------------------------------------------------------------------------------------


def rows_too_short(texts: list[str]) -> list[list[float]]:
    return [[1.0]] * len(texts)


def too_few(texts: list[str]) -> list[str]:
    return ["law"]


def stranger(texts: list[str]) -> list[str]:
    return ["astrology"] * len(texts)


def broken(texts: list[str]) -> list[str]:
    raise RuntimeError("the model is out of memory")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"teacher": oracle}, "give unlabelled="),
        ({"unlabelled": TRAFFIC}, "give teacher="),
        ({"answers": "a.jsonl"}, "give teacher= and unlabelled="),
        ({"unlabelled": [], "teacher": oracle}, "no text is left"),
        ({"unlabelled": ["", " "], "teacher": oracle}, "2 are blank"),
        ({"unlabelled": next(iter(FEW.values())), "teacher": oracle}, "5 are labelled already"),
        ({"unlabelled": 7, "teacher": oracle}, "must be texts"),
        ({"unlabelled": [7], "teacher": oracle}, "a row"),
        ({"unlabelled": TRAFFIC, "teacher": "minilm-7"}, "unknown teacher 'minilm-7'"),
        ({"unlabelled": TRAFFIC, "teacher": "http://127.0.0.1:1/v1"}, "with the model's name"),
        ({"unlabelled": TRAFFIC, "teacher": 7}, "a teacher is"),
        ({"unlabelled": TRAFFIC, "teacher": rows_too_short}, "3 probabilities"),
        ({"unlabelled": TRAFFIC, "teacher": too_few}, "1 answers for 180 texts"),
        ({"unlabelled": TRAFFIC, "teacher": stranger}, "named no expert of this router"),
        ({"unlabelled": TRAFFIC, "teacher": broken}, "the teacher 'broken' failed: RuntimeError: the model is out"),
    ],
)
def test_bad_input_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ir3de.Router.fit(FEW, scorer=Blend(), embedding=tiny.embedding(), **given)


def test_a_wrong_teacher_is_rejected_before_anything_is_counted() -> None:
    def read() -> Iterable[str]:
        raise AssertionError("a text was read")
        yield ""

    with pytest.raises(InputError, match="unknown teacher"):
        ir3de.Router.fit({"law": read(), "maths": read()}, unlabelled=TRAFFIC, teacher="minilm-7")


def test_some_answers_may_be_of_no_expert_or_contradict_each_other() -> None:
    calls: list[int] = []

    def moody(texts: list[str]) -> list[str | None]:
        calls.append(len(texts))
        names = list(EXPERTS)
        return [
            "astrology" if place % 9 == 0 else names[len(calls) % 3] if len(calls) > 1 else TRUTH[text]
            for place, text in enumerate(texts)
        ]

    given: Any = {"scorer": Blend(), "embedding": tiny.embedding()}
    router = ir3de.Router.fit(FEW, unlabelled=TRAFFIC, teacher=moody, **given)
    found = router.teaching
    assert found is not None and found.unknown_names > 0 and found.contradicted > 0 and found.asked_again == 10


def test_experts_without_prompts_and_routers_without_samples_are_named() -> None:
    described = {**FEW, "cooking": []}
    given: Any = {"scorer": Blend(), "embedding": tiny.embedding(), "unlabelled": TRAFFIC, "teacher": oracle}
    with pytest.raises(InputError, match="cooking has none that were kept"):
        ir3de.Router.fit(described, descriptions={"cooking": "recipes, baking"}, **given)
    with pytest.raises(InputError, match="keep_sample=True"):
        ir3de.Router.fit(FEW, keep_sample=False, **given)


def test_of_a_huge_file_as_many_texts_are_used_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teaching, "MAX_TEXTS", 50)
    found = teaching._Texts.read((f"text {place}" for place in range(10_000)), frozenset())
    assert len(found.texts) == 50 and found.beyond == 9_950 and found.given == 10_000
    other = teaching._Texts.read((f"text {place}" for place in reversed(range(10_000))), frozenset())
    assert other.texts == found.texts


def test_an_outcome_router_has_no_teacher() -> None:
    rows = [{"text": f"{word} {n}", "scores": {"a": n % 2, "b": 0.5}} for n in range(6) for word in ("x", "y")]
    router = ir3de.Router.fit_outcomes(rows, embedding=tiny.embedding())
    with pytest.raises(InputError, match="outcomes"):
        router.tune(unlabelled=TRAFFIC, teacher=oracle)


def test_texts_far_from_every_labelled_prompt_are_left_out() -> None:
    labelled = np.eye(4, dtype=np.float32)[[0, 0, 1, 1]]
    texts = np.eye(4, dtype=np.float32)
    assert teaching._find_near(labelled, texts).tolist() == [True, True, False, False]
