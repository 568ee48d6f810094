"""Doubtful texts of the default tokenizer, by the fast engine after all: word by word.

Where the fast engine is in doubt, it splits a text into other words than the reference does, or keeps characters that
the vocabulary lacks. So the reference's own splitter, which is small, makes the words here; what the vocabulary lacks
is dropped from them, as the reference drops it; and the fast engine encodes each word by itself. The whole reference
would take 47 MB and 130 ms, in which a gateway answers nobody. A test proves that the ids are the same, on all that is
doubtful, for the tokenizers and the versions of the engine that are listed below.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_PIECE_CHARS = 1_024  # a text is cut so that few of its words are encoded like this
MAX_TEXT_CHARS = 20_000  # more is left to the reference, which is faster once it is loaded

# the SHA-256 of a tokenizer and the version of the engine: the characters of one byte that the vocabulary lacks
PROVEN = {("876dc8becfa9e681e821bc424c78190144dbc0f9f8d3062f1e3a42d60a1c49e1", "0.1.4"): "\x04\x06\x13\x14\x16\x1d"}
_SPECIAL_BEGINNINGS = ("<|", "<repo", "<file", "<gh_", "<issue", "<jupyter", "<empty_")  # of the tokens it adds
_SPLIT_SPACES = "\x0b\x0c"  # white space that the fast engine splits from the white space beside it
_FIRST_UNKNOWN, _LAST_UNKNOWN = "\U00040000", "\U000dffff"  # their first byte is not in the vocabulary

Ids = npt.NDArray[np.uint32]
EncodeFlat = Callable[[list[str], bool], tuple[Ids, Any]]


class WordByWord:
    """Encodes doubtful texts by the fast engine. It knows which ones it cannot encode."""

    def __init__(self, encode: EncodeFlat, missing: str) -> None:
        self._encode = encode
        self._missing = str.maketrans(dict.fromkeys(missing))

    @cached_property
    def _split(self) -> Callable[[str], list[tuple[str, tuple[int, int]]]]:
        from tokenizers import pre_tokenizers  # it takes 4 MB, so only where there is a doubtful text

        splitters = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        return pre_tokenizers.Sequence(splitters).pre_tokenize_str

    def encode(self, text: str) -> Ids | None:
        """The ids; None if the reference must be asked."""
        if any(special in text for special in _SPECIAL_BEGINNINGS):
            return None
        if not text.isascii() and any(_FIRST_UNKNOWN <= character <= _LAST_UNKNOWN for character in text):
            return None
        words = [text[first:last].translate(self._missing) for _, (first, last) in self._split(text)]
        if any(space in text for space in _SPLIT_SPACES) and any(
            len(word) > 1 and (_SPLIT_SPACES[0] in word or _SPLIT_SPACES[1] in word) for word in words
        ):
            return None
        return self._encode(words, False)[0]
