"""Strong and weak models: APGR and CPT as RouteLLM defines them, and a wanted share of strong calls."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from answered_prompts import answers
from ir3de import Conversation, Router
from ir3de.errors import InputError, UnknownExpertError
from ir3de.evaluation.outcomes import (
    calibrate_strong_share,
    evaluate_outcomes,
    find_pair,
    measure_order,
    pick_share_threshold,
)
from ir3de.policies import Cost, Policy, StrongShare

TRAIN = answers(number=30)
PROMPTS = [row["prompt"] for row in answers()]


@pytest.fixture(scope="module")
def router() -> Router:
    return Router.fit_outcomes(TRAIN)


@cache
def _fit_three(number: int) -> Router:
    return Router.fit_outcomes(answers(models=("llama", "mistral", "gemma"), number=number))


def three_models(number: int = 40) -> Router:
    """A copy, which a test may change."""
    return copy(_fit_three(number))


def literal_pgr(gaps: list[float], scores: list[tuple[float, float]], calls: int) -> float:
    """The definition, prompt by prompt: the `calls` largest gaps go to the strong model."""
    order = sorted(range(len(gaps)), key=lambda i: -gaps[i])
    chosen = [scores[i][0] if place < calls else scores[i][1] for place, i in enumerate(order)]
    strong, weak = (sum(pair[side] for pair in scores) for side in (0, 1))
    return (sum(chosen) - weak) / (strong - weak)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=3, max_size=30), st.randoms())
@tiny.LAW
def test_the_area_is_that_of_the_definition(scores: list[tuple[float, float]], shuffler: object) -> None:
    gaps = shuffler.sample(range(len(scores)), len(scores))  # type: ignore[attr-defined]
    found = measure_order(gaps, scores)
    if sum(strong - weak for strong, weak in scores) <= 0:
        assert found is None
        return
    curve = [literal_pgr(gaps, scores, calls) for calls in range(len(scores) + 1)]
    assert found is not None
    assert found[0] == pytest.approx(np.trapezoid(curve, np.linspace(0, 1, len(curve))))
    for wanted, cpt in ((0.5, found[2]), (0.8, found[3])):
        after = next(calls for calls, reached in enumerate(curve) if reached >= wanted - 1e-12)
        before, reached = curve[after - 1], curve[after]
        assert cpt == pytest.approx((after - 1 + (wanted - before) / (reached - before)) / len(scores))


def test_an_order_that_says_nothing_is_random() -> None:
    found = measure_order([0.5] * 6, [(1, 0), (1, 1), (0, 0), (1, 0), (0, 1), (1, 0)])
    assert found is not None and (found[0], *found[2:]) == pytest.approx((0.5, 0.5, 0.8))


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40, unique=True), st.floats(0.01, 0.99))
@tiny.LAW
def test_a_threshold_keeps_to_its_share(gaps: list[float], share: float) -> None:
    threshold = pick_share_threshold(gaps, share)
    reached = sum(gap >= threshold for gap in gaps)
    assert 1 <= reached <= len(gaps)
    if min(abs(a - b) for a in gaps for b in gaps if a != b) > 1e-9:
        wanted = min(max(share * len(gaps), 1), len(gaps) - 1)
        assert abs(reached - wanted) <= 0.5 + 1e-9


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_a_router_sends_the_share_to_the_strong_model(router: Router, share: float, tmp_path: Path) -> None:
    made = calibrate_strong_share(router, PROMPTS, share, strong="llama", weak="mistral")
    sent = [decision.expert == "llama" for decision in made.router.route_batch(PROMPTS)]
    assert np.mean(sent) == made.reached == pytest.approx(share, abs=0.02)
    gaps = [dict(d.quality)["llama"] - dict(d.quality)["mistral"] for d in router.route_batch(PROMPTS)]
    assert min(g for g, s in zip(gaps, sent, strict=True) if s) > max(
        g for g, s in zip(gaps, sent, strict=True) if not s
    )
    for serving in (False, True):
        made.router.save(tmp_path / f"copy{serving}", serving=serving)
        loaded = Router.load(tmp_path / f"copy{serving}")
        assert loaded.policy == made.router.policy and loaded.policy.strong_share == made.chosen
        assert loaded.route_batch(PROMPTS) == made.router.route_batch(PROMPTS)
        assert loaded.route(PROMPTS[0]) == loaded.route_batch(PROMPTS[:1])[0]


@pytest.mark.nightly
def test_a_share_picked_on_the_fits_own_prompts_is_kept_on_new_ones() -> None:
    """From few prompts the fit learns tasks by heart: its own prompts have gaps near 0 or 1, new ones between."""
    share = 0.3
    rows = [row if row["task"] == "law" else {**row, "scores": {"llama": 0, "mistral": 0}} for row in answers()]
    few = Router.fit_outcomes(rows[::2], guard=False)
    found = {}
    for prompts in (None, [row["prompt"] for row in rows[::2]]):
        made = calibrate_strong_share(few, prompts, share, strong="llama", weak="mistral")
        assert made.prompts == 40 and made.reached == pytest.approx(share, abs=0.1)
        new = made.router.route_batch([row["prompt"] for row in rows[1::2]])
        found[prompts is None] = np.mean([decision.expert == "llama" for decision in new])
    assert found[True] == pytest.approx(share, abs=0.1)
    assert abs(found[False] - share) > 0.1


def test_others_than_the_two_are_passed_over_and_come_last() -> None:
    made = calibrate_strong_share(three_models(), PROMPTS, 0.5, strong="llama", weak="gemma").router
    for decision in made.route_batch(PROMPTS):
        assert decision.expert in ("llama", "gemma") and decision.expert == decision.ranking[0][0]
        assert [name for name, _ in decision.ranking][2] == "mistral"
    made.remove("gemma")
    assert made.policy.strong_share is None


def test_weights_of_a_call_leave_the_share_alone(router: Router) -> None:
    made = calibrate_strong_share(router, PROMPTS, 0.5, strong="llama", weak="mistral").router
    made = made.with_policy(replace(made.policy, costs={"llama": Cost(9.0)}))
    expected = made.route_batch(PROMPTS)
    assert made.route_batch(PROMPTS, weights={"price": 1.0}) == expected
    assert [made.route(text, weights={"price": 1.0}) for text in PROMPTS] == expected
    assert [Conversation(made).route(text, weights={"price": 1.0}) for text in PROMPTS] == expected
    assert all(decision.penalties is None for decision in expected)
    with pytest.raises(InputError, match="no cost 'speed'"):
        made.route(PROMPTS[0], weights={"speed": 1.0})


def test_removing_and_adding_others_keeps_the_share() -> None:
    made = calibrate_strong_share(three_models(), PROMPTS, 0.5, strong="llama", weak="mistral")
    made.router.remove("gemma")
    assert made.router.policy.strong_share == made.chosen


def test_the_pair_is_named_or_clear(router: Router) -> None:
    assert find_pair(router, weak="llama") == ("mistral", "llama")
    assert find_pair(router, means=[0.2, 0.3]) == ("mistral", "llama")
    with pytest.raises(UnknownExpertError, match="no model 'gpt': this router has llama, mistral"):
        find_pair(router, "gpt")
    with pytest.raises(InputError, match="name two models"):
        find_pair(router, "llama", "llama")
    three = three_models()
    with pytest.raises(InputError, match=r"must both be named for a router of 3 models.*--strong and --weak"):
        find_pair(three, strong="llama")


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan"), "half", True])
def test_a_share_lies_between_none_and_all(router: Router, share: object) -> None:
    with pytest.raises(InputError, match="share of strong calls must"):
        calibrate_strong_share(router, PROMPTS, share)  # type: ignore[arg-type]


def test_prompts_that_do_not_differ_cannot_be_shared_out(router: Router) -> None:
    with pytest.raises(InputError, match="the same difference between the two models on all of them"):
        calibrate_strong_share(router, ["void", "void"], 0.5)
    with pytest.raises(InputError, match="0 prompts"):
        calibrate_strong_share(router, [], 0.5)


def test_a_share_and_weights_do_not_go_together(router: Router) -> None:
    share = StrongShare("llama", "mistral", 0.5, 0.0)
    with pytest.raises(InputError, match="found both"):
        Policy(weights={"price": 1}, strong_share=share)
    with pytest.raises(UnknownExpertError, match="unknown gpt"):
        router.with_policy(Policy(strong_share=replace(share, strong="gpt")))
    with pytest.raises(InputError, match="finite"):
        replace(share, threshold=float("nan"))


def test_eval_says_what_strong_calls_buy(router: Router) -> None:
    rows = answers()
    report = evaluate_outcomes(router, rows, strong="llama", weak="mistral")
    found = report.strong_weak
    assert found is not None and (found.strong, found.weak, found.prompts) == ("llama", "mistral", len(rows))
    assert found.apgr is None and found.strong_score == found.weak_score == 0.5  # neither is better
    better = [row if row["task"] == "law" else {**row, "scores": {"llama": 0.4, "mistral": 0.4}} for row in rows]
    found = evaluate_outcomes(router, better).strong_weak
    assert found is not None and (found.strong, found.weak) == ("llama", "mistral")
    # law is half of the prompts, and only there is a gap: a perfect order recovers all of it at half the calls
    assert found.apgr == pytest.approx(0.75, abs=0.03) and found.cpt_50 == pytest.approx(0.25, abs=0.03)
    assert found.cpt_80 == pytest.approx(0.4, abs=0.04) and found.error is not None and found.error < 0.05


def test_the_gain_has_an_interval(router: Router) -> None:
    gain = evaluate_outcomes(router, answers()).gain
    assert gain is not None and gain.lowest < gain.mean < gain.highest and gain.lowest > 0.3
    same = [{**row, "scores": {"llama": 0.5, "mistral": 0.5}} for row in answers()]
    nothing = evaluate_outcomes(router, same).gain
    assert nothing is not None and (nothing.lowest, nothing.mean, nothing.highest) == (0, 0, 0)
    assert evaluate_outcomes(router, answers()[:1]).gain is None


def test_three_models_have_no_pair_of_their_own() -> None:
    rows, three = answers(models=("llama", "mistral", "gemma"), number=5), three_models(5)
    assert evaluate_outcomes(three, rows).strong_weak is None
    assert evaluate_outcomes(three, rows, strong="llama", weak="gemma").strong_weak is not None
