"""From outcomes and choices to figures: laws, and values computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiment_files import chosen, matrix_of, random_matrix
from ir3de_lab.experiments.matrix import Matrix
from ir3de_lab.experiments.metrics import (
    Judge,
    accuracy_difference,
    normalised_difference,
    perplexity_difference,
    score_difference,
)
from ir3de_lab.experiments.truncated import TruncatedJudge, first_items

METRICS = ("perplexity", "score")
matrices = st.builds(
    lambda metric, seed, items: random_matrix(metric, seed, items=items, domains=("coding", "math", "law")),
    st.sampled_from(METRICS),
    st.integers(0, 10_000),
    st.integers(2, 8),
)


def judge(matrix: Matrix) -> Judge:
    return Judge(matrix)


@given(matrices)
@settings(max_examples=25, deadline=None)
def test_own_experts_reach_exactly_100_in_every_domain(matrix: Matrix) -> None:
    found = judge(matrix).of_experts(matrix.own_expert)
    assert found.normalised == (100.0,) * 3 and found.average == 100.0 and found.accuracy == 100.0
    assert found.intervals == ((100.0, 100.0),) * 3 and found.average_interval == (100.0, 100.0)


@given(matrices, st.floats(0, 1), st.integers(0, 100))
@settings(max_examples=25, deadline=None)
def test_no_router_is_better_than_the_oracle_in_any_domain(matrix: Matrix, wrong: float, seed: int) -> None:
    found, oracle = judge(matrix).of_experts(chosen(matrix, wrong, seed)), judge(matrix).oracle()
    assert all(best >= routed - 1e-9 for best, routed in zip(oracle.normalised, found.normalised, strict=True))
    assert oracle.average >= found.average - 1e-9


@given(matrices, st.floats(0, 1))
@settings(max_examples=25, deadline=None)
def test_intervals_are_in_order(matrix: Matrix, wrong: float) -> None:
    found = judge(matrix).of_experts(chosen(matrix, wrong))
    assert all(low <= high for low, high in (*found.intervals, found.average_interval))


def test_an_interval_holds_its_figure_and_narrows_with_more_items() -> None:
    widths = []
    for items in (20, 2000):
        matrix = random_matrix("score", items=items, domains=("coding", "math"))
        found = Judge(matrix).of_experts(chosen(matrix, 0.3))
        low, high = found.average_interval
        assert low < found.average < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 3


@pytest.mark.nightly
@pytest.mark.parametrize("metric", METRICS)
def test_the_random_router_is_the_mean_of_many_draws(metric: str) -> None:
    matrix = random_matrix(metric, items=30)
    ours, deviation = judge(matrix).random(draws=200, seed=1)
    rng = np.random.default_rng(2)
    draws = [judge(matrix).of_experts(rng.integers(5, size=len(matrix.items))).average for _ in range(200)]
    assert abs(ours.average - np.mean(draws)) < 5 * deviation * math.sqrt(2 / 200)
    assert deviation == pytest.approx(np.std(draws), rel=0.3)
    assert ours.accuracy == 20.0


def test_perplexities_by_hand() -> None:
    rows = [("coding", 10, (20, 30)), ("coding", 30, (30, 60)), ("math", 5, (10, 5)), ("math", 5, (15, 10))]
    found = judge(matrix_of("perplexity", rows)).of_experts(np.array([0, 1, 1, 0]))
    # coding: (20 + 60) nats over 40 tokens, its own expert 50; math: (5 + 15) over 10, its own expert 15
    assert found.raw == pytest.approx((math.exp(80 / 40), math.exp(20 / 10)))
    assert found.normalised == pytest.approx((100 * math.exp(50 / 40 - 80 / 40), 100 * math.exp(15 / 10 - 20 / 10)))
    assert found.average == pytest.approx(sum(found.normalised) / 2) and found.accuracy == 50.0


def test_scores_by_hand() -> None:
    rows = [("coding", 1, (1, 0)), ("coding", 1, (1, 1)), ("math", 3, (1, 3)), ("math", 1, (0, 1))]
    found = judge(matrix_of("score", rows)).of_experts(np.array([1, 1, 0, 1]))
    # coding: 1 of 2 points where its own expert has 2; math: 1 + 1 of 4 where its own expert has 4
    assert found.raw == pytest.approx((50.0, 50.0)) and found.normalised == pytest.approx((50.0, 50.0))
    assert found.accuracy == pytest.approx(25.0)


def test_groups_count_alike_however_many_items_they_have() -> None:
    rows = [("law", 1, (1, 0)), *[("law", 1, (1, 0))] * 9, ("math", 1, (0, 1))]
    matrix = matrix_of("score", rows, groups=["fr", *["de"] * 9, ""])
    found = judge(matrix).of_experts(np.array([0, *[1] * 9, 1]))
    assert found.raw[0] == 50.0  # all of one language and nothing of the other, whatever their sizes


def test_extras_are_judged_and_have_no_routing_accuracy() -> None:
    rows = [("coding", 1, (1, 0, 1)), ("math", 1, (0, 1, 0))]
    found = judge(matrix_of("score", rows)).of_column("average")
    assert found.normalised == (100.0, 0.0) and found.accuracy is None
    assert judge(matrix_of("score", rows)).of_column("math").accuracy == 50.0


def test_where_the_own_expert_has_nothing_everyone_has_all_of_it() -> None:
    rows = [("coding", 1, (0, 0)), ("math", 1, (0, 1))]
    assert judge(matrix_of("score", rows)).of_experts(np.array([1, 1])).normalised == (100.0, 100.0)


def test_a_difference_is_that_of_the_figures_and_of_a_router_to_itself_nothing() -> None:
    matrix = random_matrix("score", items=40, domains=("coding", "math"))
    one, other = (judge(matrix).of_experts(chosen(matrix, share, 3)) for share in (0.1, 0.5))
    found = normalised_difference(one, other, [0, 1])
    assert found.value == pytest.approx(one.average - other.average) and found.is_above and not found.is_below
    assert normalised_difference(other, one, [0, 1]).is_below
    same = normalised_difference(one, judge(matrix).of_experts(chosen(matrix, 0.1, 3)), [0])
    assert (same.value, same.interval) == (0.0, (0.0, 0.0)) and not same.is_above and not same.is_below
    accuracy = accuracy_difference(one, other)
    assert accuracy is not None and accuracy.value == pytest.approx((one.accuracy or 0) - (other.accuracy or 0))
    assert accuracy_difference(one, judge(matrix).of_values("average")) is None


def test_differences_of_scores_and_perplexities_by_hand() -> None:
    rows = [("coding", 10, (20, 30)), ("math", 10, (10, 10))]
    right, wrong = (judge(matrix_of("perplexity", rows)).of_experts(np.array(c)) for c in ([0, 1], [1, 1]))
    found = perplexity_difference(wrong, right, [0, 1])  # e³ for e² in one of two domains
    assert found.value == pytest.approx(100 * (math.exp(0.5) - 1))
    rows = [("coding", 1, (1, 0)), ("math", 1, (0, 1))]
    right, wrong = (judge(matrix_of("score", rows)).of_experts(np.array(c)) for c in ([0, 1], [1, 1]))
    assert score_difference(wrong, right, [0, 1]).value == -50.0


def test_an_interval_of_a_difference_covers_what_pairing_leaves() -> None:
    """A router that is wrong on a few items more is surely worse, though the intervals of the two overlap."""
    matrix = random_matrix("perplexity", items=200, domains=("coding", "math"))
    many, more = (np.where(np.arange(400) % step == 0, 1 - matrix.own_expert, matrix.own_expert) for step in (5, 49))
    found = [Judge(matrix).of_experts(columns) for columns in (many, np.where(many != matrix.own_expert, many, more))]
    assert found[1].average_interval[1] > found[0].average_interval[0]
    assert normalised_difference(found[1], found[0], [0, 1]).is_below


# the authors' evaluation ------------------------------------------------------------------------------------------


def test_items_beyond_the_first_of_an_expert_are_not_scored() -> None:
    rows = [("coding", 10, (20, 30)), ("coding", 10, (40, 60)), ("math", 10, (30, 10)), ("math", 10, (50, 10))]
    matrix = matrix_of("perplexity", [*rows, ("math", 10, (1, 1))])
    part = first_items(matrix, 2)
    assert part.items == matrix.items[:4]  # two of each domain
    found = TruncatedJudge(part, number=2).of_experts(np.array([0, 0, 0, 1]))
    # the first expert is sent three items, and the third, math's first, is not scored: e¹ where its own expert has e¹
    assert found.normalised == pytest.approx((100.0, 100.0)) and found.accuracy == 75.0
    assert Judge(part).of_experts(np.array([0, 0, 0, 1])).normalised[1] == pytest.approx(100 / math.e)


def test_a_figure_passes_100_by_what_is_left_out_and_is_0_where_nothing_is_left() -> None:
    rows = [("coding", 10, (20, 99)), ("coding", 10, (40, 99)), ("math", 10, (99, 10)), ("math", 10, (99, 40))]
    judge_two = TruncatedJudge(matrix_of("perplexity", rows), number=2)
    # math's expert is sent coding's second item first, then both of its own: the hard one is left out
    assert judge_two.of_experts(np.array([0, 1, 1, 1])).normalised[1] == pytest.approx(100 * math.exp(2.5 - 1))
    assert judge_two.of_experts(np.array([1, 1, 1, 1])).normalised[1] == 0.0


@given(matrices.filter(lambda matrix: matrix.metric == "perplexity"), st.floats(0, 1))
@settings(max_examples=15, deadline=None)
def test_scoring_all_items_of_all_experts_is_the_honest_evaluation(matrix: Matrix, wrong: float) -> None:
    columns = chosen(matrix, wrong)
    every = TruncatedJudge(matrix, number=len(matrix.items)).of_experts(columns)
    assert every.normalised == pytest.approx(judge(matrix).of_experts(columns).normalised)
    for one, other in zip(
        every.resampled.normalised, judge(matrix).of_experts(columns).resampled.normalised, strict=True
    ):
        assert np.allclose(one, other)
