"""Statistics are sums of integers: they add and subtract exactly, whatever the texts, the order and the split."""

import random
import zlib
from collections import Counter
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de import Statistics, collect
from ir3de.embedding import Matrix
from ir3de.errors import InputError
from ir3de.statistics import PromptSums, counting
from laws import counted, ids_of, integer_sums, seeds, texts, wordy


@tiny.LAW
@given(texts)
def test_the_histogram_is_a_count_of_every_token(some: list[str]) -> None:
    statistics = counted(some)
    expected = Counter(token for text in some for token in tiny.embedding().encode(text).tolist())
    assert {t: int(n) for t, n in enumerate(statistics.histogram) if n} == dict(expected)
    assert (statistics.prompts, statistics.tokens) == (len(some), expected.total())


@tiny.LAW
@given(texts, seeds)
def test_any_order_and_any_split_gives_the_same_bits(some: list[str], seed: int) -> None:
    together = counted(some)
    draw = random.Random(seed)
    shuffled = draw.sample(some, len(some))
    edges = sorted(draw.randint(0, len(some)) for _ in range(draw.randint(0, 4)))
    shards = [counted(shuffled[a:b]) for a, b in zip([0, *edges], [*edges, len(some)], strict=True)]
    draw.shuffle(shards)

    merged = sum(shards)

    assert merged == together
    assert merged.digest == together.digest


@tiny.LAW
@given(texts, texts)
def test_what_is_added_can_be_taken_out_again(some: list[str], others: list[str]) -> None:
    one, two = counted(some), counted(others)
    assert (one + two - two).digest == one.digest
    assert one + two - two == one
    assert one + two - one == two
    assert one - one == counted([])


@tiny.LAW
@given(texts, wordy)
def test_what_was_never_added_cannot_be_taken_out(some: list[str], more: str) -> None:
    statistics = counted(some)
    with pytest.raises(InputError, match="was never added"):
        statistics - (statistics + counted([more]))


@tiny.LAW
@given(texts, texts)
def test_a_digest_tells_statistics_apart(some: list[str], others: list[str]) -> None:
    one, two = counted(some), counted(others)
    assert (one == two) == (one.digest == two.digest)
    assert (one.histogram_only() == one) is False
    assert one.histogram_only().digest != one.digest


@tiny.LAW
@given(texts, st.integers(1, 60), st.integers(1, 5), st.none() | st.integers(1, 20))
def test_chunks_blocks_and_threads_change_nothing(some: list[str], characters: int, size: int, cap: int | None) -> None:
    expected = counted(some, window=8, cap=cap)
    for threads in (1, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(counting, "count_cores", lambda threads=threads: threads)
            patch.setattr(counting, "CHUNK_CHARACTERS", characters)
            patch.setattr(counting, "GRAM_WINDOWS", size)
            patch.setattr(counting, "EXACT_TOKENS", size)
            assert counted(some, window=8, cap=cap) == expected


@tiny.LAW
@given(texts, st.integers(1, 40))
def test_prompt_sums_are_those_of_integer_arithmetic(some: list[str], window: int) -> None:
    assert counted(some, window=window).sums == integer_sums(tiny.embedding(), ids_of(some), window)


@tiny.LAW
@given(texts, st.integers(2, 5))
def test_a_sample_is_chosen_by_content_and_weighs_what_it_stands_for(some: list[str], sample: int) -> None:
    hashes = [zlib.crc32(text.encode()) for text in some]
    statistics = counted(some, subsample=sample, window=6)
    assert statistics.sums == integer_sums(tiny.embedding(), ids_of(some), 6, hashes, sample)
    assert statistics.histogram_only() == counted(some).histogram_only()


@pytest.mark.parametrize("window", [128, 4_096, 8_192])
@pytest.mark.parametrize("tokens", [8_192, 12_286])
def test_the_longest_windows_are_summed_exactly(window: int, tokens: int) -> None:
    """Entries near the largest, whose mean lies half-way between two integers: a sum that is off by one shows."""
    embedding = tiny.embedding()
    one, two = (int(embedding.encode(text)[0]) for text in "!%")
    values = np.ones((330, tiny.WIDTH), np.float32)
    values[one] = np.arange(2035, 2035 + tiny.WIDTH) / 2048
    values[two] = np.arange(2036, 2036 + tiny.WIDTH) / 2048
    embedding = tiny.with_matrix(Matrix.plain(values))
    text = "".join(random.Random(0).sample("!%" * (tokens // 2), tokens))
    (ids,) = ids_of([text], embedding)
    assert Counter(ids) == {one: tokens // 2, two: tokens // 2}
    found = collect([text], embedding=embedding, window=window).sums
    assert found == integer_sums(embedding, [ids], window)


@tiny.LAW
@given(texts, st.integers(1, 10))
def test_a_cap_counts_only_the_first_tokens(some: list[str], cap: int) -> None:
    statistics = counted(some, cap=cap)
    kept = [ids[:cap] for ids in ids_of(some)]
    expected = Counter(token for ids in kept for token in ids)
    assert {t: int(n) for t, n in enumerate(statistics.histogram) if n} == dict(expected)
    assert statistics.sums == integer_sums(tiny.embedding(), kept, 128)


def arrays_of(statistics: Statistics) -> list[npt.NDArray[np.int64]]:
    assert statistics.sums is not None and statistics.sums.pairs is not None
    return [statistics.histogram, statistics.sums.vector, statistics.sums.gram, statistics.sums.pairs]


@pytest.mark.parametrize("as_view", [False, True])
def test_the_arrays_of_the_caller_stay_theirs(as_view: bool) -> None:
    made = counted(tiny.sentences("law", 5))
    given = [array.copy() for array in arrays_of(made)]
    passed = [array.view() for array in given] if as_view else given
    for array in passed:
        array.flags.writeable = not as_view  # a read-only view of what the caller can still write to
    assert made.sums is not None
    sums = PromptSums(made.sums.window, made.sums.unit, made.sums.windows, passed[1], passed[2], passed[3])
    statistics = Statistics(made.fingerprint, made.prompts, passed[0], sums)
    for array in given:
        assert array.flags.writeable
        array += 1
    assert statistics == made and statistics.digest == made.digest
    assert not any(array.flags.writeable for array in arrays_of(statistics))


def test_what_nobody_can_write_to_is_not_copied() -> None:
    made = counted(tiny.sentences("law", 5))
    again = replace(made, sums=made.sums)
    kept = [[array for array in vars(one.sums).values() if isinstance(array, np.ndarray)] for one in (made, again)]
    assert kept[0] and all(one is other for one, other in zip(*kept, strict=True))
    assert not any(array.flags.writeable for array in arrays_of(made + made))
