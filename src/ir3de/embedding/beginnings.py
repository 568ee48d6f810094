"""The first tokens of a text, read from its beginning alone: a text of any length costs what its beginning costs.

Which tokens a text begins with depends on what follows only near the end of what was read. Tokenizers split a text into
words first, and words do not depend on each other; inside a word, what follows changes the last few tokens. So some
tokens more are read than are wanted, and those are dropped. How a text is normalised is decided by its beginning, too
(`normalisation.py`). Hence the first tokens are those of the whole text, with two exceptions. A Unigram tokenizer may
begin a word of thousands of characters, such as a run of one digit, in a way that depends on the word's length. And a
text may have very few tokens, such as a page of spaces: of that, no more than a limit of characters is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

FIRST_CHARACTERS_PER_TOKEN = 8  # read at first: ordinary text has 3 to 5 characters to a token
MAX_CHARACTERS_PER_TOKEN = 15  # read at most
MIN_TOKENS = 1_024  # fewer are read as if these were wanted: the beginning also says how the text is normalised
MARGIN_TOKENS = 128  # read and dropped: more than a word of the longest kind has, and more than what follows can change

Tokens = TypeVar("Tokens", npt.NDArray[np.uint32], list[tuple[int, str]])  # ids, or ids with their stretches of text


def is_long(text: str, most: int) -> bool:
    """Whether a text can be cut before its first `most` tokens are read."""
    return len(text) > FIRST_CHARACTERS_PER_TOKEN * max(most, MIN_TOKENS)


def read_first(encode: Callable[[str], Tokens], text: str, most: int) -> Tokens:
    """The first `most` tokens of a text."""
    found = encode(take_first(text, most))
    if is_too_short(len(found), most):
        found = encode(take_longest(text, most))
    return found[:most]


def is_too_short(tokens: int, most: int) -> bool:
    """Whether so many tokens of a beginning do not tell the first `most` of the text."""
    return tokens < most + MARGIN_TOKENS


def take_first(text: str, most: int) -> str:
    """The beginning of a text that is likely to have its first tokens."""
    return text[: FIRST_CHARACTERS_PER_TOKEN * max(most, MIN_TOKENS)]


def take_longest(text: str, most: int) -> str:
    """The longest beginning that is read."""
    return text[: MAX_CHARACTERS_PER_TOKEN * max(most, MIN_TOKENS)]
