"""Statistics of few prompts are kept small: the same integers, digests and bits as if they were not."""

import pickle

import numpy as np
import pytest

import tiny
from ir3de import Statistics
from ir3de.scorers import ridge
from ir3de.statistics.compact import SparseCounts, WindowRows, unpack_triangle
from laws import counted

FEW = tiny.embedding().width // 4  # windows
TEXTS = tiny.sentences("law", 6 * FEW)


def rows_of(statistics: Statistics) -> WindowRows | None:
    assert statistics.sums is not None
    found: WindowRows | None = statistics.sums.find_compact("gram")
    return found


def make_whole(statistics: Statistics) -> Statistics:
    assert statistics.sums is not None
    statistics.sums.keep_whole("gram")
    return statistics


def test_few_windows_are_kept_and_many_are_summed() -> None:
    few, many = counted(TEXTS[:FEW]), counted(TEXTS)
    assert rows_of(few) is not None and rows_of(many) is None
    parts = [counted(TEXTS[begin : begin + FEW]) for begin in range(0, len(TEXTS), FEW)]
    total = sum(parts[1:], start=parts[0])
    assert rows_of(total) is None
    assert total == many and total.digest == many.digest
    assert total - parts[0] == sum(parts[2:], start=parts[1])


@pytest.mark.parametrize("subsample", [1, 2])
def test_what_is_kept_small_reads_as_the_whole(subsample: int) -> None:
    small, whole = (counted(TEXTS[:FEW], subsample=subsample) for _ in range(2))
    assert rows_of(small) is not None and rows_of(make_whole(whole)) is None
    assert small == whole and small.digest == whole.digest
    mixed = small + counted(TEXTS[:1])  # windows that count differently often
    assert mixed == make_whole(whole) + counted(TEXTS[:1])
    assert small.sums is not None
    assert not small.sums.gram.flags.writeable and not small.histogram.flags.writeable


def test_small_statistics_stay_small_when_they_are_pickled() -> None:
    small = counted(TEXTS[:FEW])
    again = pickle.loads(pickle.dumps(small))
    assert again == small and rows_of(again) is not None


def test_a_fit_has_the_same_bits_whether_matrices_are_kept_or_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [counted(tiny.sentences(name, FEW + place)) for place, name in enumerate(tiny.DOMAINS)]
    sums, weights = ridge.require_prompt_sums(own), np.linspace(0.1, 1.0, 2 * len(own)).reshape(2, -1)
    monkeypatch.setattr(ridge, "KEPT_BYTES", 0)
    monkeypatch.setattr(ridge, "GRAMS_AT_ONCE", 2)
    computed = ridge.add_grams(sums, weights)
    assert rows_of(own[0]) is not None
    monkeypatch.undo()
    kept = ridge.add_grams(sums, weights)
    assert rows_of(own[0]) is None
    assert np.array_equal(computed, kept)


def test_counts_that_are_mostly_zero_are_kept_sparse() -> None:
    rng = np.random.default_rng(0)
    sparse, dense = np.zeros(1_000, np.int64), rng.integers(0, 9, 1_000)
    sparse[rng.choice(1_000, 50)] = rng.integers(1, 1 << 50, 50)
    found = SparseCounts.of(sparse)
    assert found is not None and np.array_equal(found.restore(), sparse)
    assert SparseCounts.of(dense) is None
    assert SparseCounts.of(np.zeros(3, np.int64)) is not None


def test_a_change_adds_up_the_part_of_the_changed_domain_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge, "MIN_DIVIDED", 2)
    added: list[int] = []
    add_part = ridge._add_part
    monkeypatch.setattr(ridge, "_add_part", lambda sums, *more: (added.append(len(sums)), add_part(sums, *more))[1])
    names = list(tiny.DOMAINS)
    own = [counted(tiny.sentences(names[place % len(names)], 8, seed=place)) for place in range(24)]

    def add(domains: list[Statistics]) -> np.ndarray:
        """All windows; and those that are left without one of each domain."""
        sums = ridge.require_prompt_sums(domains)
        places, weights = np.arange(len(sums)), np.array([1.0 / one.windows for one in sums])
        rows = np.stack([one.unit * one.vector for one in sums]) * np.sqrt(weights)[:, None] / 8
        hashes = np.array([int(one.vector.sum()) for one in sums])
        nothing = ridge.HeldWindows(rows[:0], places[:0], places[:0])
        return ridge.add_grams(sums, np.stack((weights, weights)), [nothing, ridge.HeldWindows(rows, places, hashes)])

    whole = add(own)
    assert sum(added) == len(own)
    np.testing.assert_allclose(whole[:1], add_part([one.sums for one in own], np.full((1, 24), 1 / 8), ()), rtol=1e-12)
    vectors = np.stack([one.sums.unit * one.sums.vector for one in own if one.sums is not None]) / 8
    np.testing.assert_allclose(
        unpack_triangle(whole[0] - whole[1], vectors.shape[1]), vectors.T @ vectors / 8, atol=1e-12
    )
    for changed in ([*own[:5], *own[6:]], [*own, counted(tiny.sentences("law", 8, seed=99))]):
        add(own)
        added.clear()
        found = add(changed)
        assert sum(added) < len(own) / 2
        assert np.array_equal(found, add(pickle.loads(pickle.dumps(changed))))  # as if nothing had been kept
