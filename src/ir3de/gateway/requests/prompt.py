"""Reads a request: the text to route, and the capabilities that an expert needs to answer it.

OpenAI's schema is not repeated here. Only the fields that routing needs are read, everything else passes unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

from ir3de.gateway.api_errors import ApiError, build_type_error

TextMode = Literal["last_user", "all_user", "full"]
Endpoint = Literal["chat", "completions", "responses", "messages", "embeddings"]

BYTES_PER_TOKEN = 4  # a rough average, to compare a request with a context window
MAX_TOKENS = 10**12  # a client may send a number with thousands of digits
_TEXTS = frozenset(("text", "input_text", "output_text"))
_IMAGES = frozenset(("image_url", "input_image", "image"))
_build_type_error = partial(build_type_error, is_private=True)


class Prompt(NamedTuple):
    """The text to route, and what else the choice of an expert depends on."""

    text: str
    needs: frozenset[str]  # capabilities
    tokens: int  # a rough count of the prompt and the longest answer
    tool_loop: bool  # the last message is the result of a tool
    follows: str = ""  # of OpenAI's responses: the id of the response before


class Turn(NamedTuple):
    """One message: its role, its text, and whether it has images or results of tools."""

    role: str
    text: str
    images: bool = False
    tool_result: bool = False


def read_prompt(endpoint: Endpoint, values: Mapping[str, Any], how: TextMode, envelopes: Sequence[str]) -> Prompt:
    """Read the prompt of a request, or raise an `ApiError` that names the wrong field."""
    turns = _TURNS[endpoint](values)
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


@lru_cache(maxsize=64)
def _collect_needs(endpoint: str, tools: bool, images: bool) -> frozenset[str]:
    return frozenset([endpoint, *(["tools"] if tools else []), *(["vision"] if images else [])])


def extract_text(turns: Sequence[Turn], how: TextMode, envelopes: Sequence[str] = ()) -> str:
    """The text to route, without the envelopes that tools put around it."""
    removers = _compile_envelopes(tuple(envelopes))

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


@lru_cache(maxsize=64)
def _compile_envelopes(patterns: tuple[str, ...]) -> list[Callable[[str], str]]:
    return [_compile_envelope(one) for one in patterns]


def _compile_envelope(pattern: str) -> Callable[[str], str]:
    """A function that removes the pattern from a text. `begin.*?end` is not left to `re`, which would take quadratic
    time for many beginnings without an end."""
    if plain := re.fullmatch(r"([\w<>/ :=\"-]+)\.\*\?([\w<>/ :=\"-]+)", pattern):
        return partial(_cut_out, begin=plain[1], end=plain[2])
    return partial(re.compile(pattern, re.DOTALL).sub, "")


def _cut_out(text: str, begin: str, end: str) -> str:
    kept, done = [], 0
    while (start := text.find(begin, done)) >= 0 and (stop := text.find(end, start + len(begin))) >= 0:
        kept.append(text[done:start])
        done = stop + len(end)
    return "".join((*kept, text[done:])) if done else text


def parse_chat_turns(values: Mapping[str, Any], param: str = "messages") -> list[Turn]:
    """The turns of a chat: `messages` in the format of OpenAI or Anthropic."""
    messages = values.get(param)
    if not isinstance(messages, list):
        raise _build_type_error(param, "a list of messages", messages)
    if not messages:
        raise ApiError(400, f"{param} is empty: send at least one message", "empty_messages", param)
    turns = []
    for place, message in enumerate(messages):
        if type(message) is dict and type(message.get("content")) is str and type(message.get("role")) is str:
            turns.append(
                Turn(message["role"], message["content"], False, message["role"] == "tool")
            )  # the usual case, fast
        else:
            turns.append(_parse_turn(message, f"{param}[{place}]"))
    return turns


def _parse_turn(message: object, param: str) -> Turn:
    if not isinstance(message, dict):
        raise _build_type_error(param, 'an object such as {"role": "user", "content": "…"}', message)
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise _build_type_error(f"{param}.role", "a string such as 'user'", role)
    if isinstance(content, str):
        return Turn(role, content, tool_result=role == "tool")
    if content is None:  # a message of tool calls
        return Turn(role, "")
    if not isinstance(content, list):
        raise _build_type_error(f"{param}.content", "a string or a list of parts", content)
    parts = list(_parse_parts(content, f"{param}.content"))
    kinds = {kind for kind, _ in parts}
    text = "\n".join(text for kind, text in parts if kind in _TEXTS)
    return Turn(role, text, bool(kinds & _IMAGES), role == "tool" or "tool_result" in kinds)


def _parse_parts(content: list[object], param: str) -> Iterator[tuple[str, str]]:
    for place, part in enumerate(content):
        if isinstance(part, str):
            yield "text", part
            continue
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise _build_type_error(f"{param}[{place}]", 'an object such as {"type": "text", "text": "…"}', part)
        text = part.get("text")
        if part["type"] in _TEXTS and not isinstance(text, str):
            raise _build_type_error(f"{param}[{place}].text", "a string", text)
        yield part["type"], text if isinstance(text, str) else ""


def _parse_anthropic_turns(values: Mapping[str, Any]) -> list[Turn]:
    system = values.get("system")
    before = [_parse_turn({"role": "system", "content": system}, "system")] if system else []
    return before + parse_chat_turns(values)


def _parse_completion_turns(values: Mapping[str, Any]) -> list[Turn]:
    prompt = values.get("prompt")
    if isinstance(prompt, str):
        return [Turn("user", prompt)]
    if isinstance(prompt, list) and prompt and all(isinstance(one, str) for one in prompt):
        return [Turn("user", "\n".join(prompt))]
    if isinstance(prompt, list) and prompt:  # token ids of the expert's own vocabulary: there is no text to route
        return [Turn("user", "")]
    raise _build_type_error("prompt", "a string or a list of strings", prompt)


def _parse_response_turns(values: Mapping[str, Any]) -> list[Turn]:
    given = values.get("input")
    instructions = values.get("instructions")
    before = [Turn("system", instructions)] if isinstance(instructions, str) else []
    if isinstance(given, str):
        return [*before, Turn("user", given)]
    if not isinstance(given, list) or not given:
        raise _build_type_error("input", "a string or a list of items", given)
    turns = []
    for place, item in enumerate(given):
        if isinstance(item, dict) and "role" in item:
            turns.append(_parse_turn(item, f"input[{place}]"))
        elif isinstance(item, dict):  # function calls, their results, references
            result = str(item.get("type", "")).endswith("_output")
            turns.append(Turn("tool" if result else "assistant", "", tool_result=result))
        else:
            raise _build_type_error(f"input[{place}]", "an object", item)
    return before + turns


def _parse_embedding_turns(values: Mapping[str, Any]) -> list[Turn]:
    given = values.get("input")
    if not isinstance(given, (str, list)) or given == []:
        raise _build_type_error("input", "a string or a list", given)
    return [Turn("user", given if isinstance(given, str) else "")]


_TURNS = {
    "chat": parse_chat_turns,
    "completions": _parse_completion_turns,
    "responses": _parse_response_turns,
    "messages": _parse_anthropic_turns,
    "embeddings": _parse_embedding_turns,
}
