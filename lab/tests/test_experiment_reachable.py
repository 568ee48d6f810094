"""The reachable oracle on outcomes whose answer is known, and its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiment_files import LINEAR, chosen, matrix_of, write_results
from ir3de.errors import ArtifactError, InputError
from ir3de_lab.experiments import matrix as matrix_files
from ir3de_lab.experiments import reachable, results
from ir3de_lab.experiments.choices import Choices
from ir3de_lab.experiments.matrix import Floats, Matrix
from ir3de_lab.experiments.reachable import find_drawn, part_lead, reach, split
from ir3de_lab.experiments.tables import tables

ITEMS = 400


def outcomes(points: Floats) -> Matrix:
    """Two domains of as many items each; values are the means over the draws."""
    domains = ["coding"] * ITEMS + ["math"] * ITEMS
    return matrix_of("score", [(d, 1, row) for d, row in zip(domains, points.mean(axis=2), strict=True)])


def draw_luck(draws: int) -> Floats:
    """Every answer of every expert is right by a coin."""
    return np.random.default_rng(1).integers(0, 2, (2 * ITEMS, 2, draws)).astype(float)


def draw_signal(draws: int) -> Floats:
    """One of the two experts is right in every draw: which one, a coin says of each item."""
    right = np.random.default_rng(2).integers(0, 2, 2 * ITEMS)
    return np.repeat(np.eye(2)[right][:, :, None], draws, axis=2)


@pytest.mark.parametrize("draws", [3, pytest.param(8, marks=pytest.mark.nightly)])
def test_pure_luck_cannot_be_reached(draws: int) -> None:
    points = draw_luck(draws)
    found = part_lead(outcomes(points), points, [0, 1])
    assert found.own == pytest.approx(50, abs=2.5) and found.oracle > 58  # which takes the lucky ones
    assert found.reachable == pytest.approx(found.own, abs=2.5)  # as the best of those that are always asked
    assert found.signal.p_value > 0.01 and found.share[1][1] < 30


@pytest.mark.parametrize("draws", [3, pytest.param(8, marks=pytest.mark.nightly)])
def test_pure_signal_is_reached_whole(draws: int) -> None:
    points = draw_signal(draws)
    found = part_lead(outcomes(points), points, [0, 1])
    assert found.reachable == found.oracle == 100 and found.own == pytest.approx(50, abs=5)
    assert found.share[0] == 100 and found.signal.p_value == pytest.approx(2 / 10_001)


@pytest.mark.nightly
def test_more_draws_to_choose_on_reach_more() -> None:
    """An expert that is right seven times of ten where the other is right three times."""
    rng = np.random.default_rng(3)
    chances = np.where(rng.integers(0, 2, 2 * ITEMS)[:, None] == [0, 1], 0.7, 0.3)
    points = (rng.random((2 * ITEMS, 2, 8)) < chances[:, :, None]).astype(float)
    found = part_lead(outcomes(points), points, [0, 1])
    assert found.own < found.fewer[0] < found.fewer[2] < found.reachable < 70 < found.oracle
    assert 0 < found.share[1][0] < found.share[0] < found.share[1][1] < 100


def test_a_draw_is_never_chosen_on_and_scored_on() -> None:
    for draws in range(2, 10):
        for chosen_on, scored_on in split(draws):
            assert not set(chosen_on) & set(scored_on) and sorted(chosen_on + scored_on) == list(range(draws))
    assert split(8)[0] == ([0, 1, 2, 3], [4, 5, 6, 7])
    with pytest.raises(InputError, match="needs two draws an item or more, found 1"):
        split(1)


def test_among_equals_the_own_expert_is_chosen_then_the_first() -> None:
    level = np.array([[[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]])  # equal on the first two draws
    assert reach(level, np.array([2]))[0] == 1.0
    assert reach(level[:, [1, 0, 2]], np.array([1]))[0] == pytest.approx(2 / 3)  # the own one fails in the third
    only_others = np.array([[[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]]])
    assert reach(only_others, np.array([0]))[0] == 1.0


@pytest.mark.nightly
def test_the_tables_show_it_beside_the_oracle(tmp_path: Path) -> None:
    points = draw_luck(3)
    points[ITEMS:] = points[ITEMS:, :, :1]  # math is not drawn: the same answer every time
    made = outcomes(points)
    folder = write_results(tmp_path / "one", made, [Choices("ir3de", "ours", "clean", chosen(made, 0.1), LINEAR)])
    matrix_files.write(made, folder / "drawn.jsonl.xz")
    path = reachable.write(points, made.columns, made, folder)
    found = results.read(folder)
    assert found.draws is not None and np.array_equal(found.draws, points)
    assert list(find_drawn(points, made)) == [0]
    shown = {table.name: table for table in tables(found)}
    assert [row.name for row in shown["drawn"].rows[-2:]] == ["Reachable oracle", "Oracle"]
    assert [row.name for row in shown["reachable"].rows] == ["Coding", "Math", "Mean, drawn answers", "Mean, all"]
    assert any("Math: options are chosen and not drawn" in line for line in shown["reachable"].caption)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ArtifactError, match="truncated or damaged"):
        results.read(folder)
    reachable.write(points, ("coding", "law"), made, folder)
    with pytest.raises(ArtifactError, match="belongs to other outcomes: run `ir3de bench draws"):
        results.read(folder)
