"""The text of a chat: messages of OpenAI and Anthropic as turns, without envelopes, pastes apart, words of content.

Of the two schemas only the fields that routing needs are read, and everything else is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from string import punctuation
from typing import Any, NamedTuple

from ir3de.errors import InputError, describe_value

# text that applications put around the user's words: it is not routed on
ENVELOPES = ("<system-reminder>.*?</system-reminder>", "<environment_details>.*?</environment_details>")
_TEXTS = frozenset(("text", "input_text", "output_text"))
_IMAGES = frozenset(("image_url", "input_image", "image"))
_AUDIO = frozenset(("input_audio", "audio"))

MIN_PASTE_CHARS = 400  # shorter turns are the user's own words
MAX_TURN_CHARS = 16_384  # of a longer turn, the beginning and the end are read
END_CHARS = 2_048

# A blank line, a fence of code, or a line that ends in a colon or a question mark. Every alternative begins with a
# character of its own, because `re` then skips all others, which halves the time.
_split_blocks = re.compile(
    r"\n[ \t\r]*\n\s*|```|\n(?<=[:?]\n)| (?<=[:?] )[ \t\r]*\n|\t(?<=[:?]\t)[ \t\r]*\n|\r(?<=[:?]\r)[ \t\r]*\n"
).split

ENOUGH_WORDS = 2  # of content: a turn with so many stands on its own
WORDS_AT_A_TIME = 8
MAX_GENERIC_CHARS = 80  # no turn that is longer is made of generic words alone
# English words that any chat may contain, whatever its subject. In other languages every word counts.
GENERIC_WORDS = frozenset(Path(__file__).with_name("generic_words.txt").read_text(encoding="utf-8").split())
_MARKS = punctuation + "…–—’‘“”„«»¿¡。，？！"
BARE_GENERIC_WORDS = GENERIC_WORDS | {word.strip(_MARKS) for word in GENERIC_WORDS}


class MessageError(InputError):
    """A message that cannot be read. `param` is the field with the fault, as in `messages[2].content`."""

    def __init__(self, message: str, param: str, code: str = "invalid_type") -> None:
        super().__init__(message)
        self.param, self.code = param, code

    def __reduce__(self) -> tuple[type[MessageError], tuple[str, str, str]]:
        return type(self), (str(self), self.param, self.code)


class Turn(NamedTuple):
    """One message: its role, its text, and whether it has images, results of tools, or sound."""

    role: str
    text: str
    images: bool = False
    tool_result: bool = False
    audio: bool = False


def parse_messages(messages: object, param: str = "messages") -> list[Turn]:
    """The turns of a chat, or a `MessageError` that names the wrong field.

    >>> parse_messages([{"role": "user", "content": [{"type": "text", "text": "Is this contract void?"}]}])
    [Turn(role='user', text='Is this contract void?', images=False, tool_result=False, audio=False)]
    """
    if not isinstance(messages, list):
        raise build_type_error(param, "a list of messages", messages)
    if not messages:
        raise MessageError(f"{param} is empty: send at least one message", param, "empty_messages")
    turns = []
    for place, message in enumerate(messages):
        if type(message) is dict and type(message.get("content")) is str and type(message.get("role")) is str:
            role = message["role"]  # the usual case, fast
            turns.append(Turn(role, message["content"], False, role == "tool"))
        else:
            turns.append(parse_message(message, f"{param}[{place}]"))
    return turns


def parse_message(message: object, param: str) -> Turn:
    """One message. Its content may be a string, a list of parts, or missing, as with tool calls."""
    if not isinstance(message, dict):
        raise build_type_error(param, 'an object such as {"role": "user", "content": "…"}', message)
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise build_type_error(f"{param}.role", "a string such as 'user'", role)
    if isinstance(content, str):
        return Turn(role, content, tool_result=role == "tool")
    if content is None:  # a message of tool calls
        return Turn(role, "")
    if not isinstance(content, list):
        raise build_type_error(f"{param}.content", "a string or a list of parts", content)
    parts = list(_parse_parts(content, f"{param}.content"))
    kinds = {kind for kind, _ in parts}
    text = "\n".join(text for kind, text in parts if kind in _TEXTS)
    return Turn(
        role, text, bool(kinds & _IMAGES), role == "tool" or "tool_result" in kinds, not kinds.isdisjoint(_AUDIO)
    )


def _parse_parts(content: list[Any], param: str) -> Iterator[tuple[str, str]]:
    for place, part in enumerate(content):
        if isinstance(part, str):
            yield "text", part
            continue
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise build_type_error(f"{param}[{place}]", 'an object such as {"type": "text", "text": "…"}', part)
        text = part.get("text")
        if part["type"] in _TEXTS and not isinstance(text, str):
            raise build_type_error(f"{param}[{place}].text", "a string", text)
        yield part["type"], text if isinstance(text, str) else ""
        if part["type"] == "tool_result" and isinstance(inner := part.get("content"), list):
            yield from (("image", "") for one in inner if isinstance(one, dict) and one.get("type") == "image")


def build_type_error(param: str, wanted: str, found: object) -> MessageError:
    """The error for a field of a wrong type. A string may be a prompt, so it is not repeated."""
    shown = "a string" if isinstance(found, str) else describe_value(found)
    return MessageError(f"{param} must be {wanted}, found {shown}", param)


def find_envelope_mark(envelopes: Sequence[str]) -> str:
    """What every text with one of these envelopes has in it: texts without it need no further look."""
    return "<" if envelopes == ENVELOPES else ""


@lru_cache(maxsize=64)
def compile_envelopes(patterns: tuple[str, ...]) -> list[Callable[[str], str]]:
    """One function for each pattern, which removes it from a text."""
    return list(map(_compile_envelope, patterns))


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


def shorten_turn(text: str) -> str:
    """What is read of a turn: of a long one, its beginning and its end. Shortened again, it stays as it is."""
    if len(text) > MAX_TURN_CHARS:
        text = text.strip()
    if len(text) > MAX_TURN_CHARS:
        text = f"{text[: MAX_TURN_CHARS - END_CHARS - 2]}\n\n{text[-END_CHARS:]}"
    return text


def split_paste(text: str) -> tuple[str, str]:
    """A long turn as the user's own words and the paste. Words are a short block at the beginning or the end.

    A turn without such a block is all words.

    >>> words, paste = split_paste("Please summarise this:\\n" + "The court held otherwise. " * 30)
    >>> words
    'Please summarise this:'
    """
    text = shorten_turn(text)
    if len(text) < MIN_PASTE_CHARS or ("\n" not in text and "```" not in text):
        return text, ""
    blocks = [block for block in _split_blocks(text) if block.strip()]
    words = []
    if len(blocks) > 1 and len(blocks[0]) < MIN_PASTE_CHARS:
        words.append(blocks.pop(0))
    if len(blocks) > 1 and len(blocks[-1]) < MIN_PASTE_CHARS and (not words or blocks[-1].rstrip().endswith("?")):
        words.append(blocks.pop())
    return ("\n".join(words), "\n\n".join(blocks)) if words else (text, "")


def count_content(text: str) -> int:
    """How many words of a turn are not generic, up to `ENOUGH_WORDS`.

    "Ok, and how long does that take?" may be about anything, so its words alone would decide by accident.

    >>> count_content("ok, and how long does that take?"), count_content("and in Python?")
    (0, 1)
    >>> count_content("Can my landlord evict me?")
    2
    """
    if len(text) > MAX_GENERIC_CHARS:
        return ENOUGH_WORDS
    found, rest, generic = "", text.lower(), GENERIC_WORDS
    while rest:
        words = rest.split(None, WORDS_AT_A_TIME)  # most turns show their content at once
        rest = words.pop() if len(words) > WORDS_AT_A_TIME else ""
        for word in words:
            if word in generic:
                continue
            bare = word.strip(_MARKS)
            if bare in generic or not bare or bare == found or bare.replace("’", "'") in generic:
                continue
            if found:
                return ENOUGH_WORDS
            found = bare
    return 1 if found else 0
