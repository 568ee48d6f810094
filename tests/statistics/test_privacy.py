"""What collecting can leave out, to the last bit; and what the rest still tells whoever asks."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from commands import complaint, run_json, wrong_call
from ir3de import Router, Statistics, collect
from ir3de.errors import InputError
from ir3de.statistics.counting import Recipe, count, count_without_rare_tokens
from ir3de.statistics.domain import count_pairs
from ir3de.statistics.files import load_statistics
from laws import counted, ids_of, integer_sums, seeds, texts

clips, counts = st.integers(1, 4), st.integers(2, 6)


def clipped(ids: list[int], clip: int) -> list[int]:
    """The tokens of a prompt, one by one."""
    seen: Counter[int] = Counter()
    kept = []
    for token in ids:
        seen[token] += 1
        if seen[token] <= clip:
            kept.append(token)
    return kept


def held(statistics: Statistics) -> dict[int, int]:
    return {token: int(number) for token, number in enumerate(statistics.histogram) if number}


def pairs_of(prompts: list[list[int]]) -> np.ndarray:
    lengths = np.array([len(ids) for ids in prompts], np.int64)
    flat = np.array([token for ids in prompts for token in ids], np.uint32)
    return count_pairs(flat, np.cumsum(lengths) - lengths, lengths)


# clip -----------------------------------------------------------------------------------------------------------


@tiny.LAW
@given(texts, clips, st.none() | st.integers(1, 20))
def test_a_clip_counts_the_first_occurrences_of_a_token_in_each_prompt(
    some: list[str], clip: int, cap: int | None
) -> None:
    statistics = counted(some, clip=clip, cap=cap, window=8, keep_sample=True)
    kept = [clipped(ids[:cap], clip) for ids in ids_of(some)]
    assert held(statistics) == dict(Counter(token for ids in kept for token in ids))
    assert statistics.sums == integer_sums(tiny.embedding(), kept, 8)
    assert np.array_equal(statistics.sums.pairs, pairs_of(kept))
    assert statistics.prompts == len(some)
    assert sorted(statistics.sample.ids.tolist()) == sorted(token for ids in kept for token in ids)


@tiny.LAW
@given(texts, clips, seeds)
def test_clipped_collections_add_up_in_any_order_and_any_split(some: list[str], clip: int, seed: int) -> None:
    draw = random.Random(seed)
    shuffled, cut = draw.sample(some, len(some)), draw.randint(0, len(some))
    first, second = counted(shuffled[:cut], clip=clip), counted(shuffled[cut:], clip=clip)
    together = counted(some, clip=clip)
    assert (second + first).digest == together.digest
    assert together - first == second


@tiny.LAW
@given(texts)
def test_a_clip_that_no_prompt_reaches_changes_nothing(some: list[str]) -> None:
    longest = max(map(len, ids_of(some)), default=0)
    assert counted(some, clip=max(1, longest)) == counted(some)


# min_count ------------------------------------------------------------------------------------------------------


@tiny.LAW
@given(texts, counts, st.none() | clips)
def test_rare_tokens_are_nowhere_as_if_no_text_had_them(some: list[str], least: int, clip: int | None) -> None:
    prompts = [clipped(ids, clip or len(ids)) for ids in ids_of(some)]
    occurred = Counter(token for ids in prompts for token in ids)
    kept = [[token for token in ids if occurred[token] >= least] for ids in prompts]
    found = counted(some, min_count=least, clip=clip, window=8)
    assert held(found) == {token: number for token, number in occurred.items() if number >= least}
    assert found.prompts == len(some)
    assert found.sums == integer_sums(tiny.embedding(), kept, 8).pairs_at_least(least)
    assert not ((found.sums.pairs > 0) & (found.sums.pairs < least)).any()
    assert counted(some, min_count=least, clip=clip, prompt_sums=False) == found.histogram_only()


@tiny.LAW
@given(texts, seeds, counts)
def test_what_is_rare_is_found_from_the_whole_however_it_is_shared_out(some: list[str], seed: int, least: int) -> None:
    draw = random.Random(seed)
    shuffled, cut = draw.sample(some, len(some)), draw.randint(0, len(some))
    shards = [shuffled[:cut], shuffled[cut:]]

    def engine(recipe: Recipe) -> Statistics:
        return sum(count(shard, tiny.embedding(), recipe) for shard in shards)

    assert count_without_rare_tokens(engine, Recipe(min_count=least)).digest == counted(some, min_count=least).digest


@tiny.LAW
@given(texts, counts)
def test_statistics_thresholded_afterwards_keep_the_histogram_alone(some: list[str], least: int) -> None:
    statistics = counted(some, keep_sample=True)
    assert statistics.at_least(1) is statistics
    rest = statistics.at_least(least)
    assert rest == counted(some, prompt_sums=False, min_count=least)
    assert (rest.sums, rest.sample) == (None, None)
    assert rest.at_least(least) == rest


def test_merging_thresholded_statistics_is_not_the_threshold_of_the_whole() -> None:
    one, two = (counted([text], min_count=2, prompt_sums=False) for text in ("prove", "prove"))
    assert (one + two).tokens == 0
    assert counted(["prove", "prove"], min_count=2, prompt_sums=False).tokens > 0


def test_clip_and_min_count_together_ask_for_so_many_prompts() -> None:
    boring = ["prove the sum"] * 3
    once = counted([*boring, "heir heir heir heir"], clip=1, min_count=3)
    assert once.histogram_only().histogram.tolist() == counted(boring, prompt_sums=False).histogram.tolist()


def test_a_router_fits_from_what_was_left() -> None:
    domains = {name: counted(some, clip=1, min_count=3) for name, some in tiny.domain_texts(30).items()}
    router = Router.fit(domains, embedding=tiny.embedding())
    assert [router.route(" ".join(words)).expert for words in tiny.DOMAINS.values()] == list(tiny.DOMAINS)


# what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"clip": 0}, "clip must be a whole number, at least 1, or None for no clip, found 0"),
        ({"clip": 1.5}, "found 1.5"),
        ({"min_count": 0}, "min_count must be a whole number, at least 1"),
        ({"min_count": None}, "found None"),
        ({"min_count": 2, "keep_sample": True}, "leave one of them out"),
    ],
)
def test_bad_values_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        collect([], embedding=tiny.embedding(), **options)


def test_texts_that_cannot_be_read_twice_are_refused() -> None:
    with pytest.raises(InputError, match="put the texts in a list"):
        counted(iter(["prove"]), min_count=2)
    assert counted(iter(["prove", "prove"]), min_count=2, prompt_sums=False).tokens > 0


def test_texts_that_change_between_the_passes_are_refused() -> None:
    passes = iter([["prove", "prove"], ["prove", "prove", "prove"]])
    with pytest.raises(InputError, match="changed between the two passes"):
        count_without_rare_tokens(lambda recipe: count(next(passes), tiny.embedding(), recipe), Recipe(min_count=2))


def test_a_recipe_tells_what_was_asked_for() -> None:
    asked = {"window": 64, "subsample": 2, "cap": 9, "clip": 1, "min_count": 5}
    assert Recipe(**asked).to_dict() == asked
    assert Recipe().to_dict() == {"window": 128, "subsample": 1, "cap": None, "clip": None, "min_count": 1}


# the command line -----------------------------------------------------------------------------------------------


def test_collect_clips_and_leaves_out(tmp_path: Path) -> None:
    lines = ["Is this contract void?", "Is the the the will void?", "Is it?"]
    file = tmp_path / "law.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    out = tmp_path / "law.stats"
    run_json("collect", out, file, "--clip", "1", "--min-count", "2")
    assert load_statistics(out) == collect(lines, clip=1, min_count=2)
    run_json("collect", out, "-", "--histogram-only", "--min-count", "2", "--force", stdin="\n".join(lines))
    assert load_statistics(out) == collect(lines, prompt_sums=False, min_count=2)
    run_json("collect", tmp_path / "two.stats", out, file, "--histogram-only", "--min-count", "5")
    assert load_statistics(tmp_path / "two.stats") == (
        (collect(lines, prompt_sums=False, min_count=2) + collect(lines, prompt_sums=False)).at_least(5)
    )
    assert "no token occurs 99 times" in complaint("collect", out, file, "--min-count", "99", "--force")


def test_collect_refuses_what_would_bring_rare_tokens_back(tmp_path: Path, law_file: Path) -> None:
    out, given = tmp_path / "out.stats", ("--min-count", "2")
    assert "--keep-sample keeps whole prompts" in wrong_call("collect", out, law_file, *given, "--keep-sample")
    assert "standard input can be read once" in wrong_call("collect", out, "-", *given)
    assert "a.stats hold every token" in wrong_call("collect", out, "a.stats", *given)
    assert "--min-count" in wrong_call("collect", out, law_file, "--min-count", "0")
    assert "--clip" in wrong_call("collect", out, law_file, "--clip", "0")
    assert not out.exists()


# what the rest tells --------------------------------------------------------------------------------------------


def test_too_small_a_gram_matrix_leaves_the_equations_open() -> None:
    """h(h+1)/2 = 78 equations for 200 counts: they do not settle them, whoever has more to go by may."""
    embeddings = np.random.default_rng(0).standard_normal((200, 12))
    rows, columns = np.triu_indices(12)
    assert np.linalg.matrix_rank(embeddings[:, rows] * embeddings[:, columns]) == 78


def test_the_difference_of_two_files_is_what_came_between() -> None:
    monday = tiny.sentences("law", 20)
    assert counted([*monday, "the landlord"]) - counted(monday) == counted(["the landlord"])


def test_a_digest_confirms_a_guess() -> None:
    assert counted(["the landlord"]).digest == counted(["the landlord"]).digest != counted(["the tenant"]).digest
