"""What would be chosen now: the expert that would answer a chat, for a page or a client that asks before it sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.experts import RESERVED
from ir3de_gateway.exchange_record import Handover
from ir3de_gateway.experts.snapshot import Expert, Snapshot
from ir3de_gateway.requests.client import Controls
from ir3de_gateway.stages.choice import Choice, list_substitutes
from ir3de_gateway.stages.choose import choose_expert, route_prompt
from ir3de_gateway.stages.read import read_prompt
from ir3de_gateway.wire import FORMATS

if TYPE_CHECKING:
    from ir3de import Decision
    from ir3de_gateway.keys.client_key import ClientKey

_SKIPPED = {"open": "resting", "cooling": "cooling"}  # states of a circuit breaker that lets no request pass, and why


def preview(
    snapshot: Snapshot,
    messages: Sequence[Any],
    decision: Decision,
    key: ClientKey,
    weights: Mapping[str, float] | None,
    *,
    is_served: bool,
) -> Mapping[str, Any]:
    """The expert that would answer a chat now, the `model` to send so that it does, and why it is not the decided one.

    A decision of the router that is served (`is_served`) is made again by the gateway itself: clients send `auto`. For
    one of another scorer or selector, clients name the expert.
    """
    routing, controls = snapshot.config.routing, Controls(weights=weights, of_key=key.experts)
    model = RESERVED[0] if is_served else _name_decided(snapshot, decision, key)
    try:
        values = {"messages": list(messages)}
        prompt = read_prompt(FORMATS["chat/completions"], values, routing.text, routing.envelopes, weighs_switch=True)
        asks = snapshot.router.opinion is not None and model in RESERVED and routing.encoder_deadline
        routed = route_prompt(snapshot, prompt, controls, consult=None) if asks else None  # this is not the event loop
        choice = choose_expert(snapshot, model, prompt, controls, {}, routed)
        if choice.build_rejection is not None:
            raise choice.build_rejection()
        expert, handovers = _skip_failing(choice)
        if not key.may_ask(expert.name):
            raise ApiError(403, f"the API key '{key.name}' may not use {expert.name!r}")
    except ApiError as problem:
        return {"expert": None, "model": model, "why": problem.message, "failing": []}
    instead = choice.explain_instead(expert.name, handovers)
    more = {"reason": instead.text, "instead": instead.kind}
    return {
        "expert": expert.name,
        "decided": choice.decided,
        "model": model,
        "why": choice.explain_why(expert.name) or "routed",
        **{name: text for name, text in more.items() if text},
        **({} if choice.switch is None else {"switch": choice.switch.describe()}),
        "failing": [name for name, _, _ in handovers],
    }


def _name_decided(snapshot: Snapshot, decision: Decision, key: ClientKey) -> str:
    """The expert of the decision, or who answers in its place if it has no endpoint, or the key may not use it."""
    allowed = [expert for expert in snapshot.experts.values() if key.may_ask(expert.name)]
    wanted = decision.expert or decision.best
    if any(expert.name == wanted for expert in allowed):
        return wanted
    found = list_substitutes(snapshot, wanted, allowed, decision)
    return found[0].expert.name if found else wanted


def _skip_failing(choice: Choice) -> tuple[Expert, list[Handover]]:
    """The first expert whose circuit breaker lets a request pass, and the handovers from those before it."""
    failing: list[Expert] = []
    for expert in (choice.first, *choice.list_fallbacks()):
        if expert.breaker.state not in _SKIPPED:
            return expert, [(one.name, expert.name, _SKIPPED.get(one.breaker.state, "")) for one in failing]
        failing.append(expert)
    return choice.first, []
