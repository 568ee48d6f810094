"""Pairs of neighbouring tokens, hashed into buckets. They add a little word order to a bag of tokens.

A pair of neighbouring tokens is hashed into one of `BUCKETS`. Counts of buckets add up like counts of tokens, and a
score per bucket is looked up like a score per token.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BUCKETS = 1 << 16

FEW_TOKENS = 512  # up to here a hash takes as long as its numpy calls take to begin

# arrays of no dimension, because numpy makes one of every scalar in every call
_LEFT, _RIGHT, _MIX = (np.array(factor, np.uint32) for factor in (0x9E3779B1, 0x85EBCA77, 0x2C1B3C6D))
_15, _16 = np.array(15, np.uint32), np.array(16, np.uint32)
_LEFT_AND_RIGHT, _UINT32 = np.array([_LEFT, _RIGHT]), np.dtype(np.uint32)
_multiply, _shift, _xor = np.multiply, np.right_shift, np.bitwise_xor


def pair_buckets(ids: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.uint16]:
    """The bucket of each token and its right neighbour: one fewer than there are tokens.

    >>> pair_buckets(np.array([3, 5, 3, 5], np.uint32))
    array([ 9512, 33268,  9512], dtype=uint16)
    """
    return hash_pairs(ids).astype(np.uint16)


def hash_pairs(ids: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.uint32]:
    """The same buckets in 32 bits, as one prompt's are looked up: routing does not wait for another conversion."""
    tokens = ids if ids.dtype is _UINT32 else ids.astype(np.uint32, copy=False)
    # left · LEFT + right · RIGHT wraps around, which is what a hash wants
    if 1 < len(tokens) <= FEW_TOKENS:
        hashed = np.correlate(tokens, _LEFT_AND_RIGHT)  # one call instead of five
    else:
        hashed = tokens[:-1] * _LEFT
        hashed += tokens[1:] * _RIGHT
    _xor(hashed, _shift(hashed, _15), hashed)
    _multiply(hashed, _MIX, hashed)
    return _shift(hashed, _16, hashed)


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
