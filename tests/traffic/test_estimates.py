"""Intervals of logged traffic: they hold in simulated logs, and are wide where the log tells nothing."""

from __future__ import annotations

import numpy as np
import pytest

from ir3de.traffic import estimates
from ir3de.traffic.estimates import ScoredRequests


def simulate(seed: int, requests: int, explore: float) -> tuple[ScoredRequests, float]:
    """A log of three experts in conversations of one to three requests, and the true difference of the scores.

    The candidate sends three in ten requests to expert 2. Chance sends a share of all requests to another expert.
    """
    random = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(requests), random.integers(1, 4, requests))[:requests]
    live = (random.random(requests) < 0.3).astype(np.int64)
    candidate = np.where(random.random(requests) < 0.3, 2, live)
    explored = random.random(requests) < explore
    served = np.where(explored, (live + random.integers(1, 3, requests)) % 3, live)
    propensity = np.where(explored, explore / 2, 1 - explore)
    mood = 0.15 * random.normal(size=requests)[clusters]
    rates = np.clip(np.array([0.6, 0.65, 0.75])[served] + mood, 0.02, 0.98)
    score = (random.random(requests) < rates).astype(float)
    everywhere, nothing = np.ones(requests, bool), np.zeros(requests)
    made = ScoredRequests(score, served, propensity, (live, candidate), (everywhere,) * 2, (nothing,) * 3, clusters)
    return made, 0.3 * (0.7 * 0.15 + 0.3 * 0.10)


@pytest.mark.parametrize(
    ("requests", "explore"), [(100, 0.3), (400, 0.2), pytest.param(2000, 0.1, marks=pytest.mark.nightly)]
)
def test_score_intervals_cover_the_truth(requests: int, explore: float) -> None:
    covered = []
    for seed in range(200):
        scored, truth = simulate(seed, requests, explore)
        found, _ = estimates.find_score_difference(scored, estimates.expect_scores(scored, 3))
        covered.append(found.low <= truth <= found.high)
    assert np.mean(covered) >= 0.92


def test_each_request_adds_its_part_of_the_difference() -> None:
    scored, _ = simulate(1, 400, 0.3)
    found, parts = estimates.find_score_difference(scored, estimates.expect_scores(scored, 3))
    assert parts.sum() == pytest.approx(found.value)
    assert not parts[scored.chosen[0] == scored.chosen[1]].any()


def test_the_order_of_the_requests_does_not_matter() -> None:
    scored, _ = simulate(2, 300, 0.3)
    order = np.random.default_rng(0).permutation(300)
    other = ScoredRequests(
        scored.score[order],
        scored.served[order],
        scored.propensity[order],
        (scored.chosen[0][order], scored.chosen[1][order]),
        (scored.reachable[0][order], scored.reachable[1][order]),
        (scored.values[0][order],) * 3,
        scored.clusters[order],
    )
    one, two = (estimates.find_score_difference(each, estimates.expect_scores(each, 3))[0] for each in (scored, other))
    assert one.low == pytest.approx(two.low) and one.high == pytest.approx(two.high)


def certain(chosen: int, score: float) -> ScoredRequests:
    """A hundred requests that expert 0 answered for certain; the candidate chooses that expert or another."""
    size = 100
    served, propensity = np.zeros(size, np.int64), np.ones(size)
    candidate = np.where(np.arange(size) < 20, chosen, 0)
    reachable = np.ones(size, bool), candidate == 0
    nothing = np.zeros(size)
    return ScoredRequests(
        np.full(size, score), served, propensity, (served, candidate), reachable, (nothing,) * 3, np.arange(size)
    )


def test_a_certain_choice_tells_nothing_of_other_experts() -> None:
    scored = certain(1, 0.9)
    expected = estimates.expect_scores(scored, 2)
    difference, _ = estimates.find_score_difference(scored, expected)
    assert difference.unknown_share == 0.2 and difference.answers == 0
    assert difference.low < -0.9 * 0.2 and difference.high > 0.1 * 0.2  # whatever the other expert would score
    live = estimates.find_score(scored, 0, expected)
    assert live.unknown_share == 0 and live.value == pytest.approx(0.9)
    assert live.high - live.low < 0.1 < estimates.find_score(scored, 1, expected).high - 0.72


def test_sides_that_agree_differ_by_nothing() -> None:
    scored = certain(0, 0.5)
    difference, parts = estimates.find_score_difference(scored, estimates.expect_scores(scored, 2))
    assert (difference.value, difference.unknown_share) == (0.0, 0.0) and not parts.any()
    assert -0.05 < difference.low < 0 < difference.high < 0.05  # other requests may differ


@pytest.mark.parametrize("gained", [0.0, 0.05])
@pytest.mark.parametrize("size", [100, 400])
def test_paired_intervals_cover_the_truth(size: int, gained: float) -> None:
    random, covered = np.random.default_rng(3), []
    for _ in range(200):
        clusters = np.repeat(np.arange(size), 2)[:size]
        before, moved = random.random(size) < 0.8, random.random(size) < 0.2
        after = np.where(moved, random.random(size) < 0.8 + 5 * gained * 0.8, before)
        found = estimates.find_paired_difference(before, after, clusters)
        assert found is not None
        covered.append(found.low <= 0.2 * (min(1.0, 0.8 + 5 * gained * 0.8) - 0.8) <= found.high)
    assert np.mean(covered) >= 0.92


def test_intervals_of_skewed_costs_cover_the_truth() -> None:
    random, covered = np.random.default_rng(4), []
    for _ in range(200):
        costs = random.lognormal(0.0, 1.0, 400) * (random.random(400) < 0.1)
        found = estimates.find_mean(costs, np.arange(400), 1.6)
        assert found is not None
        covered.append(found.low <= 0.1 * np.exp(0.5) <= found.high)
    assert np.mean(covered) >= 0.92


def test_conversations_count_once() -> None:
    """A prompt repeated ten times in one conversation is no more evidence than one."""
    right = np.random.default_rng(5).random(50) < 0.6
    alone = estimates.find_share(right, np.arange(50))
    repeated = estimates.find_share(np.repeat(right, 10), np.repeat(np.arange(50), 10))
    assert alone is not None and repeated is not None
    assert repeated.high - repeated.low == pytest.approx(alone.high - alone.low, rel=0.15)


def test_one_cluster_has_no_interval() -> None:
    assert (
        estimates.find_interval([np.ones(3), np.ones(3)], np.zeros(3, np.int64), lambda sums: sums[0] / sums[1]) is None
    )
