"""The order in which training texts are taken: all domains alike, however many texts each has."""

from __future__ import annotations

import numpy as np

from ir3de.bench.baselines.interface import Indices


def balanced(labels: Indices, size: int, rng: np.random.Generator) -> Indices:
    """About `size` places in `labels`, shuffled, as many of one domain as of another.

    A domain's texts are all taken before one is taken again.
    """
    domains = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    share = -(-size // len(domains))
    taken = [
        np.concatenate([rng.permutation(places) for _ in range(-(-share // len(places)))])[:share] for places in domains
    ]
    return rng.permutation(np.concatenate(taken))


def capped(labels: Indices, most: int, rng: np.random.Generator) -> Indices:
    """Places in `labels`, in order, at most so many of a domain."""
    domains = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    kept = [rng.permutation(places)[:most] for places in domains]
    return np.sort(np.concatenate(kept))
