"""Whom the gateway would ask for a prompt if it were sent now: the page's button names no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ir3de.gateway.api_errors import ApiError
from ir3de.gateway.config.experts import RESERVED
from ir3de.gateway.requests.choice import Choice, choose
from ir3de.gateway.requests.controls import Controls
from ir3de.gateway.requests.prompt import read_prompt
from ir3de.gateway.wire import FORMATS

if TYPE_CHECKING:
    from ir3de.gateway.experts.snapshot import Expert, Snapshot
    from ir3de.gateway.requests.pins import Pins
    from ir3de.routing.decision import Decision

ASKED_LATER = ("open", "cooling")  # states of a circuit breaker in which others are asked


def find_target(
    snapshot: Snapshot, messages: Sequence[Any], decision: Decision, controls: Controls, pins: Pins, *, is_served: bool
) -> Mapping[str, Any]:
    """The expert, what to send as `model` so that this one is asked, and why it is not the decision's own, if so.

    A decision of the router that is served (`is_served`) is made again by the gateway itself: send `auto`. One of
    another scorer or selector is not: then the expert is asked by name.
    """
    chat = FORMATS["chat/completions"]
    routing = snapshot.config.routing
    prompt = read_prompt(chat, {"messages": list(messages)}, routing.text, routing.envelopes)
    model = RESERVED[0] if is_served else _find_served(snapshot, decision)
    try:
        choice = choose(snapshot, model, prompt, controls, pins)
        if choice.refusal is not None:
            raise choice.refusal
    except ApiError as problem:
        return {"expert": None, "model": model, "why": problem.message, "failing": []}
    first, failing = _skip_failing(choice)
    return {"expert": first.name, "model": model, "why": choice.why or "routed", "failing": failing}


def _find_served(snapshot: Snapshot, decision: Decision) -> str:
    """The best expert of the ranking that has an endpoint; any, if none has."""
    names = [name for name, _ in decision.ranking]
    ranked = names if decision.expert is None else [decision.expert, *names]
    return next((name for name in ranked if name in snapshot.experts), next(iter(snapshot.experts)))


def _skip_failing(choice: Choice) -> tuple[Expert, list[str]]:
    """The first expert whose circuit breaker lets a request through, and those before it."""
    failing: list[str] = []
    for expert in (choice.first, *choice.list_fallbacks()):
        if expert.breaker.state not in ASKED_LATER:
            return expert, failing
        failing.append(expert.name)
    return choice.first, []
