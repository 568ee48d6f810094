"""Where the tokens of a text begin, from the bytes that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

_SEPARATOR = "\x00"


def find_places(engine: Any, ids: Sequence[int], text: str) -> list[int] | None:
    """The place of each token's first character, by the fast engine; None where its tokens are not the text's bytes.

    A character spread over several tokens is the first character of each.
    """
    if _SEPARATOR in text or not hasattr(engine, "decode_bytes"):
        return None
    separator = engine.encode_batch_flat([_SEPARATOR], False)[0].tolist()
    if len(separator) != 1:
        return None
    # all at once, because each call takes 80 µs
    parts = engine.decode_bytes([one for token in ids for one in (token, *separator)]).split(_SEPARATOR.encode())[:-1]
    encoded = text.encode()
    if len(parts) != len(ids) or b"".join(parts) != encoded:
        return None
    starts = [0, *accumulate(map(len, parts))][:-1]
    if text.isascii():
        return starts
    characters = np.cumsum(np.frombuffer(encoded, np.uint8) & 0xC0 != 0x80) - 1  # of which each byte is a part
    places: list[int] = characters[starts].tolist()
    return places
