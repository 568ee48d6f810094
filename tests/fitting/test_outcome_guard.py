"""Laws of the guard: routing is given up where it is worse than the best single model on held-out prompts."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_outcomes import MODELS, TASKS, Rows, collected, only, quality_of, rows

import tiny
from ir3de import Router
from ir3de.errors import InputError
from ir3de.evaluation import calibrate_strong_share, evaluate_outcomes
from ir3de.fitting.quality import (
    CONSTANT,
    ORDERING_STRENGTH,
    HeldOut,
    Quality,
    expect_held_out,
    fit_quality,
    guard_shrinkage,
    measure_gain,
    measure_gaps,
)
from ir3de.policies import Policy
from ir3de.scorers.expectation import Shrinkage
from ir3de.statistics import outcomes as sampling

GIVEN_UP = 7  # a seed of noise that misleads the shrinkage


def fitted(some: Rows, **options: object) -> Router:
    return Router.fit_outcomes(some, embedding=tiny.embedding(), **options)  # type: ignore[arg-type]


def noise(number: int, *, seed: int = 0, tasks: bool = True) -> Rows:
    """Scores that have nothing to do with the prompts; bee is better on average."""
    draw = random.Random(seed)
    texts = [(task, text) for task in TASKS for text in tiny.sentences(task, number, seed=seed)]
    return [
        {"text": text, "scores": {m: draw.gauss(0.55 if m == "bee" else 0.5, 0.3) for m in MODELS}}
        | ({"task": task} if tasks else {})
        for task, text in texts
    ]


def routes(router: Router) -> set[str]:
    return {decision.expert for decision in router.route_batch(tiny.mixed(60, seed=8))}


@pytest.mark.parametrize("tasks", [True, False])
def test_noise_that_misleads_the_shrinkage_goes_to_the_best_single_model(tasks: bool) -> None:
    router = fitted(noise(40, seed=GIVEN_UP, tasks=tasks))
    gain = router.validation.gain
    assert gain is not None and gain.prompts == 120 and gain.mean < -gain.error
    assert router.scorer == CONSTANT and routes(router) == {"bee"} == {router.default}
    said = f"it scored {-gain.mean:.4f} ± {gain.error:.4f} below the best single model on 120 held-out prompts"
    assert router.validation.reason == said


def test_other_noise_is_not_worse_than_the_best_single_model() -> None:
    for seed in range(GIVEN_UP):
        router = fitted(noise(20, seed=seed))
        gain = router.validation.gain
        assert gain is not None
        assert (router.scorer == CONSTANT) == gain.is_loss == bool(router.validation.reason)


def test_a_router_that_is_given_up_expects_the_same_of_a_model_everywhere() -> None:
    some = noise(40, seed=GIVEN_UP)
    router = fitted(some)
    assert router.scorer == CONSTANT
    prompts = tiny.mixed(30, seed=4)
    rankings = {decision.ranking for decision in router.route_batch(["", *prompts])}
    assert len(rankings) == 1
    means = {m: np.mean([row["scores"][m] for row in some]) for m in MODELS}
    assert dict(rankings.pop()) == pytest.approx(means, abs=1e-3)
    assert evaluate_outcomes(router, some).gain.mean == 0  # type: ignore[union-attr]


def test_a_signal_is_routed() -> None:
    for some in (rows(40), [{"text": row["text"], "scores": row["scores"]} for row in rows(120)]):
        router = fitted(some)
        gain = router.validation.gain
        assert gain is not None and gain.mean > 3 * gain.error and not router.validation.reason
        assert routes(router) == set(MODELS)


def test_costs_still_move_prompts_from_the_best_single_model() -> None:
    router = fitted(noise(40, seed=GIVEN_UP), policy=Policy(costs={"bee": {"price": 1.0}}))
    (lead,) = {d.ranking[0][1] - d.ranking[1][1] for d in router.route_batch(["court", "boil an egg"])}
    assert router.route("court", weights={"price": 0.9 * lead}).expert == "bee"
    assert router.route("court", weights={"price": 1.1 * lead}).expert != "bee"


def test_without_the_guard_the_differences_stay() -> None:
    some = noise(40, seed=GIVEN_UP)
    free = fitted(some, guard=False)
    assert free.scorer != CONSTANT and free.validation.gain == fitted(some).validation.gain
    free.add_outcomes(noise(1, seed=77), merge=True)
    assert free.scorer != CONSTANT
    with pytest.raises(InputError, match="guard=False"):
        calibrate_strong_share(fitted(some), None, 0.3, strong="bee", weak="ant")


def test_without_the_guard_prompts_can_be_ordered_where_the_shrinkage_is_infinite() -> None:
    some = only(noise(30, seed=5, tasks=False), {"ant", "bee"})
    assert fitted(some).scorer.strength == float("inf")
    with pytest.raises(InputError, match="same difference"):
        calibrate_strong_share(fitted(some), None, 0.5)
    free = fitted(some, guard=False)
    assert free.scorer.strength == ORDERING_STRENGTH
    assert calibrate_strong_share(free, None, 0.5).reached == pytest.approx(0.5, abs=0.1)


def test_a_share_of_strong_calls_keeps_its_differences_when_rows_are_added() -> None:
    some = noise(40, seed=GIVEN_UP)
    shared = calibrate_strong_share(fitted(some[::3], guard=False), None, 0.3, strong="bee", weak="ant").router
    assert shared.policy.strong_share is not None
    shared.add_outcomes([row for place, row in enumerate(some) if place % 3], merge=True)
    assert shared.scorer == fitted(some, guard=False).scorer != CONSTANT


@pytest.mark.parametrize("number", [1, 2, 3])
def test_few_rows_are_told(number: int) -> None:
    some = [{"text": f"what is {word}", "scores": {"ant": 0, "bee": 1}} for word in ("this", "that", "law")[:number]]
    router = fitted(some)
    compared = router.validation.gain is not None
    assert router.validation.reason == ("" if compared else "there are too few prompts to hold any out")
    assert compared == (number > 1) and routes(router) == {"bee"}


def test_one_model_needs_no_guard() -> None:
    validation = fitted(only(rows(10), {"ant"})).validation
    assert validation.gain is None and not validation.reason


def test_the_rule_is_one_standard_error() -> None:
    def held(differences: list[float]) -> HeldOut:
        count = len(differences)
        scores = np.array([[1.0, 1.0 + one] for one in differences])
        return HeldOut(("",) * count, np.array([[0.0, 1.0]] * count), (0,) * count, scores)

    gain = measure_gain(held([-0.3, 0.1, -0.3, 0.1]))
    assert gain is not None and (gain.mean, gain.prompts) == (pytest.approx(-0.1), 4)
    assert gain.error == pytest.approx(np.std([-0.3, 0.1, -0.3, 0.1], ddof=1) / 2)
    assert measure_gain(held([-0.3, np.nan])) is None
    for differences, is_loss in (([-1.0] + [0.0] * 30, False), ([-1.0] * 2 + [0.0] * 30, True), ([-0.1] * 3, True)):
        found = measure_gain(held(differences))
        assert found is not None and found.is_loss == is_loss


def test_held_out_expectations_are_those_of_a_router_without_the_fold() -> None:
    outcomes, shrinkage = collected(rows(12)), Shrinkage(16.0, 64.0, 0.1)
    held, gaps = expect_held_out(outcomes, shrinkage), measure_gaps(outcomes, shrinkage, 0, 1)
    assert held is not None and gaps is not None and outcomes.sample is not None
    texts = {sampling.digest_text(row["text"]): row["text"] for row in rows(12)}
    folds = {key: prompt.fold for key, prompt in outcomes.sample.prompts.items()}
    rest = replace(outcomes, cells={key: sums for key, sums in outcomes.cells.items() if key[2] != 0})
    parts, whole = (fit_quality(sums, tiny.embedding().matrix, shrinkage) for sums in (rest, outcomes))

    def gaps_of(fit: Quality, inside: bool) -> np.ndarray:
        found = [quality_of(fit, texts[key[0]]) for key, fold in folds.items() if inside or fold == 0]
        return np.array([one[0] - one[1] for one in found])

    keys = [key for key, fold in folds.items() if fold == 0]
    for key, expected in zip(keys, held.expected, strict=False):
        np.testing.assert_allclose(quality_of(parts, texts[key[0]]), expected, atol=1e-3)
    own = np.array([gap for gap, fold in zip(gaps_of(parts, True), folds.values(), strict=True) if fold != 0])
    every = gaps_of(whole, True)
    aligned = every.mean() + (gaps_of(parts, False) - own.mean()) * every.std() / own.std()
    np.testing.assert_allclose(
        [gap for gap, fold in zip(gaps, folds.values(), strict=True) if fold == 0], aligned, atol=0.01
    )


# the sample --------------------------------------------------------------------------------------------------------


@given(st.randoms(use_true_random=False), st.integers(1, 59))
@tiny.LAW
def test_a_full_sample_keeps_every_law(shuffler: random.Random, cut: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "MAX_PROMPTS", 10)
        some = rows(20, missing=0.3)
        whole = collected(some)
        shuffled = shuffler.sample(some, len(some))
        assert collected(shuffled[:cut]) + collected(shuffled[cut:]) == whole
        assert whole.sample is not None and {len(own) for own in whole.sample.scores.values()} == {10}
        assert whole.without("cat") == collected(only(some, {"ant", "bee"}))
        assert whole.only("cat") == collected(only(some, {"cat"}))


def test_a_guarded_router_changes_as_if_fitted_at_once(tmp_path: Path) -> None:
    some = noise(40, seed=GIVEN_UP)
    whole = fitted(some)
    later = fitted(only(some[::2], {"ant", "bee"}))
    later.add_outcomes(only(some[1::2], {"ant", "bee"}), merge=True)
    later.add("cat", some)
    assert later.scorer == whole.scorer == CONSTANT and later.validation == whole.validation
    assert later.outcomes == whole.outcomes and tiny.same_table(later, whole)
    loaded = Router.load(later.save(tmp_path / "router"))
    assert loaded.validation == whole.validation and loaded.outcomes == whole.outcomes and loaded.scorer == CONSTANT
    loaded.add_outcomes(rows(100), merge=True)
    assert loaded.scorer != CONSTANT and not loaded.validation.reason


def test_outcomes_without_a_sample_are_not_compared() -> None:
    old = replace(collected(noise(40, seed=GIVEN_UP)), sample=None)
    both = old + collected(rows(4))
    assert both.sample is None and expect_held_out(both, CONSTANT) is None
    chosen, tried = guard_shrinkage(old, Shrinkage(16.0, 64.0), fitted(rows(1)).validation, guard=True)
    assert chosen == Shrinkage(16.0, 64.0) and "earlier version" in tried.reason
    with pytest.raises(InputError, match="kept no prompts"):
        calibrate_strong_share(fitted(old, guard=False), None, 0.3, strong="bee", weak="ant")  # type: ignore[arg-type]
