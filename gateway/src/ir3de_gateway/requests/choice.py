"""Which experts may answer a request, and in which order they are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter, sleep
from typing import TYPE_CHECKING, NamedTuple

from ir3de import Conversation
from ir3de.errors import InputError, name_some
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.experts import RESERVED
from ir3de_gateway.experts.snapshot import Expert, Snapshot
from ir3de_gateway.headers import encode_name
from ir3de_gateway.requests.controls import Controls
from ir3de_gateway.requests.eligibility import Refusal, find_eligible, find_refusal
from ir3de_gateway.requests.prompt import MAX_INLINE_TURNS, Prompt
from ir3de_gateway.requests.substitution import DEFAULT, Handover, Instead, Substitute, find_default, list_substitutes
from ir3de_gateway.store.pins import Pins

if TYPE_CHECKING:
    from ir3de import Decision, Router
    from ir3de.policies import Costs
    from ir3de.serving import TurnReason

ENDPOINTS = frozenset(("chat", "completions", "responses", "messages", "embeddings"))  # of all capabilities
_SET = ("pinned", "shadow")  # the first expert is set, whatever the router decides
TURNS_AT_A_TIME = 8  # of a long chat: then the event loop may have the interpreter's lock


class Standing(NamedTuple):
    """How the router judges one expert. All is None if the router does not know the expert."""

    confidence: float | None = None
    expected_score: float | None = None  # instead of the confidence, if an outcome router decided
    margin: float | None = None  # over the best of the others; below zero if that one is better


class Routed(NamedTuple):
    """A decision, with the figures of its best expert, and how long it took."""

    decision: Decision
    confidence: float | None
    expected_score: float | None  # instead of the confidence, if an outcome router decided
    margin: float
    seconds: float
    reason: TurnReason | None = None  # of a chat with several turns: which one decided, and why

    def find_standing(self, expert: str) -> Standing:
        """The figures of one expert, which is the best one as a rule."""
        decision = self.decision
        if expert == decision.best:
            return Standing(self.confidence, self.expected_score, self.margin)
        values = dict(decision.quality)
        if (value := values.pop(expert, None)) is None:
            return Standing()
        margin = value - max(values.values(), default=0.0)
        return Standing(value, None, margin) if self.expected_score is None else Standing(None, value, margin)


@dataclass(slots=True)
class Choice:
    """The expert to ask first, why, and the fallbacks."""

    snapshot: Snapshot
    first: Expert
    eligible: Sequence[Expert]
    why: str = ""  # empty if the router decided; otherwise the reason
    routed: Routed | None = None  # None where the router was not asked
    by_name: bool = False  # then only the fallbacks of the configuration may replace it
    wanted: str | None = None  # in whose place others answer, if that is not `first`
    decided: str | None = None  # by the router, or by who named an expert; None if the router found nobody
    instead: str = ""  # who `first` is, if it is not the decided expert, or if the router abstained
    refusal: Refusal | None = None  # why the decided expert is not `first`
    # what the client gets instead of an answer; made where it is raised, since its frames keep the choice
    build_refusal: Callable[[], ApiError] | None = None

    def __post_init__(self) -> None:
        if self.routed is None and self.decided is None:
            self.decided = self.first.name

    @property
    def decision(self) -> Decision | None:
        return None if self.routed is None else self.routed.decision

    def list_substitutes(self) -> list[Substitute]:
        """The experts to ask when the first one fails."""
        is_alone = self.by_name or self.snapshot.config.routing.shadow is not None
        wanted, decision = self.wanted or self.first.name, None if is_alone else self.decision
        found = list_substitutes(self.snapshot, wanted, self.eligible, decision)
        return [one for one in found if one.expert is not self.first]

    def list_fallbacks(self) -> list[Expert]:
        """The same, but no more than are to be tried."""
        return [one.expert for one in self.list_substitutes()[: self.snapshot.config.routing.fallbacks]]

    def explain_instead(self, answers: str, handovers: Sequence[Handover]) -> Instead:
        """Why this expert answers, if it is not the decided one, or if the router abstained."""
        kind = self.instead
        if answers != self.first.name:
            kind = next((one.kind for one in self.list_substitutes() if one.expert.name == answers), "")
        abstained = "" if self.routed is None else self.routed.decision.reason
        if self.decided is None or answers == self.decided:
            return Instead(kind if abstained else "", "", abstained)
        failed = {giver: reason for giver, _, reason in reversed(handovers)}
        label = text = failed.get(self.decided) or failed.get(self.first.name, "")
        if self.refusal is not None and (self.refusal.text or not failed):  # a pin that failed is not the cause
            label, text = self.refusal
        return Instead(kind, label, abstained or text)

    def explain_why(self, answers: str) -> str:
        """What decided, if not the router. Where the expert of a pin has failed, the pin did not decide."""
        is_replaced = self.why in _SET and answers != self.first.name
        return f"instead of {self.first.name}" if is_replaced else self.why


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
    experts, routing = snapshot.experts, snapshot.config.routing
    eligible, keeper = find_eligible(snapshot, prompt, controls), _find_responder(snapshot, prompt, pins)
    if keeper is not None:  # only its server has that answer
        eligible = [expert for expert in eligible if expert.name == keeper]
    asked = _Asked(snapshot, prompt, controls, eligible)
    if model not in RESERVED:
        return _choose_named(asked, model)
    if keeper is not None:
        return _choose_responder(asked, keeper)
    first = eligible[0].name if eligible else None
    if "embeddings" in prompt.needs:  # vectors of two models cannot be compared, so it is always the same expert
        return asked.choose(first, "the first with embeddings", by_name=True)
    if controls.skip and routing.shadow is None:
        return asked.choose(find_default(snapshot) or first, "skip")
    routed = routed or route_prompt(snapshot, prompt, controls)
    decision = routed.decision
    decided = find_default(snapshot) if decision.abstained else decision.expert
    if not eligible:
        raise asked.build_error(decided, decision)
    if routing.shadow is not None:
        return _choose_set(snapshot, experts[routing.shadow], eligible, "shadow", routed, decided)
    if controls.session and (pinned := _find_pinned(snapshot, prompt, controls, pins, routed, eligible)) is not None:
        return _choose_set(snapshot, pinned, eligible, "pinned", routed, decided)
    if routing.out_of_domain == "refuse" and decision.reason == "out of domain":
        return Choice(snapshot, eligible[0], (), "refused", routed, build_refusal=partial(_build_refusal, eligible))
    return asked.choose(decided, "abstained" if decision.abstained else "", routed=routed)


def _choose_named(asked: _Asked, name: str) -> Choice:
    """The choice where the client names an expert. It must have the endpoint; the rest is the client's affair."""
    experts, endpoint = asked.snapshot.experts, asked.prompt.needs & ENDPOINTS
    if (named := experts.get(name)) is None:
        message = f"no model {name[:200]!r}: there are auto, which routes, and {', '.join(experts)}"
        raise ApiError(404, message, "model_not_found", "model")
    if endpoint <= named.capabilities:
        return Choice(asked.snapshot, named, asked.eligible, "asked by name", by_name=True)
    return asked.choose(name, "asked by name", by_name=True)


def _choose_set(
    snapshot: Snapshot, first: Expert, eligible: Sequence[Expert], why: str, routed: Routed, decided: str | None
) -> Choice:
    """The choice of an expert that is set, whatever the router has decided."""
    refusal = None if decided == first.name else Refusal(why, "")  # `why` says it already
    return Choice(snapshot, first, eligible, why, routed, decided=decided, refusal=refusal)


class _Asked(NamedTuple):
    """A request, and who can and may answer it."""

    snapshot: Snapshot
    prompt: Prompt
    controls: Controls
    eligible: Sequence[Expert]

    def choose(
        self, decided: str | None, why: str = "", *, routed: Routed | None = None, by_name: bool = False
    ) -> Choice:
        """The decided expert, or who may answer in its place. Where the router found nobody, the nearest one."""
        decision, chosen = None if routed is None else routed.decision, partial(Choice, self.snapshot)
        nearest = decision.best if decision is not None and decision.reason != "no known token" else None
        wanted = decided or nearest
        if (expert := _get(self.eligible, wanted)) is not None:
            is_abstained = decision is not None and decision.abstained
            kind = "" if not is_abstained else DEFAULT if decided is not None else "nearest expert"
            return chosen(expert, self.eligible, why, routed, by_name, decided=decided, instead=kind)
        found = list_substitutes(self.snapshot, wanted, self.eligible, decision)
        if not found:
            raise self.build_error(decided, decision)
        first, kind = found[0]
        if wanted is None:  # no token is known, so nobody is near, and all are candidates
            return chosen(first, self.eligible, why, routed, instead="first that may answer")
        refusal = None if decided is None else self.find_refusal(decided)
        why = why or f"instead of {decided}"
        return chosen(first, self.eligible, why, routed, by_name, wanted, decided, instead=kind, refusal=refusal)

    def build_error(self, decided: str | None, decision: Decision | None = None) -> ApiError:
        """The error where neither the decided expert nor anybody in its place may answer."""
        parts, headers = ["no expert may answer this request"], {}
        if decided is not None and (refusal := self.find_refusal(decided)) is not None:
            parts.append(f"{decided} was chosen: {refusal.text}")
            headers = {"x-ir3de-decided": encode_name(decided).decode()}
        elif decision is not None and decision.abstained:
            parts.append(f"the router abstained ({decision.reason}), and there is no default expert")
        if self.eligible:
            able = name_some(expert.name for expert in self.eligible)
            wanted = decided or "the nearest expert"
            none = f"none of them is a fallback of {wanted}, a candidate of the router or the default expert"
            parts.append(f"{able} could answer, but {none}: configure that, or ask an expert by its name")
        unknown = sorted((self.controls.allow or frozenset()) - self.snapshot.experts.keys())
        told = [f"there is no expert {name[:100]!r}" for name in unknown[:5]]
        others = {name: self.find_refusal(name) for name in self.snapshot.experts if name != decided}
        told += [f"{name}: {refusal.text}" for name, refusal in others.items() if refusal is not None]
        parts += ["; ".join(told)] if told else []
        return ApiError(400, ". ".join(parts), "no_eligible_expert", "model", headers=headers)

    def find_refusal(self, name: str) -> Refusal | None:
        return find_refusal(self.snapshot.experts.get(name), self.prompt, self.controls)


def _build_refusal(eligible: Sequence[Expert]) -> ApiError:
    names = ", ".join(expert.name for expert in eligible)
    message = f"out of domain: no expert is for prompts like this one. A model can also be asked by name: {names}"
    headers = {"x-ir3de-why": "refused", "x-ir3de-reason": "out of domain"}
    return ApiError(422, message, "out_of_domain", "model", headers=headers)


def _get(eligible: Sequence[Expert], name: str | None) -> Expert | None:
    return next((expert for expert in eligible if expert.name == name), None)


def _find_responder(snapshot: Snapshot, prompt: Prompt, pins: Pins) -> str | None:
    """The expert whose server has the answer that the request refers to, if that is known."""
    routing = snapshot.config.routing
    if not prompt.follows or not routing.pinning.stored_ttl or routing.shadow is not None:
        return None
    return pins.get(build_response_pin(prompt.follows))


def _choose_responder(asked: _Asked, keeper: str) -> Choice:
    """The expert that has the answer that the request refers to, or an error: another one would lose the chat."""
    if (expert := _get(asked.eligible, keeper)) is not None:
        return Choice(asked.snapshot, expert, (), "pinned")
    refusal = asked.find_refusal(keeper)
    why = "" if refusal is None else f": {refusal.text}"
    message = (
        f"no expert may answer this request. {keeper} gave the response that it continues, and cannot answer{why}. "
        "Other experts do not have that response: send the conversation in 'input', without 'previous_response_id'"
    )
    headers = {"x-ir3de-decided": encode_name(keeper).decode()}
    raise ApiError(400, message, "no_eligible_expert", "previous_response_id", headers=headers)


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
