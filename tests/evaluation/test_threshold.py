"""A threshold keeps its promise on prompts it never saw; it only rises as fewer errors are allowed."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from demo_router import demo_router
from ir3de import Router
from ir3de.corpora import background
from ir3de.corpora import examples as demo
from ir3de.errors import InputError, UnknownExpertError
from ir3de.evaluation.accuracy import evaluate
from ir3de.evaluation.threshold import (
    HeldOut,
    calibrate_threshold,
    count_needed_prompts,
    pick_threshold,
    route_held_out,
    score_held_out,
)
from ir3de.policies import Policy

CONFIDENCES = st.floats(0.2, 0.999)  # of those that are full there is a test of its own
PROMPTS = st.lists(st.tuples(CONFIDENCES, st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=60)
ERRORS = st.floats(0.01, 0.9)


def held_out_of(prompts: list[tuple[float, bool, bool, bool]]) -> HeldOut:
    confidence, right, answerable, familiar = zip(*prompts, strict=True)
    return HeldOut(np.array(confidence), np.array(right), np.array(answerable), np.array(familiar))


def losses(held: HeldOut, threshold: float) -> int:
    return int((held.is_answered(threshold) & ~held.right).sum())


def draw(rng: np.random.Generator, prompts: int) -> HeldOut:
    """Prompts of one kind: confidence between a half and one, right as often as half way to its square says."""
    confidence = rng.uniform(0.5, 1.0, prompts)
    right = rng.uniform(size=prompts) < 0.5 + confidence**2 / 2
    return HeldOut(confidence, right, np.ones(prompts, bool), rng.uniform(size=prompts) < 0.95)


@tiny.LAW
@given(PROMPTS, ERRORS)
def test_it_is_the_smallest_threshold_within_the_bound(prompts: list[tuple[float, bool, bool, bool]], e: float) -> None:
    held = held_out_of(prompts)
    n = len(held)
    if n < count_needed_prompts(e):
        with pytest.raises(InputError, match=f"at least {count_needed_prompts(e):,} held-out prompts"):
            pick_threshold(held, e)
        return
    found = pick_threshold(held, e)
    assert found.bound == (losses(held, found.threshold) + 1) / (n + 1) <= e + 1e-9
    assert found.wrong == losses(held, found.threshold) / n
    assert found.coverage == held.is_answered(found.threshold).mean()
    lower = [0.0, *(t for t in held.confidence.tolist() if t < found.threshold)] if found.threshold else []
    assert all((losses(held, t) + 1) / (n + 1) > e - 1e-9 for t in lower)


@tiny.LAW
@given(PROMPTS, ERRORS, ERRORS)
def test_fewer_errors_cost_coverage(prompts: list[tuple[float, bool, bool, bool]], one: float, other: float) -> None:
    strict, lax = sorted((one, other))
    held = held_out_of(prompts)
    if len(held) >= count_needed_prompts(strict):
        strictly, laxly = pick_threshold(held, strict), pick_threshold(held, lax)
        assert strictly.threshold >= laxly.threshold
        assert strictly.coverage <= laxly.coverage <= laxly.free_coverage
        assert strictly.wrong <= laxly.wrong <= laxly.free_wrong


@pytest.mark.parametrize(("error", "prompts"), [(0.05, 40), (0.05, 400), (0.1, 25), (0.02, 150)])
def test_the_promise_holds_on_new_prompts(error: float, prompts: int) -> None:
    rng = np.random.default_rng(7)
    repeats, fresh = 1_500, 200
    found = []
    for _ in range(repeats):
        threshold = pick_threshold(draw(rng, prompts), error).threshold
        found.append(losses(draw(rng, fresh), threshold) / fresh)
    spread = np.std(found) / repeats**0.5
    assert np.mean(found) <= error + 3 * spread
    assert np.mean(found) >= error - 2 / (prompts + 1) - 3 * spread  # nor is it bought too dearly


def test_how_many_prompts_are_count_needed_prompts() -> None:
    assert [count_needed_prompts(error) for error in (0.5, 0.1, 0.05, 0.02, 0.01)] == [1, 9, 19, 49, 99]
    for error in (0.0, 1.0, -1.0, float("nan"), "5 %"):
        with pytest.raises(InputError, match="between 0 and 1"):
            count_needed_prompts(error)  # type: ignore[arg-type]


@pytest.mark.parametrize("full", [1.0, np.nextafter(1.0, 0.0), np.nextafter(1.0, 2.0)])
def test_mistakes_at_full_confidence_are_told(full: float) -> None:
    always = np.ones(30, bool)
    with pytest.raises(InputError, match="30 of 30 held-out prompts are wrong at full confidence"):
        pick_threshold(HeldOut(np.full(30, full), ~always, always, always), 0.1)


def test_the_largest_threshold_is_below_one() -> None:
    """Just below full confidence there is a threshold, and it answers what is surer."""
    wrong, surer = np.nextafter(np.nextafter(1.0, 0.0), 0.0), np.nextafter(1.0, 0.0)
    right, always = np.array([False] * 15 + [True] * 15), np.ones(30, bool)
    found = pick_threshold(HeldOut(np.where(right, surer, wrong), right, always, always), 0.1)
    assert (found.threshold, found.coverage, found.wrong) == (surer, 0.5, 0.0)


# with a router ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def router() -> Router:
    return demo_router()


def test_the_router_answers_and_errs_as_the_result_says(router: Router) -> None:
    held = demo.held_out()
    made = calibrate_threshold(router, held, error=0.03, recalibrate=False, default="law")
    assert made.chosen.prompts == sum(map(len, held.values()))
    report = evaluate(made.router, held)
    assert 0 < made.router.policy.threshold == made.chosen.threshold
    assert made.router.default == "law" and router.default != "law" and router.policy == Policy()
    assert report.prompts - report.abstained == round(made.chosen.coverage * report.prompts)
    wrong = (report.prompts - report.abstained) * (1 - (report.answered_accuracy or 0))
    assert wrong / report.prompts == pytest.approx(made.chosen.wrong)
    decisions = made.router.route_batch([text for texts in held.values() for text in texts])
    assert all(decision.expert == "law" for decision in decisions if decision.abstained)
    assert all(d.abstained == (d.confidence < made.chosen.threshold or d.out_of_domain) for d in decisions)


@pytest.mark.parametrize("error", [0.05, 0.1, 0.2])
def test_the_promise_holds_where_the_router_also_abstains_by_itself(router: Router, error: float) -> None:
    """Prompts of no domain are among the held-out ones: some are abstained on at any threshold, others are wrong."""
    strangers = [*background.prompts()[::12], "hi", "ok thanks", "我的房东想赶我走"]
    domains = {name: [*texts, *strangers[place::5]] for place, (name, texts) in enumerate(demo.held_out().items())}
    held = score_held_out(route_held_out(router, domains), router)
    assert 0.02 < 1 - held.answerable.mean() < 0.5 and (held.answerable & ~held.right).mean() > 0.03
    rng = np.random.default_rng(3)
    repeats, prompts = 1_500, len(held) // 2
    found = []
    for _ in range(repeats):
        order = rng.permutation(len(held))
        picking, fresh = (held_part(held, places) for places in (order[:prompts], order[prompts:]))
        found.append(losses(fresh, pick_threshold(picking, error).threshold) / len(fresh))
    spread = np.std(found) / repeats**0.5
    assert np.mean(found) <= error + 3 * spread
    allowed = min(error - 2 / (prompts + 1), float((held.answerable & ~held.right).mean()))
    assert np.mean(found) >= allowed - 3 * spread  # nor is it bought too dearly


def held_part(held: HeldOut, places: npt.NDArray[np.int64]) -> HeldOut:
    return HeldOut(held.confidence[places], held.right[places], held.answerable[places], held.familiar[places])


def test_a_calibrated_router_abstains_on_what_it_abstained_on_before(router: Router) -> None:
    made = calibrate_threshold(router, demo.held_out(), error=0.05)
    assert made.router.default is None is router.default
    for text, reason in (("hi", "no content"), ("", "no known token"), ("我的房东想赶我走", "out of domain")):
        decision = made.router.route(text)
        assert (decision.reason, decision.expert) == (reason, None)


def test_one_half_calibrates_and_the_other_picks(router: Router) -> None:
    held = demo.held_out()
    made = calibrate_threshold(router, held, error=0.1, others=(0.05, 0.001))
    assert 0 < made.chosen.prompts < sum(map(len, held.values()))
    assert made.router.compiled.rules.calibration != router.compiled.rules.calibration
    assert [other.error for other in made.others] == [0.05]
    again = calibrate_threshold(router, {name: texts[::-1] for name, texts in reversed(held.items())}, error=0.1)
    assert again.chosen == made.chosen  # the order of the prompts is nothing to it


def test_costs_and_weights_stay_and_play_no_part(router: Router) -> None:
    policy = Policy(weights={"price": 1.0}, costs={"law": {"price": 9.0}})
    priced = calibrate_threshold(router.with_policy(policy), demo.held_out(), error=0.05)
    free = calibrate_threshold(router, demo.held_out(), error=0.05)
    assert priced.chosen == free.chosen
    assert (priced.router.policy.costs, priced.router.policy.weights) == (policy.costs, policy.weights)


def test_a_serving_copy_can_be_calibrated(router: Router, tmp_path: Path) -> None:
    copy = Router.load(router.save(tmp_path / "copy", serving=True))
    made = calibrate_threshold(copy, demo.held_out(), error=0.05)
    saved = Router.load(made.router.save(tmp_path / "copy", serving=True))
    assert saved.policy == made.router.policy
    assert saved.route("Is this contract void?") == made.router.route("Is this contract void?")


def test_what_cannot_be_used_is_refused(router: Router) -> None:
    held = demo.held_out()
    with pytest.raises(UnknownExpertError, match="no expert 'cooking'"):
        calibrate_threshold(router, {"cooking": ["bread"]})
    with pytest.raises(UnknownExpertError, match="default expert 'cooking'"):
        calibrate_threshold(router, held, default="cooking")
    with pytest.raises(InputError, match="put it in a list"):
        calibrate_threshold(router, {"law": "one prompt"})
    with pytest.raises(InputError, match="the prompts of 'law' must be str, found NoneType at index 1: None"):
        calibrate_threshold(router, {"law": ["one prompt", None]})  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"the prompts of 'law' must be .* found NoneType"):
        calibrate_threshold(router, {"law": None})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="'law' has no prompt to calibrate with"):
        calibrate_threshold(router, {**held, "law": []})
    with pytest.raises(InputError, match="half calibrate confidence"):
        calibrate_threshold(router, held, error=0.01)
    with pytest.raises(InputError, match="found 0"):
        calibrate_threshold(router, {})


def test_a_router_from_outcomes_has_no_confidence_to_calibrate() -> None:
    rows = [{"text": text, "scores": {"large": 1, "small": 0.5}} for text in demo.prompts()["law"][:20]]
    router = Router.fit_outcomes(rows, embedding=tiny.embedding(), guard=False)
    for recalibrate in (True, False):
        with pytest.raises(InputError, match=r"fitted from outcomes: .* expected score, not a probability"):
            calibrate_threshold(router, {"large": iter(())}, recalibrate=recalibrate)
