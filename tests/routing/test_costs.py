"""Costs: the expert of largest quality − weights · cost, and what must hold whatever the costs are."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de import EntropyTopK, Router
from ir3de.errors import InputError, UnknownExpertError
from ir3de.policies import COSTS, Cost, Policy, StrongShare, utilities
from ir3de.routing.decision import make_decision
from ir3de.routing.rules import DecisionRules
from ir3de.selectors import SCORE_UNIT, Average

EXPERTS = tuple(tiny.DOMAINS)
PROMPTS = ["", *tiny.mixed(30)]

amounts = st.floats(0, 10, allow_subnormal=False)
some_costs = st.builds(Cost, amounts, amounts, amounts)
all_costs = st.fixed_dictionaries(dict.fromkeys(EXPERTS, some_costs))


@pytest.fixture(scope="module", params=["average", "votes"])
def router(request: pytest.FixtureRequest) -> Router:
    return tiny.router(20) if request.param == "average" else tiny.router(20, selector=EntropyTopK(3))


def routes(router: Router, policy: Policy) -> list[str]:
    return [decision.best for decision in router.with_policy(policy).route_batch(PROMPTS)]


def test_policies_are_values_with_a_hash() -> None:
    given = Policy(0.5, {"price": 1}, {"law": {"price": 2}, "maths": {"memory": 1}})
    same = Policy(0.5, Cost(1.0), {"maths": Cost(memory=1.0), "law": Cost(2.0)})
    assert len({Policy(), Policy(), given, same, Policy(strong_share=StrongShare("a", "b", 0.5, 0.0))}) == 3


# what is chosen -------------------------------------------------------------------------------------------------


@tiny.LAW
@given(all_costs, some_costs)
def test_the_expert_is_the_one_of_largest_utility(router: Router, costs: dict[str, Cost], weights: Cost) -> None:
    for decision in router.with_policy(Policy(weights=weights, costs=costs)).route_batch(PROMPTS):
        if decision.abstained or decision.penalties is None:
            continue
        penalty = {name: sum(getattr(weights, c) * getattr(costs[name], c) for c in COSTS) for name in EXPERTS}
        assert decision.penalties == pytest.approx(penalty)
        worth = {name: share - decision.penalties[name] for name, share in decision.ranking}
        assert worth[decision.expert] == max(worth.values())
        assert [worth[name] for name, _ in decision.ranking] == sorted(worth.values(), reverse=True)
        assert decision.expert == decision.ranking[0][0]


@tiny.LAW
@given(all_costs)
def test_without_weights_costs_change_nothing(router: Router, costs: dict[str, Cost]) -> None:
    plain = router.route_batch(PROMPTS)
    assert router.with_policy(Policy(costs=costs)).route_batch(PROMPTS) == plain
    weighted = router.with_policy(Policy(weights={"price": 1.0}, costs=costs))
    assert weighted.route_batch(PROMPTS, weights={}) == plain
    assert weighted.route_batch(PROMPTS, weights={"price": 0.0}) == plain


def test_the_smallest_weight_keeps_the_ties_of_the_plain_route() -> None:
    router = tiny.router(selector=EntropyTopK(2))  # two votes: they often tie, and summed probabilities decide
    free = router.route_batch(PROMPTS)
    assert any(decision.margin == 0 for decision in free)
    paid = router.with_policy(Policy(weights={"price": 1e-300}, costs={"cooking": {"price": 1e-9}}))
    assert [decision.best for decision in paid.route_batch(PROMPTS)] == [decision.best for decision in free]


@tiny.LAW
@given(all_costs)
def test_a_large_weight_takes_the_cheapest(router: Router, costs: dict[str, Cost]) -> None:
    prices = {name: math.floor(cost.price) for name, cost in costs.items()}
    policy = Policy(weights={"price": 1e6}, costs={name: {"price": price} for name, price in prices.items()})
    plain = router.route_batch(PROMPTS)
    for decision, before in zip(router.with_policy(policy).route_batch(PROMPTS), plain, strict=True):
        if decision.abstained:
            assert decision.expert is None
            continue
        cheapest = [name for name, _ in before.quality if prices[name] == min(prices.values())]
        assert decision.expert == cheapest[0]  # the likeliest of them


def test_of_equal_utilities_the_likelier_expert_is_taken() -> None:
    rules = DecisionRules(("small", "large"), Average())
    even = np.array([0.0, SCORE_UNIT * 0.1])
    likelier = make_decision(rules, even, 1, 1, best=1).quality[0][1]
    gap = likelier - (1 - likelier)
    tied = make_decision(rules, even, 1, 1, best=1, penalties=[0.0, gap])
    worth = utilities([share for _, share in tied.quality], [gap, 0.0])
    assert worth[0] == worth[1], "no tie: the test would say nothing"
    assert (tied.expert, tied.ranking[0][0]) == ("large", "large")


@tiny.LAW
@given(all_costs, some_costs, st.integers(-8, 8))
def test_units_do_not_matter(router: Router, costs: dict[str, Cost], weights: Cost, power: int) -> None:
    t = 2.0**power  # a power of two, so that not even rounding differs
    scaled = {name: Cost(*(t * getattr(cost, c) for c in COSTS)) for name, cost in costs.items()}
    lighter = Cost(*(getattr(weights, c) / t for c in COSTS))
    assert routes(router, Policy(weights=weights, costs=costs)) == routes(router, Policy(0.0, lighter, scaled))


@tiny.LAW
@given(all_costs, some_costs, st.sampled_from(EXPERTS), amounts)
def test_an_expert_that_costs_more_never_gets_more(
    router: Router, costs: dict[str, Cost], weights: Cost, name: str, more: float
) -> None:
    dearer = {**costs, name: Cost(costs[name].price + more, costs[name].latency, costs[name].memory)}
    before, after = (routes(router, Policy(weights=weights, costs=each)) for each in (costs, dearer))
    assert all(old == name or new != name for old, new in zip(before, after, strict=True))


@tiny.LAW
@given(all_costs, some_costs, some_costs)
def test_weights_of_a_call_stand_in_for_the_policy_s(
    router: Router, costs: dict[str, Cost], own: Cost, given_now: Cost
) -> None:
    called = router.with_policy(Policy(weights=own, costs=costs)).route_batch(PROMPTS, weights=given_now)
    assert called == router.with_policy(Policy(weights=given_now, costs=costs)).route_batch(PROMPTS)


@tiny.LAW
@given(all_costs, some_costs)
def test_a_batch_is_its_prompts_one_by_one(router: Router, costs: dict[str, Cost], weights: Cost) -> None:
    paid = router.with_policy(Policy(weights=weights, costs=costs))
    assert paid.route_batch(PROMPTS) == [paid.route(text) for text in PROMPTS]
    assert [paid.explain(text).decision for text in PROMPTS[:5]] == paid.route_batch(PROMPTS[:5])


def test_the_threshold_asks_for_the_likeliest_expert_whatever_it_costs(router: Router) -> None:
    costs = {"maths": {"price": 1.0}, "law": {"price": 2.0}}
    free = router.with_policy(Policy(0.6)).route_batch(PROMPTS)
    paid = router.with_policy(Policy(0.6, {"price": 0.5}, costs)).route_batch(PROMPTS)
    assert [decision.reason for decision in paid] == [decision.reason for decision in free]
    assert {decision.abstained for decision in free} == {True, False}


def test_a_decision_tells_what_costs_did() -> None:
    router = tiny.router()
    text = min((text for text in PROMPTS if router.route(text).expert), key=lambda text: router.route(text).margin)
    free = router.route(text).to_dict()
    assert all(set(row) == {"expert", "probability"} for row in free["ranking"])
    paid = router.with_policy(Policy(costs={router.route(text).expert: {"price": 9.0}}))
    told = paid.route(text, weights={"price": 1.0}).to_dict()
    assert told["expert"] != free["expert"] and told["margin"] < 0
    assert told["ranking"][-1]["expert"] == free["expert"] and told["ranking"][-1]["penalty"] == 9.0
    assert all(
        row["utility"] == pytest.approx(row["probability"] - row["penalty"], abs=2e-6) for row in told["ranking"]
    )


# keeping --------------------------------------------------------------------------------------------------------


def test_the_costs_of_a_removed_expert_vanish() -> None:
    router = tiny.router(policy=Policy(weights={"price": 1.0}, costs={"law": {"price": 3.0}, "maths": {"price": 1.0}}))
    router.remove("law")
    assert router.policy == Policy(weights={"price": 1.0}, costs={"maths": {"price": 1.0}})
    router.add("law", tiny.sentences("law", 12))
    assert set(router.policy.costs) == {"maths"}


@pytest.mark.parametrize("serving", [False, True])
def test_a_saved_policy_is_loaded(tmp_path: Path, serving: bool) -> None:
    policy = Policy(0.5, {"price": 0.1, "memory": 0.01}, {"law": {"price": 3.0}, "maths": {"latency": 1, "memory": 7}})
    router = tiny.router(policy=policy)
    loaded = Router.load(router.save(tmp_path / "router", serving=serving))
    assert loaded.policy == policy
    assert loaded.route_batch(PROMPTS) == router.route_batch(PROMPTS)


def test_what_is_not_named_stays() -> None:
    policy = Policy(0.5, {"price": 0.1}, {"law": {"price": 3.0, "latency": 2.0}, "maths": {"price": 1.0}})
    changed = policy.with_changes({"law": {"price": 4.0}, "cooking": {"memory": 1.0}}, {"latency": 0.2})
    expected = {"law": {"price": 4.0, "latency": 2.0}, "maths": {"price": 1.0}, "cooking": {"memory": 1.0}}
    assert changed == Policy(0.5, {"price": 0.1, "latency": 0.2}, expected)
    assert policy.with_changes({}, {}) == policy


def test_another_default_is_one_argument() -> None:
    router = tiny.router()
    assert router.with_policy(Policy(), default="law").route("").expert == "law"
    assert router.route("").expert is router.default is None
    named = tiny.router(default="maths")
    assert named.route("").expert == named.default == "maths"
    assert named.with_policy(Policy(0.5)).default == "maths"
    with pytest.raises(UnknownExpertError, match="'physics' is not among maths, law, cooking"):
        router.with_policy(Policy(), default="physics")


# refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({"law": {"price": -1.0}}, r"the cost of 'law': price must be a finite number, at least 0, found -1.0"),
        ({"law": {"latency": math.nan}}, "latency must be a finite number, at least 0, found nan"),
        ({"law": {"memory": math.inf}}, "memory must be a finite number, at least 0, found inf"),
        ({"law": {"price": "2"}}, "price must be a number, found '2'"),
        ({"law": {"price": True}}, "price must be a number, found True"),
        ({"law": {"price": None}}, "price must be a number, found None"),
        ({"law": {"price": 10**400}}, "price must be a number, found 1000"),
        ({"law": {"prise": 2.0}}, "no cost 'prise': there are price, latency, memory"),
        ({"law": 2.0}, r"costs are given as in \{'price': 0.2\}, found 2.0"),
        ([("law", 2.0)], "costs must map each expert's name to what it costs"),
    ],
)
def test_costs_that_are_none_are_refused(costs: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Policy(costs=costs)  # type: ignore[arg-type]


@pytest.mark.parametrize("weights", [{"price": -0.1}, {"price": math.nan}, {"prise": 0.1}, 3.0])
def test_weights_that_are_none_are_refused(router: Router, weights: object) -> None:
    with pytest.raises(InputError):
        Policy(weights=weights)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        router.route("prove it", weights=weights)  # type: ignore[arg-type]


@pytest.mark.parametrize("threshold", [-0.1, 1.1, math.nan, "high", None, True])
def test_a_threshold_is_a_confidence(threshold: object) -> None:
    with pytest.raises(InputError, match="threshold must be"):
        Policy(threshold)  # type: ignore[arg-type]


def test_a_policy_is_about_the_experts_that_are_there(router: Router) -> None:
    with pytest.raises(UnknownExpertError, match="costs of unknown experts physics: there are maths, law, cooking"):
        router.with_policy(Policy(costs={"physics": {"price": 1.0}}))
    with pytest.raises(InputError, match="policy must be an object such as Policy"):
        router.with_policy({"price": 1.0})  # type: ignore[arg-type]


def test_a_product_beyond_all_numbers_is_refused(router: Router) -> None:
    paid = router.with_policy(Policy(costs={"law": {"price": 1e200}, "maths": {"price": 1e201}}))
    with pytest.raises(InputError, match="too large"):
        paid.route("prove it", weights={"price": 1e200})


@tiny.LAW
@given(st.sampled_from([np.float32(0.5), np.float64(0.5), np.int64(2), 2, 0.5]))
def test_numbers_of_every_kind_are_taken(number: float) -> None:
    cost = Cost.of({"price": number})
    assert type(cost.price) is float and cost.price == number
