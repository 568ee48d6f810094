"""Learning: labels become contributions that can be recognised, replaced and forgotten, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tiny
from ir3de import Router
from ir3de.errors import InputError
from ir3de.scorers import Blend, Logistic
from ir3de.statistics.sample import TAUGHT
from ir3de.traffic import Feedback, Journal, Selection, SourcePattern, forget, learn
from ir3de.traffic.learning import MAX_LABELS, MIN_PROOF_PROMPTS, find_feedback, without_feedback
from ir3de.traffic.sources import Source
from labelled_traffic import NAMES, TEXTS, LabelledTraffic

MORE = {name: tiny.sentences(name, 12, seed=9) for name in NAMES}
KINDS: dict[str, Any] = {
    "chosen by the fit": {},
    "closed form": {"scorer": Blend()},
    "logistic": {"scorer": Logistic()},
}


def fit(**options: Any) -> Router:
    return Router.fit(TEXTS, embedding=tiny.embedding(), **options)


def assert_same(one: Router, other: Router, folder: Path) -> None:
    """All that a folder holds but the ledger, byte for byte."""
    assert tiny.contents(one.save(folder / "one")) == tiny.contents(other.save(folder / "other"))


@pytest.fixture
def traffic(tmp_path: Path) -> LabelledTraffic:
    return LabelledTraffic(tmp_path / "feedback")


def test_a_key_named_admin_is_not_the_admin_token() -> None:
    pattern = SourcePattern.parse("key:admin")
    assert pattern.matches(Source("key:admin", "alice", "2026-11-17")) and pattern.matches(Source("admin", "admin", ""))
    assert not pattern.matches(Source("admin", "alice", "2026-11-17"))


def add_source(traffic: LabelledTraffic, author: str, *, day: int = 0, keep: str = "text", seed: int = 20) -> None:
    for name in NAMES:
        traffic.add(author, tiny.sentences(name, 3, seed=seed), name, day=day, keep=keep)


@pytest.mark.parametrize("keep", ["text", "tokens", "statistics"])
def test_labels_become_one_contribution_per_source_and_expert(traffic: LabelledTraffic, keep: str) -> None:
    add_source(traffic, "alice", keep=keep)
    add_source(traffic, "alice", day=1, keep=keep)
    found = learn(fit(scorer=Blend()), traffic.journal)
    given = find_feedback(found.candidate)
    assert len(given) == 6 and found.labels == 18 and found.added == 6
    assert {one.owner for one in given.values()} == {"feedback:alice"}
    assert {one.kept for one in given.values()} == ({0} if keep == "statistics" else {3})
    assert {Source.of_contribution(one).day for one in given.values()} == {"2026-11-17", "2026-11-18"}
    assert found.counts_only == (18 if keep == "statistics" else 0)


def test_text_and_tokens_count_the_same_and_statistics_differ_by_the_order_alone(tmp_path: Path) -> None:
    found = {}
    for keep in ("text", "tokens", "statistics"):
        traffic = LabelledTraffic(tmp_path / keep)
        traffic.add("alice", MORE["law"], "law", keep=keep)
        candidate = learn(fit(scorer=Blend()), traffic.journal).candidate
        found[keep] = next(iter(find_feedback(candidate).values())).statistics()
    assert found["text"] == found["tokens"]
    bag, whole = found["statistics"], found["text"]
    assert (bag.histogram == whole.histogram).all() and bag.sums is not None and whole.sums is not None
    assert (bag.sums.vector == whole.sums.vector).all() and (bag.sums.gram == whole.sums.gram).all()
    assert not bag.sums.pairs.any() and whole.sums.pairs.any()  # type: ignore[union-attr]


def test_learning_twice_changes_nothing(traffic: LabelledTraffic, tmp_path: Path) -> None:
    add_source(traffic, "alice")
    router = fit(scorer=Blend())
    once = learn(router, traffic.journal)
    again = learn(Router.load(once.candidate.save(tmp_path / "once")), traffic.journal)
    assert (again.changes, again.unchanged) == (0, 3)
    assert_same(once.candidate, again.candidate, tmp_path)
    assert not find_feedback(router)  # the live router is untouched


def test_a_label_that_was_changed_or_deleted_replaces_the_contribution(
    traffic: LabelledTraffic, tmp_path: Path
) -> None:
    ids = traffic.add("alice", MORE["law"][:4], "law")
    router = fit(scorer=Blend())
    first = learn(router, traffic.journal).candidate
    time = next(traffic.journal.read()).feedback[0].time
    traffic.journal.put_feedback(ids[0], Feedback("alice", time, expert="maths"))
    second = learn(first, traffic.journal)
    assert (second.added, second.replaced, second.removed) == (1, 1, 0)
    assert_same(second.candidate, learn(router, traffic.journal).candidate, tmp_path / "changed")
    for name in ids:
        traffic.journal.delete_feedback(name, "alice")
    third = learn(second.candidate, traffic.journal)
    assert third.removed == 2
    assert_same(third.candidate, router, tmp_path / "deleted")


def test_what_was_learnt_of_requests_that_expired_stays(traffic: LabelledTraffic, tmp_path: Path) -> None:
    add_source(traffic, "alice")
    learnt = learn(fit(scorer=Blend()), traffic.journal).candidate
    traffic.journal.delete(Selection(until=next(traffic.journal.read()).time + 1))  # the first request of the first day
    add_source(traffic, "alice", day=1)
    found = learn(learnt, traffic.journal)
    assert (found.kept, found.unchanged, found.added, found.removed) == (1, 2, 3, 0)
    other = learn(found.candidate, Journal.create(tmp_path / "another"))
    assert (other.kept, other.changes) == (6, 0)


def test_what_cannot_be_learnt_is_counted(traffic: LabelledTraffic) -> None:
    (law,) = traffic.add("alice", MORE["law"][:1], "law")
    traffic.add("alice", MORE["law"][1:3], "physics")
    traffic.add("alice", [""], "law")
    record = traffic.journal.find(law)
    assert record is not None
    traffic.journal.append([type(record)("bare", record.time, key="alice")])
    traffic.journal.put_feedback("bare", Feedback("alice", record.time, expert="law"))
    found = learn(fit(scorer=Blend()), traffic.journal)
    assert found.labels == 1
    assert found.left_out.to_dict() == {
        "unknown_experts": {"physics": 2},
        "no_prompt": 1,
        "no_tokens": 1,
        "other_tokenizer": 0,
    }


def test_a_source_counts_up_to_the_cap(traffic: LabelledTraffic) -> None:
    traffic.add("alice", tiny.sentences("law", MAX_LABELS + 7, seed=3), "law")
    found = learn(fit(scorer=Blend()), traffic.journal)
    (given,) = find_feedback(found.candidate).values()
    assert given.prompts == MAX_LABELS and sum(found.over_cap.values()) == 7


def test_two_people_may_say_the_same(traffic: LabelledTraffic, tmp_path: Path) -> None:
    for author in ("alice", "bob"):
        traffic.add(author, MORE["law"][:1], "law")
    router = fit(scorer=Blend())
    candidate = learn(router, traffic.journal).candidate
    assert len(find_feedback(candidate)) == 2
    left = forget(candidate, SourcePattern.parse("author:alice")).candidate
    assert [one.owner for one in find_feedback(left).values()] == ["feedback:bob"]


def test_contradictions_between_people_are_shown(traffic: LabelledTraffic) -> None:
    text = "Is the contract void, judge?"
    traffic.add("alice", [text, "evict the tenant"], "law")
    traffic.add("bob", [text.upper()], "cooking")
    (found,) = learn(fit(scorer=Blend()), traffic.journal).contradictions
    assert found.labels == {"cooking": ["bob"], "law": ["alice"]} and "contract" in found.prompt


def test_scores_are_reported_and_change_nothing(traffic: LabelledTraffic, tmp_path: Path) -> None:
    traffic.add("alice", MORE["law"][:3], None, score=1.0)
    traffic.add("bob", MORE["law"][3:4], None, score=0.0)
    router = fit(scorer=Blend())
    found = learn(router, traffic.journal)
    assert found.to_dict()["scores"] == {"law": {"scores": 4, "mean": 0.75, "by_chance": 0}}
    assert_same(found.candidate, router, tmp_path)


def test_what_a_teacher_labelled_is_taught(traffic: LabelledTraffic) -> None:
    traffic.add("teacher:minilm-l6", MORE["law"], "law")
    candidate = learn(fit(scorer=Logistic()), traffic.journal).candidate
    (given,) = find_feedback(candidate).values()
    assert given.is_taught and (candidate.statistics["law"].sample.sources >= TAUGHT).sum() == len(MORE["law"])
    assert candidate.prompts["law"] == len(TEXTS["law"])


def test_the_proof_holds_a_fifth_out_of_a_first_fit(traffic: LabelledTraffic) -> None:
    assert not learn(fit(scorer=Blend()), traffic.journal).proof.is_possible
    for day, name in enumerate(NAMES):
        traffic.add("alice", tiny.sentences(name, MAX_LABELS, seed=11), name, day=day)
    proof = learn(fit(scorer=Blend()), traffic.journal).proof
    assert MIN_PROOF_PROMPTS <= proof.prompts < MAX_LABELS and proof.is_possible
    assert proof.live is not None and proof.live.value > 0.5  # type: ignore[unreachable]


# forgetting -----------------------------------------------------------------------------------------------------


def add_all(traffic: LabelledTraffic, sources: str) -> LabelledTraffic:
    for source in sources:
        keep = {"a": "text", "b": "tokens", "c": "statistics"}[source]
        add_source(traffic, source, day="abc".index(source), keep=keep, seed=30 + "abc".index(source) // 2)
    return traffic


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(own, id=name, marks=pytest.mark.nightly if name == "logistic" else ())
        for name, own in KINDS.items()
    ],
)
def test_learn_a_learn_b_forget_a_is_learn_b(options: Any, tmp_path: Path) -> None:
    router = fit(**options)
    first = learn(router, add_all(LabelledTraffic(tmp_path / "a"), "a").journal).candidate
    both = learn(Router.load(first.save(tmp_path / "first")), add_all(LabelledTraffic(tmp_path / "b"), "b").journal)
    left = forget(Router.load(both.candidate.save(tmp_path / "both")), SourcePattern.parse("author:a")).candidate
    only = learn(router, add_all(LabelledTraffic(tmp_path / "only"), "b").journal).candidate
    assert_same(left, only, tmp_path)
    assert_same(forget(left, SourcePattern.parse("author:b")).candidate, router, tmp_path / "none")


@pytest.mark.parametrize(
    "order",
    [("a", "b", "c"), *(pytest.param(own, marks=pytest.mark.nightly) for own in (("c", "a", "b"), ("b", "c", "a")))],
    ids="".join,
)
def test_sources_are_learnt_and_forgotten_in_any_order(order: tuple[str, ...], tmp_path: Path) -> None:
    router = fit(scorer=Blend())
    now = router
    for source in order:
        now = learn(now, add_all(LabelledTraffic(tmp_path / source), source).journal).candidate
    assert_same(now, learn(router, add_all(LabelledTraffic(tmp_path / "all"), "abc").journal).candidate, tmp_path / "l")
    gone, *left = order
    now = forget(now, SourcePattern.parse(f"key:{gone}")).candidate
    rest = add_all(LabelledTraffic(tmp_path / "rest"), "".join(sorted(left)))
    assert_same(now, learn(router, rest.journal).candidate, tmp_path / "f")
    assert_same(without_feedback(now), router, tmp_path / "w")


def test_patterns_choose_keys_authors_and_days() -> None:
    sources = [Source("alice", "alice", "2026-11-17"), Source("admin", "alice", "2026-11-18")]
    sources += [Source("admin", "bob", "2026-11-18"), Source("bob", "bob", "2026-11-19")]
    sources += [Source("label:alice", "carol", "2026-11-20")]  # a label that alice was asked for

    def chosen(text: str, **days: str) -> list[int]:
        pattern = SourcePattern.parse(text, **days)
        return [place for place, one in enumerate(sources) if pattern.matches(one)]

    assert chosen("key:alice") == [0, 1, 4] and chosen("author:admin") == [1, 2] and chosen("day:2026-11-18") == [1, 2]
    assert chosen("key:bob", since="2026-11-19") == [3] and chosen("key:alice", until="2026-11-17T12:00") == [0]
    for wrong in ("alice", "key:", "person:alice", "day:yesterday"):
        with pytest.raises(InputError, match=r"key:alice|2026-11-17"):
            SourcePattern.parse(wrong)
