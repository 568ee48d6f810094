"""Stage 3, choose: which expert gets the request, and why, and which ones follow if it fails.

In this order: the expert that has the answer which the request continues; the one that the client names; the first with
embeddings; the default one, if the client skips routing; the shadow expert; the one of the conversation's pin; the one
that the router decides for, or that answers in its place (see `choice`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter, sleep
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ir3de import Conversation
from ir3de.errors import InputError
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.experts import RESERVED
from ir3de_gateway.experts.affinity import hash_beginning
from ir3de_gateway.experts.snapshot import Expert, Snapshot
from ir3de_gateway.headers import encode_name
from ir3de_gateway.requests.client import NO_CONTROLS, Controls
from ir3de_gateway.requests.forwarding import OutgoingBody
from ir3de_gateway.requests.json_body import offload
from ir3de_gateway.stages.candidate import settle
from ir3de_gateway.stages.charge import reserve_usage
from ir3de_gateway.stages.choice import (
    DEFAULT,
    EXPLORE,
    MAX_INLINE_TURNS,
    TOO_DEAR,
    Candidates,
    Choice,
    Prompt,
    Refusal,
    Routed,
    build_incapable_error,
    find_default,
    find_eligible,
    find_passed,
    list_substitutes,
)
from ir3de_gateway.stages.consult import consult as consult_encoder
from ir3de_gateway.stages.consult import is_unsure
from ir3de_gateway.stages.explore import draw_number, explore
from ir3de_gateway.stages.switch import find_holder, weigh_switch
from ir3de_gateway.stages.values import Chosen, Received
from ir3de_gateway.store.contract import PinStore
from ir3de_gateway.store.pins import build_unknown_error
from ir3de_gateway.wire.formats import PassthroughFormat, is_object_id

if TYPE_CHECKING:
    from ir3de import Router
    from ir3de.policies import Costs

ENDPOINTS = frozenset(("chat", "completions", "responses", "messages", "embeddings"))  # of all capabilities
TURNS_AT_A_TIME = 8  # of a long chat: then the event loop may have the interpreter's lock


class FoundPins(Protocol):
    """Pins that were looked up before, such as a dictionary of them."""

    def get(self, name: str, /) -> str | None: ...


async def choose(received: Received) -> Chosen:
    """Choose the experts for a request that is routed, and reserve what it may take from the limits of its key."""
    accepted, body, model, controls, prompt, replica = received
    snapshot = accepted.snapshot
    routed = await _route_first(received, snapshot) if model in RESERVED else None
    pins = await find_pins(accepted.gateway.pins, snapshot, model, prompt, controls)
    choice = choose_expert(snapshot, model, prompt, controls, pins, routed)
    if snapshot.candidate is not None and choice.routed is not None:
        choice = await _try_candidate(received, choice, snapshot.candidate, pins)
    if share := snapshot.config.routing.explore:
        choice = _explore(received, choice, share)
    accepted.progress.add_choice(choice)
    if choice.build_rejection is not None:
        raise choice.build_rejection()
    if accepted.lease is not None:
        await reserve_usage(received, accepted.lease, choice)
    session = controls.session if choice.routed is not None and choice.why not in ("shadow", EXPLORE) else ""
    beginning = hash_beginning(prompt.system, prompt.opening) if snapshot.has_replicas else b""
    return Chosen(accepted, choice, OutgoingBody.from_request(accepted.wire, body), replica, beginning, session)


async def _try_candidate(received: Received, live: Choice, candidate: Snapshot, pins: FoundPins) -> Choice:
    """The live router's choice, or that of the candidate, which decides, too. If it cannot, no request fails."""
    accepted, _, model, controls, prompt, _ = received
    try:
        routed = await _route_first(received, candidate) or route_prompt(candidate, prompt, controls)
        config, other = accepted.snapshot.config.routing.candidate, None
        if config is not None and config.mode == "canary":
            with suppress(ApiError):  # no expert may answer
                other = choose_expert(candidate, model, prompt, controls, pins, routed)
        return settle(received, live, routed, other)
    except Exception as error:
        accepted.gateway.observer.metrics.candidate.count_failure(error)
        return live


def _explore(received: Received, choice: Choice, share: float) -> Choice:
    """The choice, or that of another candidate; the record gets the chance of it.

    Where live router and candidate differ, nothing is explored: scores of these requests compare the two.
    """
    accepted, prompt, record = received.accepted, received.prompt, received.accepted.progress.record
    trial = record.trial
    if record.arm or (trial is not None and trial.decided != trial.candidate_expert):
        return choice
    draw = draw_number(accepted.gateway.secret, accepted.request_id, prompt.text)
    choice, record.propensity, record.arm = explore(choice, prompt, share, draw)
    if record.arm == EXPLORE:
        accepted.gateway.observer.metrics.journal.count_explored(choice.first.name)
    return choice


async def _route_first(received: Received, snapshot: Snapshot) -> Routed | None:
    """The router's decision where it takes a while: a long chat, or a router with an encoder. Otherwise None."""
    prompt = received.prompt
    if prompt.turns and not prompt.is_quick:
        return await offload(partial(route_prompt, snapshot, controls=received.controls), prompt)
    if snapshot.router.opinion is not None and not prompt.turns:
        return await _route_with_encoder(received, snapshot)
    return None


async def _route_with_encoder(received: Received, snapshot: Snapshot) -> Routed:
    """The router's decision on a prompt, after its encoder was asked if the table is unsure."""
    accepted, _, _, controls, prompt, _ = received
    deadline_s = snapshot.config.routing.encoder_deadline
    routed = route_prompt(snapshot, prompt, controls)
    if not deadline_s or controls.skip or "embeddings" in prompt.needs or not is_unsure(snapshot.router, routed):
        return routed
    route = partial(route_prompt, snapshot, prompt, controls, consult=None)
    return await consult_encoder(routed, route, deadline_s, accepted.gateway.observer.metrics.count_consultation)


def route_prompt(snapshot: Snapshot, prompt: Prompt, controls: Controls, *, consult: bool | None = False) -> Routed:
    """The router's decision, and how long it took. The event loop must not `consult` the encoder."""
    started, reason, holder = perf_counter(), None, None
    try:
        if prompt.turns:
            chat = route_turns(snapshot.router, prompt.turns, controls.weights)
            decision, reason = chat.decision, chat.find_reason() if len(chat) > 1 else None
            holder = find_holder(snapshot, chat, prompt)
        else:
            decision = snapshot.router.route(prompt.text, weights=controls.weights, consult=consult)
    except InputError as error:  # weights times costs that no number holds
        raise ApiError(400, str(error), "invalid_type", "ir3de.weights") from error
    seconds = perf_counter() - started
    return Routed(decision, decision.confidence, decision.expected_score, decision.margin, seconds, reason, holder)


def route_turns(router: Router, turns: Sequence[str], weights: Costs | None = None) -> Conversation:
    """The conversation of the user's turns, whose envelopes are removed already."""
    chat, is_long = Conversation(router, envelopes=()), len(turns) > MAX_INLINE_TURNS
    for place, text in enumerate(turns):
        chat.route(text, weights=weights)
        if is_long and place % TURNS_AT_A_TIME == 0:
            sleep(0)
    return chat


async def find_pins(
    pins: PinStore, snapshot: Snapshot, model: str, prompt: Prompt, controls: Controls
) -> Mapping[str, str]:
    """The pins that the choice may need: of the answer that the request continues, and of its conversation."""
    if model not in RESERVED and not prompt.follows:
        return {}
    pinning = snapshot.config.routing.pinning
    names = [build_response_pin(prompt.follows)] if prompt.follows and pinning.stored_ttl else []
    names += [controls.session] if controls.session and pinning.ttl and model in RESERVED else []
    found = {name: await pins.get(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def choose_expert(
    snapshot: Snapshot, model: str, prompt: Prompt, controls: Controls, pins: FoundPins, routed: Routed | None = None
) -> Choice:
    """The choice for a request that is routed, or an `ApiError`: no such model, or no expert may answer.

    `routed` is the router's decision, where it was made before.
    """
    routing = snapshot.config.routing
    if (
        (controls is not NO_CONTROLS and not controls.is_unrestricted)
        or snapshot.has_context_windows
        or prompt.untranslatable
    ):
        eligible = find_eligible(snapshot, prompt, controls)
    else:
        eligible = snapshot.capable.get(prompt.needs) or snapshot.find_capable(prompt.needs)
    owner = _find_owner(snapshot, prompt, pins) if prompt.follows else None
    if owner is not None:  # only its server has that answer
        eligible = [expert for expert in eligible if expert.name == owner]
    candidates = Candidates(snapshot, prompt, controls, eligible)
    if model not in RESERVED:
        return _choose_named(candidates, model)
    if owner is not None:
        return _choose_owner(candidates, owner)
    if "embeddings" in prompt.needs:  # vectors of two models cannot be compared, so it is always the same expert
        return _choose_decided(candidates, _first(eligible), "the first with embeddings", by_name=True)
    if controls.skip and routing.shadow is None:
        return _choose_decided(candidates, find_default(snapshot) or _first(eligible), "skip")
    routed = routed or route_prompt(snapshot, prompt, controls)
    decision = routed.decision
    decided = find_default(snapshot) if decision.abstained else decision.expert
    if not eligible:
        raise candidates.build_error(decided, decision)
    if routing.shadow is not None:
        return _choose_set(candidates, snapshot.experts[routing.shadow], "shadow", routed, decided)
    if controls.session and (pinned := _find_pinned(candidates, pins, routed)) is not None:
        return _choose_set(candidates, pinned, "pinned", routed, decided)
    before = (pins.get(controls.session) if controls.session else None) or routed.holder
    switch = None if before is None else weigh_switch(candidates, before, routed)
    if switch is not None and not switch.has_moved:
        return replace(
            _choose_set(candidates, snapshot.experts[switch.before], TOO_DEAR, routed, decided), switch=switch
        )
    if routing.out_of_domain == "refuse" and decision.reason == "out of domain":
        reject = partial(_build_rejection, eligible)
        return Choice(snapshot, eligible[0], (), "refused", routed, build_rejection=reject)
    choice = _choose_decided(candidates, decided, "abstained" if decision.abstained else "", routed)
    return choice if switch is None or prompt.tool_loop else replace(choice, switch=switch)  # a loop has moved before


def _first(eligible: Sequence[Expert]) -> str | None:
    return eligible[0].name if eligible else None


def _choose_decided(
    candidates: Candidates, decided: str | None, why: str = "", routed: Routed | None = None, *, by_name: bool = False
) -> Choice:
    """The decided expert, or who may answer in its place. Where the router found none, the nearest one."""
    snapshot, _, _, eligible = candidates
    decision = None if routed is None else routed.decision
    nearest = decision.best if decision is not None and decision.reason != "no known token" else None
    wanted = decided or nearest
    if (expert := snapshot.experts.get(wanted or "")) is not None and expert in eligible:
        is_abstained = decision is not None and decision.abstained
        kind = "" if not is_abstained else DEFAULT if decided is not None else "nearest expert"
        return Choice(snapshot, expert, eligible, why, routed, by_name, None, decided, kind)
    found = list_substitutes(snapshot, wanted, eligible, decision)
    if not found:
        raise candidates.build_error(decided, decision)
    first, kind = found[0]
    if wanted is None:  # no token is known, so no expert is near, and all are candidates
        decided = first.name if routed is None else None
        return Choice(snapshot, first, eligible, why, routed, decided=decided, instead="first that may answer")
    refusal = None if decided is None else candidates.find_refusal(decided)
    return Choice(
        snapshot, first, eligible, why or f"instead of {decided}", routed, by_name, wanted, decided, kind, refusal
    )


def _choose_named(candidates: Candidates, name: str) -> Choice:
    """The choice where the client names an expert. It must have the endpoint; the client answers for the rest."""
    experts, endpoint = candidates.snapshot.experts, candidates.prompt.needs & ENDPOINTS
    if (named := experts.get(name)) is None:
        names = ", ".join((*experts, *candidates.snapshot.aliases))
        message = f"no model {name[:200]!r}: there are auto, which routes, and {names}"
        raise ApiError(404, message, "model_not_found", "model")
    if endpoint <= named.capabilities:
        return Choice(
            candidates.snapshot, named, candidates.eligible, "asked by name", None, by_name=True, decided=name
        )
    return _choose_decided(candidates, name, "asked by name", by_name=True)


def _choose_set(candidates: Candidates, first: Expert, why: str, routed: Routed, decided: str | None) -> Choice:
    """The choice of an expert that is set, whatever the router has decided."""
    refusal = None if decided == first.name else Refusal(why, "")  # `why` explains it already
    return Choice(candidates.snapshot, first, candidates.eligible, why, routed, decided=decided, refusal=refusal)


def _build_rejection(eligible: Sequence[Expert]) -> ApiError:
    names = ", ".join(expert.name for expert in eligible)
    message = f"out of domain: no expert is for prompts like this one. Request a model by name instead: {names}"
    headers = {"x-ir3de-why": "refused", "x-ir3de-reason": "out of domain"}
    return ApiError(422, message, "out_of_domain", "model", headers=headers)


def _find_owner(snapshot: Snapshot, prompt: Prompt, pins: FoundPins) -> str | None:
    """The expert whose server has the answer that the request continues, if that is known."""
    routing = snapshot.config.routing
    if not routing.pinning.stored_ttl or routing.shadow is not None:
        return None
    return pins.get(build_response_pin(prompt.follows))


def _choose_owner(candidates: Candidates, owner: str) -> Choice:
    """The expert that has the answer which the request continues, or an error: another one would lose the chat."""
    if (expert := candidates.find(owner)) is not None:
        return Choice(candidates.snapshot, expert, (), "pinned", decided=owner)
    refusal = candidates.find_refusal(owner)
    why = "" if refusal is None else f": {refusal.text}"
    message = (
        f"no expert may answer this request. {owner} gave the response that it continues, and cannot answer{why}. "
        "Other experts do not have that response: send the conversation in 'input', without 'previous_response_id'"
    )
    headers = {"x-ir3de-decided": encode_name(owner).decode()}
    raise ApiError(400, message, "no_eligible_expert", "previous_response_id", headers=headers)


def build_response_pin(response_id: str) -> str:
    """The key of the pin that names the expert of an answer."""
    return f"response {response_id}"


def _find_pinned(candidates: Candidates, pins: FoundPins, routed: Routed) -> Expert | None:
    """The conversation's expert, unless the router is sure of another one. Tool loops and follow-ups always stay."""
    pinning, decision = candidates.snapshot.config.routing.pinning, routed.decision
    if not pinning.ttl or (name := pins.get(candidates.controls.session)) is None:
        return None
    clear = not decision.abstained and decision.ranking[0][1] >= pinning.release < 1
    moves = clear and decision.expert != name and candidates.find(decision.expert) is not None
    is_follow_up = routed.reason is not None and routed.reason.why == "stayed"
    return None if moves and not candidates.prompt.tool_loop and not is_follow_up else candidates.find(name)


# where nothing is routed ---------------------------------------------------------------------------------------------


def choose_by_name(snapshot: Snapshot, wire: PassthroughFormat, model: str, controls: Controls) -> Choice:
    """The expert of that name, or the first one with the capability. What is stored needs a single one."""
    eligible = find_passed(snapshot, wire, controls)
    if model not in RESERVED:
        if (named := snapshot.experts.get(model)) is None:
            names = ", ".join(expert.name for expert in eligible)
            message = f"no model {model[:200]!r}: /v1/{wire.path} has {names}"
            raise ApiError(404, message, "model_not_found", "model")
        if named not in snapshot.find_capable(frozenset([wire.capability])):
            raise build_incapable_error(snapshot, wire, f"'{model}' has no {wire.capability}")
        others = () if wire.makes else eligible
        return Choice(snapshot, named, others, "asked by name", by_name=True, decided=model)
    first = eligible[0]
    if wire.makes is None:
        why = f"the first with {wire.capability}"
        return Choice(snapshot, first, eligible, why, by_name=True, decided=first.name)
    if len(eligible) > 1:
        names = ", ".join(expert.name for expert in eligible)
        message = f"several experts have {wire.capability} ({names}): name one of them in the header x-ir3de-allow"
        raise ApiError(400, message, "ambiguous_expert", "x-ir3de-allow")
    return Choice(snapshot, first, (), f"the only one with {wire.capability}", by_name=True, decided=first.name)


class StoredAt(NamedTuple):
    """The stored object that a request is about, and its owner."""

    kind: str
    object_id: str
    owner: str | None  # an expert; None if it is not known
    is_shared: bool  # whether all clients share all objects: keys have no names
    param: str | None = None  # the field that names it


def choose_owner(snapshot: Snapshot, wire: PassthroughFormat, stored: StoredAt, controls: Controls) -> Choice:
    """The expert that has an object; there are no fallbacks.

    Where clients share all objects, an unknown one may have been made elsewhere: the only expert with the capability
    gets the request.
    """
    unknown = build_unknown_error(stored.kind, stored.object_id, stored.param)
    if is_object_id(stored.object_id) is None:
        raise unknown
    if stored.owner is not None and (expert := snapshot.experts.get(stored.owner)) is not None:
        return Choice(snapshot, expert, (), "pinned", by_name=True, decided=expert.name)
    eligible = find_passed(snapshot, wire, controls)
    if stored.owner is not None or not stored.is_shared or len(eligible) > 1:
        raise unknown
    only = eligible[0]
    return Choice(snapshot, only, (), f"the only one with {wire.capability}", by_name=True, decided=only.name)
