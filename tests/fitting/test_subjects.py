"""Routers whose embedding tells what a token is about: what they call out of domain."""

from pathlib import Path

import numpy as np
import pytest

from ir3de import Conversation, Embedding, EntropyTopK, Router
from ir3de.corpora import background, examples
from ir3de.evaluation import verify
from ir3de.fitting.membership_examples import WORDY

PHRASES = (
    "Sorry, one more thing before I forget it again, and I know that you are busy: {} No hurry at all, of course.",
    "My dear friend, it would please me greatly if you could spare a moment for this. {} With my best wishes.",
)


@pytest.fixture(scope="module")
def router() -> Router:
    texts = {name: own[:90] for name, own in examples.prompts().items()}
    return Router.fit(texts, embedding=Embedding.default(3))


def abstentions(router: Router, texts: list[str]) -> float:
    return float(np.mean([decision.abstained for decision in router.route_batch(texts)]))


def list_new(router: Router) -> list[str]:
    known = examples.prompts()
    return [text for name in router.experts for text in known[name][90:]]


def test_phrases_that_say_nothing_do_not_make_a_prompt_foreign(router: Router) -> None:
    assert not any(phrase.split("{}")[0] in text for phrase in PHRASES for text in WORDY)
    own = list_new(router)
    before = abstentions(router, own)
    for phrase in PHRASES:
        assert abstentions(router, [phrase.format(text) for text in own]) <= before + 0.1


def test_background_prompts_are_told_more_often_than_own_ones(router: Router) -> None:
    strange = abstentions(router, background.prompts()[::5])
    assert abstentions(router, list_new(router)) < 0.1 < strange


def test_the_subject_is_part_of_the_decision(router: Router) -> None:
    member = router.compiled.rules.membership
    assert member is not None and member.subjects is not None
    assert member.nearness + member.contrast > 0
    assert router.compiled.table.subjects is not None
    assert len(member.subjects.sizes) == len(router.experts)
    assert len(member.subjects.centroids) == member.subjects.sizes.sum()


def test_a_batch_decides_as_single_prompts_do(router: Router) -> None:
    texts = list_new(router)[:20]
    assert router.route_batch(texts) == [router.route(text) for text in texts]
    voting = router.with_selector(EntropyTopK(k=5))
    assert voting.route_batch(texts) == [voting.route(text) for text in texts]


@pytest.mark.nightly
def test_what_is_saved_routes_in_the_same_way(router: Router, tmp_path: Path) -> None:
    texts = [*list_new(router)[:10], *background.prompts()[:10]]
    before = router.route_batch(texts)
    router.save(tmp_path / "router")
    assert Router.load(tmp_path / "router").route_batch(texts) == before
    assert Router.load(tmp_path / "router", mapped=True).route_batch(texts) == before
    assert all(check.holds is not False for check in verify(tmp_path / "router"))
    router.save(tmp_path / "serving", serving=True)
    assert Router.load(tmp_path / "serving").route_batch(texts) == before
    (next((tmp_path / "router").glob("table-*"))).unlink()  # it is rebuilt
    assert Router.load(tmp_path / "router").route_batch(texts) == before


def test_an_expert_added_and_removed_leaves_no_subject_behind(router: Router) -> None:
    changed = router.__copy__()
    changed.add("cooking", ["How long do I boil an egg?", "A recipe for bread, please.", "Can I freeze soup?"] * 8)
    added = changed.compiled.rules.membership
    changed.remove("cooking")
    assert changed.compiled.rules.membership == router.compiled.rules.membership != added


def test_a_chat_of_one_turn_is_as_near_as_the_prompt(router: Router) -> None:
    for text in list_new(router)[:5]:
        assert Conversation(router).route(text).in_domain == pytest.approx(router.route(text).in_domain, abs=0.1)
