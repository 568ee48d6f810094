"""Whether an expert can and may answer a request, and if not, why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ir3de_gateway.experts.snapshot import Expert, Snapshot
from ir3de_gateway.requests.controls import Controls
from ir3de_gateway.requests.prompt import Prompt

REFUSAL_LABELS = ("endpoint", "capability", "translation", "context", "key", "request", "price")


class Refusal(NamedTuple):
    """Why an expert cannot or may not answer: one of a few words, for metrics, and a text for people."""

    label: str
    text: str


def find_eligible(snapshot: Snapshot, prompt: Prompt, controls: Controls) -> Sequence[Expert]:
    """The experts that can and may answer, in the order of the configuration; none, perhaps."""
    if controls.is_unrestricted and not snapshot.has_context_windows and not prompt.untranslatable:
        return snapshot.find_capable(prompt.needs)
    return [expert for expert in snapshot.experts.values() if find_refusal(expert, prompt, controls) is None]


def find_refusal(expert: Expert | None, prompt: Prompt, controls: Controls) -> Refusal | None:
    """Why an expert cannot or may not answer; None if it can and may. One that the router alone knows is None."""
    if expert is None:
        return Refusal("endpoint", "has no endpoint (experts)")
    config = expert.config
    if not prompt.needs <= expert.capabilities:
        missing = " or ".join(sorted(prompt.needs - expert.capabilities))
        return Refusal("capability", f"has no {missing} (capabilities)")
    if prompt.untranslatable and not prompt.needs.isdisjoint(expert.translated):
        return Refusal("translation", prompt.untranslatable)
    if config.context_window is not None and prompt.tokens > config.context_window:
        text = f"about {prompt.tokens:,} tokens do not fit its context of {config.context_window:,}"
        return Refusal("context", text)
    if controls.of_key is not None and expert.name not in controls.of_key:
        return Refusal("key", "not allowed for this API key")
    if (controls.allow is not None and expert.name not in controls.allow) or expert.name in controls.deny:
        return Refusal("request", "not allowed by the request")
    price = max(config.price.input_per_1m, config.price.output_per_1m)
    if controls.max_price is not None and price > controls.max_price:
        return Refusal("price", f"costs more than {controls.max_price:g} per million tokens")
    return None
