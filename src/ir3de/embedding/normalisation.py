"""What is done to a text before it is tokenised, and how much of a long one is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError

MIN_ALL_CAPS_CHARACTERS = 16  # shorter texts may be acronyms, whose capitals matter
JUDGED_CHARACTERS = 4_096  # the beginning of a longer text decides how it is normalised, so that it can be read alone

# Random case breaks words into pieces of about 2 characters, where ordinary text has 3 to 5 to a token.
MAX_CHARACTERS_PER_TOKEN = 3
FIRST_EXAMINED = slice(1, 32)  # most ordinary texts have no capital there, and all in random case do
EXAMINED_CHARACTERS = 256  # the beginning of a text decides, so that long texts cost no more

# In random case 1/2 of the letters inside words are capitals, and 1/4 are capitals after a small letter. In camelCase
# both shares are lower: of 280,000 lines of code 39 exceed both limits.
MIN_CHANGES = 3
MIN_SHARE_OF_CHANGES = 0.1
MIN_SHARE_OF_CAPITALS = 0.3

_CASED_CODE_POINTS = 0x2000  # Latin, Greek, Cyrillic, Armenian and Georgian lie below
_ASCII_CODE_POINTS = 0x80


def lowercase_if_all_caps(text: str) -> str:
    """Lowercase a text whose beginning is all in capitals: its meaning stays, its tokens become the common ones.

    >>> lowercase_if_all_caps("HOW DO I BOIL AN EGG?")
    'how do i boil an egg?'
    >>> lowercase_if_all_caps("NASA")
    'NASA'
    """
    return text.lower() if len(text) >= MIN_ALL_CAPS_CHARACTERS and text[:JUDGED_CHARACTERS].isupper() else text


def is_random_case(text: str, tokens: int) -> bool:
    """Whether capitals stand inside the words as if by chance, in a text of so many tokens.

    Callers give a long text's first `JUDGED_CHARACTERS` for the text.

    Code keeps its case: camelCase has fewer capitals, and a text of one word may be a key or an identifier.

    >>> is_random_case("hOw Do I bOiL aN EgG?", tokens=13)
    True
    >>> is_random_case("Why is getElementById null?", tokens=8)
    False
    """
    if len(text) >= MAX_CHARACTERS_PER_TOKEN * tokens:
        return False
    head = text[FIRST_EXAMINED]
    if head == head.lower():
        return False
    text = text[:EXAMINED_CHARACTERS]
    classes = text.encode().translate(_classify_ascii()) if text.isascii() else _classify(text)
    if classes.count(b"aA") < MIN_CHANGES:
        return False
    changes = classes.count(b"aA") - classes.count(b"0aA")  # without hexadecimal numbers: 0xFF
    words = classes.replace(b"0", b" ").split()
    places = sum(map(len, words)) - len(words)  # where a letter follows a letter
    capitals = sum(word.count(b"A", 1) for word in words)
    has_several_words = len(text.split(maxsplit=1)) > 1
    return (
        has_several_words
        and changes >= max(MIN_CHANGES, MIN_SHARE_OF_CHANGES * places)
        and capitals >= MIN_SHARE_OF_CAPITALS * places
    )


def _classify(text: str) -> bytes:
    """One byte for each character: 'a' for small letters, 'A' for capitals, '0' for digits, a space for others."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return _load_classes().take(points, mode="clip").tobytes()


@lru_cache(maxsize=1)
def _classify_ascii() -> bytes:
    """The same as a table for `bytes.translate`."""
    return _load_classes()[:_ASCII_CODE_POINTS].tobytes().ljust(256)


@lru_cache(maxsize=1)
def _load_classes() -> npt.NDArray[np.uint8]:
    # a capital is what `lower` changes, so that a lowercased text has none
    letters = "".join(map(chr, range(_CASED_CODE_POINTS)))
    classes = [
        "A" if letter.lower() != letter else "a" if letter.upper() != letter else "0" if letter.isdigit() else " "
        for letter in letters
    ]
    return np.frombuffer("".join([*classes, " "]).encode(), np.uint8)  # the last stands for all code points beyond


def replace_lone_surrogates(text: str) -> str:
    """Put U+FFFD for each half of a surrogate pair: JSON can write one, but it has no UTF-8 form.

    >>> replace_lone_surrogates("a \\ud83d b") == "a \\ufffd b"
    True
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def not_one_text(text: object) -> InputError:
    """The error for what should be one text."""
    many = isinstance(text, Iterable) and not isinstance(text, bytes)
    advice = ": several go to route_batch" if many else f": {text!r:.60}"
    return InputError(f"expected one text (str), found {type(text).__name__}{advice}")


def not_texts(texts: object) -> InputError:
    """The error for what should be several texts."""
    for index, text in enumerate(texts if isinstance(texts, (list, tuple)) else ()):
        if not isinstance(text, str):
            return InputError(f"text {index} is {type(text).__name__}, not str: {text!r:.60}")
    return InputError(f"expected texts (str), found {type(texts).__name__}")


# --- the beginning of a long text
#
# Which tokens a text begins with depends on what follows only near the end of what was read. Tokenizers split a text
# into words first, and words do not depend on each other; inside a word, what follows changes the last few tokens. So
# a few more tokens are read than are wanted, and dropped. Hence the first tokens are those of the whole text, with two
# exceptions. A Unigram tokenizer may begin a word of thousands of characters, such as a run of one digit, in a way that
# depends on the word's length. And of a text with very few tokens, such as a page of spaces, no more than a limit of
# characters is read.

FIRST_READ_PER_TOKEN = 8  # characters read at first: ordinary text has 3 to 5 to a token
MAX_READ_PER_TOKEN = 15  # characters read at most
MIN_TOKENS = 1_024  # fewer are read as if these were wanted: the beginning also decides how the text is normalised
MARGIN_TOKENS = 128  # read and dropped: more than a word of the longest kind has, and more than what follows can change

Tokens = TypeVar("Tokens", npt.NDArray[np.uint32], list[tuple[int, str]])  # ids, or ids with their stretches of text


def is_long(text: str, most: int) -> bool:
    """Whether a text can be cut before its first `most` tokens are read."""
    return len(text) > FIRST_READ_PER_TOKEN * max(most, MIN_TOKENS)


def read_first(encode: Callable[[str], Tokens], text: str, most: int) -> Tokens:
    """The first `most` tokens of a text."""
    found = encode(take_first(text, most))
    if is_too_short(len(found), most):
        found = encode(take_longest(text, most))
    return found[:most]


def is_too_short(tokens: int, most: int) -> bool:
    """Whether so many tokens of a beginning do not determine the first `most` of the text."""
    return tokens < most + MARGIN_TOKENS


def take_first(text: str, most: int) -> str:
    """The beginning of a text that is likely to have its first tokens."""
    return text[: FIRST_READ_PER_TOKEN * max(most, MIN_TOKENS)]


def take_longest(text: str, most: int) -> str:
    """The longest beginning that is read."""
    return text[: MAX_READ_PER_TOKEN * max(most, MIN_TOKENS)]


def cut_text(text: str, normalised: str, ids: Sequence[int], starts: Sequence[int]) -> list[tuple[int, str]]:
    """Each token's id with its stretch of the text, from where the tokens begin in the normalised text."""
    if not starts:
        return []  # an empty text, or one of nothing but what the tokenizer drops
    begins = list(starts)
    if normalised != text:
        # one capital can become two characters (İ), so offsets are translated to the original text
        place = [*(i for i, character in enumerate(text) for _ in character.lower()), len(text)]
        begins = [place[start] for start in starts]
    ends = [*begins[1:], len(text)]  # what lies between two tokens is shown with the first
    begins[0] = 0
    # a character spread over several tokens is shown once, with the last of them
    return [(token, text[start:end]) for token, start, end in zip(ids, begins, ends, strict=True)]
