"""Prompts kept aside, to measure a router on what it was not fitted on.

Whether a prompt is kept aside depends on its text and the share alone. So copies of a prompt are never on both sides,
and the same share gives the same prompts again, also after prompts were added to a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from ir3de.corpora.labelled import Labelled, prompts_of, read_experts
from ir3de.errors import InputError

HASH_BYTES = 4


def is_held_out(text: str, share: float) -> bool:
    """Whether a prompt is among the share that is kept aside.

    >>> is_held_out("What is 2 + 2?", 0.2), is_held_out("What is 2 + 2?", 0.9)
    (False, True)
    """
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=HASH_BYTES).digest()
    return int.from_bytes(digest, "big") < share * (1 << (8 * HASH_BYTES))


def split_held_out(
    texts: Mapping[str, Iterable[str]] | Labelled, share: float, *, label: str | None = None, text: str | None = None
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Each expert's prompts to fit on, and those that are kept aside: about that share of them.

    Of a few prompts none may be kept aside; such an expert is only in the first part.
    `texts` is {expert: prompts}, or labelled prompts of any shape with `label` and `text`, as in `Router.fit`.

    >>> train, test = split_held_out({"maths": [f"Solve x + {n} = 10." for n in range(100)]}, 0.2)
    >>> len(train["maths"]), len(test["maths"])
    (81, 19)
    """
    if not isinstance(share, (int, float)) or not 0 < share < 1:
        raise InputError(f"the share to keep aside lies between 0 and 1, found {share!r}: 0.2 keeps a fifth aside")
    train: dict[str, list[str]] = {}
    aside: dict[str, list[str]] = {}
    for name, own in read_experts(texts, label, text).items():
        train[name], aside[name] = [], []
        for prompt in prompts_of(name, own):
            (aside if is_held_out(prompt, share) else train)[name].append(prompt)
    return train, {name: own for name, own in aside.items() if own}
