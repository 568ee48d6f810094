"""Which experts may answer a request, and in which order they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter, sleep
from typing import TYPE_CHECKING, NamedTuple

from ir3de.errors import InputError
from ir3de.gateway.api_errors import ApiError
from ir3de.gateway.config.experts import RESERVED
from ir3de.gateway.experts.snapshot import Expert, Snapshot
from ir3de.gateway.requests.controls import Controls
from ir3de.gateway.requests.pins import Pins
from ir3de.gateway.requests.prompt import MAX_INLINE_TURNS, Prompt
from ir3de.routing.conversation import Conversation

if TYPE_CHECKING:
    from ir3de.policies import Costs
    from ir3de.router import Router
    from ir3de.routing.decision import Decision
    from ir3de.routing.turn_explanation import TurnReason

TURNS_AT_A_TIME = 8  # of a long chat: then the event loop may have the interpreter's lock


class Routed(NamedTuple):
    """A decision, with the figures that headers, body and logs all repeat, and how long it took."""

    decision: Decision
    confidence: float | None
    expected_score: float | None  # instead of the confidence, if an outcome router decided
    margin: float
    seconds: float
    reason: TurnReason | None = None  # of a chat with several turns: which one decided, and why


@dataclass(slots=True)
class Choice:
    """The expert to ask first, why, and the fallbacks."""

    snapshot: Snapshot
    first: Expert
    eligible: Sequence[Expert]
    why: str = ""  # empty if the router decided; otherwise the reason
    routed: Routed | None = None  # None where the router was not asked
    by_name: bool = False  # then only the fallbacks of the configuration may replace it
    instead: str = ""  # who answers where the router abstained: the default expert, or the nearest one
    # what the client gets instead of an answer; made where it is raised, since its frames keep the choice
    build_refusal: Callable[[], ApiError] | None = None

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
    started, reason = perf_counter(), None
    try:
        if prompt.turns:
            chat = route_turns(snapshot.router, prompt.turns, controls.weights)
            decision, reason = chat.decision, chat.find_reason() if len(chat) > 1 else None
        else:
            decision = snapshot.router.route(prompt.text, weights=controls.weights)
    except InputError as error:  # weights times costs that no number holds
        raise ApiError(400, str(error), "invalid_type", "ir3de.weights") from error
    seconds = perf_counter() - started
    return Routed(decision, decision.confidence, decision.expected_score, decision.margin, seconds, reason)


def route_turns(router: Router, turns: Sequence[str], weights: Costs | None = None) -> Conversation:
    """The conversation of the user's turns, whose envelopes are removed already."""
    chat, is_long = Conversation(router, envelopes=()), len(turns) > MAX_INLINE_TURNS
    for place, text in enumerate(turns):
        chat.route(text, weights=weights)
        if is_long and place % TURNS_AT_A_TIME == 0:
            sleep(0)
    return chat


def choose(
    snapshot: Snapshot, model: str, prompt: Prompt, controls: Controls, pins: Pins, routed: Routed | None = None
) -> Choice:
    """The choice for a request, or an `ApiError`: no such model, or no expert may answer.

    `routed` is the router's decision, where it was made before.
    """
    experts = snapshot.experts
    if model not in RESERVED:
        if (named := experts.get(model)) is None:
            raise ApiError(
                404,
                f"no model {model[:200]!r}: there are auto, which routes, and {', '.join(experts)}",
                "model_not_found",
                "model",
            )
        others = [expert for expert in experts.values() if not explain_refusal(expert, prompt, controls)]
        return Choice(snapshot, named, others, "asked by name", by_name=True)
    eligible = _find_eligible(snapshot, prompt, controls)
    if prompt.follows and (keeper := _find_responder(snapshot, prompt, pins, eligible)) is not None:
        return Choice(snapshot, keeper, (), "pinned")  # only its server has that answer
    if "embeddings" in prompt.needs:  # vectors of two models cannot be compared, so it is always the same expert
        return Choice(snapshot, eligible[0], eligible, "the first with embeddings", by_name=True)
    if controls.skip and snapshot.config.routing.shadow is None:
        return Choice(snapshot, _pick_default(snapshot, eligible), eligible, "skip")
    routed = routed or route_prompt(snapshot, prompt, controls)
    if (shadow := snapshot.config.routing.shadow) is not None:
        return Choice(snapshot, experts[shadow], eligible, "shadow", routed)
    if controls.session and (pinned := _find_pinned(snapshot, prompt, controls, pins, routed, eligible)) is not None:
        return Choice(snapshot, pinned, eligible, "pinned", routed)
    if routed.decision.abstained:
        return _choose_abstained(snapshot, routed, eligible)
    first, why = _pick_decided(snapshot, routed.decision, eligible)
    return Choice(snapshot, first, eligible, why, routed)


def _choose_abstained(snapshot: Snapshot, routed: Routed, eligible: Sequence[Expert]) -> Choice:
    """Who answers where the router abstains: the default expert, or the nearest one; or nobody, if so configured.

    Where no token is known, nobody is near. The first expert of the configuration answers then, and it is said.
    """
    decision, routing = routed.decision, snapshot.config.routing
    if routing.out_of_domain == "refuse" and decision.reason == "out of domain":
        return Choice(snapshot, eligible[0], (), "refused", routed, build_refusal=partial(_build_refusal, eligible))
    if (default := _get(eligible, routing.default) or _get(eligible, decision.expert)) is not None:
        return Choice(snapshot, default, eligible, "abstained", routed, instead="default expert")
    has_nearest = decision.reason != "no known token"
    if has_nearest and (nearest := _get(eligible, decision.best)) is not None:
        return Choice(snapshot, nearest, eligible, "abstained", routed, instead="nearest expert")
    return Choice(snapshot, eligible[0], eligible, "abstained", routed, instead="first that may answer")


def _build_refusal(eligible: Sequence[Expert]) -> ApiError:
    names = ", ".join(expert.name for expert in eligible)
    message = f"out of domain: no expert is for prompts like this one. A model can also be asked by name: {names}"
    headers = {"x-ir3de-why": "refused", "x-ir3de-reason": "out of domain"}
    return ApiError(422, message, "out_of_domain", "model", headers=headers)


def _pick_decided(snapshot: Snapshot, decision: Decision, eligible: Sequence[Expert]) -> tuple[Expert, str]:
    if expert := _get(eligible, decision.expert):
        return expert, ""
    for name, _ in decision.ranking:
        if expert := _get(eligible, name):
            return expert, "the best that may answer"
    return _pick_default(snapshot, eligible), "the router knows none that may answer"


def _pick_default(snapshot: Snapshot, eligible: Sequence[Expert]) -> Expert:
    """The default expert: the configuration's, else the router's, else the first one."""
    default, own = snapshot.config.routing.default, snapshot.router.default
    return _get(eligible, default) or _get(eligible, own) or eligible[0]


def _get(eligible: Sequence[Expert], name: str | None) -> Expert | None:
    return next((expert for expert in eligible if expert.name == name), None)


def _find_responder(snapshot: Snapshot, prompt: Prompt, pins: Pins, eligible: Sequence[Expert]) -> Expert | None:
    """The expert whose server has the answer that the request refers to."""
    if not snapshot.config.routing.pinning.stored_ttl or snapshot.config.routing.shadow is not None:
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
    routed: Routed,
    eligible: Sequence[Expert],
) -> Expert | None:
    """The conversation's expert, unless the router is sure of another one. Tool loops and follow-ups always stay."""
    pinning, decision = snapshot.config.routing.pinning, routed.decision
    if not pinning.ttl or (name := pins.get(controls.session)) is None:
        return None
    clear = not decision.abstained and decision.ranking[0][1] >= pinning.release < 1
    moves = clear and decision.expert != name and _get(eligible, decision.expert) is not None
    is_follow_up = routed.reason is not None and routed.reason.why == "stayed"
    return None if moves and not prompt.tool_loop and not is_follow_up else _get(eligible, name)


def _find_eligible(snapshot: Snapshot, prompt: Prompt, controls: Controls) -> Sequence[Expert]:
    """The experts that can and may answer. If there is none, the error says why for each."""
    is_simple = controls.is_unrestricted and not snapshot.has_context_windows and not prompt.untranslatable
    if is_simple and (capable := snapshot.find_capable(prompt.needs)):
        return capable
    reasons = {expert: explain_refusal(expert, prompt, controls) for expert in snapshot.experts.values()}
    if found := [expert for expert, reason in reasons.items() if not reason]:
        return found
    unknown = sorted((controls.allow or frozenset()) - snapshot.experts.keys())
    said = [f"there is no expert {name[:100]!r}" for name in unknown[:5]]
    refused = "; ".join([*said, *(f"{expert.name}: {reason}" for expert, reason in reasons.items())])
    raise ApiError(400, f"no expert may answer this request. {refused}", "no_eligible_expert", "model")


def explain_refusal(expert: Expert, prompt: Prompt, controls: Controls) -> str:
    """Why an expert cannot or may not answer; empty if it can and may."""
    config = expert.config
    if not prompt.needs <= expert.capabilities:
        return f"has no {' or '.join(sorted(prompt.needs - expert.capabilities))} (capabilities)"
    if prompt.untranslatable and not prompt.needs.isdisjoint(expert.translated):
        return prompt.untranslatable
    if config.context_window is not None and prompt.tokens > config.context_window:
        return f"about {prompt.tokens:,} tokens do not fit its context of {config.context_window:,}"
    if (controls.allow is not None and expert.name not in controls.allow) or expert.name in controls.deny:
        return "not allowed by the request"
    price = max(config.price.input_per_1m, config.price.output_per_1m)
    if controls.max_price is not None and price > controls.max_price:
        return f"costs more than {controls.max_price:g} per million tokens"
    return ""
