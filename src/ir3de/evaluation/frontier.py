"""What quality costs: a router at every weight of cost, next to single experts, random mixes and an oracle."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.evaluation.accuracy import route_and_compare
from ir3de.evaluation.intervals import JSONReport
from ir3de.policies import COSTS, FREE, Cost, Costs, Policy
from ir3de.router import Router
from ir3de.routing.decision import Decision

WEIGHT_STEPS = 15  # weights, each moving about as many prompts
WEIGHT_DIGITS = 3  # significant digits of a weight
LAST_WEIGHT_FACTOR = 1 + 1e-6  # just past the weight at which the last prompt changes expert, where both experts tie

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CostQuality:
    """A mean quality, and the mean cost per prompt."""

    cost: float
    quality: float

    @classmethod
    def of(cls, cost: Any, quality: Any) -> CostQuality:
        """Round away the noise of sums over many prompts."""
        return cls(round(float(cost), 12), round(float(quality), 12))


@dataclass(frozen=True)
class FrontierPoint(CostQuality):
    """The router at one weight: each expert's share of the prompts, and the quality of a random mix at that cost."""

    weight: float
    shares: Mapping[str, float]
    mix_quality: float


@dataclass(frozen=True)
class Frontier(JSONReport):
    """The result of `measure_frontier`: `points` by growing weight, from ignoring cost to always the cheapest expert.

    Means are over the prompts. `costs` are in units of `unit`, as is the `weight` of the router's own policy, None
    where it has none. `mix` are the corners of the best random mixes, which ignore the prompt; `oracle` knows how good
    every expert's answer will be.
    """

    experts: tuple[str, ...]
    prompts: int
    unit: str
    costs: Mapping[str, float]
    weight: float | None
    points: tuple[FrontierPoint, ...]
    singles: Mapping[str, CostQuality]
    uniform: CostQuality
    mix: tuple[CostQuality, ...]
    oracle: tuple[CostQuality, ...]


def measure_frontier(router: Router, domains: Mapping[str, Iterable[str]], *, weights: Costs | None = None) -> Frontier:
    """Quality, the share of prompts that reach their own expert, against cost; every prompt is routed once.

    `weights` combine several costs; by default those of the router's policy, or the one cost that experts differ in.
    A prompt on which the router abstains goes to the default expert, or to the nearest one where none was named.

    >>> import ir3de
    >>> router = ir3de.Router.fit({"maths": ["Solve x + 3 = 10."], "law": ["Is this contract void?"]})
    >>> router = router.with_policy(Policy(costs={"maths": {"price": 2.0}}))
    >>> found = measure_frontier(router, {"maths": ["Solve 3x = 12."], "law": ["Is the contract valid?"]})
    >>> [(point.cost, point.quality) for point in (found.points[0], found.points[-1])]
    [(1.0, 1.0), (0.0, 0.5)]
    """
    recorder = DecisionRecorder(router)
    recorder.check(weights)
    route_and_compare(router, domains, on_decision=recorder.record)
    return recorder.frontier(weights)


class DecisionRecorder:
    """Records the decisions of an evaluation, to compute a frontier from them afterwards."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._decisions: list[Decision] = []
        self._domains: list[int] = []

    def check(self, weights: Costs | None = None) -> None:
        """Refuse costs that do not differ, before anything is routed."""
        _combine_costs(self._router.policy, self._router.experts, weights)

    def record(self, name: str, text: str, decision: Decision) -> None:
        self._decisions.append(decision)
        self._domains.append(self._router.experts.index(name))

    def frontier(self, weights: Costs | None = None) -> Frontier:
        domains, count = np.array(self._domains, np.int64), len(self._router.experts)
        share = np.full(len(domains), 1.0 / len(domains))
        return compute_frontier(self._router, self._decisions, np.eye(count)[domains], share, weights=weights)


def compute_frontier(
    router: Router, decisions: Sequence[Decision], actual: Floats, share: Floats, *, weights: Costs | None = None
) -> Frontier:
    """The frontier of decisions made by this router.

    `actual` (prompts, experts) is what each expert's answer was worth, `share` (prompts,) how much each prompt counts,
    adding up to one.
    """
    experts, policy = router.experts, router.policy
    mixture, unit = _combine_costs(policy, experts, weights)
    costs = np.array([policy.costs.get(name, FREE).times(mixture) for name in experts])
    own = getattr(policy.weights, unit) if policy.weights and weights is None else None

    def measure(chosen: Indices) -> tuple[CostQuality, dict[str, float]]:
        """The true quality and the cost of a choice of experts, and each expert's share of the prompts."""
        shares = np.bincount(chosen, weights=share, minlength=len(experts))
        quality = share @ actual[np.arange(len(chosen)), chosen]
        return CostQuality.of(shares @ costs, quality), dict(zip(experts, shares.round(12).tolist(), strict=True))

    singles = [CostQuality.of(cost, quality) for cost, quality in zip(costs, share @ actual, strict=True)]
    mix = _find_mix_corners(singles)
    points = []
    estimates = _Estimates.of(decisions, experts, None if router.default is None else experts.index(router.default))
    for weight in estimates.choose_weights(costs, own):
        penalties = policy.penalties(experts, {name: weight * getattr(mixture, name) for name in COSTS})
        penalties = [0.0] * len(experts) if penalties is None else penalties
        spot, shares = measure(estimates.choose_experts(np.array(penalties)))
        points.append(FrontierPoint(spot.cost, spot.quality, weight, shares, interpolate_mix(mix, spot.cost)))
    known = _Estimates(-np.sort(-actual, axis=1), np.argsort(-actual, axis=1, kind="stable"), np.full(len(actual), -1))
    oracle = [measure(known.choose_experts(weight * costs))[0] for weight in known.choose_weights(costs, None)]
    return Frontier(
        experts,
        len(decisions),
        unit,
        dict(zip(experts, costs.tolist(), strict=True)),
        own,
        tuple(points),
        dict(zip(experts, singles, strict=True)),
        CostQuality.of(costs.mean(), (share @ actual).mean()),
        tuple(mix),
        tuple(dict.fromkeys(oracle)),
    )


@dataclass(frozen=True, eq=False)
class _Estimates:
    """The estimated quality of every expert's answer to every prompt, best first."""

    quality: Floats  # (n, C)  falling
    order: Indices  # (n, C)  whose it is
    fixed: Indices  # (n,)  the expert of a prompt that ignores costs, or −1

    @classmethod
    def of(cls, decisions: Sequence[Decision], experts: Sequence[str], default: int | None) -> _Estimates:
        place = {name: index for index, name in enumerate(experts)}
        quality = np.empty((len(decisions), len(experts)))
        order = np.empty(quality.shape, np.int64)
        for row, decision in enumerate(decisions):
            quality[row] = [value for _, value in decision.quality]
            order[row] = [place[name] for name, _ in decision.quality]
        fixed = [_fix_expert(decision, place, default) for decision in decisions]
        return cls(quality, order, np.array(fixed, np.int64))

    def choose_experts(self, penalties: Floats) -> Indices:
        """The expert of largest quality − penalty for every prompt; of equals the one of higher quality."""
        best = (self.quality - penalties[self.order]).argmax(axis=1)
        chosen = np.take_along_axis(self.order, best[:, None], axis=1)[:, 0]
        return np.where(self.fixed < 0, chosen, self.fixed)

    def choose_weights(self, costs: Floats, own: float | None) -> list[float]:
        """Weights from zero to where every prompt goes to the cheapest, closest where most prompts change experts."""
        free = self.fixed < 0
        quality, cost = self.quality[free], costs[self.order[free]]
        changes = np.concatenate([_first_changes(quality, cost), _last_changes(quality, cost)])
        weights = {0.0} if own is None else {0.0, own}
        if len(changes):
            steps = np.quantile(changes, np.arange(WEIGHT_STEPS) / WEIGHT_STEPS)
            weights |= {_round_weight(weight) for weight in steps.tolist()}
            weights.add(_round_weight(float(changes.max()) * LAST_WEIGHT_FACTOR, up=True))
        return sorted(weights)


def _fix_expert(decision: Decision, place: Mapping[str, int], default: int | None) -> int:
    """The expert of a prompt on which the router abstains, or −1 where costs decide."""
    if not decision.abstained:
        return -1
    if default is None and decision.reason == "no known token":
        return place[decision.best]  # routing ignores costs here
    return -1 if default is None else default


def _first_changes(quality: Floats, cost: Floats) -> Floats:
    """The weight at which each prompt first leaves the expert it goes to when cost is ignored."""
    saved = cost[:, :1] - cost
    with np.errstate(divide="ignore", invalid="ignore"):
        change = np.where(saved > 0, (quality[:, :1] - quality) / saved, np.inf).min(axis=1, initial=np.inf)
    return np.asarray(change[np.isfinite(change)])


def _last_changes(quality: Floats, cost: Floats) -> Floats:
    """The weight from which each prompt goes to a cheapest expert, where it did not from the beginning."""
    cheapest = cost.min(axis=1, keepdims=True, initial=np.inf)
    fallback = np.where(cost == cheapest, quality, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        change = np.where(cost > cheapest, (quality - fallback) / (cost - cheapest), 0.0).max(axis=1, initial=0.0)
    return np.asarray(change[change > 0])


def _round_weight(weight: float, *, up: bool = False) -> float:
    if weight <= 0:
        return 0.0
    digits = WEIGHT_DIGITS - 1 - math.floor(math.log10(weight))
    nearest = round(weight, digits)
    return nearest if nearest >= weight or not up else round(nearest + 10.0**-digits, digits)


def _find_mix_corners(singles: Sequence[CostQuality]) -> list[CostQuality]:
    """The corners of the best random mixes, from the cheapest expert to the best: every slope less than the last."""
    corners: list[CostQuality] = []
    for spot in sorted(singles, key=lambda spot: (spot.cost, -spot.quality)):
        if corners and spot.quality <= corners[-1].quality:
            continue  # another is cheaper and as good
        while len(corners) > 1 and _slope(corners[-2], spot) >= _slope(corners[-2], corners[-1]):
            corners.pop()
        corners.append(spot)
    return corners


def interpolate_mix(mix: Sequence[CostQuality], cost: float) -> float:
    """The best quality of a random mix at that cost."""
    return float(np.interp(cost, [corner.cost for corner in mix], [corner.quality for corner in mix]))


def _slope(one: CostQuality, other: CostQuality) -> float:
    return (other.quality - one.quality) / (other.cost - one.cost)


def _combine_costs(policy: Policy, experts: Sequence[str], weights: Costs | None) -> tuple[Cost, str]:
    """Combine price, latency and memory into one cost, in units of the first that counts."""
    costs = [policy.costs.get(name, FREE) for name in experts]
    differing = [name for name in COSTS if len({getattr(cost, name) for cost in costs}) > 1]
    given = Cost.of(weights) if weights is not None else policy.weights
    if not given and len(differing) > 1:
        raise InputError(
            f"experts differ in {' and '.join(differing)}: give their weights, for instance "
            f"weights={{{', '.join(f'{name!r}: 1.0' for name in differing)}}}"
        )
    given = given or Cost(**dict.fromkeys(differing, 1.0))
    if not differing:
        raise InputError("all experts cost the same: a frontier needs at least two prices, latencies or memories")
    if len({cost.times(given) for cost in costs}) < 2:
        shown = ", ".join(f"{name} {value:g}" for name, value in asdict(given).items() if value)
        raise InputError(
            f"weighed by {shown}, all experts cost the same, though they differ in {' and '.join(differing)}: "
            f"use other weights, for instance weights={{{differing[0]!r}: 1.0}} (--weight {differing[0]}=1)"
        )
    unit = next(name for name in COSTS if getattr(given, name))
    return Cost(*(getattr(given, name) / getattr(given, unit) for name in COSTS)), unit
