"""Whom the gateway would ask for a prompt if it were sent now: the page's button names no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.experts import RESERVED
from ir3de_gateway.requests.choice import Choice, choose
from ir3de_gateway.requests.controls import Controls
from ir3de_gateway.requests.prompt import read_prompt
from ir3de_gateway.requests.substitution import Handover, list_substitutes
from ir3de_gateway.wire import FORMATS

if TYPE_CHECKING:
    from ir3de import Decision
    from ir3de_gateway.experts.snapshot import Expert, Snapshot
    from ir3de_gateway.keys.client_key import ClientKey
    from ir3de_gateway.store.pins import Pins

ASKED_LATER = {
    "open": "resting",
    "cooling": "cooling",
}  # states of a circuit breaker in which others are asked, and why


@dataclass(frozen=True)
class TargetFinder:
    """Finds whom the gateway would ask for the prompts of one request.

    A decision of the router that is served (`is_served`) is made again by the gateway itself: clients send `auto`. One
    of another scorer or selector is not: then the expert is asked by name.
    """

    snapshot: Snapshot
    pins: Pins
    key: ClientKey  # that asks: it may not have access to every expert
    weights: Mapping[str, float] | None
    is_served: bool

    def find(self, messages: Sequence[Any], decision: Decision) -> Mapping[str, Any]:
        """The expert, what to send as `model` so that this one is asked, and why it is not the decided one."""
        routing = self.snapshot.config.routing
        controls = Controls(weights=self.weights, of_key=self.key.experts)
        model = RESERVED[0] if self.is_served else self._find_by_name(decision)
        try:
            prompt = read_prompt(
                FORMATS["chat/completions"], {"messages": list(messages)}, routing.text, routing.envelopes
            )
            choice = choose(self.snapshot, model, prompt, controls, self.pins)
            if choice.build_refusal is not None:
                raise choice.build_refusal()
            first, handovers = _skip_failing(choice)
            if not self.key.may_ask(first.name):
                raise ApiError(403, f"the API key '{self.key.name}' may not ask {first.name!r}")
        except ApiError as problem:
            return {"expert": None, "model": model, "why": problem.message, "failing": []}
        why = choice.explain_why(first.name) or "routed"
        found = {"expert": first.name, "decided": choice.decided, "model": model, "why": why}
        instead = choice.explain_instead(first.name, handovers)
        more = {"reason": instead.text, "instead": instead.kind}
        more = {name: text for name, text in more.items() if text}
        return {**found, **more, "failing": [name for name, _, _ in handovers]}

    def _find_by_name(self, decision: Decision) -> str:
        """The expert of the decision, or who may answer in its place if it has no endpoint or may not be asked."""
        may_ask = [expert for expert in self.snapshot.experts.values() if self.key.may_ask(expert.name)]
        wanted = decision.expert or decision.best
        if any(expert.name == wanted for expert in may_ask):
            return wanted
        found = list_substitutes(self.snapshot, wanted, may_ask, decision)
        return found[0].expert.name if found else wanted


def _skip_failing(choice: Choice) -> tuple[Expert, list[Handover]]:
    """The first expert whose circuit breaker lets a request through, and from whom it is handed on to that one."""
    failing: list[Expert] = []
    for expert in (choice.first, *choice.list_fallbacks()):
        if expert.breaker.state not in ASKED_LATER:
            return expert, [(one.name, expert.name, ASKED_LATER.get(one.breaker.state, "")) for one in failing]
        failing.append(expert)
    return choice.first, []
