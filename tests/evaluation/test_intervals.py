"""Intervals hold the true value about 95 times in 100."""

import numpy as np
import pytest

from ir3de.evaluation.intervals import (
    estimate_difference,
    estimate_doubling,
    estimate_share,
    estimate_weighted_share,
)

RUNS = 2_000
MIXED_RUNS = 400


@pytest.mark.parametrize(("share", "n"), [(0.9, 60), (0.5, 30), (0.98, 400)])
def test_interval_of_a_share_covers_it(share: float, n: int) -> None:
    drawn = np.random.default_rng(7).binomial(n, share, RUNS)
    found = [estimate_share(int(right), n) for right in drawn]
    assert 0.93 < np.mean([one.low <= share <= one.high for one in found]) < 0.985
    assert all(0 <= one.low <= one.value <= one.high <= 1 for one in found)


@pytest.mark.parametrize("cells", [(0.8, 0.1, 0.05, 0.05), (0.6, 0.2, 0.1, 0.1), (0.9, 0.02, 0.02, 0.06)])
def test_interval_of_a_difference_covers_it(cells: tuple[float, ...]) -> None:
    rng, truth, covered = np.random.default_rng(11), cells[1] - cells[2], 0
    for _ in range(RUNS):
        kinds = rng.choice(4, 150, p=cells)
        found = estimate_difference((kinds == 0) | (kinds == 1), (kinds == 0) | (kinds == 2))
        covered += found.low <= truth <= found.high
    assert 0.93 < covered / RUNS < 0.995


def test_extremes_have_a_width() -> None:
    all_right = np.ones(40, bool)
    assert estimate_share(40, 40).low < 1 == estimate_share(40, 40).high
    assert estimate_share(0, 40).low == 0 < estimate_share(0, 40).high
    same = estimate_difference(all_right, all_right)
    assert same.low < same.value == 0 < same.high


def test_doubling_follows_the_curve() -> None:
    rng = np.random.default_rng(3)
    luck = rng.random(4_000)
    rising, flat = (
        estimate_doubling(*(luck < accuracy for accuracy in points)) for points in ((0.6, 0.7, 0.77), (0.8, 0.8, 0.8))
    )
    assert 0.03 < rising.low < rising.value < rising.high < 0.08
    assert flat.low == flat.value == flat.high == 0
    falling = estimate_doubling(luck < 0.8, luck < 0.8, luck < 0.75)
    assert falling.value < 0


# shares of the mix, accuracies, prompts held out: a large expert of which few prompts are held out, and so on
MIXES = [
    ((0.97, 0.02, 0.01), (0.99, 0.6, 0.7), (400, 60, 30)),
    ((0.5, 0.25, 0.25), (0.8, 0.99, 0.99), (60, 300, 300)),
    ((0.9, 0.05, 0.05), (0.995, 0.7, 0.6), (50, 300, 300)),
    ((0.25, 0.25, 0.5), (0.9, 0.8, 0.95), (100, 100, 200)),
]


@pytest.mark.parametrize(("mix", "accuracies", "sizes"), MIXES)
def test_interval_of_a_weighted_share_covers_it(
    mix: tuple[float, ...], accuracies: tuple[float, ...], sizes: tuple[int, ...]
) -> None:
    rng, experts = np.random.default_rng(5), np.repeat(np.arange(3), sizes)
    weights, truth, covered = (np.array(mix) / sizes)[experts], float(np.dot(mix, accuracies)), 0
    for _ in range(MIXED_RUNS):
        found = estimate_weighted_share(rng.random(len(experts)) < np.array(accuracies)[experts], weights)
        covered += found.low <= truth <= found.high
        assert 0 <= found.low <= found.value <= found.high <= 1
    assert 0.92 < covered / MIXED_RUNS < 0.999


@pytest.mark.parametrize(("mix", "accuracies", "sizes"), MIXES)
def test_interval_of_a_weighted_difference_covers_it(
    mix: tuple[float, ...], accuracies: tuple[float, ...], sizes: tuple[int, ...]
) -> None:
    rng, experts = np.random.default_rng(6), np.repeat(np.arange(3), sizes)
    weights, share, covered = (np.array(mix) / sizes)[experts], np.array(accuracies)[experts], 0
    truth = float(np.dot(mix, np.array(accuracies) * 0.1 - (1 - np.array(accuracies)) * 0.2))
    for _ in range(MIXED_RUNS):
        one = rng.random(len(experts)) < share
        other = np.where(one, rng.random(len(experts)) >= 0.1, rng.random(len(experts)) < 0.2)
        found = estimate_difference(one, other, weights)
        covered += found.low <= truth <= found.high
    assert 0.92 < covered / MIXED_RUNS < 0.999


def test_equal_weights_are_no_weights() -> None:
    rng = np.random.default_rng(9)
    one, other, third = rng.random((3, 80)) < 0.8
    assert estimate_weighted_share(one, np.full(80, 0.3)) == estimate_share(int(one.sum()), 80)
    assert estimate_difference(one, other, np.full(80, 0.3)) == estimate_difference(one, other)
    assert estimate_doubling(one, other, third, np.full(80, 0.3)) == estimate_doubling(one, other, third)


def test_the_order_of_weighted_prompts_changes_nothing() -> None:
    rng = np.random.default_rng(10)
    right, other, order = rng.random(200) < 0.9, rng.random(200) < 0.8, rng.permutation(200)
    weights = rng.random(200)
    assert estimate_weighted_share(right, weights) == estimate_weighted_share(right[order], weights[order])
    moved = estimate_difference(right[order], other[order], weights[order])
    assert moved == estimate_difference(right, other, weights)


def test_doubling_follows_the_curve_of_the_mix() -> None:
    """The heavy prompts learn nothing more; the light ones do."""
    luck = np.random.default_rng(3).random(2_000)
    light = np.arange(2_000) % 2 == 0
    quarter, half, whole = (luck < np.where(light, share, 0.9) for share in (0.6, 0.7, 0.77))
    alike = estimate_doubling(quarter, half, whole)
    mixed = estimate_doubling(quarter, half, whole, np.where(light, 0.01, 0.99))
    assert 0 <= mixed.value < alike.value / 10 and mixed.high < alike.low
