"""Texts as SentencePiece normalises them, for a fast engine that does not normalise by itself.

SentencePiece drops control characters, makes all white space single spaces, and brings the rest into Unicode's
compatibility form (NFKC). Most texts are like that already, and telling so takes less than a microsecond. The others
are normalised by the reference engine's own normaliser, so that no second table of Unicode can differ from it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from unicodedata import is_normalized

NORMALIZER = {"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "NFKC"}]}
PRE_TOKENIZER = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "WhitespaceSplit"},
        {"type": "Metaspace", "prepend_scheme": "always", "replacement": "▁", "split": False},
    ],
}
_SPACES_THAT_PRINT = ("▁", "\ufffd")  # SentencePiece takes them for spaces


def is_sentencepiece(definition: bytes) -> bool:
    """Whether a tokenizer.json normalises and splits texts as this module does."""
    try:
        content = json.loads(definition)
        return (
            content["normalizer"] == NORMALIZER
            and content["pre_tokenizer"] == PRE_TOKENIZER
            and content["model"]["type"] == "Unigram"
            and not content["added_tokens"]
        )
    except (ValueError, KeyError, TypeError):
        return False


def normalise(text: str) -> str:
    """The text as the tokenizer's model sees it, apart from the marks for spaces.

    >>> normalise("ﬁve  apples,\\n１２ pears")
    'five apples, 12 pears'
    """
    if not _is_plain(text):
        text = _load_normaliser().normalize_str(text)
        return " ".join(text.split())
    if "  " in text or text[:1] == " " or text[-1:] == " ":
        return " ".join(text.split())
    return text


def _is_plain(text: str) -> bool:
    """Whether nothing but the spaces at both ends, and several in a row, could change."""
    if not text.isprintable():  # no control character, nor any white space but the common space
        return False
    if text.isascii():
        return True
    return is_normalized("NFKC", text) and not any(map(text.__contains__, _SPACES_THAT_PRINT))


@lru_cache(maxsize=1)
def _load_normaliser() -> Any:
    from tokenizers import normalizers

    return normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])


class NormalisingEngine:
    """A fast engine that is given normalised texts. It stands in for the engine itself."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def encode_batch_flat(self, texts: Sequence[str], add_special_tokens: bool) -> Any:
        return self._engine.encode_batch_flat([normalise(text) for text in texts], add_special_tokens)

    def encode(self, text: str, add_special_tokens: bool = False) -> Any:
        return self._engine.encode(normalise(text), add_special_tokens)

    def save(self, path: str) -> None:
        self._engine.save(path)
