"""Reads a request: the text to route, and the capabilities that an expert needs to answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from ir3de.serving import MIN_PASTE_CHARS, MessageError, Turn, compile_envelopes, find_envelope_mark, split_paste
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.requests.model_texts import list_request_slots
from ir3de_gateway.requests.request_bound import read_answer_limit
from ir3de_gateway.requests.token_estimate import estimate_tokens
from ir3de_gateway.wire.formats import WireFormat

TextMode = Literal["conversation", "last_user", "all_user", "full"]

MAX_TEXT_CHARS = 131_072  # of several turns together; routing reads the first 15,360
MAX_INLINE_TURNS = 100  # routed in the event loop, within a few milliseconds; longer chats in a thread
MAX_INLINE_CHARS = 100_000  # of all turns


class Prompt(NamedTuple):
    """The text to route, and what else the choice of an expert depends on."""

    text: str  # of a chat whose turns are routed together, the last one that has words
    needs: frozenset[str]  # capabilities
    tokens: int  # a rough count of the prompt and the longest answer; 0 where nobody asks for it
    tool_loop: bool  # the last message is the result of a tool
    follows: str = ""  # of OpenAI's responses: the id of the response before
    turns: Sequence[str] = ()  # the user's turns, where they are routed together
    untranslatable: str = ""  # why experts of the other kind cannot answer, if some of the experts are such

    @property
    def is_quick(self) -> bool:
        """Whether it is routed within a few milliseconds."""
        return len(self.turns) <= MAX_INLINE_TURNS and sum(map(len, self.turns)) <= MAX_INLINE_CHARS


def read_prompt(
    wire: WireFormat, values: Mapping[str, Any], how: TextMode, envelopes: Sequence[str], *, counts_tokens: bool = True
) -> Prompt:
    """Read the prompt of a request, or raise an `ApiError` that names the wrong field."""
    turns = parse_turns(wire, values)
    images = any(turn.images for turn in turns)
    audio = any(turn.audio for turn in turns) or values.get("audio") is not None
    tools = bool(values.get("tools") or values.get("functions"))
    last = turns[-1] if turns else None
    loop = last is not None and (last.role == "tool" or (last.tool_result and not last.text.strip()))
    chat: Sequence[str] = ()
    if how == "conversation":
        text, chat = read_chat(list_user_turns(turns, envelopes))
    else:
        text = extract_text(turns, how, envelopes)
    return Prompt(
        text,
        _collect_needs(wire.capability, tools, images, audio),
        count_tokens(values) if counts_tokens else 0,
        loop,
        wire.find_previous_response(values),
        chat,
    )


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

    Roles that nobody knows are not the user's, and here they are no error.
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
