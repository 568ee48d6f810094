"""The choice of an expert where nothing is routed: by its name, or because it has what the request is about."""

from __future__ import annotations

from typing import NamedTuple

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.experts import RESERVED
from ir3de_gateway.experts.snapshot import Expert, Snapshot
from ir3de_gateway.requests.choice import Choice
from ir3de_gateway.requests.controls import Controls
from ir3de_gateway.requests.eligibility import find_refusal
from ir3de_gateway.requests.prompt import Prompt
from ir3de_gateway.store.pins import build_unknown_error
from ir3de_gateway.wire.passthrough import PassthroughFormat, is_object_id


def choose_by_name(snapshot: Snapshot, wire: PassthroughFormat, model: str, controls: Controls) -> Choice:
    """The expert of that name, or the first one with the capability. What is stored needs a single one."""
    eligible = _find_eligible(snapshot, wire, controls)
    if model not in RESERVED:
        named = snapshot.experts.get(model)
        if named is None:
            names = ", ".join(expert.name for expert in eligible)
            message = f"no model {model[:200]!r}: /v1/{wire.path} has {names}"
            raise ApiError(404, message, "model_not_found", "model")
        if named not in snapshot.find_capable(frozenset([wire.capability])):
            raise _build_incapable_error(snapshot, wire, f"'{model}' has no {wire.capability}")
        return Choice(snapshot, named, () if wire.makes else eligible, "asked by name", by_name=True)
    if wire.makes is not None:
        return Choice(snapshot, _pick_only(wire, eligible), (), f"the only one with {wire.capability}", by_name=True)
    return Choice(snapshot, eligible[0], eligible, f"the first with {wire.capability}", by_name=True)


class StoredAt(NamedTuple):
    """What a request is about, and who has it."""

    kind: str
    object_id: str
    keeper: str | None  # an expert; None if it is not known
    is_shared: bool  # whether all clients share all objects: keys have no names
    param: str | None = None  # the field that names it


def choose_keeper(snapshot: Snapshot, wire: PassthroughFormat, stored: StoredAt, controls: Controls) -> Choice:
    """The expert that has an object. No other one is asked if it fails.

    Where clients share all objects, one that is not known here may have been made elsewhere, and the only expert with
    the capability is asked for it.
    """
    unknown = build_unknown_error(stored.kind, stored.object_id, stored.param)
    if is_object_id(stored.object_id) is None:
        raise unknown
    if stored.keeper is not None and (expert := snapshot.experts.get(stored.keeper)) is not None:
        return Choice(snapshot, expert, (), "pinned", by_name=True)
    eligible = _find_eligible(snapshot, wire, controls)
    if stored.keeper is not None or not stored.is_shared or len(eligible) > 1:
        raise unknown
    return Choice(snapshot, eligible[0], (), f"the only one with {wire.capability}", by_name=True)


def _find_eligible(snapshot: Snapshot, wire: PassthroughFormat, controls: Controls) -> list[Expert]:
    """The experts that can and may answer."""
    needs = frozenset([wire.capability])
    if not (capable := snapshot.find_capable(needs)):
        raise _build_incapable_error(snapshot, wire, f"no expert has {wire.capability}")
    prompt = Prompt("", needs, 0, tool_loop=False)
    refusals = {expert: find_refusal(expert, prompt, controls) for expert in capable}
    if found := [expert for expert, refusal in refusals.items() if refusal is None]:
        return found
    refused = "; ".join(f"{expert.name}: {refusal.text}" for expert, refusal in refusals.items() if refusal is not None)
    raise ApiError(400, f"no expert may answer this request. {refused}", "no_eligible_expert", "model")


def _pick_only(wire: PassthroughFormat, eligible: list[Expert]) -> Expert:
    if len(eligible) > 1:
        names = ", ".join(expert.name for expert in eligible)
        message = f"several experts have {wire.capability} ({names}): name one of them in the header x-ir3de-allow"
        raise ApiError(400, message, "ambiguous_expert", "x-ir3de-allow")
    return eligible[0]


def _build_incapable_error(snapshot: Snapshot, wire: PassthroughFormat, what: str) -> ApiError:
    having = [f"{name} has {', '.join(expert.config.capabilities)}" for name, expert in snapshot.experts.items()]
    message = f"{what}, which /v1/{wire.path} needs. Of the experts, {'; '.join(having)}"
    return ApiError(404, f"{message}. Name it in the capabilities of an expert that can do it", "no_capable_expert")
