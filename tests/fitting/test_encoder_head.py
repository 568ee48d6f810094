"""The linear head on the vectors of a sentence encoder."""

from __future__ import annotations

import numpy as np
import pytest

from ir3de.errors import InputError
from ir3de.fitting.encoder_head import fit_head, predict

WIDTH, EXPERTS = 24, 4


def make_vectors(each: int, seed: int = 0, spread: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around one direction for each expert, and around one that all share, as an encoder's are."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(EXPERTS, WIDTH)) + 2.0
    experts = np.repeat(np.arange(EXPERTS), each)
    found = centres[experts] + spread * rng.normal(size=(len(experts), WIDTH))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32), experts


def test_few_prompts_are_enough_for_experts_that_lie_apart() -> None:
    vectors, experts = make_vectors(4)
    head = fit_head(vectors, experts, EXPERTS)
    others, labels = make_vectors(50, seed=1)
    assert (head.predict(others).argmax(axis=1) == labels).mean() > 0.95
    assert (head.held_out.argmax(axis=1) == experts).mean() > 0.8


def test_log_probabilities_add_up_to_one_and_do_not_depend_on_the_batch() -> None:
    vectors, experts = make_vectors(5)
    head = fit_head(vectors, experts, EXPERTS)
    assert head.W.shape == (WIDTH + 1, EXPERTS)
    assert head.W.dtype == np.float32
    np.testing.assert_allclose(np.exp(head.predict(vectors)).sum(axis=1), 1.0)
    np.testing.assert_array_equal(head.predict(vectors)[3:4], head.predict(vectors[3:4]))


def test_the_order_of_the_prompts_does_not_matter() -> None:
    vectors, experts = make_vectors(6, spread=1.5)
    order = np.random.default_rng(3).permutation(len(experts))
    first, second = fit_head(vectors, experts, EXPERTS), fit_head(vectors[order], experts[order], EXPERTS)
    np.testing.assert_array_equal(first.W, second.W)
    np.testing.assert_array_equal(first.held_out[order], second.held_out)


def test_held_out_predictions_do_not_know_the_label() -> None:
    """Labels by chance cannot be predicted: a fit that saw the prompt would be right on all of them."""
    vectors, _ = make_vectors(10)
    experts = np.random.default_rng(5).permutation(np.repeat(np.arange(EXPERTS), 10))
    head = fit_head(vectors, experts, EXPERTS)
    assert (head.held_out.argmax(axis=1) == experts).mean() < 0.6


def test_copies_of_a_prompt_are_held_out_together() -> None:
    vectors, _ = make_vectors(5)
    experts = np.random.default_rng(5).permutation(np.repeat(np.arange(EXPERTS), 5))
    head = fit_head(np.repeat(vectors, 3, axis=0), np.repeat(experts, 3), EXPERTS)
    assert (head.held_out.argmax(axis=1) == np.repeat(experts, 3)).mean() < 0.6


def test_an_only_prompt_is_never_held_out() -> None:
    vectors, experts = make_vectors(4)
    vectors, experts = vectors[3:], experts[3:]  # the first expert has one
    head = fit_head(vectors, experts, EXPERTS)
    assert np.isnan(head.held_out[0]).all()
    assert np.isfinite(head.held_out[1:]).all()
    alone = fit_head(vectors[[0, 1, 5, 9]], np.arange(EXPERTS), EXPERTS)
    assert np.isnan(alone.held_out).all()
    assert (alone.predict(vectors).argmax(axis=1) == experts).mean() > 0.8


def test_every_expert_weighs_the_same() -> None:
    vectors, experts = make_vectors(40, spread=3.0)
    few = [np.flatnonzero(experts == c)[:5] for c in range(1, EXPERTS)]
    some = np.concatenate([np.flatnonzero(experts == 0), *few])
    head = fit_head(vectors[some], experts[some], EXPERTS)
    others, _ = make_vectors(200, seed=1, spread=3.0)
    counts = np.bincount(head.predict(others).argmax(axis=1), minlength=EXPERTS)
    assert counts[0] < 0.5 * len(others)


def test_one_expert_has_all_the_probability() -> None:
    vectors, _ = make_vectors(2)
    head = fit_head(vectors, np.zeros(len(vectors), int), 1)
    np.testing.assert_array_equal(predict(head.W, vectors), 0.0)


def test_what_cannot_be_fitted_is_rejected() -> None:
    vectors, experts = make_vectors(3)
    with pytest.raises(InputError, match="one vector a prompt"):
        fit_head(vectors[:-1], experts, EXPERTS)
    with pytest.raises(InputError, match="finite vectors"):
        fit_head(vectors * np.nan, experts, EXPERTS)
    with pytest.raises(InputError, match="1 of 4 experts have no prompt"):
        fit_head(vectors, np.minimum(experts, 2), EXPERTS)
