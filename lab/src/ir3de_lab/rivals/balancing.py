"""The order in which training texts are taken: all domains alike, however many texts each has."""

from __future__ import annotations

import numpy as np

from ir3de_lab.rivals.interface import Indices


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


def held_out(labels: Indices, fitted: float, validated: float, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Places in `labels` to fit on and others to validate on: of every domain the same shares.

    A domain too small to spare a text is validated on what it is fitted on.
    """
    to_fit, to_validate = [], []
    for label in np.unique(labels):
        places = rng.permutation(np.flatnonzero(labels == label))
        first = max(1, round(fitted * len(places)))
        spared = places[first : first + round(validated * len(places))]
        to_fit.append(places[:first])
        to_validate.append(spared if len(spared) else places[:first])
    return np.concatenate(to_fit), np.concatenate(to_validate)


def mean_recall(labels: Indices, chosen: Indices) -> float:
    """The mean over the domains of the percentage that was chosen rightly."""
    return 100.0 * float(np.mean([np.mean(chosen[labels == label] == label) for label in np.unique(labels)]))
