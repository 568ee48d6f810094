"""Stage 2, read: the body of a request within its limits, its model, its controls, and the prompt to route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import takewhile
from time import perf_counter
from typing import Any, Literal

from ir3de.serving import MIN_PASTE_CHARS, MessageError, Turn, compile_envelopes, find_envelope_mark, split_paste
from ir3de_gateway.api_errors import ApiError, build_type_error
from ir3de_gateway.config.experts import RESERVED
from ir3de_gateway.requests.client import CONTROL_HEADERS, NO_CONTROLS, Controls, read_body, read_controls
from ir3de_gateway.requests.json_body import FIELD, offload, read_json
from ir3de_gateway.requests.model_texts import list_request_slots
from ir3de_gateway.requests.tokens import count_before, estimate_tokens, read_answer_limit
from ir3de_gateway.stages.call_hooks import show_request
from ir3de_gateway.stages.choice import Prompt
from ir3de_gateway.stages.stored_responses import expand_request
from ir3de_gateway.stages.values import Accepted, Received
from ir3de_gateway.store.pins import name_thread, scope_id, scope_session
from ir3de_gateway.translation.translation import find_untranslatable
from ir3de_gateway.wire.formats import WireFormat

TextMode = Literal["conversation", "last_user", "all_user", "full"]

MAX_TEXT_CHARS = 131_072  # of several turns together; routing reads the first 15,360
MAX_LOGGED_CHARS = 100_000  # of a prompt, where the decision log has prompts: routing reads a thousand tokens


async def read(accepted: Accepted) -> Received:
    """Read a request that is routed."""
    snapshot, wire, record = accepted.snapshot, accepted.wire, accepted.progress.record
    limits, routing = snapshot.config.server.limits, snapshot.config.routing
    body = await read_json(await read_content(accepted), limits.json_depth)
    if wire.stores_answers:
        body = await expand_request(accepted, body)
    if snapshot.has_before_hooks:
        body = await show_request(accepted, body)
    values = body.values
    stream, named = values.get("stream"), values.get("model", "auto")
    record.asked = named if isinstance(named, str) else ""
    if stream is not None and not isinstance(stream, bool):
        raise build_type_error("stream", "true or false", stream)
    record.stream = bool(stream) and wire.can_stream
    model, controls = read_model(accepted, values)
    if accepted.trace is not None:
        accepted.trace.read_request(values)
    counts = snapshot.has_context_windows or accepted.lease is not None
    find = partial(
        read_prompt,
        wire,
        how=routing.text,
        envelopes=routing.envelopes,
        counts_tokens=counts,
        weighs_switch=snapshot.switch_rule is not None,
    )
    prompt = await offload(find, values) if body.is_large else find(values)
    if wire.capability in snapshot.translated and not body.is_large:
        found = find_untranslatable(wire, values)
        prompt = prompt if found is None else prompt._replace(untranslatable=found.message)
    if controls.session:
        controls = replace(controls, session=name_thread(controls.session, prompt.system))
    replica = ""
    if wire.stores_answers:
        prompt, replica = await _check_stored(accepted, values, prompt)
    if snapshot.config.logs.prompts or snapshot.keeps_journal:
        record.text, record.turns = prompt.text[:MAX_LOGGED_CHARS], prompt.turns
    return Received(accepted, body, model, controls, prompt, replica)


async def read_content(accepted: Accepted) -> bytes:
    """The bytes of the body. From here on, a client that disconnects cancels its request."""
    record, limits = accepted.progress.record, accepted.snapshot.config.server.limits
    content = await read_body(accepted.receive, accepted.headers, limits, accepted.connection)
    record.received_bytes = len(content)
    record.read_seconds = perf_counter() - accepted.clock
    accepted.response.watch(accepted.receive, accepted.connection)
    return content


def read_model(accepted: Accepted, values: Mapping[str, Any]) -> tuple[str, Controls]:
    """The model that the client names, and its controls."""
    model, headers, session_headers = values.get("model", "auto"), accepted.headers, accepted.gateway.session_headers
    if not isinstance(model, str) or not model:
        raise build_type_error("model", "a name such as 'auto'", model)
    if (target := accepted.snapshot.aliases.get(model)) is not None:
        accepted.progress.record.alias, model = model, target
    controls, given = NO_CONTROLS, values.get(FIELD)
    if (
        given is not None
        or not headers.keys().isdisjoint(CONTROL_HEADERS)
        or not headers.keys().isdisjoint(session_headers)
    ):
        controls = read_controls(given, headers, session_headers)
        if session := controls.session:
            accepted.progress.record.session = session
            controls = replace(controls, session=scope_session(session, accepted.key.name))
    if accepted.key.experts is not None:
        _check_key(accepted, model, accepted.key.experts)
        controls = replace(controls, of_key=accepted.key.experts)
    return model, controls


def _check_key(accepted: Accepted, model: str, allowed: frozenset[str]) -> None:
    """Reject a model by its name that the key may not use."""
    snapshot, key = accepted.snapshot, accepted.key.name
    if model not in RESERVED and model not in allowed:
        there = ", ".join(name for name in snapshot.experts if name in allowed) or "none"
        named = accepted.progress.record.alias or model
        message = f"the API key '{key}' may not use {named[:200]!r}: it may use auto, and by name {there}"
        is_there = model in snapshot.experts
        raise ApiError(403 if is_there else 404, message, "" if is_there else "model_not_found", "model")
    shadow = snapshot.config.routing.shadow
    if shadow is not None and shadow not in allowed:
        raise ApiError(403, f"the API key '{key}' may not use {shadow!r}, which answers everything here")


async def _check_stored(accepted: Accepted, values: Mapping[str, Any], prompt: Prompt) -> tuple[Prompt, str]:
    """The prompt with the id of the answer that it continues as the pins have it, and the replica with that answer.

    Keys continue their own answers only. Conversations cannot be made here: one may be of any client of the expert.
    """
    key, conversation = accepted.key.name, values.get("conversation")
    if key and conversation is not None:
        named = conversation.get("id") if isinstance(conversation, dict) else conversation
        message = f"no conversation {str(named)[:200]!r}: continue an answer with previous_response_id"
        raise ApiError(400, message, "conversation_not_found", "conversation")
    if not prompt.follows:
        return prompt, ""
    if await accepted.stored_objects.find("response", prompt.follows) is None and key:
        message = f"no response {prompt.follows[:200]!r}: it was not made here, or it is gone"
        raise ApiError(400, message, "previous_response_not_found", "previous_response_id")
    replica = await accepted.stored_objects.find_replica("response", prompt.follows)
    return prompt._replace(follows=scope_id(prompt.follows, key)), replica


# the prompt ----------------------------------------------------------------------------------------------------------


def read_prompt(
    wire: WireFormat,
    values: Mapping[str, Any],
    how: TextMode,
    envelopes: Sequence[str],
    *,
    counts_tokens: bool = True,
    weighs_switch: bool = False,
) -> Prompt:
    """Read the prompt of a request, or raise an `ApiError` that names the wrong field.

    `counts_tokens`: those of the whole request; `weighs_switch`: those before each of several turns.
    """
    turns = parse_turns(wire, values)
    images, audio = False, values.get("audio") is not None
    for turn in turns:
        images, audio = images or bool(turn.images), audio or bool(turn.audio)
    tools = bool(values.get("tools") or values.get("functions"))
    last = turns[-1] if turns else None
    loop = last is not None and (last.role == "tool" or (last.tool_result and not last.text.strip()))
    chat: Sequence[str] = ()
    spoken: Sequence[tuple[int, str]] = ()
    if how == "conversation":
        spoken = list_user_turns(turns, envelopes)
        (text, chat), opening = read_chat(spoken), spoken[0][1] if spoken else ""
    else:
        text = extract_text(turns, how, envelopes)
        opening = next((turn.text for turn in turns if turn.role == "user"), "")
    system = "\n".join(turn.text for turn in takewhile(_is_systems, turns))
    before = count_before(values, [place for place, _ in spoken], len(turns)) if weighs_switch and chat else ()
    needs = _collect_needs(wire.capability, tools, images, audio)
    tokens = count_tokens(values) if counts_tokens else 0
    follows = wire.find_previous_response(values) if wire.stores_answers else ""
    return Prompt(text, needs, tokens, loop, follows, chat, opening=opening, system=system, before=before)


def _is_systems(turn: Turn) -> bool:
    return turn.role in ("system", "developer")


def parse_turns(wire: WireFormat, values: Mapping[str, Any]) -> list[Turn]:
    """The turns of a request, or an `ApiError` that names the wrong field."""
    try:
        return wire.parse_turns(values)
    except MessageError as error:
        raise ApiError(400, str(error), error.code, error.param) from None


@lru_cache(maxsize=64)
def _collect_needs(capability: str, tools: bool, images: bool, audio: bool) -> frozenset[str]:
    wanted = {capability: True, "tools": tools, "vision": images, "audio": audio}
    return frozenset(name for name, is_wanted in wanted.items() if is_wanted)


def list_user_turns(turns: Sequence[Turn], envelopes: Sequence[str]) -> list[tuple[int, str]]:
    """The user's turns without envelopes, each with its place among the messages: those of `Conversation`.

    Unknown roles are not the user's, and here they are not an error.
    """
    found, removers, mark = [], compile_envelopes(tuple(envelopes)), find_envelope_mark(envelopes)
    for place, turn in enumerate(turns):
        if turn.role == "user" and (not turn.tool_result or turn.text.strip()):
            text = turn.text
            if mark in text:
                for remove in removers:
                    text = remove(text)
            found.append((place, text))
    return found


def read_chat(spoken: Sequence[tuple[int, str]]) -> tuple[str, Sequence[str]]:
    """A text to route, and the turns to route together. A single turn without a paste is routed as a prompt.

    That is the decision of `Conversation`, to the bit, and takes less time.
    """
    if len(spoken) != 1:
        texts = [text for _, text in spoken]
        return next((text for text in reversed(texts) if text.strip()), ""), texts
    text = spoken[0][1]
    if len(text) < MIN_PASTE_CHARS:
        return text, ()
    words, paste = split_paste(text)
    return (text, [text]) if paste else (words, ())


def extract_text(turns: Sequence[Turn], how: TextMode, envelopes: Sequence[str] = ()) -> str:
    """The text to route, without the envelopes that tools put around it."""
    removers = compile_envelopes(tuple(envelopes))

    def clean(turn: Turn) -> str:
        text = turn.text
        for remove in removers:
            text = remove(text)
        return text

    if how == "last_user":
        for turn in reversed(turns):
            if turn.role == "user" and (text := clean(turn)).strip():
                return text
        return ""
    chosen, size = list[str](), 0
    for turn in turns:
        if size < MAX_TEXT_CHARS and (how == "full" or turn.role == "user") and (text := clean(turn)).strip():
            chosen.append(text)
            size += len(text)
    return "\n".join(chosen)


def count_tokens(values: Mapping[str, Any]) -> int:
    """Roughly the tokens of a request and of the longest answer: all text that a model reads, results of tools too."""
    given = sum(estimate_tokens(slot.text) for slot in list_request_slots(values))
    return read_answer_limit(values) + given + sum(_count_token_ids(values.get(name)) for name in ("prompt", "input"))


def _count_token_ids(value: Any) -> int:
    """The numbers in lists: the tokens of a prompt that is in an expert's own vocabulary."""
    if not isinstance(value, list):
        return 0
    kinds = list(map(type, value))
    return kinds.count(int) + (sum(map(_count_token_ids, value)) if list in kinds else 0)
