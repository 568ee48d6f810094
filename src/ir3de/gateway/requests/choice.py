"""Which experts may answer a request, and in which order they are asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from ir3de.errors import InputError
from ir3de.gateway.api_errors import ApiError
from ir3de.gateway.config.experts import RESERVED
from ir3de.gateway.experts.snapshot import Expert, Snapshot
from ir3de.gateway.requests.controls import Controls
from ir3de.gateway.requests.pins import Pins
from ir3de.gateway.requests.prompt import Prompt

if TYPE_CHECKING:
    from ir3de.routing.decision import Decision


class Routed(NamedTuple):
    """A decision, with the figures that headers, body and logs all repeat, and how long it took."""

    decision: Decision
    confidence: float | None
    expected_score: float | None  # instead of the confidence, if an outcome router decided
    margin: float
    seconds: float


@dataclass(slots=True)
class Choice:
    """The expert to ask first, why, and the fallbacks."""

    snapshot: Snapshot
    first: Expert
    eligible: Sequence[Expert]
    why: str = ""  # empty if the router decided; otherwise the reason
    routed: Routed | None = None  # None where the router was not asked
    by_name: bool = False  # then only the fallbacks of the configuration may replace it

    @property
    def decision(self) -> Decision | None:
        return None if self.routed is None else self.routed.decision

    def list_fallbacks(self) -> Iterator[Expert]:
        """The experts to ask when the first one fails: its own fallbacks, then the next ones of the ranking."""
        routing, eligible = self.snapshot.config.routing, {expert.name: expert for expert in self.eligible}
        names = list(self.first.config.fallbacks)
        if not self.by_name and routing.shadow is None:
            names += [name for name, _ in self.routed.decision.ranking] if self.routed is not None else []
            names += eligible  # those that the router does not know come last
        fallbacks = [name for name in dict.fromkeys(names) if name in eligible and name != self.first.name]
        yield from (eligible[name] for name in fallbacks[: routing.fallbacks])


def route_prompt(snapshot: Snapshot, prompt: Prompt, controls: Controls) -> Routed:
    """The router's decision, and how long it took."""
    started = perf_counter()
    try:
        decision = snapshot.router.route(prompt.text, weights=controls.weights)
    except InputError as error:  # weights times costs that no number holds
        raise ApiError(400, str(error), "invalid_type", "ir3de.weights") from error
    seconds = perf_counter() - started
    return Routed(decision, decision.confidence, decision.expected_score, decision.margin, seconds)


def choose(snapshot: Snapshot, model: str, prompt: Prompt, controls: Controls, pins: Pins) -> Choice:
    """The choice for a request, or an `ApiError`: no such model, or no expert may answer."""
    experts = snapshot.experts
    if model not in RESERVED:
        if (named := experts.get(model)) is None:
            raise ApiError(
                404,
                f"no model {model[:200]!r}: there are auto, which routes, and {', '.join(experts)}",
                "model_not_found",
                "model",
            )
        others = [expert for expert in experts.values() if not _explain_refusal(expert, prompt, controls)]
        return Choice(snapshot, named, others, "asked by name", by_name=True)
    eligible = _find_eligible(snapshot, prompt, controls)
    if prompt.follows and (keeper := _find_responder(snapshot, prompt, pins, eligible)) is not None:
        return Choice(snapshot, keeper, (), "pinned")  # only its server has that answer
    if "embeddings" in prompt.needs:  # vectors of two models cannot be compared, so it is always the same expert
        return Choice(snapshot, eligible[0], eligible, "the first with embeddings", by_name=True)
    if controls.skip and snapshot.config.routing.shadow is None:
        return Choice(snapshot, _pick_default(snapshot, eligible), eligible, "skip")
    routed = route_prompt(snapshot, prompt, controls)
    decision = routed.decision
    first, why = _pick_decided(snapshot, decision, eligible)
    if controls.session and (pinned := _find_pinned(snapshot, prompt, controls, pins, decision, eligible)) is not None:
        first, why = pinned, "pinned"
    if (shadow := snapshot.config.routing.shadow) is not None:
        first, why = experts[shadow], "shadow"
    return Choice(snapshot, first, eligible, why, routed)


def _pick_decided(snapshot: Snapshot, decision: Decision, eligible: Sequence[Expert]) -> tuple[Expert, str]:
    if decision.abstained:
        return _pick_default(snapshot, eligible, decision), "abstained"
    if expert := _get(eligible, decision.expert):
        return expert, ""
    for name, _ in decision.ranking:
        if expert := _get(eligible, name):
            return expert, "the best that may answer"
    return _pick_default(snapshot, eligible), "the router knows none that may answer"


def _pick_default(snapshot: Snapshot, eligible: Sequence[Expert], decision: Decision | None = None) -> Expert:
    """The default expert: the configuration's, else the router's. Without any, the nearest one must answer."""
    own = snapshot.router.default if decision is None else decision.expert or decision.best
    return _get(eligible, snapshot.config.routing.default) or _get(eligible, own) or eligible[0]


def _get(eligible: Sequence[Expert], name: str | None) -> Expert | None:
    return next((expert for expert in eligible if expert.name == name), None)


def _find_responder(snapshot: Snapshot, prompt: Prompt, pins: Pins, eligible: Sequence[Expert]) -> Expert | None:
    """The expert whose server has the answer that the request refers to."""
    if not snapshot.config.routing.pinning.ttl or snapshot.config.routing.shadow is not None:
        return None
    return _get(eligible, pins.get(build_response_pin(prompt.follows)))


def build_response_pin(response_id: str) -> str:
    """The key of the pin that says which expert gave an answer."""
    return f"response {response_id}"


def _find_pinned(
    snapshot: Snapshot,
    prompt: Prompt,
    controls: Controls,
    pins: Pins,
    decision: Decision,
    eligible: Sequence[Expert],
) -> Expert | None:
    """The conversation's expert, unless the router is sure of another one. Tool loops always stay."""
    pinning = snapshot.config.routing.pinning
    if not pinning.ttl or (name := pins.get(controls.session)) is None:
        return None
    clear = not decision.abstained and decision.ranking[0][1] >= pinning.release < 1
    moves = clear and decision.expert != name and _get(eligible, decision.expert) is not None
    return None if moves and not prompt.tool_loop else _get(eligible, name)


def _find_eligible(snapshot: Snapshot, prompt: Prompt, controls: Controls) -> Sequence[Expert]:
    """The experts that can and may answer. If there is none, the error says why for each."""
    is_simple = controls.is_unrestricted and not snapshot.has_context_windows
    if is_simple and (capable := snapshot.find_capable(prompt.needs)):
        return capable
    reasons = {expert: _explain_refusal(expert, prompt, controls) for expert in snapshot.experts.values()}
    if found := [expert for expert, reason in reasons.items() if not reason]:
        return found
    refused = "; ".join(f"{expert.name}: {reason}" for expert, reason in reasons.items())
    raise ApiError(400, f"no expert may answer this request. {refused}", "no_eligible_expert", "model")


def _explain_refusal(expert: Expert, prompt: Prompt, controls: Controls) -> str:
    config = expert.config
    if not prompt.needs <= expert.capabilities:
        return f"has no {' or '.join(sorted(prompt.needs - expert.capabilities))} (capabilities)"
    if config.context_window is not None and prompt.tokens > config.context_window:
        return f"about {prompt.tokens:,} tokens do not fit its context of {config.context_window:,}"
    if (controls.allow is not None and expert.name not in controls.allow) or expert.name in controls.deny:
        return "not allowed by the request"
    price = max(config.price.input_per_1m, config.price.output_per_1m)
    if controls.max_price is not None and price > controls.max_price:
        return f"costs more than {controls.max_price:g} per million tokens"
    return ""
