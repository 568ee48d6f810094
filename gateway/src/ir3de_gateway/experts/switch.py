"""What a switch costs: a conversation that moves to another expert loses the prompt cache of the one that it leaves.

    price = tokens so far · (price of a prompt token − price of a cached one), both of the expert that it would move to
    gain  = (probability of that expert − probability of the present one − margin) · value of a right answer

A conversation moves only if the gain exceeds the price. Who the present expert is, follows from the conversation's pin;
without one, from its history: each turn is decided as it was when it was the last one. So all workers and machines find
the same, without shared state. Where prices of cached tokens are not known, nothing here applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ir3de import Decision
    from ir3de_gateway.config.conversations import SwitchConfig
    from ir3de_gateway.config.experts import ExpertConfig

VALUE_TOKENS = 50_000  # of a prompt: what a right answer is worth by default


class Switch(NamedTuple):
    """A change of expert in a conversation: what it gains and costs, and whether it was made."""

    before: str  # the expert that has the conversation in its prompt cache
    wanted: str  # the one that the router decided for
    gain: float
    price: float
    has_moved: bool

    @property
    def outcome(self) -> str:
        return "switched" if self.has_moved else "stayed"

    def describe(self) -> dict[str, str | float]:
        """Plain values, ready for JSON."""
        gain, price = float(f"{self.gain:.6g}"), float(f"{self.price:.6g}")
        return {"outcome": self.outcome, "from": self.before, "to": self.wanted, "gain": gain, "price": price}


class TokenPrice(NamedTuple):
    """What a switch to one expert costs for each token so far, and what a right answer of it is worth."""

    lost: float
    value: float


class SwitchRule(NamedTuple):
    """Whether a conversation may move."""

    prices: Mapping[str, TokenPrice]  # of the experts to which it applies
    margin: float

    def weigh(self, decision: Decision, before: str, tokens: int) -> Switch | None:
        """The switch from an expert to the decided one; None if there is none, or if its price is not known."""
        wanted = decision.expert
        if decision.abstained or wanted is None or wanted == before or (price := self.prices.get(wanted)) is None:
            return None
        values = dict(decision.quality)
        taken = decision.penalties or {}
        worth = [values.get(name, 0.0) - taken.get(name, 0.0) for name in (wanted, before)]
        gain, cost = (worth[0] - worth[1] - self.margin) * price.value, tokens * price.lost
        return Switch(before, wanted, gain, cost, gain > cost)

    def find_holder(self, decisions: Iterable[Decision], tokens: Sequence[int], default: str | None) -> str | None:
        """The expert that has answered the conversation so far: turn by turn, with the tokens before each turn."""
        holder: str | None = None
        for decision, before in zip(decisions, tokens, strict=False):
            switch = None if holder is None else self.weigh(decision, holder, before)
            if switch is None or switch.has_moved:
                holder = (default or decision.best) if decision.abstained else decision.expert
        return holder


def build_rule(config: SwitchConfig, experts: Iterable[ExpertConfig]) -> SwitchRule | None:
    """The rule for these experts; None if it is not active, or if no price is known."""
    prices: dict[str, TokenPrice] = {}
    for expert in experts if config.active else ():
        price = expert.price
        if config.prefill is not None:
            full = lost = 1.0 / config.prefill
        elif price.cached_input_per_1m is None or price.cached_input_per_1m >= price.input_per_1m:
            continue
        else:
            full, lost = price.input_per_1m / 1e6, (price.input_per_1m - price.cached_input_per_1m) / 1e6
        prices[expert.name] = TokenPrice(lost, VALUE_TOKENS * full if config.value is None else config.value)
    return SwitchRule(prices, config.margin) if prices else None
