"""The law of change, as `Router.remove` states it: a router depends on what it was given, not on how it came there.

Each kind of router states it in the same words. Routers are compared by what they save, byte for byte. Where the fit or
tuning chose the scorer, the law holds for changes that choose it again; `test_kept_scorer.py` has it for the others.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import tiny
from changed_routers import (
    CHOOSE,
    GIVEN,
    KINDS,
    MORE,
    NAMES,
    TEXTS,
    FromOutcomes,
    FromTexts,
    choose_smaller_windows,
    real_choose,
)
from ir3de import Router, collect
from ir3de.errors import InputError
from ir3de.fitting import membership_examples, tuning
from ir3de.policies import Policy
from ir3de.scorers import Blend, Logistic, Scorer, ridge
from laws import shown

kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def assert_same(one: Router, other: Router, folder: Path) -> None:
    """The same scorer, selector, trials, calibration, statistics, samples and table: all that a folder holds."""
    assert (one.scorer, one.selector, one.trials) == (other.scorer, other.selector, other.trials)
    assert tiny.same_table(one, other)
    saved = [tiny.contents(router.save(folder / place)) for router, place in ((one, "one"), (other, "other"))]
    assert saved[0] == saved[1]


def list_removals() -> Iterator[Any]:
    """Every kind with each expert; by day, each kind with one, and the default with all of them.

    Tuned ones of contributions are for the night: by day tuning and contributions are there, each by itself.
    """
    for place, (name, kind) in enumerate(KINDS.items()):
        for expert, gone in enumerate(NAMES):
            in_turn = expert == place % len(NAMES) and name not in ("contributions, tuned", "both, tuned")
            by_day = in_turn or name == "chosen by the fit"
            marks = () if by_day else (pytest.mark.slow, pytest.mark.nightly)
            yield pytest.param(kind, gone, id=f"{gone}-{name}", marks=marks)


@pytest.mark.parametrize(("kind", "gone"), list(list_removals()))
def test_removing_is_never_having_seen_it(kind: FromTexts, gone: str, tmp_path: Path) -> None:
    router = kind.fit(NAMES)
    router.remove(gone, **kind.change)
    assert_same(router, kind.fit([name for name in NAMES if name != gone]), tmp_path)


@pytest.mark.slow
@kinds
@pytest.mark.nightly
def test_removing_several_at_once_is_removing_one_by_one(kind: FromTexts, tmp_path: Path) -> None:
    at_once, one_by_one = kind.fit(NAMES), kind.fit(NAMES)
    at_once.remove("law", "maths", **kind.change)
    one_by_one.remove("law", **kind.change)
    one_by_one.remove("maths", **kind.change)
    assert at_once.experts == ("cooking",)
    assert_same(at_once, one_by_one, tmp_path)


@pytest.mark.slow
@kinds
@pytest.mark.nightly
def test_adding_one_by_one_is_fitting_together(kind: FromTexts, tmp_path: Path) -> None:
    for order in [NAMES, NAMES[::-1]] if kind is not KINDS["tuned"] else permutations(NAMES):
        router = kind.fit(order[:2])
        kind.add(router, order[2])
        together = kind.fit(order)
        if isinstance(kind, FromOutcomes):
            assert router.experts == tuple(sorted(NAMES))
        assert_same(router, together, tmp_path / "-".join(order))


@pytest.mark.slow
@kinds
@pytest.mark.nightly
def test_added_and_removed_through_folders_in_another_order(kind: FromTexts, tmp_path: Path) -> None:
    router = kind.fit(("law", "maths"))
    kind.add(router, "cooking")
    router = Router.load(router.save(tmp_path / "saved"))
    router.remove("law", **kind.change)
    router = Router.load(router.save(tmp_path / "saved"))
    assert_same(router, kind.fit(("maths", "cooking")), tmp_path)


@pytest.mark.slow
@kinds
@pytest.mark.nightly
def test_shrunk_to_one_expert_and_grown_again(kind: FromTexts, tmp_path: Path) -> None:
    """One expert leaves nothing to tune on; a tuned router that grows again is tuned again."""
    router = kind.fit(NAMES[:2])
    router.remove(NAMES[1], **kind.change)
    assert tiny.same_table(router, kind.fit(NAMES[:1])) and router.trials == ()
    router = Router.load(router.save(tmp_path / "alone"))
    kind.add(router, NAMES[2])
    assert_same(router, kind.fit([NAMES[0], NAMES[2]]), tmp_path)


@pytest.mark.parametrize("tune", [False, True], ids=["untuned", "tuned"])
def test_more_of_an_expert_is_having_given_it_at_once(tune: bool, tmp_path: Path) -> None:
    options: dict[str, Any] = {"embedding": tiny.embedding(), "tune": tune}
    router = Router.fit(TEXTS, **options)
    router.merge("law", MORE["law"], scorer="choose")
    assert_same(router, Router.fit({**TEXTS, "law": [*MORE["law"], *TEXTS["law"]]}, **options), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("tune", [False, True], ids=["untuned", "tuned"])
@pytest.mark.nightly
def test_a_contribution_that_is_taken_out_was_never_there(tune: bool, tmp_path: Path) -> None:
    """The last one too: then windows may be chosen again."""
    options: dict[str, Any] = {"embedding": tiny.embedding(), "tune": tune}
    router = Router.fit(TEXTS, **options)
    for one in GIVEN["law"]:
        router.merge("law", one)  # the last change alone decides
    router = Router.load(router.save(tmp_path / "saved"))
    router.remove("law", contribution=GIVEN["law"][0].id, scorer="choose")
    merged = Router.fit(TEXTS, **options)
    merged.merge("law", GIVEN["law"][1], scorer="choose")
    assert_same(router, merged, tmp_path / "first")
    router.remove("law", contribution=GIVEN["law"][1].id, scorer="choose")
    assert_same(router, Router.fit(TEXTS, **options), tmp_path / "second")


real_fit_confidence = tuning.fit_confidence


@pytest.mark.slow
@pytest.mark.parametrize("saved", [False, True], ids=["in memory", "through a folder"])
@pytest.mark.nightly
def test_windows_are_chosen_again_from_those_that_were_counted(
    saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "choose", choose_smaller_windows)
    kind = FromTexts({name: tiny.sentences(name, 12, longest=400) for name in NAMES}, tune=True)
    router = kind.fit(NAMES)
    assert {own.sums.window for own in router.statistics.values()} == {64}
    if saved:
        router = Router.load(router.save(tmp_path / "saved"))
    router.remove("law", scorer="choose")
    assert_same(router, kind.fit(("maths", "cooking")), tmp_path / "removed")
    kind.add(router, "law")
    together = kind.fit(("maths", "cooking", "law"))
    assert_same(router, together, tmp_path / "added")
    router.tune()
    assert tiny.same_table(router, together) and router.statistics == together.statistics
    router.merge("law", GIVEN["law"][0], scorer="choose")
    assert {own.sums.window for own in router.statistics.values()} == {128}  # a contribution keeps its windows
    router.remove("law", contribution=GIVEN["law"][0].id, scorer="choose")
    assert_same(router, together, tmp_path / "contribution")


@pytest.mark.parametrize("need", ["route", "batch", "confidence", "save", "pickle", "replace", "compare", "threads"])
def test_confidence_is_calibrated_when_it_is_first_needed(
    need: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by the change, nor by the next one; once, and with the bits of a new fit."""
    calls = []

    def count(*arguments: Any) -> Any:
        calls.append(arguments)
        return real_fit_confidence(*arguments)

    never, router = (Router.fit({name: TEXTS[name] for name in names}, embedding=tiny.embedding(), scorer=Blend())
                     for names in (NAMES[:2], NAMES))  # fmt: skip
    monkeypatch.setattr(tuning, "fit_confidence", count)
    router.add("new", tiny.mixed(9))
    router.remove("new")
    router.remove(NAMES[2])
    text = "prove the clause"
    assert not calls
    if need == "route":
        assert shown(router.route(text)) == shown(never.route(text))
    elif need == "batch":
        assert list(map(shown, router.route_batch([text, "egg"]))) == list(map(shown, never.route_batch([text, "egg"])))
    elif need == "confidence":
        assert router.predict_proba([text]).tolist() == never.predict_proba([text]).tolist()
    elif need == "save":
        router.save(tmp_path / "early")
    elif need == "pickle":
        assert_same(pickle.loads(pickle.dumps(router)), never, tmp_path / "pickled")
    elif need == "replace":
        router.with_policy(Policy(0.4))
    elif need == "compare":
        assert router.compiled.rules == never.compiled.rules
    else:
        with ThreadPoolExecutor(4) as pool:
            assert len(set(pool.map(lambda _: router.route(text).confidence, range(8)))) == 1
    assert len(calls) == 1
    assert_same(router, never, tmp_path)
    assert len(calls) == 1


def test_what_cannot_be_calibrated_is_refused_at_once() -> None:
    """A sample that was never counted: the router stays as it was."""
    router = Router.fit(TEXTS, embedding=tiny.embedding())
    own, other = (collect(TEXTS[name], embedding=tiny.embedding(), keep_sample=True) for name in NAMES[:2])
    with pytest.raises(InputError, match="did not count"):
        router.add("new", replace(own, sample=other.sample))
    assert router.experts == NAMES and router.calibrated


@pytest.mark.nightly
def test_where_a_newcomer_keeps_no_prompts_there_is_no_tuning_while_it_is_there(tmp_path: Path) -> None:
    router, never = (Router.fit(TEXTS, embedding=tiny.embedding(), tune=True) for _ in range(2))
    newcomer = collect(tiny.mixed(9), embedding=tiny.embedding(), keep_sample=False)
    router.add("new", newcomer, scorer="choose")
    plain = Router.fit({**TEXTS, "new": newcomer}, embedding=tiny.embedding())
    assert tiny.same_table(router, plain) and router.trials == ()
    router.remove("new", scorer="choose")
    assert_same(router, never, tmp_path)


@pytest.mark.nightly
def test_one_change_tunes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def count(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return real_choose(*arguments, **options)

    router = Router.fit({**TEXTS, "law": GIVEN["law"]}, embedding=tiny.embedding(), tune=True)
    monkeypatch.setattr(tuning, "choose", count)
    router.add("new", tiny.mixed(9), **CHOOSE)
    router.merge("law", MORE["law"], **CHOOSE)
    router.remove("law", contribution=GIVEN["law"][0].id, **CHOOSE)
    router.add("newer", tiny.mixed(9, seed=1), **CHOOSE)
    router.remove("law", **CHOOSE)
    router.remove("new", "newer", **CHOOSE)
    assert len(calls) == 6


def test_what_was_set_by_hand_stays(tmp_path: Path) -> None:
    """A threshold and a selector that somebody chose are no part of the law: changes keep them."""
    router = Router.fit(TEXTS, embedding=tiny.embedding(), tune=True).with_policy(Policy(0.4))
    router.remove("law")
    assert router.policy.threshold == 0.4 and router.trials
    fixed = Router.fit(TEXTS, embedding=tiny.embedding(), tune=True)
    fixed = fixed.with_selector(replace(fixed.selector, cap=99))
    scorer = fixed.scorer
    fixed.remove("law")
    assert fixed.selector.cap == 99 and fixed.scorer == scorer
    assert Router.load(fixed.save(tmp_path / "fixed")).scorer == scorer


def test_the_only_expert_cannot_go() -> None:
    for kind in KINDS.values():
        with pytest.raises(InputError, match="the only expert"):
            kind.fit(NAMES[:1]).remove(NAMES[0])


def test_all_experts_at_once_cannot_go_nor_one_contribution_of_several() -> None:
    router = KINDS["closed form"].fit(NAMES)
    with pytest.raises(InputError, match="'cooking' is the only expert"):
        router.remove(*NAMES)
    with pytest.raises(InputError, match="a contribution is taken from one expert, found maths, law"):
        router.remove("maths", "law", contribution="x")
    assert router.experts == NAMES


@pytest.mark.parametrize("scorer", [Blend(), Logistic()], ids=["closed form", "discriminative"])
def test_what_is_kept_of_many_experts_changes_no_bit(
    scorer: Scorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of parts, centroids and examples are kept from one change to the next: with so few experts only here."""
    monkeypatch.setattr(ridge, "MIN_DIVIDED", 2)
    monkeypatch.setattr(membership_examples, "MAX_EXPERTS", 4)
    texts = {f"{name} {seed}": tiny.sentences(name, 12, seed=seed) for name in tiny.DOMAINS for seed in (1, 2)}
    fit = partial(Router.fit, embedding=tiny.embedding(), scorer=scorer)
    first, last, *others = texts
    changed = fit({name: texts[name] for name in texts if name != first})
    changed.add(first, texts[first][:6])
    _ = changed.route(texts[last][0]).confidence
    changed.merge(first, texts[first][6:])
    _ = changed.route(texts[last][0]).confidence
    changed.remove(last)
    expected = fit({name: texts[name] for name in [*others, first]})
    assert changed.experts == expected.experts
    assert_same(changed, expected, tmp_path)
