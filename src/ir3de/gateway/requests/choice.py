"""Which experts may answer a request, and in which order they are asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from ir3de.gateway.api_errors import ApiError
from ir3de.gateway.config.models import RESERVED
from ir3de.gateway.experts.snapshot import Expert, Snapshot
from ir3de.gateway.requests.controls import Controls
from ir3de.gateway.requests.pins import Pins
from ir3de.gateway.requests.prompt import Prompt

if TYPE_CHECKING:
    from ir3de.routing.decision import Decision


@dataclass(slots=True)
class Choice:
    """The expert to ask first, why, and who comes after it."""

    snapshot: Snapshot
    first: Expert
    eligible: Sequence[Expert]
    why: str = ""  # empty where the router decided; otherwise what did
    decision: Decision | None = None
    route_seconds: float | None = None
    by_name: bool = False  # then no other one will do, unless the configuration says so

    def list_fallbacks(self) -> Iterator[Expert]:
        """Who is asked when the first one fails: its own fallbacks, then the next-ranked."""
        experts, most = self.snapshot.experts, self.snapshot.config.routing.fallbacks
        named = [experts[name] for name in self.first.config.fallbacks if name in experts]
        ranked: list[Expert] = []
        if not self.by_name and self.snapshot.config.routing.shadow is None:
            ranked = list(self._list_ranked())
        seen = {self.first.name}
        for expert in [*named, *ranked]:
            if most == 0:
                return
            if expert.name not in seen and expert in self.eligible:
                seen.add(expert.name)
                most -= 1
                yield expert

    def _list_ranked(self) -> Iterator[Expert]:
        if self.decision is None:
            yield from self.eligible
            return
        allowed = {expert.name: expert for expert in self.eligible}
        for name, _ in self.decision.ranking:
            if name in allowed:
                yield allowed[name]
        yield from self.eligible  # those the router does not know come last


def route_prompt(snapshot: Snapshot, prompt: Prompt, controls: Controls) -> tuple[Decision, float]:
    """The router's decision, and how long it took."""
    started = perf_counter()
    decision = snapshot.router.route(prompt.text, weights=controls.weights)
    return decision, perf_counter() - started


def choose(
    snapshot: Snapshot,
    model: str,
    prompt: Prompt,
    controls: Controls,
    pins: Pins,
    routed: tuple[Decision, float] | None = None,
) -> Choice:
    """The choice for a request, or a `ApiError`: no such model, or nobody who may answer."""
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
        return Choice(snapshot, keeper, (), "pinned")  # nobody else remembers that answer
    if "embeddings" in prompt.needs:  # vectors of two models cannot be compared: always the same one
        return Choice(snapshot, eligible[0], eligible, "the first with embeddings", by_name=True)
    if controls.skip and snapshot.config.routing.shadow is None:
        return Choice(snapshot, _pick_default(snapshot, eligible), eligible, "skip")
    decision, spent = routed or route_prompt(snapshot, prompt, controls)
    first, why = _pick_decided(snapshot, decision, eligible)
    if controls.session and (pinned := _find_pinned(snapshot, prompt, controls, pins, decision, eligible)) is not None:
        first, why = pinned, "pinned"
    if (shadow := snapshot.config.routing.shadow) is not None:
        first, why = experts[shadow], "shadow"
    return Choice(snapshot, first, eligible, why, decision, spent)


def _pick_decided(snapshot: Snapshot, decision: Decision, eligible: Sequence[Expert]) -> tuple[Expert, str]:
    if decision.abstained:
        return _pick_default(snapshot, eligible, decision), "abstained"
    name = decision.expert
    for expert in eligible:
        if expert.name == name:
            return expert, ""
    for name, _ in decision.ranking:
        for expert in eligible:
            if expert.name == name:
                return expert, "the best that may answer"
    return _pick_default(snapshot, eligible), "the router knows none that may answer"


def _pick_default(snapshot: Snapshot, eligible: Sequence[Expert], decision: Decision | None = None) -> Expert:
    """The expert for what cannot be routed: the configuration's, or the router's, or the first that may answer."""
    wanted = (snapshot.config.routing.default, snapshot.router.default if decision is None else decision.expert)
    for name in wanted:
        for expert in eligible:
            if expert.name == name:
                return expert
    return eligible[0]


def _find_responder(snapshot: Snapshot, prompt: Prompt, pins: Pins, eligible: Sequence[Expert]) -> Expert | None:
    """Whose server remembers the answer that a request follows."""
    if not snapshot.config.routing.pinning.ttl or snapshot.config.routing.shadow is not None:
        return None
    name = pins.get(build_response_pin(prompt.follows))
    return next((expert for expert in eligible if expert.name == name), None)


def build_response_pin(response_id: str) -> str:
    """The name under which it is kept who gave an answer."""
    return f"response {response_id}"


def _find_pinned(
    snapshot: Snapshot,
    prompt: Prompt,
    controls: Controls,
    pins: Pins,
    decision: Decision,
    eligible: Sequence[Expert],
) -> Expert | None:
    """The conversation's expert, unless the new turn clearly belongs to another one; loops of tools always stay."""
    pinning = snapshot.config.routing.pinning
    if not pinning.ttl or (name := pins.get(controls.session)) is None:
        return None
    clear = not decision.abstained and decision.confidence >= pinning.release < 1
    moves = clear and decision.expert != name and any(expert.name == decision.expert for expert in eligible)
    if moves and not prompt.tool_loop:
        return None
    return next((expert for expert in eligible if expert.name == name), None)


def _find_eligible(snapshot: Snapshot, prompt: Prompt, controls: Controls) -> Sequence[Expert]:
    """The experts that can and may answer; why each of the others cannot is said if none is left."""
    if (
        controls.is_unrestricted
        and not snapshot.has_context_windows
        and (capable := snapshot.find_capable(prompt.needs))
    ):
        return capable
    found, refused = [], []
    for expert in snapshot.experts.values():
        reason = _explain_refusal(expert, prompt, controls)
        if reason:
            refused.append(f"{expert.name}: {reason}")
        else:
            found.append(expert)
    if not found:
        raise ApiError(400, f"no expert may answer this request. {'; '.join(refused)}", "no_eligible_expert", "model")
    return found


def _explain_refusal(expert: Expert, prompt: Prompt, controls: Controls) -> str:
    config = expert.config
    if not prompt.needs <= expert.capabilities:
        return f"has no {' or '.join(sorted(prompt.needs - expert.capabilities))} (capabilities)"
    if config.context_window is not None and prompt.tokens > config.context_window:
        return f"about {prompt.tokens:,} tokens do not fit its context of {config.context_window:,}"
    if (controls.allow is not None and expert.name not in controls.allow) or expert.name in controls.deny:
        return "not allowed by the request"
    if (
        controls.max_price is not None
        and max(config.price.input_per_1m, config.price.output_per_1m) > controls.max_price
    ):
        return f"costs more than {controls.max_price:g} per million tokens"
    return ""
