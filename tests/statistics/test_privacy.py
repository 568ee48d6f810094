"""What collecting can leave out, to the last bit; and what the rest still tells whoever asks."""

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from commands import complaint, run_json, wrong_call
from ir3de import Embedding, Router, Statistics, TokenRidge, collect
from ir3de.corpora import examples as demo
from ir3de.errors import InputError
from ir3de.scorers.arithmetic import NumpyArithmetic, using
from ir3de.statistics.counting import Recipe, count, count_without_rare_tokens
from ir3de.statistics.files import load_statistics
from ir3de.statistics.pairs import pair_counts
from ir3de_lab.benchmarks import privacy as measured
from ir3de_lab.benchmarks.recovery import counts_from_gram, order_from_pairs
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
    return pair_counts(flat, np.cumsum(lengths) - lengths, lengths)


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
    assert "--keep-sample keeps prompts whole" in wrong_call("collect", out, law_file, *given, "--keep-sample")
    assert "standard input can be read once" in wrong_call("collect", out, "-", *given)
    assert "a.stats hold every token" in wrong_call("collect", out, "a.stats", *given)
    assert "--min-count" in wrong_call("collect", out, law_file, "--min-count", "0")
    assert "--clip" in wrong_call("collect", out, law_file, "--clip", "0")
    assert not out.exists()


# what the rest tells --------------------------------------------------------------------------------------------


def test_the_papers_gram_matrix_gives_every_count_away() -> None:
    """h(h+1)/2 = 300 equations for 200 counts: A = Σ n_v x_v x_vᵀ has one solution."""
    embeddings = np.random.default_rng(0).standard_normal((200, 24)).astype(np.float32)
    histogram = np.random.default_rng(1).geometric(0.01, 200) - 1
    histogram[::3] = 0  # most words never occur, some once
    histogram[1] = 1
    gram = gram_of_a_fit(TokenRidge.paper(), histogram, embeddings)
    assert np.array_equal(counts_from_gram(gram, embeddings), histogram)


def test_too_small_a_gram_matrix_leaves_the_equations_open() -> None:
    """h(h+1)/2 = 78 equations for 200 counts: they do not settle them, whoever has more to go by may."""
    embeddings = np.random.default_rng(0).standard_normal((200, 12))
    rows, columns = np.triu_indices(12)
    assert np.linalg.matrix_rank(embeddings[:, rows] * embeddings[:, columns]) == 78


class Listening(NumpyArithmetic):
    """The usual arithmetic, that keeps what it is given to solve."""

    def solve(self, A: np.ndarray, B: np.ndarray, penalty: float) -> np.ndarray:
        self.gram = A.copy()
        return super().solve(A, B, penalty)


def gram_of_a_fit(scorer: TokenRidge, histogram: np.ndarray, embeddings: np.ndarray) -> np.ndarray:
    """A, as the scorer has it solved."""
    with using(listening := Listening()):
        scorer.scores([Statistics("f" * 64, 1, histogram)], embeddings)
    return listening.gram


def test_statistics_of_one_prompt_are_the_prompt() -> None:
    """Which tokens, how often, and by the pairs in which order."""
    text = "My neighbour Zbigniew Kowalczyk owes me 4,711 euros since May."
    statistics = collect([text])
    assert order_from_pairs(statistics) == [Embedding.default().encode(text).tolist()]


def test_the_difference_of_two_files_is_what_came_between() -> None:
    monday = tiny.sentences("law", 20)
    assert counted([*monday, "the landlord"]) - counted(monday) == counted(["the landlord"])


def test_a_digest_confirms_a_guess() -> None:
    assert counted(["the landlord"]).digest == counted(["the landlord"]).digest != counted(["the tenant"]).digest


# the benchmark --------------------------------------------------------------------------------------------------


def test_the_benchmark_counts_what_is_left_and_recovers_a_real_domain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "SETTINGS", ((None, 1), (1, 2)))
    monkeypatch.setattr(measured, "CONTENDERS", measured.CONTENDERS[:1])
    monkeypatch.setattr(measured, "UNKNOWNS", 1_200)
    for domain in ("law", "coding"):
        (tmp_path / domain).mkdir()
        for split, prompts in (("train", demo.prompts()), ("test", demo.held_out())):
            lines = [json.dumps({"text": text}) for text in prompts[domain]]
            (tmp_path / domain / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (row,) = run_json("bench", "privacy", "--data", tmp_path)["rows"]
    plain = {domain: collect(demo.prompts()[domain], prompt_sums=False) for domain in ("coding", "law")}
    assert [one["below"]["2"] for one in row["domains"]] == [int((s.histogram == 1).sum()) for s in plain.values()]
    left = {name: collect(demo.prompts()[name], clip=1, min_count=2, prompt_sums=False) for name in plain}
    shares = [left[name].tokens / plain[name].tokens for name in plain]
    assert [one["occurrences"] for one in row["settings"]] == [1.0, pytest.approx(np.mean(shares))]
    router = Router.fit({domain: demo.prompts()[domain] for domain in plain}, keep_sample=False)
    right = [np.mean([d.expert == name for d in router.route_batch(demo.held_out()[name])]) for name in plain]
    (accuracy,) = row["settings"][0]["accuracies"].values()
    assert accuracy == {"test": pytest.approx(100 * np.mean(right)), "ood": None}
    assert (row["recovery"]["unknowns"], row["recovery"]["wrong"]) == (1_200, 0)
    assert measured.recover(plain, unknowns=100) is None
