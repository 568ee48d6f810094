"""Routing by table is routing by matrix; batches, names and orders change nothing."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ir3de.routing.compiled
import tiny
from ir3de import AllTokens, Average, EntropyTopK, PromptRidge, Router, TokenRidge
from ir3de.errors import InputError
from ir3de.routing.compiled import decide, decide_batch
from laws import (
    SCORERS,
    SELECTORS,
    STRANGE,
    counted,
    domains,
    ids_of,
    matrix_scores,
    scorers,
    seeds,
    selectors,
    shown,
    weights,
    wordy,
)


def winner(S: np.ndarray, ids: Sequence[int], selector: EntropyTopK | AllTokens | Average) -> int | None:
    """The expert chosen from the rows S[ids], by sorting and counting; None where rounding could decide."""
    p = np.exp(S - S.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    if isinstance(selector, Average):
        return clear(S[ids].mean(axis=0), 1e-6 * max(1.0, np.abs(S).max()))
    kept = list(ids)
    if isinstance(selector, EntropyTopK):
        e = -(p * np.log(p + selector.log_offset)).sum(axis=1)
        kept.sort(key=lambda token: (e[token], token))
        if len(kept) > selector.k:
            last, next_one = kept[selector.k - 1], kept[selector.k]
            if last != next_one and abs(e[last] - e[next_one]) < 1e-9:
                return None
        kept = kept[: selector.k]
    if any(clear(S[token], 1e-9) is None for token in kept):
        return None
    votes = np.bincount(S[kept].argmax(axis=1), minlength=S.shape[1]).astype(float)
    tied = np.flatnonzero(votes == votes.max())
    if len(tied) == 1 or selector.ties == "order":
        return int(tied[0])
    best = clear(p[kept].sum(axis=0)[tied], 1e-5 * len(kept))
    return None if best is None else int(tied[best])


def clear(values: np.ndarray, rounding: float) -> int | None:
    order = np.argsort(-values, kind="stable")
    return None if len(values) > 1 and values[order[0]] - values[order[1]] < rounding else int(order[0])


@tiny.LAW
@given(domains, scorers, selectors, st.lists(wordy, min_size=1, max_size=10))
def test_routing_by_table_is_routing_by_matrix(
    some: dict[str, list[str]],
    scorer: TokenRidge | PromptRidge,
    selector: EntropyTopK | AllTokens | Average,
    prompts: list[str],
) -> None:
    router = Router.fit(some, embedding=tiny.embedding(), scorer=scorer, selector=selector)
    W = weights(scorer, tiny.embedding(), some)
    for text, ids in zip(prompts, ids_of(prompts), strict=True):
        S = matrix_scores(tiny.embedding().matrix[ids], W)  # the product is made for this prompt's tokens alone
        # equal tokens have equal rows, so a token is known by its place among the distinct ones, in the order of ids
        distinct = sorted(set(ids))
        rows = S[[ids.index(token) for token in distinct]]
        expected = winner(rows, [distinct.index(token) for token in ids], selector)
        if expected is not None:
            assert router.route(text).best == router.experts[expected]


def list_pairs() -> Iterator[Any]:
    """Every scorer with every selector; by day, each of both in one pair."""
    for place, scorer in enumerate(SCORERS):
        for other, selector in enumerate(SELECTORS):
            by_day = place == other
            yield pytest.param(scorer, selector, id=f"{selector}-{scorer}", marks=() if by_day else pytest.mark.nightly)


@pytest.mark.parametrize(("scorer", "selector"), list(list_pairs()))
def test_the_matrix_decides_most_prompts_clearly(
    scorer: TokenRidge | PromptRidge, selector: EntropyTopK | AllTokens | Average
) -> None:
    """Rounding is an excuse for few prompts: or the law above would say nothing."""
    router = tiny.router(scorer=scorer, selector=selector)
    S = matrix_scores(tiny.embedding().matrix, weights(scorer, tiny.embedding(), tiny.domain_texts()))
    prompts = tiny.mixed(50)
    expected = [winner(S, ids, selector) for ids in ids_of(prompts)]
    assert sum(one is None for one in expected) <= 2
    assert [router.route(text).best for text, one in zip(prompts, expected, strict=True) if one is not None] == [
        router.experts[one] for one in expected if one is not None
    ]


@tiny.LAW
@given(domains, scorers, selectors, st.lists(st.integers(0, 329), min_size=1, max_size=60), seeds)
def test_a_decision_depends_on_the_bag_of_tokens_alone(
    some: dict[str, list[str]], scorer: TokenRidge, selector: AllTokens, ids: list[int], seed: int
) -> None:
    compiled = Router.fit(some, embedding=tiny.embedding(), scorer=scorer, selector=selector).compiled
    permuted = random.Random(seed).sample(ids, len(ids))
    one, other = (decide(compiled, np.array(order, np.uint32), None) for order in (ids, permuted))
    assert shown(one) == shown(other)


@tiny.LAW
@given(domains, scorers, selectors, st.lists(wordy | st.text(max_size=30), max_size=10))
def test_names_mean_nothing(
    some: dict[str, list[str]], scorer: TokenRidge, selector: AllTokens, prompts: list[str]
) -> None:
    names = {"x": "zebra", "y": "a", "z": "naïve 字"}
    options = {"embedding": tiny.embedding(), "scorer": scorer, "selector": selector}
    router = Router.fit(some, **options)
    renamed = Router.fit({names[name]: own for name, own in some.items()}, **options)
    for text in prompts:
        one, other = router.route(text), renamed.route(text)
        assert [(names[name], value) for name, value in one.ranking] == list(other.ranking)
        assert names[one.best] == other.best
        assert (one.expert and names[one.expert], one.reason) == (other.expert, other.reason)


@tiny.LAW
@given(domains, scorers, selectors, st.lists(wordy, max_size=10), st.permutations("xyz"))
def test_the_order_of_the_experts_decides_exact_ties_only(
    some: dict[str, list[str]], scorer: TokenRidge, selector: AllTokens, prompts: list[str], order: list[str]
) -> None:
    assume(len({counted(own).digest for own in some.values()}) == 3)
    options = {"embedding": tiny.embedding(), "scorer": scorer, "selector": selector}
    router = Router.fit(some, **options)
    reordered = Router.fit({name: some[name] for name in order}, **options)
    S = matrix_scores(tiny.embedding().matrix, weights(scorer, tiny.embedding(), some))
    for text, ids in zip(prompts, ids_of(prompts), strict=True):
        expected = winner(S, ids, selector)
        by_order = getattr(selector, "ties", None) == "order" and router.route(text).margin == 0
        if expected is not None and not by_order:
            assert router.route(text).best == reordered.route(text).best == "xyz"[expected]


PROMPTS = [*STRANGE, "prove " * 3_000, "zzz " * 1_500]


@pytest.mark.parametrize("selector", [*SELECTORS, EntropyTopK(2, cap=3), Average(cap=1), AllTokens(cap=2)], ids=str)
@pytest.mark.parametrize("of", [tiny.embedding, tiny.word_embedding], ids=["bytes", "words"])
@pytest.mark.parametrize("batch_characters", [ir3de.routing.compiled.BATCH_CHARACTERS, 500])
def test_a_batch_is_routed_as_one_by_one(
    monkeypatch: pytest.MonkeyPatch, selector: AllTokens, of: object, batch_characters: int
) -> None:
    monkeypatch.setattr(ir3de.routing.compiled, "BATCH_CHARACTERS", batch_characters)
    router = tiny.router(of=of(), selector=selector, default="law")
    prompts = [*PROMPTS, *tiny.mixed(20), *PROMPTS[::-1]]
    one_by_one = [router.route(text) for text in prompts]
    assert any(decision.abstained for decision in one_by_one)
    assert [shown(d) for d in router.route_batch(prompts)] == [shown(d) for d in one_by_one]
    assert router.route_batch(iter(prompts)) == one_by_one
    assert [shown(d) for d in router.route_batch(["", ""])] == [shown(router.route(""))] * 2
    assert router.route_batch([]) == []


@tiny.LAW
@given(
    selectors | st.builds(EntropyTopK, st.integers(1, 9), st.integers(1, 9)),
    st.lists(st.lists(st.integers(0, 56), max_size=30), max_size=12),
    st.none() | st.integers(0, 56),
)
def test_a_batch_of_ids_is_decided_as_one_by_one(
    selector: AllTokens, prompts: list[list[int]], unknown: int | None
) -> None:
    compiled = tiny.router(of=tiny.word_embedding(), selector=selector).compiled
    flat = np.array([token for ids in prompts for token in ids], np.uint32)
    lengths = np.array([len(ids) for ids in prompts], np.int64)
    batch = decide_batch(compiled, flat, lengths, unknown)
    assert list(map(shown, batch)) == [shown(decide(compiled, np.array(ids, np.uint32), unknown)) for ids in prompts]


@pytest.mark.parametrize("selector", SELECTORS, ids=str)
def test_token_ids_are_routed_as_their_text(selector: AllTokens) -> None:
    router = tiny.router(selector=selector)
    texts = ["", "prove it", *tiny.mixed(20)]
    routed = router.route_ids([router.tokenizer.encode(text) for text in texts])
    assert list(map(shown, routed)) == [shown(router.route(text)) for text in texts]
    assert router.route_ids([]) == []


@pytest.mark.parametrize("wrong", [-1, 1 << 20])
def test_a_token_id_that_the_router_does_not_know_is_refused(wrong: int) -> None:
    with pytest.raises(InputError, match="use the router's tokenizer"):
        tiny.router().route_ids([[0, 1], [wrong]])


@tiny.LAW
@given(domains, scorers, selectors, wordy | st.text(max_size=30))
def test_probabilities_add_up_to_that_of_the_domains_and_the_first_is_the_winner(
    some: dict[str, list[str]], scorer: TokenRidge, selector: AllTokens, text: str
) -> None:
    decision = Router.fit(some, embedding=tiny.embedding(), scorer=scorer, selector=selector).route(text)
    probabilities = [probability for _, probability in decision.ranking]
    assert decision.best == decision.ranking[0][0]
    assert decision.expert == (None if decision.abstained else decision.best)
    assert sorted(name for name, _ in decision.ranking) == ["x", "y", "z"]
    assert sum(probabilities) == pytest.approx(1 if decision.in_domain is None else decision.in_domain)
    assert probabilities == sorted(probabilities, reverse=True)
    assert (decision.confidence, decision.margin) == (probabilities[0], probabilities[0] - probabilities[1])
    assert decision.expected_score is None and "expected_score" not in decision.to_dict()


@tiny.LAW
@given(
    selectors | st.builds(EntropyTopK, st.integers(1, 9), st.integers(1, 9)),
    st.sampled_from([tiny.embedding, tiny.word_embedding]),
    wordy | st.text(max_size=30) | st.sampled_from(PROMPTS),
)
def test_what_an_explanation_says_counted_is_what_decided(selector: AllTokens, of: object, text: str) -> None:
    router = tiny.router(of=of(), selector=selector)
    explanation = router.explain(text)
    decision = router.route(text)
    used = np.array([token.id for token in explanation.tokens if token.counted], np.uint32)

    assert shown(explanation.decision) == shown(decision)
    assert len(used) == decision.counted
    assert [token.id for token in explanation.tokens] == router.tokenizer.encode(text)[: selector.cap].tolist()
    if decision.counted:
        again = decide(router.compiled, used, None)
        assert again.best == decision.best
        if len(used) == len(explanation.tokens):  # familiarity is that of all tokens, not only of those that vote
            assert again.ranking == decision.ranking
        for token in explanation.tokens:
            assert token.vote == router.experts[int(np.argmax(token.scores))]
    if decision.counted and not isinstance(selector, Average):
        votes = Counter(token.vote for token in explanation.tokens if token.counted)
        assert votes[decision.best] == max(votes.values())
