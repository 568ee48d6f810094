"""Sources are judged by the router without feedback: honest people pass, a poisoned source is named and left out."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import tiny
from ir3de import Router
from ir3de.scorers import Blend
from ir3de.traffic import learn
from ir3de.traffic.learning import find_feedback
from ir3de.traffic.plausibility import HONEST_SHARE, LEVEL, bound_tail, find_least_probability
from labelled_traffic import NAMES, LabelledTraffic


def make_clear(name: str, number: int, seed: int) -> list[str]:
    """Texts of which a router is sure."""
    draw = random.Random(f"{name} {seed}")
    return [" ".join(draw.choices(tiny.DOMAINS[name], k=draw.randint(8, 16))) for _ in range(number)]


TEXTS = {name: make_clear(name, 30, 1) for name in NAMES}
NEXT = dict(zip(NAMES, (*NAMES[1:], NAMES[0]), strict=True))


@pytest.fixture(scope="module")
def router() -> Router:
    return Router.fit(TEXTS, embedding=tiny.embedding(), scorer=Blend())


def add_poison(traffic: LabelledTraffic, author: str, number: int) -> None:
    for name in NAMES:
        traffic.add(author, make_clear(name, number, 40), NEXT[name])


def add_honest(traffic: LabelledTraffic, author: str, number: int) -> None:
    for name in NAMES:
        traffic.add(author, make_clear(name, number, 41), name)


def test_a_poisoned_source_is_left_out_and_named(router: Router, tmp_path: Path) -> None:
    traffic, alone = LabelledTraffic(tmp_path / "both"), LabelledTraffic(tmp_path / "alone")
    add_poison(traffic, "mallory", 20)
    for one in (traffic, alone):
        add_honest(one, "alice", 20)
    found = learn(router, traffic.journal)
    assert [one.source.author for one in found.suspicious] == ["mallory"]
    assert {one.owner for one in find_feedback(found.candidate).values()} == {"feedback:alice"}
    honest = learn(router, alone.journal)
    assert tiny.contents(found.candidate.save(tmp_path / "one")) == tiny.contents(
        honest.candidate.save(tmp_path / "two")
    )
    assert [one.to_dict() for one in found.sources if one.source.author == "alice"] == [
        one.to_dict() for one in honest.sources
    ]  # a verdict does not depend on other sources


def test_a_trusted_author_is_learnt(router: Router, tmp_path: Path) -> None:
    traffic = LabelledTraffic(tmp_path)
    add_poison(traffic, "mallory", 20)
    found = learn(router, traffic.journal, trust=["mallory"])
    assert not found.suspicious and found.labels == 60


def test_a_source_that_became_suspicious_is_taken_out_again(router: Router, tmp_path: Path) -> None:
    traffic = LabelledTraffic(tmp_path / "feedback")
    add_poison(traffic, "mallory", 1)
    learnt = learn(router, traffic.journal, trust=["mallory"])
    assert learnt.labels == 3
    add_poison(traffic, "mallory", 20)
    found = learn(learnt.candidate, traffic.journal)
    assert found.suspicious and not find_feedback(found.candidate)
    assert tiny.contents(found.candidate.save(tmp_path / "one")) == tiny.contents(router.save(tmp_path / "two"))


def test_an_honest_source_loses_its_mistakes_alone(router: Router, tmp_path: Path) -> None:
    traffic = LabelledTraffic(tmp_path)
    add_honest(traffic, "alice", 20)
    traffic.add("alice", make_clear("law", 4, 43), "cooking")
    found = learn(router, traffic.journal)
    assert not found.suspicious and found.implausible == 4 and found.labels == 60
    trusted = learn(router, traffic.journal, trust=["alice"])
    assert (trusted.implausible, trusted.labels) == (0, 64)


def test_people_who_only_correct_are_not_suspicious(router: Router, tmp_path: Path) -> None:
    """All their labels disagree with the router, because they label nothing else."""
    traffic = LabelledTraffic(tmp_path)
    for name in NAMES:
        texts = tiny.sentences(name, 400, seed=42, longest=3)
        wrong = [text for text in texts if router.predict([text])[0] != name]
        traffic.add("alice", wrong[:40], name)
    (verdict,) = learn(router, traffic.journal).sources
    assert verdict.labels == verdict.disagree > 50 and not verdict.is_suspicious


def test_without_kept_prompts_nobody_is_judged(tmp_path: Path) -> None:
    bare = Router.fit(TEXTS, embedding=tiny.embedding(), scorer=Blend(), keep_sample=False)
    assert find_least_probability(bare) is None
    traffic = LabelledTraffic(tmp_path)
    add_poison(traffic, "mallory", 20)
    (verdict,) = learn(bare, traffic.journal).sources
    assert verdict.chance == 1.0


@pytest.mark.parametrize("of", [5, 20, 100])
def test_the_bound_is_above_the_binomial_tail(of: int) -> None:
    from math import comb

    for count in range(of + 1):
        terms = (comb(of, k) * HONEST_SHARE**k * (1 - HONEST_SHARE) ** (of - k) for k in range(count, of + 1))
        assert sum(terms) <= bound_tail(count, of, HONEST_SHARE) * (1 + 1e-9)
    assert bound_tail(of, of, HONEST_SHARE) < LEVEL or of < 8
