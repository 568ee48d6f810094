"""Reads a request: the text to route, and the capabilities that an expert needs to answer it.

OpenAI's schema is not repeated here. Only the fields that routing needs are read, everything else passes unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from ir3de.gateway.api_errors import ApiError
from ir3de.routing.messages import (
    MessageError,
    Turn,
    build_type_error,
    compile_envelopes,
    parse_message,
    parse_messages,
)

TextMode = Literal["last_user", "all_user", "full"]
Endpoint = Literal["chat", "completions", "responses", "messages", "embeddings"]

BYTES_PER_TOKEN = 4  # a rough average, to compare a request with a context window
MAX_TOKENS = 10**12  # a client may send a number with thousands of digits


class Prompt(NamedTuple):
    """The text to route, and what else the choice of an expert depends on."""

    text: str
    needs: frozenset[str]  # capabilities
    tokens: int  # a rough count of the prompt and the longest answer
    tool_loop: bool  # the last message is the result of a tool
    follows: str = ""  # of OpenAI's responses: the id of the response before


def read_prompt(endpoint: Endpoint, values: Mapping[str, Any], how: TextMode, envelopes: Sequence[str]) -> Prompt:
    """Read the prompt of a request, or raise an `ApiError` that names the wrong field."""
    turns = parse_turns(endpoint, values)
    size, images = 0, False
    for turn in turns:
        size += len(turn.text)
        images = images or turn.images
    tools = bool(values.get("tools") or values.get("functions"))
    wanted = values.get("max_completion_tokens") or values.get("max_tokens") or values.get("max_output_tokens") or 0
    tokens = size // BYTES_PER_TOKEN + (max(0, min(wanted, MAX_TOKENS)) if isinstance(wanted, int) else 0)
    last = turns[-1] if turns else None
    loop = last is not None and (last.role == "tool" or (last.tool_result and not last.text.strip()))
    before = values.get("previous_response_id") if endpoint == "responses" else None
    follows = before if isinstance(before, str) else ""
    return Prompt(extract_text(turns, how, envelopes), _collect_needs(endpoint, tools, images), tokens, loop, follows)


def parse_turns(endpoint: Endpoint, values: Mapping[str, Any]) -> list[Turn]:
    """The turns of a request, or an `ApiError` that names the wrong field."""
    try:
        return _TURNS[endpoint](values)
    except MessageError as error:
        raise ApiError(400, str(error), error.code, error.param) from None


@lru_cache(maxsize=64)
def _collect_needs(endpoint: str, tools: bool, images: bool) -> frozenset[str]:
    return frozenset([endpoint, *(["tools"] if tools else []), *(["vision"] if images else [])])


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
    chosen = [clean(turn) for turn in turns if how == "full" or turn.role == "user"]
    return "\n".join(text for text in chosen if text.strip())


def _parse_chat_turns(values: Mapping[str, Any]) -> list[Turn]:
    """The turns of a chat: `messages` in the format of OpenAI or Anthropic."""
    return parse_messages(values.get("messages"))


def _parse_anthropic_turns(values: Mapping[str, Any]) -> list[Turn]:
    system = values.get("system")
    before = [parse_message({"role": "system", "content": system}, "system")] if system else []
    return before + _parse_chat_turns(values)


def _parse_completion_turns(values: Mapping[str, Any]) -> list[Turn]:
    prompt = values.get("prompt")
    if isinstance(prompt, str):
        return [Turn("user", prompt)]
    if isinstance(prompt, list) and prompt and all(isinstance(one, str) for one in prompt):
        return [Turn("user", "\n".join(prompt))]
    if isinstance(prompt, list) and prompt:  # token ids of the expert's own vocabulary: there is no text to route
        return [Turn("user", "")]
    raise build_type_error("prompt", "a string or a list of strings", prompt)


def _parse_response_turns(values: Mapping[str, Any]) -> list[Turn]:
    given = values.get("input")
    instructions = values.get("instructions")
    before = [Turn("system", instructions)] if isinstance(instructions, str) else []
    if isinstance(given, str):
        return [*before, Turn("user", given)]
    if not isinstance(given, list) or not given:
        raise build_type_error("input", "a string or a list of items", given)
    turns = []
    for place, item in enumerate(given):
        if isinstance(item, dict) and "role" in item:
            turns.append(parse_message(item, f"input[{place}]"))
        elif isinstance(item, dict):  # function calls, their results, references
            result = str(item.get("type", "")).endswith("_output")
            turns.append(Turn("tool" if result else "assistant", "", tool_result=result))
        else:
            raise build_type_error(f"input[{place}]", "an object", item)
    return before + turns


def _parse_embedding_turns(values: Mapping[str, Any]) -> list[Turn]:
    given = values.get("input")
    if not isinstance(given, (str, list)) or given == []:
        raise build_type_error("input", "a string or a list", given)
    return [Turn("user", given if isinstance(given, str) else "")]


_TURNS = {
    "chat": _parse_chat_turns,
    "completions": _parse_completion_turns,
    "responses": _parse_response_turns,
    "messages": _parse_anthropic_turns,
    "embeddings": _parse_embedding_turns,
}
