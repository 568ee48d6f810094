"""A background of one's own: what belongs to no domain. Routers keep it, and a bad one is refused."""

from copy import copy
from pathlib import Path

import numpy as np
import pytest

import tiny
from ir3de import Router, Statistics, collect
from ir3de.errors import InputError
from ir3de.scorers import Blend
from laws import shown
from refused import refusal, tiny_fit

OTHERS = [
    f"{word} sails the harbour with a compass and {number} ropes" for number in range(30) for word in ("Anna", "Bo")
]
PROMPTS = ["", "prove the theorem", "evict the tenant", OTHERS[0], "the compass", *tiny.mixed(10)]


def statistics(texts: list[str] = OTHERS, **options: object) -> Statistics:
    return collect(texts, embedding=tiny.embedding(), **{"keep_sample": True, **options})


def router(**options: object) -> Router:
    return tiny.router(20, **options)


def decisions(router: Router) -> list[tuple[object, ...]]:
    return [shown(decision) for decision in router.route_batch(PROMPTS)]


def backgrounds(folder: Path) -> list[Path]:
    return list(folder.glob("background-*.safetensors"))


def test_texts_and_their_statistics_are_the_same_background(tmp_path: Path) -> None:
    ways = [OTHERS, iter(OTHERS), tuple(OTHERS), statistics(), statistics(prompt_sums=False)]
    made = [router(background=way) for way in ways]
    assert all(tiny.same_table(made[0], other) for other in made)
    saved = [tiny.contents(one.save(tmp_path / str(place))) for place, one in enumerate(made)]
    assert all(one == saved[0] for one in saved)


def test_a_background_makes_its_words_strange() -> None:
    own, built_in = router(background=OTHERS), router()
    tokens = np.unique(np.concatenate([tiny.embedding().encode(text) for text in OTHERS]))
    assert not np.array_equal(own.compiled.table.familiarity, built_in.compiled.table.familiarity)
    assert np.array_equal(own.compiled.table.scores, built_in.compiled.table.scores)  # for whom it is stays the same
    means = [one.compiled.table.familiarity[tokens].mean() for one in (own, built_in)]
    assert means[0] < means[1]
    assert [d.best for d in own.route_batch(PROMPTS)] == [d.best for d in built_in.route_batch(PROMPTS)]
    assert all(decision.out_of_domain for decision in own.route_batch(OTHERS))


@pytest.mark.parametrize("tune", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_background_stays_when_experts_come_and_go(tune: bool, tmp_path: Path) -> None:
    options = {"embedding": tiny.embedding(), "background": OTHERS, "tune": tune}
    texts = tiny.domain_texts(20)
    whole, without = (
        Router.fit(texts, **options),
        Router.fit({name: texts[name] for name in ("maths", "law")}, **options),
    )
    for some in (copy(whole), Router.load(whole.save(tmp_path / "whole"))):
        some.remove("cooking", scorer="choose")
        assert tiny.same_table(some, without)
        some.add("cooking", texts["cooking"], scorer="choose")
        assert tiny.same_table(some, whole)
    assert tiny.contents(some.save(tmp_path / "again")) == tiny.contents(tmp_path / "whole")


def test_a_background_is_saved_with_the_router_but_not_for_serving(tmp_path: Path) -> None:
    made = router(background=OTHERS)
    folder = made.save(tmp_path / "router")
    assert len(backgrounds(folder)) == 1
    loaded = Router.load(folder)
    assert decisions(loaded) == decisions(made) and loaded.compiled.rules == made.compiled.rules
    served = Router.load(made.save(tmp_path / "served", serving=True))
    assert not backgrounds(tmp_path / "served") and decisions(served) == decisions(made)


def test_the_built_in_one_is_not_saved_and_loading_changes_nothing(tmp_path: Path) -> None:
    made = router()
    folder = made.save(tmp_path / "router")
    assert not backgrounds(folder)
    loaded = Router.load(folder)
    assert decisions(loaded) == decisions(made) and tiny.same_table(loaded, made)
    assert tiny.contents(loaded.save(tmp_path / "again")) == tiny.contents(folder)
    for some in (made, loaded):
        some.add("new", tiny.mixed(12))
    assert tiny.same_table(loaded, made)
    for some in (made, loaded):
        some.remove("new")
    assert tiny.same_table(loaded, made) and tiny.same_table(loaded, router())
    assert made.compiled.rules.membership == router().compiled.rules.membership is not None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("some text", "a background must be an iterable of str, or Statistics, found str"),
        (7, "a background must be an iterable of str, or Statistics, found int"),
        ([], "a background needs at least two prompts, which belong to none of the domains, found 0: give it more"),
        (["one"], "a background needs at least two prompts, which belong to none of the domains, found 1"),
        (["", ""], "a background needs at least two prompts, which belong to none of the domains, found 0"),
        (
            statistics(keep_sample=False),
            "the background's statistics keep no prompts: collect them again with a sample",
        ),
        (
            collect(OTHERS, embedding=tiny.other_embedding(), keep_sample=True),
            "the background was collected with another embedding than the router's: collect it again",
        ),
    ],
    ids=["one string", "a number", "nothing", "one prompt", "empty texts", "no sample", "another embedding"],
)
def test_a_bad_background_is_refused(given: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        router(background=given)


def test_texts_that_are_none_are_refused() -> None:
    assert "7" in refusal(InputError, tiny_fit, tiny.domain_texts(5), background=["text", 7], scorer=Blend())
