"""A sample of prompts is a function of the prompts alone, and what it contributed can be taken out again."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de import Statistics
from ir3de.errors import InputError
from ir3de.statistics import counting
from ir3de.statistics import sample as samples
from ir3de.statistics.counting import recount
from ir3de.statistics.sample import Sample
from laws import counted, seeds, texts, wordy

# few hashes, so that texts of one hash occur; a prompt is its hash, how it was drawn, its ids, and its source
hashes = st.integers(0, 5) | st.integers(0, 2**32 - 1)
some_ids = st.lists(st.integers(0, 9), max_size=6)
prompts = st.lists(st.tuples(hashes, st.integers(1, 3), some_ids, st.sampled_from([0, 0, 7, 2**32 - 1])), max_size=14)
bounds = st.tuples(st.integers(1, 6), st.integers(1, 20))


def drawn(some: Sequence[tuple[int, int, list[int], int]]) -> Sample:
    """The sample of these prompts: one draw for each way in which windows were drawn."""
    total = Sample.empty()
    for every in (1, 2, 3):
        own = [(content, ids, source) for content, by, ids, source in some if by == every]
        lengths = np.array([len(ids) for _, ids, _ in own], np.int64)
        flat = np.array([token for _, ids, _ in own for token in ids], np.uint32)
        contents, sources = (np.array([one[column] for one in own], np.uint32) for column in (0, 2))
        total = total + Sample.draw(contents, flat, np.cumsum(lengths) - lengths, lengths, every, sources)
    return total


def bounded(monkeypatch: pytest.MonkeyPatch, bound: tuple[int, int]) -> None:
    monkeypatch.setattr(samples, "MAX_PROMPTS", bound[0])
    monkeypatch.setattr(samples, "MAX_TOKENS", bound[1])
    monkeypatch.setattr(samples, "MAX_PROMPT_TOKENS", 4)


def content(sample: Sample) -> list[tuple[int, int, int, tuple[int, ...], int]]:
    """The prompts as plain values, in their order."""
    ids = [tuple(part.tolist()) for part in np.split(sample.ids, sample.starts[1:])] if len(sample) else []
    columns = (sample.hashes.tolist(), sample.every.tolist(), sample.lengths.tolist(), ids, sample.sources.tolist())
    return list(zip(*columns, strict=True))


def without_sources(sample: Sample) -> Sample:
    return replace(sample, sources=sample.sources * 0)


@tiny.LAW
@given(prompts, prompts, prompts, bounds, seeds)
def test_any_order_and_any_split_gives_the_same_sample(
    one: list, two: list, three: list, bound: tuple[int, int], seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        bounded(patch, bound)
        a, b, c = drawn(one), drawn(two), drawn(three)
        together = [*one, *two, *three]
        shuffled = [together[i] for i in np.random.default_rng(seed).permutation(len(together))]
        assert a + b == b + a
        assert (a + b) + c == a + (b + c)
        assert drawn(shuffled) == a + b + c == Sample.join(iter([a, b, c]))
        assert a + Sample.empty() == a


def test_texts_of_one_hash_are_in_an_order_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded(monkeypatch, (1, 20))
    one, other = (7, 1, [3, 4], 0), (7, 1, [4, 3], 0)
    assert drawn([one, other]) == drawn([other, one])
    assert drawn([one]) + drawn([other]) == drawn([other]) + drawn([one])


@tiny.LAW
@given(prompts, bounds)
def test_a_sample_is_bounded_and_holds_what_was_said(some: list, bound: tuple[int, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        bounded(patch, bound)
        sample = drawn(some)
    said = [(content, every, len(ids), tuple(ids[:4]), source) for content, every, ids, source in some if ids]
    assert len(sample) <= bound[0]
    assert sample.ids.size < bound[1] + 4
    assert len(sample) == min(len(said), bound[0]) or sample.ids.size >= bound[1]
    for prompt in content(sample):
        said.remove(prompt)  # each is one that was said, and no more often


@tiny.LAW
@given(prompts, prompts)
def test_what_is_taken_out_is_what_was_put_in(one: list, two: list) -> None:
    a, b = drawn(one), drawn(two)
    assert (a + b).without(b) == a
    assert (a + b).without(a) == b
    assert a.without(Sample.empty()) == a
    assert len(a.without(a)) == 0


@tiny.LAW
@given(prompts, st.integers(1, 6))
def test_truncate_cuts_each_prompt_and_nothing_else(some: list, tokens: int) -> None:
    sample = drawn(some)
    expected = [(hashed, every, length, ids[:tokens], source) for hashed, every, length, ids, source in content(sample)]
    assert content(sample.truncate(tokens)) == expected


@tiny.LAW
@given(st.lists(wordy | st.text(max_size=20), max_size=30), bounds, st.integers(1, 60))
def test_chunks_and_shards_keep_the_same_prompts(some: list[str], bound: tuple[int, int], characters: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        bounded(patch, bound)
        whole = counted(some, keep_sample=True).sample
        patch.setattr(counting, "CHUNK_CHARACTERS", characters)
        assert counted(some[::-1], keep_sample=True).sample == whole
        half = len(some) // 2
        shards = counted(some[half:], keep_sample=True) + counted(some[:half], keep_sample=True)
        assert shards.sample == whole


def test_statistics_are_equal_whether_or_not_a_sample_lies_beside_them() -> None:
    some, others = tiny.mixed(9), tiny.mixed(9, seed=1)
    with_sample, without = counted(some, keep_sample=True), counted(some)
    assert with_sample == without
    assert with_sample.digest == without.digest
    assert with_sample.without_sample().sample is None
    joined = with_sample + counted(others)
    assert joined.sample == with_sample.sample
    assert (joined - counted(others)).sample is None  # nobody can tell whose prompts they were
    assert (joined - counted([])).sample == with_sample.sample
    assert (with_sample + counted(others, keep_sample=True) - counted(others, keep_sample=True)).sample == (
        with_sample.sample
    )


# what a sample contributed --------------------------------------------------------------------------------------

ways = st.fixed_dictionaries(
    {
        "window": st.integers(1, 9),
        "subsample": st.integers(1, 4),
        "cap": st.none() | st.integers(1, 12),
        "prompt_sums": st.booleans(),
    }
)


def recounted(statistics: Statistics, window: int) -> Statistics:
    return recount(statistics.sample, tiny.embedding(), window, prompt_sums=statistics.sums is not None)


@tiny.LAW
@given(texts, ways)
def test_recounting_a_sample_of_everything_is_counting_it(some: list[str], way: dict[str, int]) -> None:
    said = [text for text in some if len(tiny.embedding().encode(text))]
    statistics = counted(said, keep_sample=True, **way)
    assert len(statistics.sample) == len(said)
    assert recounted(statistics, way["window"]) == statistics


@tiny.LAW
@given(texts, st.lists(wordy, max_size=8), ways, st.integers(1, 4))
def test_taking_held_out_prompts_out_is_never_having_counted_them(
    kept: list[str], held: list[str], way: dict[str, int], otherwise: int
) -> None:
    one, two = counted(kept, keep_sample=True, **way), counted(held, keep_sample=True, **way | {"subsample": otherwise})
    assert one + two - recounted(two, way["window"]) == one


def test_of_a_prompt_too_long_to_keep_what_was_kept_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MAX_PROMPT_TOKENS", 25)
    text = " ".join(tiny.mixed(3, longest=40))
    statistics = counted([text], keep_sample=True, window=10)
    found = recounted(statistics, 10)
    ids = tiny.embedding().encode(text)
    assert found.histogram.tolist() == np.bincount(ids[:25], minlength=330).tolist()
    assert 0 < found.sums.windows <= 2
    rest = statistics - found
    assert (rest.prompts, rest.tokens) == (0, len(ids) - 25)


def test_a_sample_that_cannot_be_is_refused() -> None:
    sample = counted(tiny.mixed(4), keep_sample=True).sample
    for wrong, message in [
        ({"ids": sample.ids[1:]}, "does not fit"),
        ({"hashes": sample.hashes[1:]}, "does not fit"),
        ({"sources": sample.sources[1:]}, "does not fit"),
        ({"lengths": sample.kept - 1}, "no more than the prompt has"),
        ({"every": sample.every * 0}, "no more than the prompt has"),
    ]:
        with pytest.raises(InputError, match=message):
            replace(sample, **wrong)


def test_a_text_repeated_leaves_room_for_the_others() -> None:
    """However often a prompt occurs, sixteen of it are enough."""
    texts = tiny.sentences("law", 3) * 500
    sample = counted(texts, keep_sample=True).sample
    assert sample is not None and len(sample) == 3 * 16
    halves = [counted(half, keep_sample=True).sample for half in (texts[:700], texts[700:])]
    assert halves[0] + halves[1] == sample


# sources --------------------------------------------------------------------------------------------------------


@tiny.LAW
@given(prompts, bounds)
def test_sources_do_not_decide_which_prompts_are_sampled(some: list, bound: tuple[int, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        bounded(patch, bound)
        patch.setattr(samples, "MAX_COPIES", 2)
        plain = drawn([(hashed, every, ids, 0) for hashed, every, ids, _ in some])
        named = [(hashed, every, ids, min(source, samples.TAUGHT - 1)) for hashed, every, ids, source in some]
        assert without_sources(drawn(named)) == plain


def test_sources_are_in_the_digest_only_where_there_are_any() -> None:
    plain, law = drawn([(7, 1, [3, 4], 0)]), drawn([(7, 1, [3, 4], 5)])
    # as it has always been: files and ledgers have it
    sha = hashlib.sha256(b"1")
    for number in (7, 1, 2, 2, 3, 4):
        sha.update(number.to_bytes(8, "little"))
    assert plain.digest == plain.digest_without_sources == law.digest_without_sources == sha.hexdigest()
    assert law != plain
    assert law.digest != drawn([(7, 1, [3, 4], 6)]).digest
    sha.update((5).to_bytes(8, "little"))
    assert law.digest == sha.hexdigest()


def test_a_prompt_is_taken_out_of_its_own_source_first_and_then_of_any() -> None:
    def copies(*sources: int) -> Sample:
        return drawn([(7, 1, [3, 4], source) for source in sources])

    assert copies(0, 5, 6).without(copies(6)) == copies(0, 5)
    assert copies(0, 5, 6).without(copies(0)) == copies(5, 6)
    assert len(copies(5).without(copies(0))) == len(copies(0).without(copies(5))) == 0
    assert len(copies(5, 6).without(copies(5, 7))) == 0
    assert copies(5, 6, 6).without(copies(6, 7)) == copies(6)
    assert copies(5).without(drawn([(8, 1, [3, 4], 5)])) == copies(5)
