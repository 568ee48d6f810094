"""A change keeps the scorer: the law of change, with the scorer as a part of what a router depends on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tiny
from changed_routers import GIVEN, KINDS, MORE, NAMES, TEXTS, FromTexts, choose_smaller_windows
from ir3de import EntropyTopK, Router, collect
from ir3de.corpora import examples
from ir3de.errors import InputError
from ir3de.fitting import tuning
from ir3de.policies import Policy
from ir3de.scorers import Blend, Logistic
from ir3de.scorers import logistic as logistic_module
from ir3de.scorers.solver import ConvergenceError

COOKING = ["How long do I boil an egg?", "Bread without yeast?", "A recipe for pancakes, please.", "Roast a chicken."]
CHOSEN = {name: kind for name, kind in KINDS.items() if kind.change}
AT_NIGHT = ("contributions, tuned", "both, tuned")  # by day tuned ones and those of contributions, each by itself
kinds = pytest.mark.parametrize(
    "kind",
    [pytest.param(own, id=name, marks=pytest.mark.nightly if name in AT_NIGHT else ()) for name, own in CHOSEN.items()],
)

RECORD = ("chosen_by", "tuned", "trials", "reason", "sha256")  # of the choice, which a fit with a given scorer lacks


def read(router: Router, folder: Path) -> dict[str, Any]:
    """All that a router saves, without the record of how its scorer was chosen."""
    files = tiny.contents(router.save(folder))
    header = json.loads(files.pop("router.json"))
    return {**files, "router.json": {key: value for key, value in header.items() if key not in RECORD}}


def test_a_few_prompts_of_a_new_expert_do_not_change_the_scorer_of_all() -> None:
    router = Router.fit({name: texts[:60] for name, texts in examples.prompts().items()})
    before, trials = router.scorer, router.trials
    router.add("cooking", COOKING)
    assert router.scorer == before and router.trials == trials
    router.merge("cooking", ["How much salt for pasta?"])
    router.remove("history")
    assert router.scorer == before and isinstance(before, Logistic)


@kinds
def test_adding_is_fitting_all_with_this_scorer(kind: FromTexts, tmp_path: Path) -> None:
    router = kind.fit(NAMES[:2])
    router.add(NAMES[2], kind.given[NAMES[2]])
    given: Any = {"scorer": router.scorer, "selector": router.selector}
    together = Router.fit({name: kind.given[name] for name in NAMES}, embedding=tiny.embedding(), **given)
    assert read(router, tmp_path / "one") == read(together, tmp_path / "other")


@kinds
def test_removing_is_a_fit_with_this_scorer_that_never_saw_it(kind: FromTexts, tmp_path: Path) -> None:
    router = kind.fit(NAMES)
    router.remove("law")
    given: Any = {"scorer": router.scorer, "selector": router.selector}
    never = Router.fit({name: kind.given[name] for name in ("maths", "cooking")}, embedding=tiny.embedding(), **given)
    assert read(router, tmp_path / "one") == read(never, tmp_path / "other")


@kinds
def test_added_and_removed_leaves_the_same_bytes(kind: FromTexts, tmp_path: Path) -> None:
    router = kind.fit(NAMES)
    before = tiny.contents(router.save(tmp_path / "before"))
    router.add("new", tiny.mixed(9))
    router.merge("law", GIVEN["law"][0] if kind.given is TEXTS else collect(MORE["law"], embedding=tiny.embedding()))
    router = Router.load(router.save(tmp_path / "between"))
    router.remove("new")
    if kind.given is TEXTS:
        router.remove("law", contribution=GIVEN["law"][0].id)
        assert tiny.contents(router.save(tmp_path / "after")) == before
    assert router.scorer == Router.load(tmp_path / "before").scorer


@kinds
def test_shrunk_to_one_expert_and_grown_again(kind: FromTexts, tmp_path: Path) -> None:
    router = kind.fit(NAMES[:2])
    before = tiny.contents(router.save(tmp_path / "before"))
    router.remove(NAMES[1])
    router = Router.load(router.save(tmp_path / "alone"))
    router.add(NAMES[1], kind.given[NAMES[1]])
    assert tiny.contents(router.save(tmp_path / "after")) == before


def test_windows_that_tuning_chose_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while an expert is there that cannot be counted again, because not all of its prompts are kept."""
    monkeypatch.setattr(tuning, "choose", choose_smaller_windows)
    kind = FromTexts({name: tiny.sentences(name, 12, longest=400) for name in NAMES}, tune=True)
    router = kind.fit(NAMES)
    router.add("small", tiny.mixed(9))
    router.remove("small")  # the table of `choose_smaller_windows` is of the larger ones
    before = tiny.contents(router.save(tmp_path / "before"))
    router.add("small", tiny.mixed(9))
    router.add("large", tiny.sentences("law", 1100, seed=9, longest=12))
    windows = {name: own.sums.window for name, own in router.statistics.items()}
    assert windows == {**dict.fromkeys((*NAMES, "small"), 64), "large": 128}
    router = Router.load(router.save(tmp_path / "between"))
    router.remove("small", "large")
    assert tiny.contents(router.save(tmp_path / "after")) == before


def test_the_choice_can_be_made_later() -> None:
    """After changes that kept it, and for a scorer that was given."""
    router, given = (
        Router.fit(TEXTS, embedding=tiny.embedding()),
        Router.fit(TEXTS, embedding=tiny.embedding(), scorer=Blend(0.1)),
    )
    for one in (router, given):
        one.merge("law", MORE["law"])
        one.add("new", tiny.mixed(9), scorer="choose")
    fitted = Router.fit(
        {**TEXTS, "law": [*TEXTS["law"], *MORE["law"]], "new": tiny.mixed(9)}, embedding=tiny.embedding()
    )
    for one in (router, given):
        assert (one.scorer, one.trials) == (fitted.scorer, fitted.trials) and tiny.same_table(one, fitted)


def test_with_a_selector_that_votes_the_choice_is_that_of_a_fit() -> None:
    router = Router.fit(TEXTS, embedding=tiny.embedding(), scorer=Blend(0.1), selector=EntropyTopK(5))
    router.remove("law", scorer="choose")
    rest = {name: TEXTS[name] for name in ("maths", "cooking")}
    fitted = Router.fit(rest, embedding=tiny.embedding(), selector=EntropyTopK(5))
    assert router.scorer == fitted.scorer == Blend() and tiny.same_table(router, fitted)


def test_a_scorer_that_cannot_be_kept_is_an_error_that_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    router = Router.fit(TEXTS, embedding=tiny.embedding(), scorer=Logistic())
    newcomer = collect(tiny.mixed(9), embedding=tiny.embedding(), keep_sample=False)
    with pytest.raises(InputError, match=r'1 of 4 experts have none.*scorer="choose" \(--scorer choose\) in a change'):
        router.add("new", newcomer)
    assert router.experts == NAMES and router.calibrated

    def fail(*_: Any) -> None:
        raise ConvergenceError("it did not converge")

    monkeypatch.setattr(logistic_module, "fit_logistic", fail)
    with pytest.raises(InputError, match=r'cannot be kept: scorer="choose" \(--scorer choose on the command line\)'):
        router.remove("law")
    assert router.experts == NAMES
    monkeypatch.undo()
    router.add("new", newcomer, scorer="choose")
    assert router.scorer == Blend() and not router.calibrated


def test_an_expert_that_is_only_described_keeps_the_scorer() -> None:
    router = Router.fit(TEXTS, embedding=tiny.embedding(), scorer=Logistic())
    router.add("new", description="prove the clause")
    assert router.scorer == Logistic() and router.calibrated


@pytest.mark.parametrize("wrong", ["blend", None, Blend()], ids=str)
def test_nothing_else_can_be_done_about_the_scorer(wrong: Any) -> None:
    router = Router.fit(TEXTS, embedding=tiny.embedding(), scorer=Blend())
    for change in (lambda: router.add("new", MORE["law"], scorer=wrong), lambda: router.remove("law", scorer=wrong)):
        with pytest.raises(InputError, match='must be "keep" or "choose"'):
            change()


def test_policy_and_threshold_stay_and_kept_prompts_are_routed_by_them() -> None:
    router = Router.fit(TEXTS, embedding=tiny.embedding()).with_policy(Policy(0.999_999), default="law")
    router.add("new", tiny.mixed(9))
    assert router.policy.threshold == 0.999_999
    assert {one.decision.expert for one in router.route_kept() if one.decision.abstained} == {"law"}


def find_accuracy(router: Router) -> float:
    kept = router.route_kept()
    return sum(one.expert == one.decision.quality[0][0] for one in kept) / len(kept)


@pytest.mark.parametrize("scorer", [Blend(), Logistic(), None], ids=["blend", "logistic", "chosen"])
def test_kept_prompts_are_routed_alike_by_a_router_that_was_fitted_and_that_was_loaded(
    scorer: Blend | Logistic | None, tmp_path: Path
) -> None:
    router = Router.fit(TEXTS, embedding=tiny.embedding(), scorer=scorer)
    loaded = Router.load(router.save(tmp_path / "router"))

    def tell(one: Router) -> Sequence[object]:
        return [(kept.expert, kept.ids.tolist(), kept.decision.to_dict()) for kept in one.route_kept()]

    assert tell(router) == tell(loaded) and len(tell(router)) == sum(map(len, TEXTS.values()))
    if scorer is None:
        (chosen,) = [trial for trial in router.trials if trial["chosen"]]
        assert find_accuracy(router) == pytest.approx(chosen["accuracy"])


def test_without_kept_prompts_there_are_none_to_route() -> None:
    assert Router.fit(TEXTS, embedding=tiny.embedding(), keep_sample=False).route_kept() == []
    rows = [{"text": "prove it", "scores": {"large": 1, "small": 0}}]
    assert Router.fit_outcomes(rows, embedding=tiny.embedding()).route_kept() == []
