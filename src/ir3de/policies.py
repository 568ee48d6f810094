"""Calibration, familiarity, costs and policy: what the router does with the evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from numbers import Real
from typing import Any, TypeAlias

from ir3de.errors import InputError, UnknownExpertError, name_some
from ir3de.scorers.subjects import FARTHEST, Subjects

__all__ = [
    "COSTS",
    "Calibration",
    "Cost",
    "Costs",
    "Familiarity",
    "Membership",
    "Policy",
    "StrongShare",
    "TurnWeights",
]


@dataclass(frozen=True)
class Calibration:
    """Turns evidence into probabilities: p = softmax(scale · tokens^growth · evidence).

    `growth` is how much longer prompts raise the confidence: 0 for none, 1 as if all tokens were independent. `most`
    is the largest probability of each expert where some have few prompts; it is empty elsewhere.
    """

    scale: float
    growth: float = 0.0
    most: tuple[float, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", tuple(self.most))
        if not (math.isfinite(self.scale) and self.scale > 0 and math.isfinite(self.growth)):
            raise InputError(f"a calibration is a positive scale and a growth, found {self.scale} and {self.growth}")

    def probabilities(self, evidence: Sequence[float], counted: int) -> list[float]:
        sharpness, best, exp = self.scale * counted**self.growth, max(evidence), math.exp
        powers = [exp(sharpness * (value - best)) for value in evidence]
        share = 1.0 / math.fsum(powers)  # the same in every order of the experts
        return [power * share for power in powers]

    def limit(self, values: list[float]) -> list[float]:
        """Probabilities of which none exceeds `most`; the others share evenly what is above it."""
        if not self.most or len(values) < 2:
            return values
        best = max(range(len(values)), key=values.__getitem__)
        if values[best] <= self.most[best]:
            return values
        share = (values[best] - self.most[best]) / (len(values) - 1)
        return [self.most[best] if place == best else value + share for place, value in enumerate(values)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {name: value for name, value in asdict(self).items() if value != ()}


@dataclass(frozen=True)
class AssumedCalibration(Calibration):
    """A calibration without held-out prompts: its probabilities are drawn towards those of even odds, 1/C each."""

    trust: float = 1.0  # 0 for even odds, 1 for none of them

    def probabilities(self, evidence: Sequence[float], counted: int) -> list[float]:
        even = (1.0 - self.trust) / len(evidence)
        return [self.trust * share + even for share in super().probabilities(evidence, counted)]


@dataclass(frozen=True)
class Familiarity:
    """How familiar the tokens of the router's own prompts are. Prompts far below that are out of domain.

    Token familiarity is −log(1 + a/(n_v + ½)), where n_v is how often the token occurred in training: 0 for common
    words, negative for rare and unknown ones. The mean over a prompt of n tokens has mean `mean` and variance
    between² + within²/n. Prompts more than −`lowest` standard deviations below the mean are out of domain.
    """

    mean: float
    between: float
    within: float
    lowest: float

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.mean, self.between, self.within))) or math.isnan(self.lowest):
            raise InputError(f"the numbers of a familiarity must be finite, found {self}")

    def deviation(self, token_mean: float, tokens: int) -> float:
        """A prompt's mean token familiarity in standard deviations from the mean; negative is less familiar."""
        return (token_mean - self.mean) / math.sqrt(self.between**2 + self.within**2 / tokens)


MIN_FAMILIARITY, MAX_FAMILIARITY = -8.0, 2.0  # values beyond these count as these
MIN_CERTAINTY, MAX_CERTAINTY = -4.0, 6.0
STRANGE = 1.0  # standard deviations below the mean, from which on familiarity counts once more
TOO_FEW_PROMPTS = -1_000.0  # the lowest log-odds where too few prompts are held out: no prompt is out of domain


@dataclass(frozen=True)
class Membership:
    """How probable it is that a prompt is in domain: σ(bias + familiarity · f + strangeness · s + certainty · c + …).

    f is the prompt's familiarity, s = min(0, f + 1) counts it once more where it is low, and c is the log-odds of the
    best expert if the prompt is in domain. f and c are cut at fixed limits. Where `subjects` are known, nearness · n
    and contrast · d are added: how near the prompt is to what the experts' prompts are about. Prompts whose log-odds
    lie below `lowest` are out of domain. With `needs_content`, so are those of generic words alone: "ok thanks".
    """

    bias: float
    familiarity: float
    strangeness: float
    certainty: float
    lowest: float = -math.inf
    needs_content: bool = False
    nearness: float = 0.0
    contrast: float = 0.0
    subjects: Subjects | None = None

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.bias, *self.weights))) or math.isnan(self.lowest):
            raise InputError(f"the weights of a membership must be finite, found {self}")

    @property
    def weights(self) -> tuple[float, float, float, float, float]:
        """Those of familiarity, strangeness, certainty, nearness and contrast."""
        return self.familiarity, self.strangeness, self.certainty, self.nearness, self.contrast

    @property
    def numbers(self) -> tuple[float, ...]:
        """All numbers but the centroids."""
        own = tuple(float(getattr(self, part.name)) for part in fields(self) if part.name != "subjects")
        return own if self.subjects is None else (*own, *self.subjects.means, *self.subjects.spreads)

    @property
    def least_of_subjects(self) -> float:
        """The least that the subject of a prompt can add to its log-odds."""
        return 0.0 if self.subjects is None else FARTHEST * (self.nearness + self.contrast)

    def find_log_odds(self, familiarity: float, best: float, near: float = 0.0, contrast: float = 0.0) -> float:
        """The log-odds that a prompt is in domain: from its familiarity, its best expert's probability, its subject."""
        f, c = familiarity, math.log(best / (1.0 - best)) if best < 1.0 else MAX_CERTAINTY
        f = MIN_FAMILIARITY if f < MIN_FAMILIARITY else MAX_FAMILIARITY if f > MAX_FAMILIARITY else f
        c = MIN_CERTAINTY if c < MIN_CERTAINTY else MAX_CERTAINTY if c > MAX_CERTAINTY else c
        strangeness = f + STRANGE if f < -STRANGE else 0.0
        odds = self.bias + self.familiarity * f + self.strangeness * strangeness + self.certainty * c
        return odds + self.nearness * near + self.contrast * contrast


@dataclass(frozen=True)
class Cost:
    """What an expert costs in any units, or what a unit of each cost is worth in quality."""

    price: float = 0.0
    latency: float = 0.0
    memory: float = 0.0

    def __post_init__(self) -> None:
        for name in COSTS:
            value = getattr(self, name)
            if type(value) is not float:
                value = _number(name, value)
                object.__setattr__(self, name, value)
            if not 0 <= value < math.inf:
                raise InputError(f"{name} must be a finite number, at least 0, found {value!r}")

    @classmethod
    def of(cls, given: Cost | Mapping[str, float]) -> Cost:
        """From plain values: `{"price": 0.2}`."""
        if isinstance(given, Cost):
            return given
        if not isinstance(given, Mapping):
            raise InputError(f"costs are given as in {{'price': 0.2}}, found {given!r}")
        if unknown := [name for name in given if name not in COSTS]:
            raise InputError(f"no cost {', '.join(map(repr, unknown))}: there are {', '.join(COSTS)}")
        return cls(**given)

    def __bool__(self) -> bool:
        return any((self.price, self.latency, self.memory))

    def times(self, weights: Cost) -> float:
        """The sum of the costs, each times its weight."""
        return weights.price * self.price + weights.latency * self.latency + weights.memory * self.memory


COSTS = tuple(part.name for part in fields(Cost))
FREE = Cost()

Costs: TypeAlias = "Cost | Mapping[str, float]"  # what callers may pass


@dataclass(frozen=True)
class StrongShare:
    """Sends a share of the prompts to a strong model and the others to a weak one.

    The strong model gets the prompts on which its value exceeds that of the weak one by at least `threshold`, which
    was picked on prompts so that this is `share` of them.
    """

    strong: str
    weak: str
    share: float
    threshold: float

    def __post_init__(self) -> None:
        if not (isinstance(self.strong, str) and isinstance(self.weak, str) and self.strong != self.weak):
            raise InputError(
                f"a strong share needs the names of two models, found {self.strong!r} and {self.weak!r}: name both"
            )
        check_share(self.share)
        if not math.isfinite(_number("threshold", self.threshold)):
            raise InputError(f"the threshold of a strong share must be finite, found {self.threshold!r}")

    def locate(self, experts: Sequence[str]) -> tuple[int, int, float]:
        """The places of the strong and the weak model among the experts, and the threshold."""
        return experts.index(self.strong), experts.index(self.weak), self.threshold


def check_share(share: object) -> float:
    """Raise an error unless the share of strong calls is a number between 0 and 1."""
    number = _number("the share of strong calls", share)
    if not 0 < number < 1:
        raise InputError(
            f"the share of strong calls must lie between 0 and 1, found {share!r}: 0.3 sends 30 % of the prompts to "
            "the strong model"
        )
    return number


@dataclass(frozen=True, init=False)
class Policy:
    """Chooses the expert of largest quality − weights · cost, or abstains.

    The router abstains if the confidence in the likeliest expert, costs aside, is below the `threshold`. With a
    threshold it also abstains for out-of-domain prompts. The default expert then gets the prompt. Experts without a
    cost are free. With a `strong_share`, two models share the prompts instead, and costs play no part.

    >>> Policy(weights={"price": 0.1}, costs={"large": {"price": 3.0}}).penalties(("small", "large"))
    [0.0, 0.30000000000000004]
    """

    threshold: float
    weights: Cost
    costs: Mapping[str, Cost]
    strong_share: StrongShare | None

    def __init__(
        self,
        threshold: float = 0.0,
        weights: Costs = FREE,
        costs: Mapping[str, Costs] | None = None,
        strong_share: StrongShare | Mapping[str, Any] | None = None,
    ) -> None:
        number = _number("threshold", threshold)
        if not 0 <= number <= 1:
            raise InputError(f"threshold must be a confidence between 0 and 1, found {threshold!r}")
        if not isinstance(costs or {}, Mapping):
            raise InputError(f"costs must map each expert's name to what it costs, found {costs!r}")
        if isinstance(strong_share, Mapping):
            strong_share = StrongShare(**strong_share)
        if strong_share and Cost.of(weights):
            raise InputError(
                "a policy weighs costs or sends a share of the prompts to the strong model, found both: "
                "take out the weights, or the strong share (`ir3de policy --no-strong-share`)"
            )
        object.__setattr__(self, "strong_share", strong_share)
        object.__setattr__(self, "threshold", number)
        object.__setattr__(self, "weights", Cost.of(weights))
        object.__setattr__(self, "costs", {name: _cost_of(name, cost) for name, cost in (costs or {}).items()})

    def __hash__(self) -> int:
        return hash((self.threshold, self.weights, frozenset(self.costs.items()), self.strong_share))

    def penalties(self, experts: Sequence[str], weights: Costs | None = None) -> list[float] | None:
        """Each expert's costs times the weights. None if all are free."""
        w = self.weights if weights is None else Cost.of(weights)
        if not w or not any(self.costs.values()):
            return None
        penalties = [self.costs.get(name, FREE).times(w) for name in experts]
        if max(penalties) == math.inf:
            raise InputError("weights times costs are too large for a number: give them in larger units")
        return penalties

    def among(self, experts: Sequence[str]) -> Policy:
        """The same policy with the costs of these experts only, and its strong share if both models are there."""
        share = self.strong_share
        kept = share if share and share.strong in experts and share.weak in experts else None
        return Policy(self.threshold, self.weights, {n: cost for n, cost in self.costs.items() if n in experts}, kept)

    def with_changes(self, costs: Mapping[str, Mapping[str, float]], weights: Mapping[str, float]) -> Policy:
        """The same policy with some costs and weights replaced."""
        merged = {name: {**asdict(self.costs.get(name, FREE)), **given} for name, given in costs.items()}
        changed = {**asdict(self.weights), **weights}
        return Policy(self.threshold, changed, {**self.costs, **merged}, self.strong_share)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = asdict(self)
        return plain if self.strong_share else {name: value for name, value in plain.items() if name != "strong_share"}


@dataclass(frozen=True)
class TurnWeights:
    """What turns of a conversation weigh. The defaults were chosen on chats of training prompts: docs/conversations.md.

    `decay` is what the turns before keep of their weight at a turn with content. `change` is the log-odds, for another
    expert and against the present one, from which a turn begins a new subject. More than `cap` tokens of a turn count
    as `cap` tokens. A pasted document weighs `paste` times what the user's own words leave.
    """

    decay: float = 0.5
    change: float = 1.5
    cap: int = 16
    paste: float = 0.25

    def __post_init__(self) -> None:
        for name, most in (("decay", 1), ("change", math.inf), ("paste", 1)):
            if not 0 <= _number(name, getattr(self, name)) <= most:
                limits = "between 0 and 1" if most == 1 else "at least 0"
                raise InputError(f"{name} must be a number {limits}, found {getattr(self, name)!r}")
        if isinstance(self.cap, bool) or not isinstance(self.cap, int) or self.cap < 1:
            raise InputError(f"cap must be a whole number of tokens, at least 1, found {self.cap!r}")


def check_policy(policy: Policy, experts: Sequence[str]) -> Policy:
    """Raise an error for an object that is not a policy, and for costs of unknown experts."""
    if not isinstance(policy, Policy):
        raise InputError(f"policy must be an object such as {Policy()}, found {policy!r}")
    if unknown := [name for name in policy.costs if name not in experts]:
        raise UnknownExpertError(
            f"costs of unknown experts {', '.join(unknown)}: there are {name_some(experts, unknown[0])}"
        )
    share = policy.strong_share
    if share and (unknown := [name for name in (share.strong, share.weak) if name not in experts]):
        raise UnknownExpertError(
            f"a strong share of unknown {', '.join(unknown)}: there are {name_some(experts, unknown[0])}"
        )
    return policy


def utilities(qualities: Sequence[float], penalties: Sequence[float]) -> list[float]:
    """What a policy maximises: quality minus penalty, per expert."""
    return [quality - penalty for quality, penalty in zip(qualities, penalties, strict=True)]


def _number(name: str, value: object) -> float:
    if isinstance(value, Real) and not isinstance(value, bool):
        with suppress(OverflowError):  # an integer too large for a float
            return float(value)
    raise InputError(f"{name} must be a number, found {value!r}")


def _cost_of(name: str, given: Costs) -> Cost:
    try:
        return Cost.of(given)
    except InputError as error:
        raise InputError(f"the cost of '{name}': {error}") from error
