"""Pairs of neighbouring tokens, hashed into buckets. They add a little word order to a bag of tokens.

A pair of neighbouring tokens is hashed into one of `BUCKETS`. Counts of buckets add up like counts of tokens, and a
score per bucket is looked up like a score per token.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BUCKETS = 1 << 16

_LEFT, _RIGHT, _MIX = np.uint32(0x9E3779B1), np.uint32(0x85EBCA77), np.uint32(0x2C1B3C6D)


def pair_buckets(ids: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.uint16]:
    """The bucket of each token and its right neighbour: one fewer than there are tokens.

    >>> pair_buckets(np.array([3, 5, 3, 5], np.uint32))
    array([ 9512, 33268,  9512], dtype=uint16)
    """
    tokens = ids.astype(np.uint32, copy=False)
    hashed = tokens[:-1] * _LEFT
    hashed += tokens[1:] * _RIGHT  # wraps around, which is what a hash wants
    hashed ^= hashed >> np.uint32(15)
    hashed *= _MIX
    hashed >>= np.uint32(16)
    return hashed.astype(np.uint16)


def count_pairs(
    flat: npt.NDArray[np.unsignedinteger], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """How often each bucket occurs in prompts whose ids lie end to end; no pair spans two prompts: (BUCKETS,)."""
    within = within_prompts(len(flat), starts, lengths)
    return np.bincount(pair_buckets(flat)[within], minlength=BUCKETS).astype(np.int64, copy=False)


def within_prompts(tokens: int, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which neighbours, of prompts end to end, belong to one prompt."""
    within = np.ones(max(0, tokens - 1), bool)
    last = (starts + lengths - 1)[lengths > 0]
    within[last[last < tokens - 1]] = False
    return within
