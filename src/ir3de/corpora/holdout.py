"""Prompts kept aside, to measure a router on what it was not fitted on.

Whether a prompt is kept aside depends on its text and the share alone. So copies of a prompt are never on both sides,
and whoever names the same share again gets the same prompts, also after prompts were added to a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from ir3de.corpora.frames import require_experts_apart
from ir3de.errors import InputError

HASH_BYTES = 4

Text = TypeVar("Text", bound=str)


def is_held_out(text: str, share: float) -> bool:
    """Whether a prompt is among the share that is kept aside.

    >>> is_held_out("What is 2 + 2?", 0.2), is_held_out("What is 2 + 2?", 0.9)
    (False, True)
    """
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=HASH_BYTES).digest()
    return int.from_bytes(digest, "big") < share * (1 << (8 * HASH_BYTES))


def split_held_out(
    texts: Mapping[str, Iterable[Text]], share: float
) -> tuple[dict[str, list[Text]], dict[str, list[Text]]]:
    """Each expert's prompts to fit on, and those that are kept aside: about that share of them.

    >>> train, test = split_held_out({"maths": [f"Solve x + {n} = 10." for n in range(100)]}, 0.2)
    >>> len(train["maths"]), len(test["maths"])
    (81, 19)
    """
    if not isinstance(share, (int, float)) or not 0 < share < 1:
        raise InputError(f"the share to keep aside lies between 0 and 1, found {share!r}: 0.2 keeps a fifth aside")
    require_experts_apart(texts)
    train: dict[str, list[Text]] = {}
    aside: dict[str, list[Text]] = {}
    for name, own in texts.items():
        train[name], aside[name] = [], []
        for text in own:
            (aside if is_held_out(text, share) else train)[name].append(text)
    return train, aside
