"""Area, coverage and unknown prompts, counted by hand."""

from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from demo_router import demo_router
from ir3de import Router
from ir3de.corpora import background
from ir3de.corpora import examples as demo
from ir3de.errors import InputError
from ir3de.evaluation.accuracy import COVERAGES, STEPS, evaluate, measure_area
from ir3de.policies import Policy
from ir3de.routing.decision import Decision

STRANGE = ["我的房东想赶我走", "Welche Farbe hat der Himmel am Abend?", "hi", "ok thanks", ""]


@pytest.fixture(scope="module")
def router() -> Router:
    return demo_router()


@pytest.fixture(scope="module")
def unknown() -> list[str]:
    return [*STRANGE, *background.prompts()[::40]]


def find_steps(decisions: Sequence[Decision]) -> list[int]:
    """What the report compares prompts by: their confidence in steps, below them those on which it abstains."""
    return [-1 if one.abstained else int((one.confidence or 0.0) * STEPS) for one in decisions]


def compare(higher: Sequence[int], lower: Sequence[int]) -> float:
    """How often one is higher than the other, ties for a half."""
    pairs = list(product(higher, lower))
    return sum((one > other) + (one == other) / 2 for one, other in pairs) / len(pairs)


def route_known(router: Router) -> tuple[list[Decision], list[bool]]:
    held = demo.held_out()
    decisions = [router.route(text) for texts in held.values() for text in texts]
    names = [name for name, texts in held.items() for _ in texts]
    return decisions, [decision.best == name for decision, name in zip(decisions, names, strict=True)]


@tiny.LAW
@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_the_area_is_the_share_of_pairs(higher: list[int], lower: list[int]) -> None:
    counted = measure_area(np.bincount(higher, minlength=6), np.bincount(lower, minlength=6))
    assert counted == pytest.approx(compare(higher, lower))


def test_there_is_no_area_of_nothing() -> None:
    assert measure_area(np.array([1, 2]), np.zeros(2, np.int64)) is None


def test_the_area_says_how_often_a_right_answer_is_surer_than_a_wrong_one(router: Router) -> None:
    decisions, right = route_known(router)
    steps = find_steps(decisions)
    by_hand = compare(
        [step for step, good in zip(steps, right, strict=True) if good],
        [step for step, good in zip(steps, right, strict=True) if not good],
    )
    report = evaluate(router, demo.held_out())
    assert report.area == pytest.approx(by_hand) and 0.5 < by_hand < 1
    alone = evaluate(router, {"law": ["Can my landlord evict me?"]})
    assert alone.area is None and alone.unknown is None


def test_every_point_covers_and_errs_as_a_router_with_that_threshold(router: Router, unknown: list[str]) -> None:
    report = evaluate(router, demo.held_out(), unknown=unknown)
    assert len(report.coverage) >= 3
    for point in report.coverage:
        cautious = router.with_policy(Policy(threshold=point.threshold))
        known, right = route_known(cautious)
        answered = [good for one, good in zip(known, right, strict=True) if not one.abstained]
        strangers = sum(not one.abstained for one in cautious.route_batch(unknown))
        assert point.coverage == pytest.approx(len(answered) / len(known))
        assert point.error == pytest.approx(answered.count(False) / len(answered))
        with_unknown = (answered.count(False) + strangers) / (len(answered) + strangers)
        assert point.error_with_unknown == pytest.approx(with_unknown)


def test_the_points_cover_less_and_less_and_at_most_what_was_asked_for(router: Router) -> None:
    points = evaluate(router, demo.held_out()).coverage
    assert [point.threshold for point in points] == sorted({point.threshold for point in points})
    assert all(after.coverage < before.coverage for before, after in pairwise(points))
    assert all(any(point.coverage <= wanted for wanted in COVERAGES) for point in points)
    assert points[0].threshold == 0 and points[-1].coverage <= min(COVERAGES)
    assert points[-1].error <= points[0].error
    assert all(point.error_with_unknown is None for point in points)


def test_unknown_prompts_are_counted_one_by_one(router: Router, unknown: list[str]) -> None:
    found = evaluate(router, demo.held_out(), unknown=iter(unknown)).unknown
    strangers, (known, _) = router.route_batch(unknown), route_known(router)
    assert found is not None and found.prompts == len(unknown)
    assert found.told == pytest.approx(sum(one.abstained for one in strangers) / len(unknown))
    assert found.sure == pytest.approx(sum((one.confidence or 0) > 0.9 for one in strangers) / len(unknown))
    own, others = find_steps(known), find_steps(strangers)
    assert found.area == pytest.approx(compare(own, others)) and found.area > 0.8
    allowed = 0.05 * len(own)  # known prompts that may lie below
    best = max(
        sum(step < least for step in others) / len(others)
        for least in range(STEPS + 1)
        if sum(step < least for step in own) <= allowed
    )
    assert found.told_at_5 == pytest.approx(best)


def test_unknown_prompts_change_nothing_else(router: Router, unknown: list[str]) -> None:
    without = evaluate(router, demo.held_out()).to_dict()
    with_them = evaluate(router, demo.held_out(), unknown=unknown).to_dict()
    different = {key for key in without if without[key] != with_them[key]}
    assert different == {"coverage", "unknown"}


def test_a_prompt_that_fits_nobody_is_wrong_and_in_no_column(router: Router) -> None:
    texts = ["Can my landlord evict me?", "hi", STRANGE[0]]
    report = evaluate(router, {"law": texts})
    law = report.experts.index("law")
    assert report.sizes["law"] == 3 and report.recall["law"] == pytest.approx(1 / 3)
    assert report.confusion[law][law] == 1 == sum(report.confusion[law])
    assert report.abstained_because == {"no content": 1, "out of domain": 1}
    by_default = evaluate(router.with_policy(router.policy, default="law"), {"law": texts})
    assert by_default.recall["law"] == 1.0 and sum(by_default.confusion[law]) == 3 and by_default.abstained == 2


def test_unknown_prompts_must_be_texts(router: Router) -> None:
    with pytest.raises(InputError, match="the prompts of 'unknown' must be str, found int at index 1"):
        evaluate(router, {"law": ["Is it void?"]}, unknown=["one", 7])  # type: ignore[list-item]
    with pytest.raises(InputError, match="found one string"):
        evaluate(router, {"law": ["Is it void?"]}, unknown="one string")
