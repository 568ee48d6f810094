"""Neighbouring tokens, hashed and counted: integer arithmetic, never across prompts, and sums like all else."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de.statistics.domain import BUCKETS, FEW_TOKENS, count_pairs, hash_pairs, pair_buckets, within_prompts
from laws import counted, ids_of, integer_pairs, texts

ids = st.integers(0, 2**32 - 1)
prompts = st.lists(st.lists(ids, max_size=6), max_size=8)


def laid_out(some: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids end to end, where each prompt starts, and how long it is."""
    lengths = np.array([len(one) for one in some], np.int64)
    return np.array([token for one in some for token in one], np.uint32), np.cumsum(lengths) - lengths, lengths


@tiny.LAW
@given(prompts)
def test_counts_are_those_of_python_integers_prompt_by_prompt(some: list[list[int]]) -> None:
    counts = count_pairs(*laid_out(some))
    assert counts.shape == (BUCKETS,)
    assert np.array_equal(counts, integer_pairs(some))
    assert counts.sum() == sum(max(0, len(one) - 1) for one in some)


@tiny.LAW
@given(prompts)
def test_no_pair_spans_two_prompts(some: list[list[int]]) -> None:
    flat, starts, lengths = laid_out(some)
    owner = np.repeat(np.arange(len(some)), lengths)
    assert within_prompts(len(flat), starts, lengths).tolist() == (owner[1:] == owner[:-1]).tolist()


@tiny.LAW
@given(st.lists(ids, max_size=12))
def test_a_bucket_depends_on_its_two_tokens_alone(some: list[int]) -> None:
    whole = pair_buckets(np.array(some, np.uint32))
    alone = [pair_buckets(np.array(some[i : i + 2], np.uint32)).tolist() for i in range(len(some) - 1)]
    assert [[bucket] for bucket in whole.tolist()] == alone


@pytest.mark.parametrize("length", [0, 1, 2, FEW_TOKENS - 1, FEW_TOKENS, FEW_TOKENS + 1, 3 * FEW_TOKENS])
@pytest.mark.parametrize("kind", [np.uint16, np.uint32, np.uint64])
def test_buckets_do_not_depend_on_the_length_of_the_prompt_or_the_size_of_its_integers(length: int, kind: type) -> None:
    some = np.random.default_rng(length).integers(0, 1 << 16, length)
    found = pair_buckets(some.astype(kind))
    assert found.tolist() == hash_pairs(some.astype(kind)).tolist()
    assert np.array_equal(np.bincount(found, minlength=BUCKETS), integer_pairs([some.tolist()]))


def test_the_order_of_two_tokens_matters_and_buckets_are_used_evenly() -> None:
    left, right = np.divmod(np.arange(1 << 18, dtype=np.uint32), np.uint32(512))
    there = pair_buckets(np.column_stack((left, right)).ravel())[::2]
    back = pair_buckets(np.column_stack((right, left)).ravel())[::2]
    assert (there == back).mean() < 0.01
    filled = np.bincount(there, minlength=BUCKETS)  # 4 a bucket, were they dealt out evenly
    assert (filled > 0).mean() > 0.9
    assert filled.max() < 40


@tiny.LAW
@given(texts, texts, st.none() | st.integers(1, 9), st.integers(1, 4))
def test_counts_add_up_and_windows_change_nothing(
    some: list[str], others: list[str], cap: int | None, every: int
) -> None:
    one, two = (counted(own, cap=cap, window=5, subsample=every) for own in (some, others))
    expected = integer_pairs([tokens[:cap] for tokens in ids_of([*some, *others])])
    assert np.array_equal((one + two).sums.pairs, expected)
    assert np.array_equal((one + two - one).sums.pairs, two.sums.pairs)
