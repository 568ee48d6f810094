"""The sequential test: its error holds however often one looks, and its verdict depends on the requests alone."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ir3de.errors import InputError
from ir3de.traffic import Feedback, SequentialTest, TrafficRecord, run_test

LIVE_RIGHT, BOTH_WRONG = 0.45, 0.1  # of the requests on which two equal routers disagree


def simulate(difference: float, requests: int, seed: int, *, share: float = 0.5, paired: bool = False) -> str:
    """The verdict after requests that all have a score or a label, and are looked at one by one."""
    random = np.random.default_rng(seed)
    test = SequentialTest()
    right = random.random(requests)
    for point, served in zip(right.tolist(), (random.random(requests) < share).tolist(), strict=True):
        live = point < LIVE_RIGHT - difference / 2
        candidate = point > LIVE_RIGHT + BOTH_WRONG - difference / 2
        if paired:
            test.observe_label(candidate_right=candidate, live_right=live)
        else:
            test.observe_score(float(candidate if served else live), candidate=served, share=share)
        if test.verdict != "open":
            break
    return test.verdict


@pytest.mark.parametrize(
    ("share", "paired"),
    [
        (0.1, False),
        pytest.param(0.1, True, marks=pytest.mark.nightly),
        pytest.param(0.5, False, marks=pytest.mark.nightly),
        (0.5, True),
    ],
)
def test_an_equal_candidate_is_rarely_stopped_though_it_is_looked_at_every_time(share: float, paired: bool) -> None:
    found = [simulate(0.0, 400, seed, share=share, paired=paired) for seed in range(300)]
    for wrong in ("worse", "better"):
        assert found.count(wrong) <= 300 * 0.05 + 3 * (300 * 0.05 * 0.95) ** 0.5  # three standard deviations


@pytest.mark.parametrize("paired", [False, True])
def test_a_worse_candidate_is_stopped_and_a_better_one_found(paired: bool) -> None:
    assert all(simulate(-0.4, 500, seed, paired=paired) == "worse" for seed in range(30))
    assert all(simulate(0.4, 500, seed, paired=paired) == "better" for seed in range(30))


def test_a_score_has_the_difference_as_its_mean_whatever_the_share() -> None:
    for share in (0.1, 0.5, 0.8):
        random, test = np.random.default_rng(0), SequentialTest()
        for served, chance in random.random((20_000, 2)).tolist():
            candidate = served < share
            test.observe_score(float(chance < (0.7 if candidate else 0.9)), candidate=candidate, share=share)
        assert test.report().difference == pytest.approx(-0.2, abs=0.05)


def test_no_answer_takes_all_of_the_wealth() -> None:
    test = SequentialTest()
    for number in range(2_000):
        test.observe_score(float(number % 2), candidate=number % 3 == 0, share=0.01)
    report = test.report()
    assert 0 < report.against < 1e101 and 0 < report.in_favour < 1e101


def test_a_test_goes_on_from_its_state() -> None:
    one = SequentialTest()
    for number in range(30):
        if number == 10:
            one = SequentialTest.from_dict(json.loads(json.dumps(one.to_dict())))
        one.observe_score(number % 4 / 3, candidate=number % 2 == 0, share=0.3)
    whole = SequentialTest()
    for number in range(30):
        whole.observe_score(number % 4 / 3, candidate=number % 2 == 0, share=0.3)
    assert one.to_dict() == whole.to_dict()


@pytest.mark.parametrize("state", [{}, {"level": 0.05}, {**SequentialTest().to_dict(), "against": [1.0]}])
def test_a_strange_state_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(InputError, match="not the state of a sequential test"):
        SequentialTest.from_dict(state)


@pytest.mark.parametrize(("score", "share"), [(1.5, 0.5), (float("nan"), 0.5), (0.5, 0.0), (0.5, 1.0)])
def test_impossible_scores_and_shares_are_refused(score: float, share: float) -> None:
    with pytest.raises(InputError, match="found"):
        SequentialTest().observe_score(score, candidate=True, share=share)


# from the journal --------------------------------------------------------------------------------------------------


def make_record(number: int, *given: Feedback, **fields: object) -> TrafficRecord:
    defaults = {"decided": "law", "candidate": "abc", "candidate_expert": "maths", "feedback": given}
    return TrafficRecord(f"r{number}", float(number), **{**defaults, **fields})  # type: ignore[arg-type]


def test_only_disagreements_of_this_candidate_count() -> None:
    score = Feedback("alice", 9.0, score=1.0)
    served = {"arm": "candidate", "propensity": 0.5}
    records = [
        make_record(1, score, **served),
        make_record(2, score, **served, candidate_expert="law"),  # they agree
        make_record(3, score, **served, candidate="another"),
        make_record(4, score, arm="", propensity=1.0),  # chance did not decide
        make_record(5, **served),  # without feedback
    ]
    report = run_test(records, "abc").report()
    assert (report.requests, report.disagreements, report.observed) == (4, 3, 1)
    assert report.difference == 1.0  # (1 − 0.5) / 0.5


def test_a_conversation_counts_once_even_if_its_first_disagreement_has_no_score() -> None:
    served = {"arm": "live", "propensity": 0.5, "conversation": "chat"}
    records = [make_record(1, **served), make_record(2, Feedback("alice", 9.0, score=0.0), **served)]
    assert run_test(records, "abc").report().observed == 0


def test_labels_count_if_they_were_asked_for() -> None:
    right = "maths"
    asked = [
        make_record(1, Feedback("label:eve", 5.0, expert=right)),
        make_record(2, Feedback("eve", 5.0, expert=right)),
    ]
    report = run_test(asked, "abc").report()
    assert report.observed == 1 and report.difference == 1.0


def test_feedback_counts_in_the_order_in_which_it_was_given() -> None:
    early, late = (
        make_record(number, Feedback("alice", when, score=score), arm=arm, propensity=0.5)
        for number, when, score, arm in ((1, 20.0, 0.0, "candidate"), (2, 10.0, 1.0, "live"))
    )
    by_hand = SequentialTest()
    for _ in range(2):
        by_hand.count(disagree=True)
    by_hand.observe_score(1.0, candidate=False, share=0.5)
    by_hand.observe_score(0.0, candidate=True, share=0.5)
    assert run_test([early, late], "abc").to_dict() == by_hand.to_dict()
