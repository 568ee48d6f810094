"""What a change makes of a router, measured on its kept prompts."""

from copy import copy
from pathlib import Path

import numpy as np
import pytest

import tiny
from ir3de import Router
from ir3de.evaluation import measure_change
from ir3de.evaluation.intervals import estimate_difference
from ir3de.evaluation.prompts import weigh_by_mix
from ir3de.policies import Policy
from ir3de.scorers import Blend, Logistic, PromptRidge

TEXTS = {name: tiny.sentences(name, 14, seed=5) for name in tiny.DOMAINS}


@pytest.mark.parametrize("scorer", [Blend(), Logistic(), None], ids=["blend", "logistic", "chosen"])
def test_before_and_after_are_the_figures_of_held_out_prompts(scorer: Blend | Logistic | None, tmp_path: Path) -> None:
    router = Router.fit(TEXTS, embedding=tiny.embedding(), scorer=scorer)
    before = copy(router)
    router.add("new", tiny.mixed(9), scorer="keep")
    found = measure_change(before, router)
    assert (found.before.scorer, found.after.scorer) == (repr(before.scorer), repr(router.scorer))
    for figures, one in ((found.before, before), (found.after, router)):
        kept = one.route_kept()
        right = [prompt.decision.quality[0][0] == prompt.expert for prompt in kept]
        assert (figures.prompts, figures.accuracy.value) == (len(kept), pytest.approx(sum(right) / len(kept), abs=1e-6))
        mean = sum(prompt.decision.confidence for prompt in kept) / len(kept)
        assert figures.mean_confidence == pytest.approx(mean, abs=1e-6)
    loaded = Router.load(before.save(tmp_path / "before")), Router.load(router.save(tmp_path / "after"))
    assert measure_change(*loaded) == found


def test_prompts_that_go_elsewhere_are_counted_and_shown() -> None:
    router = Router.fit(TEXTS, embedding=tiny.embedding(), scorer=Blend())
    same = measure_change(router, copy(router))
    assert (same.compared, same.moved, same.examples) == (42, 0, ())
    assert same.before == same.after
    strict = router.with_policy(Policy(1.0))
    none = measure_change(router, strict)
    answered = [one for one in router.route_kept() if one.decision.expert is not None]
    assert (none.compared, none.moved, len(none.examples)) == (42, len(answered), 5)
    surest = max(one.decision.confidence for one in answered)
    assert none.examples[0].confidence_before == pytest.approx(surest, abs=1e-6)
    for one in none.examples:
        assert one.prompt in TEXTS[one.expert] and one.after is None and one.before is not None


def test_removed_and_new_prompts_are_not_compared() -> None:
    router = Router.fit(TEXTS, embedding=tiny.embedding(), scorer=Blend())
    before = copy(router)
    router.remove("law")
    router.merge("maths", tiny.sentences("maths", 6, seed=8))
    found = measure_change(before, router)
    assert (found.before.prompts, found.after.prompts, found.compared) == (42, 34, 28)
    assert {one.expert for one in found.examples} <= {"maths", "cooking"}


def test_a_change_is_measured_on_the_mix_of_all_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ir3de.statistics.sample.MAX_PROMPTS", 12)
    sizes = {"law": 60, "maths": 12, "cooking": 12}
    texts = {name: tiny.sentences(name, n, seed=5, longest=4) for name, n in sizes.items()}
    router, after = (Router.fit(texts, embedding=tiny.embedding(), scorer=one) for one in (Blend(), PromptRidge(8.0)))
    found = measure_change(router, after)
    owners = [[*sizes].index(one.expert) for one in router.route_kept()]
    weights = weigh_by_mix(np.array(owners), np.array([*sizes.values()]))
    right = [np.array([p.decision.quality[0][0] == p.expert for p in one.route_kept()]) for one in (router, after)]
    for figures, own in zip((found.before, found.after), right, strict=True):
        assert figures.accuracy.value == pytest.approx(float(weights[own].sum()), abs=1e-6) != own.mean()
    assert found.difference == estimate_difference(right[1], right[0], weights)


def test_without_kept_prompts_nothing_is_known() -> None:
    router = Router.fit(TEXTS, embedding=tiny.embedding(), keep_sample=False)
    before = copy(router)
    router.remove("law")
    found = measure_change(before, router)
    assert (found.compared, found.moved, found.examples) == (0, 0, ())
    assert found.after.accuracy is None and found.after.mean_confidence is None and found.after.prompts == 0
    rows = [{"text": f"prove it {n}", "scores": {"large": 1, "small": n % 2}} for n in range(6)]
    outcomes = Router.fit_outcomes(rows, embedding=tiny.embedding())
    assert measure_change(outcomes, copy(outcomes)).compared == 0
