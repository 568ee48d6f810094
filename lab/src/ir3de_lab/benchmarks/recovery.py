"""What can be read back out of sums: counts from the paper's Gram matrix, a prompt from the statistics of it alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.statistics import Statistics, pair_buckets

ROUNDS = 4  # of putting right what rounding in the last bits left
EXACT = 1e-12  # of the largest entry: nothing is left to explain
MOST_STEPS = 100_000  # of trying tokens at the next place


def counts_from_gram(gram: npt.NDArray[np.float64], embeddings: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
    """The histogram n with Σ_v n_v x_v x_vᵀ = A: least squares over all entries of A, then whole numbers.

    Its normal equations are M n = b with M_uv = (x_u · x_v)² and b_u = x_uᵀ A x_u, so it takes V² numbers
    and not V · h². It has one solution when the matrices x_v x_vᵀ are independent, which takes h(h+1)/2 ≥ V.
    """
    rows = embeddings.astype(np.float64)
    squares = rows @ rows.T
    squares *= squares
    found = np.zeros(len(rows))
    for _ in range(ROUNDS):
        left = gram - (rows.T * found) @ rows
        if np.abs(left).max() <= EXACT * np.abs(gram).max():
            break
        found += np.rint(np.linalg.solve(squares, np.einsum("vh,vh->v", rows @ left, rows)))
    return found.astype(np.int64)


def order_from_pairs(statistics: Statistics, most: int = 10) -> list[list[int]]:
    """Token ids of one prompt in every order, up to so many, that its histogram and its pairs allow."""
    if statistics.sums is None or statistics.sums.pairs is None:
        raise InputError("the order of a prompt is in its pairs, and a histogram alone has none")
    tokens = Counter({int(token): int(statistics.histogram[token]) for token in np.flatnonzero(statistics.histogram)})
    pairs = statistics.sums.pairs
    buckets = Counter({int(bucket): int(pairs[bucket]) for bucket in np.flatnonzero(pairs)})
    names = list(tokens)
    table = {
        (one, two): int(pair_buckets(np.array([one, two], np.uint32))[0])
        for one in names
        for two in names
        if buckets[int(pair_buckets(np.array([one, two], np.uint32))[0])]
    }
    steps = iter(range(MOST_STEPS))
    found = []
    for order in _orders([], tokens, buckets, table, steps):
        found.append(order)
        if len(found) == most:
            break
    return found


def _orders(
    order: list[int],
    tokens: Counter[int],
    buckets: Counter[int],
    table: dict[tuple[int, int], int],
    steps: Iterator[int],
) -> Iterator[list[int]]:
    """Every way to go on from here that uses up the tokens and the pairs."""
    if not tokens.total():
        yield list(order)
        return
    for token in [token for token, left in tokens.items() if left]:
        bucket = table.get((order[-1], token)) if order else None
        if order and (bucket is None or not buckets[bucket]):
            continue
        if next(steps, None) is None:
            return
        tokens[token] -= 1
        if bucket is not None:
            buckets[bucket] -= 1
        order.append(token)
        yield from _orders(order, tokens, buckets, table, steps)
        order.pop()
        tokens[token] += 1
        if bucket is not None:
            buckets[bucket] += 1
