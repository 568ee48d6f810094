"""Laws of outcomes: sums exact in any order, models that come later, missing scores, and a cautious fit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de.errors import InputError, MismatchError
from ir3de.fitting.outcomes import collect_outcomes
from ir3de.fitting.quality import Quality, fit_quality
from ir3de.fitting.shrinkage import PULLS, STRENGTHS, cross_validate, most_cautious
from ir3de.scorers.expectation import Shrinkage
from ir3de.selectors import DEFAULT_CAP
from ir3de.statistics.outcomes import SCORE_UNIT, Outcomes

TASKS = tuple(tiny.DOMAINS)
MODELS = ("ant", "bee", "cat")
Rows = list[dict[str, Any]]


def rows(number: int = 12, *, seed: int = 0, missing: float = 0.0) -> Rows:
    """Each task is done best by the model in its place; scores are noisy and some are missing."""
    draw = random.Random(seed)
    made = []
    for place, task in enumerate(TASKS):
        for text in tiny.sentences(task, number, seed=seed):
            scores = {m: float(i == place) + draw.random() * 0.3 for i, m in enumerate(MODELS)}
            kept = {m: s for m, s in scores.items() if draw.random() >= missing}
            made.append({"text": text, "task": task, "scores": kept or scores})
    return made


def collected(some: Rows) -> Outcomes:
    return collect_outcomes(some, embedding=tiny.embedding())


def fitted(some: Rows, shrinkage: Shrinkage | None = None) -> Quality:
    return fit_quality(collected(some), tiny.embedding().matrix, shrinkage)


def quality_of(fit: Quality, text: str) -> np.ndarray:
    ids = np.asarray(tiny.embedding().encode(text))[:DEFAULT_CAP].astype(int)
    if not len(ids):
        return fit.expectation.at_rest
    return fit.expectation.of(fit.scores[ids].mean(axis=0, dtype=np.float64).tolist(), len(ids))


def chosen(fit: Quality, text: str) -> str:
    return fit.models[int(quality_of(fit, text).argmax())]


def only(some: Rows, models: set[str]) -> Rows:
    return [{**row, "scores": {m: s for m, s in row["scores"].items() if m in models}} for row in some]


@given(st.randoms(use_true_random=False), st.sampled_from([0.0, 0.4]))
@tiny.LAW
def test_the_order_of_rows_changes_no_bit(shuffler: random.Random, missing: float) -> None:
    some = rows(6, missing=missing)
    shuffled = shuffler.sample(some, len(some))
    assert collected(shuffled) == collected(some)
    one, other = fitted(some), fitted(shuffled)
    assert np.array_equal(one.scores, other.scores)
    assert np.array_equal(one.expectation.means, other.expectation.means)


@given(st.integers(1, 35))
@tiny.LAW
def test_merged_is_seen_together_and_taken_out_is_never_seen(cut: int) -> None:
    some = rows(12, missing=0.3)
    one, other = collected(some[:cut]), collected(some[cut:])
    assert one + other == collected(some) == sum([other, one])
    assert one + other - other == one


def test_a_model_added_later_is_a_model_that_was_always_there() -> None:
    some = rows()
    later = collected(only(some, {"ant", "bee"})) + collected(only(some, {"cat"}))
    assert later == collected(some)
    assert later.without("cat") == collected(only(some, {"ant", "bee"}))
    shrinkage = Shrinkage(16.0, 64.0)
    one = fit_quality(later, tiny.embedding().matrix, shrinkage)
    assert np.array_equal(one.scores, fitted(some, shrinkage).scores)


def test_the_sums_are_those_of_the_rows() -> None:
    some = rows(4)
    cells = collected(some).cells
    for task in TASKS:
        mine = [row["scores"]["bee"] for row in some if row["task"] == task]
        total = sum(sums.total for key, sums in cells.items() if key[:2] == (task, "bee"))
        assert sum(sums.rows for key, sums in cells.items() if key[:2] == (task, "bee")) == len(mine)
        assert total * SCORE_UNIT == pytest.approx(sum(mine), abs=SCORE_UNIT * len(mine))


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_every_task_gets_the_model_that_is_best_at_it(missing: float) -> None:
    def plain(task: str, seed: int) -> str:  # long enough to be told apart without fail
        return " ".join(random.Random(f"{task} {seed}").choices(tiny.DOMAINS[task], k=100))

    some = [{**row, "text": plain(row["task"], seed)} for seed, row in enumerate(rows(40, missing=missing))]
    fit = fitted(some)
    for place, task in enumerate(TASKS):
        for seed in range(1_000, 1_020):
            assert chosen(fit, plain(task, seed)) == MODELS[place]


def test_prompts_tell_models_apart_where_no_task_is_named() -> None:
    some = [{"text": row["text"], "scores": row["scores"]} for row in rows(120)]
    fit = fitted(some)
    assert fit.expectation.tasks == ("",)
    assert fit.expectation.shrinkage.strength < float("inf")
    fresh = [(text, MODELS[place]) for place, task in enumerate(TASKS) for text in tiny.sentences(task, 20, seed=9)]
    assert np.mean([chosen(fit, text) == best for text, best in fresh]) > 0.7


def test_scores_that_have_nothing_to_do_with_the_prompt_leave_the_task_alone() -> None:
    draw = random.Random(3)
    some = [{**row, "scores": {m: draw.random() for m in MODELS}} for row in rows(40)]
    assert cross_validate(collected(some))[0].strength == float("inf")


def test_the_scale_of_scores_changes_no_choice() -> None:
    some = rows(20)
    percent = [{**row, "scores": {m: 100 * s for m, s in row["scores"].items()}} for row in some]
    one, other = fitted(some), fitted(percent)
    assert one.expectation.shrinkage == other.expectation.shrinkage
    for text in tiny.mixed(20, seed=5):
        np.testing.assert_allclose(100 * quality_of(one, text), quality_of(other, text), atol=0.1)


def test_equal_scores_go_to_the_first_model() -> None:
    fit = fitted([{**row, "scores": dict.fromkeys(MODELS, 0.7)} for row in rows(10)], Shrinkage(16.0, 16.0))
    for text in tiny.mixed(20, seed=5):
        np.testing.assert_allclose(quality_of(fit, text), 0.7, atol=1e-4)
        assert chosen(fit, text) == "ant"


def test_one_row_is_enough_and_hears_no_prompt() -> None:
    fit = fitted([{"text": "what is this", "scores": {"ant": 0, "bee": 1}}])
    assert fit.expectation.shrinkage == Shrinkage(PULLS[0], STRENGTHS[0])
    assert chosen(fit, "something else") == "bee"
    np.testing.assert_allclose(quality_of(fit, "something else"), [0, 1], atol=1e-6)


def test_a_model_unseen_on_a_task_is_expected_as_far_above_the_others_as_elsewhere() -> None:
    some = [{**row, "scores": {"ant": 0.2, "bee": 0.5}} for row in rows(10)]
    for row in some:
        if row["task"] == TASKS[0]:
            del row["scores"]["bee"]
    fit = fitted(some)
    assert (
        fit.expectation.means[fit.expectation.tasks.index(TASKS[0]), 1]
        > fit.expectation.means[fit.expectation.tasks.index(TASKS[0]), 0]
    )


def test_an_empty_prompt_is_worth_the_mean_over_tasks() -> None:
    fit = fitted(rows(6))
    np.testing.assert_allclose(quality_of(fit, ""), fit.expectation.means.mean(axis=0))


def test_caution_gives_way_only_to_more_than_a_standard_error() -> None:
    assert most_cautious((3.0, 2.0, 1.0), [[5, 4, 4], [6, 5, 5], [7, 6.1, 6]]) == 2.0
    assert most_cautious((3.0, 1.0), [[5, 4], [5, 5.5], [5, 4.9]]) == 3.0
    assert most_cautious((3.0, 1.0), [[5, 4]]) == 3.0


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "0.5", [1], 1e6])
def test_a_score_that_is_no_number_is_named(score: object) -> None:
    bad = [*rows(1), {"text": "a", "scores": {"ant": 1, "bee": score}}]
    with pytest.raises(InputError, match=f"row {len(bad)}: the score of 'bee'"):
        collected(bad)


@pytest.mark.parametrize(
    "row",
    ["text", {"scores": {"a": 1}}, {"text": 3, "scores": {"a": 1}}, {"text": "a"}, {"text": "a", "scores": [1]},
     {"text": "a", "task": 3, "scores": {"a": 1}}, {"text": "a", "scores": {"": 1}}],
)  # fmt: skip
def test_a_row_that_cannot_be_used_is_numbered(row: Any) -> None:
    with pytest.raises(InputError, match="row 1: "):
        collected([row])


def test_a_model_without_a_score_is_refused() -> None:
    with pytest.raises(InputError, match="'bee'"):
        collected([{"text": "a", "scores": {"ant": 1, "bee": None}}])
    with pytest.raises(InputError, match="at least one"):
        collected([])


def test_outcomes_of_two_embeddings_do_not_mix() -> None:
    other = collect_outcomes(rows(1), embedding=tiny.other_embedding())
    with pytest.raises(MismatchError):
        collected(rows(1)) + other
    with pytest.raises(InputError, match="was never added"):
        collected(rows(1)[:1]) - collected(rows(1))


# lengths -------------------------------------------------------------------------------------------------------------


def long_and_short(number: int = 60) -> Rows:
    """Ant does well on short prompts, bee on long ones, whatever they are about."""
    made = []
    for seed in range(number):
        size = 4 if seed % 2 else 64
        text = " ".join(random.Random(seed).choices(tiny.DOMAINS[TASKS[0]], k=size))
        made.append({"text": text, "scores": {"ant": float(size == 4), "bee": float(size > 4)}})
    return made


def test_the_length_of_a_prompt_is_heard_where_it_tells_models_apart() -> None:
    fit = fitted(long_and_short())
    slopes = fit.expectation.slopes
    assert fit.expectation.shrinkage.length > 0 and slopes is not None
    assert slopes[0] == pytest.approx(-slopes[1]) and slopes[1] > 0.05
    words = tiny.DOMAINS[TASKS[0]]
    assert chosen(fit, " ".join(words[:3])) == "ant" and chosen(fit, " ".join(words * 20)) == "bee"


def test_prompts_of_one_length_have_no_slope() -> None:
    same = [{"text": word * 8, "scores": {"ant": 1.0, "bee": 0.5}} for word in "abcde"]
    assert len({len(tiny.embedding().encode(row["text"])) for row in same}) == 1
    fit = fit_quality(collected(same), tiny.embedding().matrix, Shrinkage(16.0, 16.0, 0.1))
    assert fit.expectation.slopes is not None and not fit.expectation.slopes.any()


def test_sums_without_lengths_stay_without() -> None:
    old, new = collected(rows(6)).without_length(), collected(rows(6, seed=1))
    both = old + new
    assert not both.has_length and both == new + old and both - new.without_length() == old
    assert old == old.without_length() != collected(rows(6))
    fit = fit_quality(both, tiny.embedding().matrix)
    assert fit.expectation.slopes is None and fit.expectation.shrinkage.length == 0
    with pytest.raises(InputError, match="without the lengths"):
        fit_quality(both, tiny.embedding().matrix, Shrinkage(16.0, 16.0, 0.1))


def test_lengths_change_nothing_where_they_are_left_out() -> None:
    outcomes, shrinkage = collected(rows(12, missing=0.3)), Shrinkage(16.0, 64.0)
    one = fit_quality(outcomes, tiny.embedding().matrix, shrinkage)
    other = fit_quality(outcomes.without_length(), tiny.embedding().matrix, shrinkage)
    np.testing.assert_allclose(one.scores, other.scores, atol=1e-5)


@pytest.mark.parametrize("wrong", [(0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (1.0, 1.0, -0.1), (1.0, 1.0, float("nan"))])
def test_shrinkage_is_checked(wrong: tuple[float, float, float]) -> None:
    with pytest.raises(InputError, match="length at least 0"):
        Shrinkage(*wrong)
