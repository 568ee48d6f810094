"""What prompts are about: nearness to the experts' centroids, and contrast with the background."""

import numpy as np
import pytest
from hypothesis import given

import tiny
from ir3de.scorers.subjects import FARTHEST, NEAREST, Subjects, find_directions
from laws import seeds


def made(seed: int, experts: int = 3) -> Subjects:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, experts)

    def draw(count: int) -> np.ndarray:
        return find_directions(rng.standard_normal((count, 6)), np.zeros(6, np.float32))

    centre = rng.standard_normal(6).astype(np.float32)
    return Subjects(centre, draw(int(sizes.sum())), sizes, draw(4), (0.3, 0.1), (0.2, 0.4))


@tiny.LAW
@given(seeds)
def test_one_prompt_is_measured_as_many_are(seed: int) -> None:
    subjects, rng = made(seed), np.random.default_rng(seed)
    sums, tokens = rng.integers(-100, 100, (20, 6)).astype(np.float64), rng.integers(1, 50, 20)
    best = rng.integers(0, 3, 20)
    together = subjects.scale(subjects.compare(sums / tokens[:, None], best))
    for row, n, expert, expected in zip(sums, tokens.tolist(), best.tolist(), together, strict=True):
        assert subjects.measure(row, n, expert) == pytest.approx(tuple(expected), abs=1e-4)


def test_nearness_is_the_cosine_to_the_nearest_centroid_of_the_best_expert() -> None:
    subjects = made(1)
    rows = np.concatenate([subjects.centroids * 3 + subjects.centre])
    owners = np.repeat(np.arange(3), subjects.sizes)
    near, contrast = subjects.compare(rows, owners).T
    assert near == pytest.approx(1.0, abs=1e-5)
    nearest = (subjects.centroids @ subjects.background.T).max(axis=1)
    assert contrast == pytest.approx(1.0 - nearest, abs=1e-5)


def test_a_prompt_without_a_direction_has_finite_numbers() -> None:
    subjects = made(2)
    assert all(np.isfinite(subjects.measure(subjects.centre * 7.0, 7, 0)))


def test_numbers_are_cut() -> None:
    low = made(3)
    first = low.centroids[:1]
    far = Subjects(low.centre, first, np.array([1]), low.background, (0.0, 0.0), (1e-3, 1e-3))
    both = [far.measure(sign * first[0] * 9.0 + low.centre, 1, 0) for sign in (1, -1)]
    assert both[0][0] == NEAREST and both[1][0] == FARTHEST


def test_equal_subjects_are_equal() -> None:
    assert made(4) == made(4) and made(4) != made(5) and made(4) != "subjects"
