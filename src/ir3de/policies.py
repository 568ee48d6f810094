"""How evidence is read: what it is worth as a probability, what an expert costs, and when to abstain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ir3de.errors import InputError


@dataclass(frozen=True)
class Calibration:
    """Evidence to probabilities: p = softmax(scale · tokens^growth · evidence).

    `growth` says how much surer a longer prompt makes: 0 not at all, 1 as if every token were news.
    """

    scale: float
    growth: float = 0.0

    def probabilities(self, evidence: Sequence[float], counted: int) -> list[float]:
        sharpness, best = self.scale * counted**self.growth, max(evidence)
        powers = [math.exp(sharpness * (value - best)) for value in evidence]
        whole = sum(powers)
        return [power / whole for power in powers]


@dataclass(frozen=True)
class Familiarity:
    """How usual the tokens of the router's own prompts are: prompts far below that are unlike every domain.

    A prompt's usualness is the mean over its tokens of −log(1 + a/n_v), n_v how often a token occurred in training: 0
    for usual words, less for rare and unknown ones. Over prompts of n tokens it has mean `mean` and variance between² +
    within²/n; `lowest`, in standard deviations, is where the usual ends.
    """

    mean: float
    between: float
    within: float
    lowest: float

    def deviation(self, usualness: float, tokens: int) -> float:
        """Standard deviations from the mean; negative is less usual."""
        return (usualness - self.mean) / math.sqrt(self.between**2 + self.within**2 / tokens)


@dataclass(frozen=True)
class Cost:
    """What an expert costs in any units, or what a unit of each cost is worth in quality."""

    price: float = 0.0
    latency: float = 0.0
    memory: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not (math.isfinite(value) and value >= 0):
                raise InputError(f"{name} must be a number, at least 0, found {value!r}")

    @classmethod
    def of(cls, given: Cost | Mapping[str, float]) -> Cost:
        """From plain values: `{"price": 0.2}`."""
        if isinstance(given, Cost):
            return given
        known = [part.name for part in fields(cls)]
        if not isinstance(given, Mapping) or not set(given) <= set(known):
            raise InputError(f"costs are given as {', '.join(known)}, found {given!r}: for example {{'price': 0.2}}")
        return cls(**given)

    def __bool__(self) -> bool:
        return any((self.price, self.latency, self.memory))


@dataclass(frozen=True)
class Policy:
    """What to do with the evidence: the expert of largest quality − weights · cost, or none.

    Below the confidence `threshold`, and with a threshold also for prompts unlike every domain, the router abstains:
    the prompt goes to the default expert. Experts without a cost are free.

    >>> Policy(weights={"price": 0.1}, costs={"large": {"price": 3.0}}).penalties(("small", "large"))
    [0.0, 0.30000000000000004]
    """

    threshold: float = 0.0
    weights: Cost = field(default_factory=Cost)
    costs: Mapping[str, Cost] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.threshold, (int, float)) or not 0 <= self.threshold <= 1:
            raise InputError(f"threshold must be a confidence between 0 and 1, found {self.threshold!r}")
        object.__setattr__(self, "weights", Cost.of(self.weights))
        object.__setattr__(self, "costs", {name: Cost.of(cost) for name, cost in self.costs.items()})

    def penalties(
        self, experts: Sequence[str], weights: Cost | Mapping[str, float] | None = None
    ) -> list[float] | None:
        """What each expert's costs take from its quality; None when nothing does."""
        if not self.costs and weights is None:
            return None
        w = self.weights if weights is None else Cost.of(weights)
        if not w or not self.costs:
            return None
        free = Cost()
        costs = [self.costs.get(name, free) for name in experts]
        return [w.price * cost.price + w.latency * cost.latency + w.memory * cost.memory for cost in costs]

    def among(self, experts: Sequence[str]) -> Policy:
        """The same policy without the costs of experts that are not there."""
        return Policy(self.threshold, self.weights, {n: cost for n, cost in self.costs.items() if n in experts})

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)
