"""The frontier is what routing does at each weight; mixes, single experts and an oracle lie where they must."""

import json
import subprocess
import sys
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ir3de.evaluation.prompts
import tiny
from ir3de import Router
from ir3de.corpora import examples as demo
from ir3de.errors import InputError, UnknownExpertError
from ir3de.evaluation.frontier import CostQuality, Frontier, compute_frontier, interpolate_mix, measure_frontier
from ir3de.policies import Cost, Policy

EXPERTS = tuple(tiny.DOMAINS)
COSTS = {"maths": {"price": 3.0}, "law": {"price": 0.5}, "cooking": {"price": 1.0}}
EVEN = ({"price": 1.0}, {"latency": 2.0})  # the same where latency weighs half
TEXTS = {name: [*tiny.sentences(name, 12, seed=5, longest=8), *tiny.mixed(6, seed=i)] for i, name in enumerate(EXPERTS)}
TEXTS["law"] = TEXTS["law"][:5]  # domains of different sizes: means are over prompts


@pytest.fixture(scope="module")
def router() -> Router:
    return tiny.router(policy=Policy(costs=COSTS))


@pytest.fixture(scope="module")
def found(router: Router) -> Frontier:
    return measure_frontier(router, TEXTS)


def count_sent(router: Router) -> npt.NDArray[np.float64]:
    """How many prompts of each domain each expert gets; the nearest one gets what fits nobody."""
    sent = np.zeros((len(EXPERTS), len(EXPERTS)))
    for row, texts in enumerate(TEXTS.values()):
        for decision in router.route_batch(texts):
            sent[row, EXPERTS.index(decision.expert or decision.best)] += 1
    return sent


def measure_accuracy(sent: npt.NDArray[np.float64]) -> float:
    return float(sent.diagonal().sum() / sent.sum())


def test_every_point_is_what_routing_at_that_weight_gives(router: Router, found: Frontier) -> None:
    assert len(found.points) > 5
    for point in found.points:
        sent = count_sent(router.with_policy(Policy(weights={"price": point.weight}, costs=COSTS)))
        shares = sent.sum(axis=0) / sent.sum()
        assert point.quality == pytest.approx(measure_accuracy(sent))
        assert point.shares == pytest.approx(dict(zip(EXPERTS, shares, strict=True)))
        assert point.cost == pytest.approx(sum(share * COSTS[name]["price"] for name, share in point.shares.items()))


def test_it_goes_from_the_router_without_costs_to_the_cheapest_expert(router: Router, found: Frontier) -> None:
    first, last = found.points[0], found.points[-1]
    assert (first.weight, first.quality) == (0.0, pytest.approx(measure_accuracy(count_sent(router))))
    assert last.shares == {"maths": 0.0, "law": 1.0, "cooking": 0.0} and last.cost == 0.5
    assert any(0.1 < (point.cost - 0.5) / (first.cost - 0.5) < 0.9 for point in found.points)


def test_a_larger_weight_never_costs_more(found: Frontier) -> None:
    assert all(a.weight < b.weight and a.cost >= b.cost for a, b in pairwise(found.points))
    assert all(a.cost >= b.cost and a.quality >= b.quality for a, b in pairwise(found.oracle))


def test_single_experts_are_right_about_their_own_domain_alone(found: Frontier) -> None:
    sizes = {name: len(texts) for name, texts in TEXTS.items()}
    total = sum(sizes.values())
    for name, spot in found.singles.items():
        assert spot == CostQuality(COSTS[name]["price"], pytest.approx(sizes[name] / total))
    assert found.uniform == CostQuality(1.5, pytest.approx(1 / 3))
    price = sum(COSTS[name]["price"] * size for name, size in sizes.items()) / total
    assert found.oracle[0] == CostQuality(pytest.approx(price), 1.0)
    assert found.oracle[-1] == CostQuality(0.5, pytest.approx(sizes["law"] / total))


outcomes = st.lists(st.tuples(*[st.floats(0, 1)] * 3), min_size=2, max_size=9)
prices = st.tuples(*[st.integers(0, 5)] * 3).filter(lambda three: len(set(three)) > 1)


@pytest.mark.slow
@tiny.LAW
@given(outcomes, prices)
def test_nothing_beats_the_oracle_and_no_mix_beats_the_hull(
    worth: list[tuple[float, ...]], price: tuple[int, ...]
) -> None:
    router = tiny.router(policy=Policy(costs={n: {"price": p} for n, p in zip(EXPERTS, price, strict=True)}))
    actual, share = np.array(worth), np.full(len(worth), 1 / len(worth))
    found = compute_frontier(router, router.route_batch(tiny.mixed(len(worth))), actual, share)
    best = max(spot.quality for spot in found.oracle)
    assert best == pytest.approx(actual.max(axis=1).mean())
    assert all(point.quality <= best + 1e-9 for point in found.points)
    rng = np.random.default_rng(0)
    for drawn in rng.dirichlet(np.ones(3), 20):  # any blind mix lies on or below the line
        assert drawn @ actual.mean(axis=0) <= interpolate_mix(found.mix, float(drawn @ np.array(price))) + 1e-9
    slopes = [(b.quality - a.quality) / (b.cost - a.cost) for a, b in pairwise(found.mix)]
    assert slopes == sorted(slopes, reverse=True) and all(slope > 0 for slope in slopes)
    for a, b in pairwise(found.oracle):  # what a weight takes away is worth less than what it saves
        assert b.cost <= a.cost + 1e-9


def test_prompts_the_router_abstains_on_go_to_the_default_at_every_weight() -> None:
    router = tiny.router(policy=Policy(costs=COSTS), default="maths")
    found = measure_frontier(router, {"law": ["", "court clause"], "maths": ["prove the theorem"]})
    assert all(point.shares["maths"] >= 0.333 for point in found.points)
    assert found.points[-1].shares == pytest.approx({"maths": 1 / 3, "law": 2 / 3, "cooking": 0.0})


def test_several_costs_are_counted_in_units_of_the_first(router: Router) -> None:
    costs = {"maths": Cost(2.0, 4.0), "law": Cost(1.0, 0.0)}
    both = router.with_policy(Policy(weights={"price": 0.2, "latency": 0.1}, costs=costs))
    found = measure_frontier(both, TEXTS)
    assert (found.unit, found.weight) == ("price", 0.2)
    assert found.costs == {"maths": 4.0, "law": 1.0, "cooking": 0.0}
    (own,) = [point for point in found.points if point.weight == found.weight]
    assert own.quality == pytest.approx(measure_accuracy(count_sent(both)))
    slow = measure_frontier(both, TEXTS, weights={"latency": 3.0})
    assert (slow.unit, slow.weight, slow.costs["maths"]) == ("latency", None, 4.0)


def test_every_prompt_is_routed_once(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ir3de.evaluation.prompts, "BATCH_PROMPTS", 3)
    assert measure_frontier(router, {name: iter(texts) for name, texts in TEXTS.items()}) == measure_frontier(
        router, TEXTS
    )


def test_the_report_is_plain_json(found: Frontier) -> None:
    told = json.loads(json.dumps(found.to_dict()))
    assert told["prompts"] == sum(map(len, TEXTS.values()))
    assert [point["weight"] for point in told["points"]] == [point.weight for point in found.points]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Policy(), "all experts cost the same"),
        (Policy(costs={name: {"price": 2.0} for name in EXPERTS}), "all experts cost the same"),
        (Policy(weights={"latency": 1.0}, costs=COSTS), "weighed by latency 1, all .* though they differ in price: "),
        (
            Policy(weights={"price": 1.0, "latency": 0.5}, costs={n: EVEN[i % 2] for i, n in enumerate(EXPERTS)}),
            r"weighed by price 1, latency 0\.5, .* differ in price and latency: .* weights={'price': 1.0} \(--weight",
        ),
        (Policy(costs={"maths": {"price": 2.0, "memory": 1.0}}), "differ in price and memory: give their weights"),
    ],
)
def test_nothing_to_trade_is_an_error(policy: Policy, message: str) -> None:
    with pytest.raises(InputError, match=message):
        measure_frontier(tiny.router(policy=policy), TEXTS)


def test_labels_and_prompts_are_checked_as_in_an_evaluation(router: Router) -> None:
    with pytest.raises(UnknownExpertError, match="no expert 'physics'"):
        measure_frontier(router, {"physics": ["prove it"]})
    with pytest.raises(InputError, match="'law' has no prompt"):
        measure_frontier(router, {"law": []})


@pytest.mark.nightly
@pytest.mark.slow
def test_knowing_prompts_is_worth_more_than_drawing_experts() -> None:
    """On real prompts the whole curve lies above the random mixes."""
    costs = {"coding": {"price": 3.0}, "mathematics": {"price": 1.0}, "law": {"price": 0.5}, "medicine": {"price": 2.0}}
    found = measure_frontier(Router.fit(demo.prompts(), policy=Policy(costs=costs)), demo.held_out())
    assert all(point.quality > point.mix_quality + 0.01 for point in found.points[:-1])


def test_measuring_needs_no_matplotlib() -> None:
    script = "import sys, ir3de.evaluation.frontier, ir3de.cli.plots; assert 'matplotlib' not in sys.modules"
    command, environment = tiny.python_command(script)
    assert command[0] == sys.executable
    subprocess.run(command, env=environment, check=True)
