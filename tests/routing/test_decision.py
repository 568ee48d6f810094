"""What a decision says: probabilities add up, thresholds and costs do what they say, and a batch is one by one."""

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de import AllTokens, Average, EntropyTopK, Router
from ir3de.errors import InputError, UnknownExpertError
from ir3de.policies import Calibration, Cost, Familiarity, Policy
from ir3de.routing.decision import Reason
from ir3de.scorers import Blend
from ir3de.scorers.table import FAMILIARITY_UNIT
from laws import EVERY_SCORER, SELECTORS, STRANGE, shown, wordy

NAMES = tuple(tiny.DOMAINS)
CONTROLS = "\x01\x02\x03\x04\x05\x06\x07\x08" * 8  # far from every domain
prompts = st.lists(wordy | st.text(max_size=20) | st.sampled_from(STRANGE), max_size=6)
prices = st.floats(0, 5)
policies = st.builds(
    Policy,
    st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
    st.builds(Cost, prices, prices, prices),
    st.dictionaries(st.sampled_from(NAMES), st.builds(Cost, prices, prices, prices)),
)
ROUTERS = {
    "calibrated": lambda: tiny.router(20, default="law"),
    "not calibrated": lambda: tiny.router(default="law", keep_sample=False),
    "votes": lambda: tiny.router(20, selector=EntropyTopK(3)),
    "votes, fitted for the average": lambda: tiny.router(20, default="law").with_selector(EntropyTopK(3)),
    "pairs": lambda: tiny.router(scorer=Blend(0.5, 0.5)),
    "unknown tokens": lambda: tiny.router(20, of=tiny.word_embedding(), selector=AllTokens()),
}
_MADE: dict[str, Router] = {}


def made(kind: str) -> Router:
    if kind not in _MADE:
        _MADE[kind] = ROUTERS[kind]()
    return _MADE[kind]


kinds = st.sampled_from(list(ROUTERS))


@tiny.LAW
@given(kinds, policies, prompts)
def test_a_batch_is_one_by_one_under_every_policy(kind: str, policy: Policy, some: list[str]) -> None:
    router = made(kind).with_policy(policy)
    for weights in (None, {"latency": 0.5}):
        one_by_one = [router.route(text, weights=weights) for text in some]
        assert list(map(shown, router.route_batch(some, weights=weights))) == list(map(shown, one_by_one))
        assert [shown(router.explain(text, weights=weights).decision) for text in some] == list(map(shown, one_by_one))


@tiny.LAW
@given(kinds, policies, prompts)
def test_probabilities_add_up_to_that_of_the_domains_and_costs_do_not_change_them(
    kind: str, policy: Policy, some: list[str]
) -> None:
    plain, router = made(kind), made(kind).with_policy(policy)
    for text in some:
        found = router.route(text)
        assert sum(p for _, p in found.ranking) == pytest.approx(1 if found.in_domain is None else found.in_domain)
        assert all(0 <= p <= 1 for _, p in found.ranking)
        assert dict(found.ranking) == dict(plain.route(text).ranking)
        assert found.ranking[0][0] == (found.best if found.expert is None else found.expert)
        json.dumps(found.to_dict())


@tiny.LAW
@given(kinds, policies, prompts)
def test_the_best_after_costs_is_chosen_or_the_default(kind: str, policy: Policy, some: list[str]) -> None:
    router = made(kind).with_policy(policy)
    for text in some:
        found, quality = router.route(text), dict(made(kind).route(text).ranking)
        if found.abstained:
            assert found.expert == router.default
            continue
        worth = {}
        for name in router.experts:
            cost, w = policy.costs.get(name, Cost()), policy.weights
            worth[name] = quality[name] - w.price * cost.price - w.latency * cost.latency - w.memory * cost.memory
        assert worth[found.expert] == pytest.approx(max(worth.values()), abs=1e-12)


@tiny.LAW
@given(kinds, prompts, st.floats(0, 1))
def test_a_threshold_divides_what_is_sure_enough_from_the_rest(kind: str, some: list[str], threshold: float) -> None:
    router = made(kind).with_policy(Policy(threshold))
    for text in some:
        found, plain = router.route(text), made(kind).route(text)
        expected: Reason = plain.reason
        if not expected and threshold and plain.out_of_domain:
            expected = "out of domain"
        elif not expected and (plain.confidence < threshold or threshold == 1):
            expected = "low confidence"
        assert (found.reason, found.abstained) == (expected, bool(expected))
        assert found.expert == (router.default if expected else plain.expert)
        assert found.best == plain.best


@pytest.mark.parametrize("kind", ROUTERS)
def test_a_threshold_of_one_always_abstains_and_of_nought_never(kind: str) -> None:
    router, some = made(kind), [text for text in tiny.mixed(30) if not made(kind).route(text).abstained]
    some = [
        text for text in some if not made(kind).route(text).out_of_domain
    ]  # nobody abstains there without a membership
    assert len(some) > 20
    assert {d.reason for d in router.with_policy(Policy(1.0)).route_batch(some)} == {"low confidence"}
    assert {d.reason for d in router.with_policy(Policy(0.0)).route_batch(some)} == {""}
    assert {d.expert for d in router.with_policy(Policy(1)).route_batch(some)} == {router.default}


def test_a_certainty_that_is_only_rounded_is_none() -> None:
    sure = made("not calibrated").with_calibration(Calibration(1e9))
    assert {d.confidence for d in sure.route_batch(tiny.mixed(9))} == {1.0}
    assert {d.reason for d in sure.with_policy(Policy(1.0)).route_batch(tiny.mixed(9))} == {"low confidence"}
    sure = made("calibrated").with_calibration(Calibration(1e9))  # of the expert, not of the domains
    assert all(d.confidence == d.in_domain < 1 for d in sure.route_batch(tiny.mixed(9)))


def test_a_decision_says_in_one_line_what_it_is_and_why_it_abstained() -> None:
    router = made("calibrated")
    plain = router.route("is this contract void")
    confidence, margin = f"{plain.confidence:.2f}", f"{plain.margin:.2f}"
    assert repr(plain) == f"Decision(expert={plain.expert!r}, confidence={confidence}, margin={margin})"
    assert not plain.abstained and plain.expert is not None
    told = "confidence=0.00, margin=0.00, reason='no known token')"
    assert repr(router.route("")) == f"Decision(expert={router.default!r}, {told}"
    rows = [{"text": "is this contract void", "scores": {"a": 1.0, "b": 0.0}}, {"text": "solve", "scores": {"b": 1.0}}]
    scored = Router.fit_outcomes(rows, embedding=tiny.embedding()).route("is this contract void")
    value, margin = f"{scored.expected_score:.2f}", f"{scored.margin:.2f}"
    assert repr(scored) == f"Decision(expert={scored.expert!r}, expected_score={value}, margin={margin})"


def test_reasons_are_said() -> None:
    router = made("unknown tokens").with_policy(Policy(0.01))
    assert router.route("").reason == router.route("zzz qqq").reason == "no known token"
    for threshold in (0.0, 0.01):
        strange = made("calibrated").with_policy(Policy(threshold)).route(CONTROLS)
        assert (strange.reason, strange.out_of_domain, strange.expert) == ("out of domain", True, "law")
    other = made("votes, fitted for the average")  # not learnt for it: told, but nobody asked to abstain
    assert (other.route(CONTROLS).out_of_domain, other.route(CONTROLS).reason) == (True, "")
    assert other.with_policy(Policy(0.01)).route(CONTROLS).reason == "out of domain"


@pytest.mark.parametrize("default", [None, "law"])
def test_where_the_router_abstains_the_default_is_taken_or_nobody(default: str | None) -> None:
    router = tiny.router(20, default=default)
    for text in ("", CONTROLS):
        found = router.route(text)
        assert (found.abstained, found.expert, found.to_dict()["expert"]) == (True, default, default)
        assert found.best in NAMES and found.ranking[0][0] == (default or found.best)
    assert router.default == default
    assert sum(d.expert == d.best for d in router.route_batch(tiny.sentences("maths", 20))) >= 18


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.1, 1.1, "0.5", None])
def test_a_threshold_is_a_confidence(wrong: object) -> None:
    with pytest.raises(InputError, match=r"threshold must be .*, found"):
        Policy(wrong)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1, "1", None, True])
def test_a_cost_is_a_number(wrong: object) -> None:
    with pytest.raises(InputError, match=r"the cost of 'law': price must be a .*number, .*found"):
        Policy(costs={"law": {"price": wrong}})
    with pytest.raises(InputError, match=r"price, latency, memory"):
        made("calibrated").route("prove", weights={"prise": 1.0}) if wrong is None else Cost.of({"prise": wrong})


def test_costs_of_experts_that_are_not_there_are_refused_and_go_with_those_removed() -> None:
    with pytest.raises(UnknownExpertError, match="nobody"):
        tiny.router(policy=Policy(costs={"nobody": {"price": 1.0}}))
    with pytest.raises(UnknownExpertError, match="nobody"):
        made("calibrated").with_policy(Policy(costs={"nobody": {"price": 1.0}}))
    router = tiny.router(policy=Policy(0.2, {"price": 1.0}, {name: {"price": 1.0} for name in NAMES}))
    router.remove("law")
    assert router.policy == Policy(0.2, {"price": 1.0}, {"maths": {"price": 1.0}, "cooking": {"price": 1.0}})


# calibration and familiarity --------------------------------------------------------------------------------------


@tiny.LAW
@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=6),
    st.floats(0.01, 1e4),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(1, 1_024),
)
def test_a_calibration_gives_probabilities_in_the_order_of_the_evidence(
    evidence: list[float], scale: float, growth: float, tokens: int
) -> None:
    p = Calibration(scale, growth).probabilities(evidence, tokens)
    assert sum(p) == pytest.approx(1)
    for one, first in zip(evidence, p, strict=True):
        for other, second in zip(evidence, p, strict=True):
            assert first >= second or one < other
    longer = Calibration(scale, growth).probabilities(evidence, 2 * tokens)
    assert max(longer) >= max(p) - 1e-12


@pytest.mark.parametrize(("scale", "growth"), [(0.0, 0), (-1.0, 0), (math.nan, 0), (math.inf, 0), (1.0, math.nan)])
def test_a_calibration_that_makes_no_sense_is_refused(scale: float, growth: float) -> None:
    with pytest.raises(InputError, match="positive scale"):
        Calibration(scale, growth)


@tiny.LAW
@given(wordy)
def test_familiarity_is_the_mean_measure_familiarity_the_tokens(text: str) -> None:
    router, ids = made("calibrated"), tiny.embedding().encode(text)
    known = router.compiled.rules.familiarity
    mean = router.compiled.table.familiarity[ids].astype(np.float64).mean() / FAMILIARITY_UNIT
    found = router.route(text)
    spread = math.sqrt(known.between**2 + known.within**2 / len(ids))
    assert found.familiarity == pytest.approx((mean - known.mean) / spread)
    for selector in (EntropyTopK(2), AllTokens()):  # however few tokens vote, all of them are looked at
        voted = router.with_selector(selector).route(text)
        assert voted.familiarity == pytest.approx(found.familiarity)
        assert voted.in_domain is None and voted.out_of_domain == (voted.familiarity < known.lowest)


def test_only_what_is_looked_at_can_be_unusual() -> None:
    router = made("calibrated").with_selector(Average(cap=8))
    start = "prove the sum of the "
    assert len(tiny.embedding().encode(start)) >= 8
    assert router.route(start + "\x01" * 50).familiarity == router.route(start + "prove").familiarity


def test_without_a_sample_nothing_is_known_of_familiarity() -> None:
    found = made("not calibrated").route("\x01\x02")
    assert (found.familiarity, found.in_domain, found.out_of_domain) == (None, None, False)
    assert Familiarity(-5.0, 0.0, 2.0, -3.0).deviation(-6.0, 4) == -1.0


def list_pairs() -> Iterator[Any]:
    """Every scorer with every second selector; by day, each scorer with one of them."""
    chosen = SELECTORS[::2]
    for place, scorer in enumerate(EVERY_SCORER):
        for other, selector in enumerate(chosen):
            by_day = other == place % len(chosen)
            yield pytest.param(scorer, selector, id=f"{selector}-{scorer}", marks=() if by_day else pytest.mark.nightly)


@pytest.mark.parametrize(("scorer", "selector"), list(list_pairs()))
def test_calibration_changes_how_sure_the_router_is_and_nothing_else(scorer: object, selector: object) -> None:
    router = tiny.router(scorer=scorer, selector=selector)
    assert router.calibrated
    batch = router.route_batch(tiny.mixed(20))
    assert all(0 < d.confidence <= 1 and d.margin >= 0 for d in batch)
    plain = tiny.router(scorer=scorer, selector=selector, keep_sample=False)
    assert not plain.calibrated
    assert [d.best for d in batch] == [d.best for d in plain.route_batch(tiny.mixed(20))]
    assert all(d.expert == (None if d.abstained else d.best) for d in batch)
