"""Token ids as text again, as far as the tokenizer kept the text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def make_decoder(definition: bytes) -> Any:
    """A decoder of the reference engine that fits how this tokenizer marks spaces."""
    from tokenizers import decoders

    document = json.loads(definition)
    model = document.get("model") or {}
    kinds = {*_list_types(document.get("pre_tokenizer")), *_list_types(document.get("normalizer"))}
    if "ByteLevel" in kinds:
        return decoders.ByteLevel()
    if model.get("type") == "WordPiece":
        return decoders.WordPiece(model.get("continuing_subword_prefix") or "##")
    if suffix := model.get("end_of_word_suffix"):
        return decoders.BPEDecoder(suffix)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    return decoders.Sequence(parts)


def _list_types(part: Any) -> Iterator[str]:
    """The types of a part of a tokenizer, and of what it consists of."""
    if isinstance(part, dict):
        yield str(part.get("type"))
        for value in part.values():
            yield from _list_types(value)
    elif isinstance(part, list):
        for value in part:
            yield from _list_types(value)
