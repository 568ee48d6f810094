"""The signal: the decision on one request as one object for programs of others.

/v1/route, `ir3de ext-proc` and the plug-in for LiteLLM all give it. Fields are added under the same `version`; it
changes when a field changes its meaning or goes. `probabilities` and `confidence` mean what vLLM Semantic
Router's classification calls so; an expert is its `category`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ir3de import Decision

VERSION = 1
DIGITS = 6


def build_signal(decision: Decision, router: str, switch: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Plain values, ready for JSON; `router` is the SHA-256 of the router's artifact.

    `switch` is there for a chat whose change of expert has a price: whether it `stayed` with the expert that answered
    so far or `switched`, and what that gains and costs.

    `probabilities` sum to `in_domain`: what is missing to one is the probability that the prompt is of no expert.

    A router that was fitted on outcomes expects scores and has no probabilities: then `expected_scores` takes the place
    of `probabilities`, and `confidence` is None.
    """
    values = {expert: round(value, DIGITS) for expert, value in decision.quality}
    confidence, in_domain = decision.confidence, decision.in_domain
    return {
        "object": "ir3de.signal",
        "version": VERSION,
        "router": router,
        "expert": decision.expert,
        "confidence": None if confidence is None else round(confidence, DIGITS),
        ("expected_scores" if confidence is None else "probabilities"): values,
        "in_domain": None if in_domain is None else round(in_domain, DIGITS),
        "out_of_domain": decision.out_of_domain,
        "abstained": decision.abstained,
        "reason": decision.reason,
        "consulted": decision.consulted,
        **({} if switch is None else {"switch": dict(switch)}),
    }
