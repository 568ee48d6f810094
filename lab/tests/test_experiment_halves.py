"""Routing by outcomes of the other half: translations stay together, and no item's own outcome takes part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiment_files import matrix_of
from ir3de.errors import InputError
from ir3de_lab.experiments.halves import BY_DOMAIN, FROM_OUTCOMES, SINGLE, choose_by_halves, halve, score
from ir3de_lab.experiments.material import Item
from ir3de_lab.experiments.matrix import Matrix

WORDS = {"math": "add the numbers and divide", "coding": "write a function in python"}


def stage(number: int = 40) -> tuple[list[Item], Matrix]:
    """Two domains; the coding expert is the better one in both, and by far in its own."""
    items, rows = [], []
    for domain, words in WORDS.items():
        for place in range(number):
            items.append(Item(f"{domain}/{place}", domain, f"{words} {place}", {"id": f"{domain}-{place}"}))
            rows.append((domain, 2.0, [1.0, 2.0] if domain == "math" else [0.0, 2.0]))
    return items, matrix_of("score", rows)


def test_a_question_and_its_translations_are_in_one_half() -> None:
    items, matrix = stage()
    groups = tuple("de" if place % 2 else "fr" for place in range(len(items)))
    named = [
        replace(i, row={"id": f"{g}/question-{n // 2}"}) for n, (i, g) in enumerate(zip(items, groups, strict=True))
    ]
    found = halve(named, replace(matrix, group=groups))
    assert (found[::2] == found[1::2]).all()
    assert 0.2 < found.mean() < 0.8


@pytest.mark.nightly
@pytest.mark.slow
def test_each_way_finds_the_expert_that_the_other_half_shows() -> None:
    items, matrix = stage()
    found = {one.name: one for one in choose_by_halves(items, matrix, [item.domain for item in items])}
    assert set(found) == {FROM_OUTCOMES, BY_DOMAIN, SINGLE}
    for one in found.values():
        assert (one.columns == 1).all()  # and not the math expert, whose domain half of them are
    assert len(found[FROM_OUTCOMES].about["validation_by_half"]) == 2


@pytest.mark.nightly
def test_an_items_own_outcome_does_not_change_its_choice() -> None:
    items, matrix = stage()
    first = halve(items, matrix)
    changed = matrix.values.copy()
    changed[first] = changed[first][:, ::-1]  # only what the choices of the other half are made from
    before, after = (
        {one.name: one.columns for one in choose_by_halves(items, given, [item.domain for item in items])}
        for given in (matrix, replace(matrix, values=changed))
    )
    for name in (BY_DOMAIN, SINGLE):
        assert (before[name][first] == after[name][first]).all()
        assert (before[name][~first] != after[name][~first]).any()
    assert (before[FROM_OUTCOMES][first] == after[FROM_OUTCOMES][first]).all()


def test_scores_are_larger_where_a_model_is_better() -> None:
    rows = [("math", 2.0, [1.0, 2.0]), ("coding", 1.0, [0.5, 0.25])]
    assert score(matrix_of("score", rows)).tolist() == [[0.5, 1.0], [0.5, 0.25]]
    assert score(matrix_of("perplexity", rows)).tolist() == [[-0.5, -1.0], [-0.5, -0.25]]


def test_items_of_one_question_cannot_be_halved() -> None:
    items, matrix = stage(2)
    same = [replace(item, row={"id": "one"}) for item in items]
    with pytest.raises(InputError, match="cannot be halved"):
        list(choose_by_halves(same, matrix, ["math"] * len(items)))
    assert np.unique(halve(same, matrix)).size == 1
