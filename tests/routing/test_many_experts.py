"""With very many experts: leaner ballots and work in blocks, and not one decision changed by either."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ir3de.scorers.table
import ir3de.selectors
import tiny
from ir3de import AllTokens, Average, EntropyTopK, Router, kernel
from ir3de.errors import InputError
from ir3de.routing.compiled import CompiledRouter, decide, decide_batch
from ir3de.routing.rules import DecisionRules
from ir3de.scorers.table import MAX_EXPERTS, Table
from ir3de.selectors import FEW_EXPERTS, MAX_SCORE, SCORE_UNIT, Ballots, Selector

TOKENS = 50
SELECTORS = [Average(), Average(cap=5), AllTokens(), AllTokens(ties="order"), EntropyTopK(3), EntropyTopK.authors(4)]


def table(experts: int, *, seed: int = 0, size: float = 1.0) -> Table:
    scores = np.random.default_rng(seed).standard_normal((TOKENS, experts)) * size
    return Table.compile(scores)


def prompts(seed: int, number: int = 12) -> list[npt.NDArray[np.uint32]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, TOKENS, rng.integers(0, 40)).astype(np.uint32) for _ in range(number)]


def names(experts: int) -> tuple[str, ...]:
    return tuple(f"expert {number}" for number in range(experts))


@tiny.LAW
@given(
    experts=st.sampled_from([1, FEW_EXPERTS, FEW_EXPERTS + 1, 300]),
    seed=st.integers(0, 99),
    size=st.sampled_from([1e-9, 0.1, 1.0, 1e4]),
)
def test_ballots_are_the_scores_in_whole_units_however_they_are_kept(experts: int, seed: int, size: float) -> None:
    scores = table(experts, seed=seed, size=size)
    ballots = Average().ballots(scores)
    exact = np.rint(np.clip(scores.scores.astype(np.float64), -MAX_SCORE, MAX_SCORE) * SCORE_UNIT)
    assert np.array_equal(ballots.values, exact)
    is_narrow = experts > FEW_EXPERTS or kernel.native is not None
    assert ballots.values.dtype == (np.float32 if is_narrow else np.float64)
    ids = prompts(seed)[0]
    tally = ballots.tally(ids)
    assert tally.dtype == np.float64 and np.array_equal(tally, exact[ids].sum(axis=0))


@pytest.mark.parametrize("selector", SELECTORS, ids=str)
@pytest.mark.parametrize("experts", [2, FEW_EXPERTS, FEW_EXPERTS + 1, 1_000])
def test_a_batch_is_decided_as_one_by_one(selector: Selector, experts: int) -> None:
    compiled = CompiledRouter.build(DecisionRules(names(experts), selector), table(experts))
    texts = prompts(experts)
    lengths = np.array([len(ids) for ids in texts], np.int64)
    together = decide_batch(compiled, np.concatenate(texts), lengths, None)
    assert together == [decide(compiled, ids, None) for ids in texts]


@pytest.mark.parametrize("selector", SELECTORS, ids=str)
@pytest.mark.parametrize("experts", [7, 300])
def test_blocks_change_nothing(selector: Selector, experts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, texts = table(experts), [ids for ids in prompts(1) if len(ids)]
    flat, starts = np.concatenate(texts), np.cumsum([0, *(len(ids) for ids in texts[:-1])])
    tallies = selector.ballots(whole).tallies(flat, starts)
    monkeypatch.setattr(ir3de.scorers.table, "BLOCK_NUMBERS", 70)
    monkeypatch.setattr(ir3de.selectors, "GATHERED_NUMBERS", 70)
    blocked = table(experts)
    for part in ("scores", "vote", "entropy", "rank"):
        assert np.array_equal(getattr(whole, part), getattr(blocked, part))
    assert np.array_equal(selector.ballots(blocked).tallies(flat, starts), tallies)


def test_ranking_confidence_and_margin_agree() -> None:
    for selector in SELECTORS:
        compiled = CompiledRouter.build(DecisionRules(names(200), selector, default=7), table(200))
        for ids in prompts(3):
            decision = decide(compiled, ids, None)
            ranking = decision.ranking
            assert ranking[0] == (decision.expert, decision.confidence)
            assert decision.margin == ranking[0][1] - ranking[1][1]
            assert [share for _, share in ranking] == sorted((share for _, share in ranking), reverse=True)


def test_ties_go_to_the_expert_that_came_first_however_many() -> None:
    for experts in (3, 200):
        rules = DecisionRules(tuple(map(str, range(experts))), Average(), default=2)
        compiled = CompiledRouter(rules, table(experts), Ballots(np.ones((TOKENS, experts))))
        decision = decide(compiled, np.array([1, 2, 3], np.uint32), None)
        assert decision.expert == "0" and [expert for expert, _ in decision.ranking] == list(rules.experts)


@pytest.mark.parametrize("experts", [1, 3, 200])
def test_the_sum_of_familiarities_is_no_expert_however_large(experts: int) -> None:
    votes = np.random.default_rng(experts).integers(-9, 0, (TOKENS, experts))
    familiar = CompiledRouter(
        DecisionRules(names(experts), Average()), table(experts), Ballots(np.c_[votes, np.zeros(TOKENS)])
    )
    plain = CompiledRouter(familiar.rules, familiar.table, Ballots(votes.astype(np.float64)))
    texts = [ids for ids in prompts(experts) if len(ids)]
    lengths = np.array([len(ids) for ids in texts], np.int64)
    expected = [decide(plain, ids, None) for ids in texts]
    assert [decide(familiar, ids, None) for ids in texts] == expected
    assert decide_batch(familiar, np.concatenate(texts), lengths, None) == expected


def test_more_experts_than_a_vote_can_name_are_refused() -> None:
    last = np.zeros((2, MAX_EXPERTS), np.float32)
    last[:, -1] = 1.0
    assert Table.compile(last).vote.tolist() == [MAX_EXPERTS - 1] * 2
    with pytest.raises(InputError, match=r"at most 65,536 experts, found 65,537: "):
        Table.compile(np.zeros((1, MAX_EXPERTS + 1), np.float32))
    domains = {f"expert {number}": ["the contract"] for number in range(MAX_EXPERTS + 1)}
    with pytest.raises(InputError, match=r"at most 65,536 experts, found 65,537: "):
        Router.fit(domains, embedding=tiny.embedding())
