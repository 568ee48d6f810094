"""Domains no one would choose: contradictory, tiny, equal, empty, lopsided. A sensible router, or a clear error."""

import json

import numpy as np
import pytest

import tiny
from ir3de import Average, EntropyTopK, Router
from ir3de.errors import InputError
from ir3de.policies import Policy
from ir3de.scorers import Blend, Posterior
from laws import EVERY_SCORER, shown
from refused import refusal, tiny_fit

WAYS = [{}, {"tune": True}, {"scorer": Blend(0.5, 0.5)}, {"scorer": Posterior(), "selector": EntropyTopK(3)}]
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way) or "plain")


def assert_whole(router: Router, prompts: list[str]) -> None:
    """It routes, batch as one by one, with probabilities that are numbers, and says so in JSON."""
    assert np.isfinite(router.compiled.table.scores).all()
    one_by_one = [router.route(text) for text in prompts]
    assert list(map(shown, router.route_batch(prompts))) == list(map(shown, one_by_one))
    for decision in one_by_one:
        whole = 1.0 if decision.in_domain is None else decision.in_domain
        assert 0 <= whole <= 1 and sum(p for _, p in decision.ranking) == pytest.approx(whole)
        assert "NaN" not in json.dumps(decision.to_dict())
        assert "Infinity" not in json.dumps(decision.to_dict())


@ways
def test_the_same_text_in_two_domains_is_believed_of_neither(way: dict) -> None:
    """Contradictory labels: what both claim decides nothing; what only one claims still does."""
    shared = tiny.mixed(10)
    some = {"maths": shared + tiny.sentences("maths", 20), "law": shared + tiny.sentences("law", 20)}
    router = tiny_fit(some, **way)
    assert_whole(router, shared)
    sure = [d.confidence for name in some for d in router.route_batch(tiny.sentences(name, 20))]
    unsure = [d.confidence for d in router.route_batch(shared)]
    assert np.mean(unsure) <= np.mean(sure)


@ways
def test_domains_of_identical_text_are_told_apart_by_nothing(way: dict) -> None:
    texts = tiny.mixed(8)
    router = tiny_fit({"one": texts, "two": texts, "three": texts[::-1]}, **way)
    assert_whole(router, texts)
    decisions = router.route_batch(tiny.mixed(30, seed=1))
    assert {d.best for d in decisions if isinstance(router.selector, Average)} <= {"one"}  # ties to the first
    assert max(d.confidence for d in decisions) < 0.35
    assert {d.reason for d in router.with_policy(Policy(0.5)).route_batch(texts)} == {"low confidence"}


@ways
def test_prompts_of_one_token(way: dict) -> None:
    some = {"letters": list("abcdefgh"), "digits": list("01234567"), "signs": list("+-*/=<>!")}
    prompts = [text for texts in some.values() for text in texts]
    assert {len(tiny.embedding().encode(text)) for text in prompts} == {1}
    router = tiny_fit(some, **way)
    assert_whole(router, prompts)
    right = [d.best == name for name, texts in some.items() for d in router.route_batch(texts)]
    assert np.mean(right) > 0.5


@ways
def test_one_prompt_of_one_token_a_domain(way: dict) -> None:
    some = {"a": ["a"], "b": ["b"]}
    if "tune" in way:
        assert "no expert has two prompts" in refusal(InputError, tiny_fit, some, **way)
        return
    router = tiny_fit(some, **way)
    assert_whole(router, ["a", "b", "ab", "zzz"])
    assert [router.route(text).expert for text in "ab"] == ["a", "b"]


@ways
def test_a_domain_a_thousand_times_larger_does_not_swallow_the_small_one(way: dict) -> None:
    some = {"law": tiny.sentences("law", 6_000, longest=12), "maths": tiny.sentences("maths", 6)}
    router = tiny_fit(some, **way)
    tests = {name: tiny.sentences(name, 40, seed=9) for name in some}
    assert_whole(router, tests["law"])
    right = {name: np.mean([d.best == name for d in router.route_batch(own)]) for name, own in tests.items()}
    assert min(right.values()) > 0.4  # six prompts and twelve columns: half of them right, and not none


@ways
def test_empty_strings_and_white_space_among_texts_say_nothing(way: dict) -> None:
    clean = tiny.domain_texts(10)
    some = {name: ["", *texts[:5], "", *texts[5:], ""] for name, texts in clean.items()}
    with_empty, without = tiny_fit(some, **way), tiny_fit(clean, **way)
    assert np.array_equal(with_empty.compiled.table.scores, without.compiled.table.scores)
    assert with_empty.compiled.rules == without.compiled.rules
    blank = Router.fit(
        {name: [*texts, "   ", "\n\t"] for name, texts in tiny.domain_texts(10).items()},
        embedding=tiny.word_embedding(),  # to which white space is nothing
        **way,
    )
    assert_whole(blank, ["", " ", "\n", "prove"])
    assert blank.route(" \n").reason == "no known token"


def test_a_domain_of_nothing_but_empty_strings_is_refused() -> None:
    for texts in ([], [""], ["", ""]):
        for way in WAYS:
            message = refusal(InputError, tiny_fit, {"law": ["contract"], "empty": texts}, **way)
            assert "expert 'empty' has no text" in message


def all_at_once() -> dict[str, list[str]]:
    same = tiny.mixed(3)
    return {"one": same, "again": same, "token": ["a"], "often": ["a"] * 500, "law": ["", *tiny.sentences("law", 300)]}


@pytest.mark.slow
@pytest.mark.parametrize("scorer", EVERY_SCORER, ids=str)
@pytest.mark.nightly
def test_every_scorer_survives_them_all_at_once(scorer: object) -> None:
    router = tiny_fit(all_at_once(), scorer=scorer)
    assert_whole(router, ["", " ", "a", *tiny.mixed(10)])
    assert router.calibrated


@pytest.mark.slow
def test_tuning_survives_them_all_at_once() -> None:
    assert_whole(tiny_fit(all_at_once(), tune=True), ["", " ", "a", *tiny.mixed(10)])
