"""Posterior, blend, pairs and familiarity: each the formula it says, done here by loops over tiny counts."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de import Average, PromptRidge, Router, Statistics, TokenRidge
from ir3de.errors import InputError
from ir3de.routing.compiled import decide, decide_batch
from ir3de.scorers import Blend, Posterior
from ir3de.scorers.blend import balance_counts, scale_to_unit, score_pairs
from ir3de.scorers.table import FAMILIARITY_UNIT, token_familiarity
from ir3de.selectors import SCORE_UNIT
from ir3de.statistics.domain import BUCKETS
from laws import counted, domains, ids_of, integer_pairs, seeds, shown, wordy

weights = st.sampled_from([0.1, 1.0, 7.5])
token_ids = st.lists(st.integers(0, 329), min_size=1, max_size=40)


def counted_all(some: dict[str, list[str]]) -> list[Statistics]:
    return [counted(own) for own in some.values()]


def times(statistics: Statistics, t: int) -> Statistics:
    return replace(statistics, prompts=statistics.prompts * t, histogram=statistics.histogram * t)


def sized(own: Sequence[Statistics]) -> np.ndarray:
    return balance_counts([s.histogram for s in own])


def harmonic(sizes: Sequence[int]) -> float:
    return len(sizes) / sum(1 / size for size in sizes)


def centred(scores: np.ndarray) -> np.ndarray:
    return scores - scores.mean(axis=1, keepdims=True)


# posterior ------------------------------------------------------------------------------------------------------


@tiny.LAW
@given(domains, weights, st.sampled_from([0.5, 2.0]))
def test_the_posterior_is_the_formula(some: dict[str, list[str]], m: float, sharpness: float) -> None:
    own, E = counted_all(some), tiny.embedding().matrix
    R = PromptRidge(3.0).scores(own, E)
    sizes = [s.tokens for s in own]
    found = Posterior(m, sharpness, 3.0).scores(own, E)
    for v in range(0, 330, 7):
        powers = [math.exp(sharpness * R[v, c]) for c in range(3)]
        logs = [
            math.log(int(s.histogram[v]) * harmonic(sizes) / size + m * power / sum(powers))
            for s, size, power in zip(own, sizes, powers, strict=True)
        ]
        assert found[v].tolist() == pytest.approx([value - sum(logs) / 3 for value in logs], rel=1e-9, abs=1e-9)


@tiny.LAW
@given(domains, weights)
def test_with_a_flat_prior_it_is_naive_bayes(some: dict[str, list[str]], m: float) -> None:
    """log p(v|c) with m/C added to every count, every domain brought to one size."""
    own = counted_all(some)
    H, alpha = harmonic([s.tokens for s in own]), m / 3
    log_p = np.log(np.stack([(s.histogram * H / s.tokens + alpha) / (H + 330 * alpha) for s in own], axis=1))
    assert np.exp(log_p).sum(axis=0) == pytest.approx(1)
    np.testing.assert_allclose(Posterior(m).score_counts(sized(own), np.zeros((330, 3))), centred(log_p), atol=1e-9)


@tiny.LAW
@given(domains, weights, st.integers(2, 50), st.sampled_from([0, 1, 2]))
def test_a_domain_seen_t_times_over_changes_only_what_the_prior_weighs(
    some: dict[str, list[str]], m: float, t: int, which: int
) -> None:
    """Balanced counts keep their proportions; all of them grow with the harmonic mean, as if the prior shrank."""
    own, R = counted_all(some), PromptRidge().scores(counted_all(some), tiny.embedding().matrix)
    larger = [times(s, t) if c == which else s for c, s in enumerate(own)]
    growth = harmonic([s.tokens for s in larger]) / harmonic([s.tokens for s in own])
    assert 1 <= growth <= t
    plain = Posterior(m).score_counts(sized(own), R)
    np.testing.assert_allclose(Posterior(m * growth).score_counts(sized(larger), R), plain, atol=1e-9)
    many = [times(s, t) for s in own]
    np.testing.assert_allclose(Posterior(m * t).score_counts(sized(many), R), plain, atol=1e-9)


@tiny.LAW
@given(domains)
def test_balanced_domains_are_of_one_size(some: dict[str, list[str]]) -> None:
    own = counted_all(some)
    found = sized(own)
    assert found.sum(axis=0) == pytest.approx(harmonic([s.tokens for s in own]))
    assert balance_counts([np.zeros(4, np.int64), np.ones(4, np.int64)])[:, 0].tolist() == [0.0] * 4


def test_a_prior_that_says_never_leaves_numbers() -> None:
    found = Posterior(sharpness=1e6).scores(counted_all(tiny.domain_texts()), tiny.embedding().matrix)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, "1", None])
def test_weights_that_make_no_sense_are_refused(wrong: object) -> None:
    for make in (lambda: Posterior(wrong), lambda: Posterior(1.0, wrong), lambda: Posterior(strength=wrong)):
        with pytest.raises(InputError, match="positive number"):
            make()
    with pytest.raises(InputError, match="positive number"):
        Blend(prior=wrong)
    if wrong != 0:
        for name in ("posterior", "pairs", "few"):
            with pytest.raises(InputError, match=f"'{name}' of a blend"):
                Blend(**{name: wrong})


# blend ----------------------------------------------------------------------------------------------------------


@tiny.LAW
@given(domains)
def test_a_blend_of_the_ridge_alone_ranks_as_the_ridge_does(some: dict[str, list[str]]) -> None:
    own, E = counted_all(some), tiny.embedding().matrix
    R, found = centred(PromptRidge().scores(own, E)), Blend(0.0, few=0.0).scores(own, E)
    if not found.any():
        assert np.abs(R).max() < 1e-5
    else:
        np.testing.assert_allclose(found * np.linalg.norm(R) / np.linalg.norm(found), R, atol=1e-9)


@tiny.LAW
@given(domains, st.integers(1, 9), st.sampled_from([0.0, 0.01, 1.0, 50.0]))
def test_weights_say_what_each_part_contributes(some: dict[str, list[str]], a: int, few: float) -> None:
    own, E = counted_all(some), tiny.embedding().matrix
    counts = sized(own)
    parts = [scale_to_unit(part.scores(own, E), counts) for part in (PromptRidge(), Posterior(), TokenRidge())]
    fading = min(2.0, few * sum(1 / s.sums.windows for s in own) / 3)
    weights = (1, a, fading if fading >= 0.1 else 0.0)
    expected = sum(weight * part for weight, part in zip(weights, parts, strict=True))
    np.testing.assert_allclose(Blend(a, few=few).scores(own, E), expected, atol=1e-9)
    share = counts.sum(axis=1)
    for part in parts:
        if np.abs(part).max() > 1e-9:
            assert share @ (part**2).sum(axis=1) / share.sum() == pytest.approx(1)


def test_scores_that_say_nothing_stay_nothing() -> None:
    assert not scale_to_unit(np.full((4, 3), 7.0), np.ones((4, 3))).any()
    same = counted(tiny.mixed(5))
    assert not score_pairs([same, same]).any()
    assert not Blend().scores([same, same, same], tiny.embedding().matrix).any()


@tiny.LAW
@given(domains)
def test_pairs_are_scored_by_their_counts(some: dict[str, list[str]]) -> None:
    own = counted_all(some)
    counts = [integer_pairs(ids_of(texts)) for texts in some.values()]
    sizes = [max(1, int(count.sum())) for count in counts]
    seen = np.stack([count * harmonic(sizes) / size for count, size in zip(counts, sizes, strict=True)], axis=1)
    Q, found = centred(np.log(seen + 1)), Blend(pairs=0.5).pair_scores(own)
    assert found.shape == (BUCKETS, 3)
    if np.abs(Q).max() > 1e-9:
        scale = math.sqrt(seen.sum(axis=1) @ (Q**2).sum(axis=1) / max(1.0, seen.sum()))
        np.testing.assert_allclose(found, 0.5 * Q / scale, atol=1e-9)
    assert Blend().pair_scores(own) is None


def test_pairs_need_their_counts() -> None:
    without = [counted(own, prompt_sums=False) for own in tiny.domain_texts().values()]
    with pytest.raises(InputError, match="prompt_sums=True"):
        Blend(pairs=0.5).pair_scores(without)


def pair_router(selector: Average | None = None) -> Router:
    return tiny.router(scorer=Blend(1.0, 2.0), selector=selector or Average())


@tiny.LAW
@given(st.lists(token_ids | st.just([]), max_size=10), st.none() | st.integers(0, 329), st.sampled_from([3, 1_024]))
def test_with_pairs_a_batch_is_decided_as_one_by_one(prompts: list[list[int]], unknown: int | None, cap: int) -> None:
    compiled = pair_router(Average(cap=cap)).compiled
    flat = np.array([token for ids in prompts for token in ids], np.uint32)
    lengths = np.array([len(ids) for ids in prompts], np.int64)
    batch = decide_batch(compiled, flat, lengths, unknown)
    assert list(map(shown, batch)) == [shown(decide(compiled, np.array(ids, np.uint32), unknown)) for ids in prompts]


@tiny.LAW
@given(token_ids)
def test_a_tally_is_the_sum_of_tokens_and_neighbours(ids: list[int]) -> None:
    router = pair_router()
    table = router.compiled.table
    expected = table.scores[ids].astype(np.float64).sum(axis=0)
    for bucket in np.flatnonzero(integer_pairs([ids])).repeat(integer_pairs([ids])[integer_pairs([ids]) > 0]):
        expected += table.pairs[bucket]
    tally = router.compiled.ballots.tally(np.array(ids, np.uint32))[:3]
    assert tally.tolist() == pytest.approx((expected * SCORE_UNIT).tolist(), rel=1e-6, abs=len(ids) * 4)


@tiny.LAW
@given(wordy, st.booleans())
def test_the_tokens_of_an_explanation_add_up_to_the_tally(text: str, pairs: bool) -> None:
    router = pair_router() if pairs else tiny.router()
    ids = tiny.embedding().encode(text)
    explained = np.sum([token.scores for token in router.explain(text).tokens], axis=0)
    tally = router.compiled.ballots.tally(ids)[:3] / SCORE_UNIT
    assert explained.tolist() == pytest.approx(tally.tolist(), rel=1e-4, abs=1e-4)


@tiny.LAW
@given(domains, token_ids, seeds)
def test_without_pairs_the_order_of_the_tokens_means_nothing(
    some: dict[str, list[str]], ids: list[int], seed: int
) -> None:
    compiled = Router.fit(some, embedding=tiny.embedding(), scorer=Blend(), keep_sample=False).compiled
    permuted = np.random.default_rng(seed).permutation(np.array(ids, np.uint32))
    assert shown(decide(compiled, np.array(ids, np.uint32), None)) == shown(decide(compiled, permuted, None))


def test_with_pairs_it_means_something() -> None:
    router, prompts = pair_router(), tiny.mixed(20)
    backwards = [decide(router.compiled, tiny.embedding().encode(text)[::-1], None) for text in prompts]
    assert [d.ranking for d in backwards] != [router.route(text).ranking for text in prompts]


# familiarity ------------------------------------------------------------------------------------------------------


@tiny.LAW
@given(domains)
def test_familiarity_falls_as_tokens_get_rare(some: dict[str, list[str]]) -> None:
    own = counted_all(some)
    size = sum(s.tokens for s in own) / 3
    counts = [sum(int(s.histogram[v]) * size / s.tokens for s in own) for v in range(330)]
    rare = max(2.0, 1e-5 * sum(counts))
    found = token_familiarity(own)
    assert np.array_equal(found, np.rint(found))
    expected = [-FAMILIARITY_UNIT * math.log(1 + rare / (count + 0.5)) for count in counts]
    assert np.abs(found - expected).max() <= 0.51
    assert (
        np.array_equal(found, token_familiarity(own[::-1])) or np.abs(found - token_familiarity(own[::-1])).max() <= 1
    )


@tiny.LAW
@given(domains, st.lists(wordy, min_size=1, max_size=20), st.none() | st.integers(0, 329))
def test_words_of_the_background_are_less_familiar(
    some: dict[str, list[str]], others: list[str], unknown: int | None
) -> None:
    """½ log((k + 1)/(b + 1)): both counts in sizes of the harmonic mean, so that the smaller one says what is known."""
    own, background = counted_all(some), counted(others)
    mean = sum(s.tokens for s in own) / 3
    counts = [sum(int(s.histogram[v]) * mean / s.tokens for s in own) for v in range(330)]
    total = sum(counts)
    size = 2 / (1 / total + 1 / background.tokens)
    alone, found = token_familiarity(own, None, unknown), token_familiarity(own, background, unknown)
    assert np.array_equal(found, np.rint(found))
    for v in range(330):
        k, b = (
            (0.0, 0.0)
            if v == unknown
            else (counts[v] * size / total, int(background.histogram[v]) * size / background.tokens)
        )
        assert found[v] - alone[v] == pytest.approx(FAMILIARITY_UNIT * 0.5 * math.log((k + 1) / (b + 1)), abs=1.01)
    if unknown is not None:  # it counts as never seen
        assert found[unknown] == alone[unknown] == alone.min()
    assert background == counted(others)  # what was given is unchanged


def test_a_background_of_the_same_words_says_nothing() -> None:
    own = counted_all(tiny.domain_texts())[:1]
    assert np.array_equal(token_familiarity(own, own[0]), token_familiarity(own))
