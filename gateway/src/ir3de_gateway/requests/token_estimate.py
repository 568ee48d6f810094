"""Roughly how many tokens a text has, without a tokenizer: to compare a request with a context window.

Experts have tokenizers of their own, so no exact number is right for all of them. The estimate leans upwards: English
is taken for a tenth longer than it is.
"""

from __future__ import annotations

from string import ascii_letters
from typing import Any

LETTERS_PER_TOKEN = 4.5  # of English, spaces included
CHARS_PER_TOKEN = 2  # of other alphabets: Cyrillic, Arabic, Devanagari, letters with accents

# In UTF-8 one byte of each character tells what it is. Digits, signs, Chinese, Japanese, Korean and emoji count as a
# token each: many vocabularies split numbers digit by digit.
_LETTERS = f"{ascii_letters} ".encode()
_CONTINUING = bytes(range(0x80, 0xC0))
_OTHER_ALPHABETS = bytes(range(0xC0, 0xE3))  # up to U+2FFF


class Beginning(str):
    """The beginning of a long string, which is all that was kept, and an estimate of the tokens of the whole."""

    __slots__ = ("tokens",)
    tokens: int

    def __new__(cls, text: str, tokens: int) -> Beginning:
        made = super().__new__(cls, text)
        made.tokens = tokens
        return made


def estimate_tokens(text: str) -> int:
    """Roughly the tokens of a text.

    >>> estimate_tokens("How long do I boil an egg?"), estimate_tokens("法院判决"), estimate_tokens("3.14159")
    (6, 4, 7)
    """
    if isinstance(text, Beginning):
        return text.tokens
    if text.isascii():
        others = len(text.encode().translate(None, _LETTERS))
        return int((len(text) - others) / LETTERS_PER_TOKEN) + others
    encoded = text.encode(errors="replace")
    without_letters = encoded.translate(None, _LETTERS)
    beyond = without_letters.translate(None, _CONTINUING)
    singly = beyond.translate(None, _OTHER_ALPHABETS)
    letters = (len(encoded) - len(without_letters)) / LETTERS_PER_TOKEN
    return int(letters + (len(beyond) - len(singly)) / CHARS_PER_TOKEN) + len(singly)


def estimate_all(values: list[Any]) -> int:
    """Roughly the tokens of JSON values, names included."""
    tokens, left = 0, list(values)
    while left:
        value = left.pop()
        if isinstance(value, str):
            tokens += estimate_tokens(value)
        elif isinstance(value, dict):
            left += value
            left += value.values()
        elif isinstance(value, list):
            left += value
        else:
            tokens += 1
    return tokens
