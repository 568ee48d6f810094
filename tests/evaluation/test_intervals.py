"""Intervals hold the true value about 95 times in 100."""

import numpy as np
import pytest

from ir3de.evaluation.intervals import estimate_difference, estimate_doubling, estimate_share

RUNS = 2_000


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
