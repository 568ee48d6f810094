"""Groups of similar prompts: by source where those are known, else by k-means on their vectors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ir3de.fitting.folds import Deal, Floats, Indices

CLUSTERS = 5  # of an expert's prompts
ITERATIONS = 8  # of k-means
HELD_SHARE = 0.2  # the group whose share of an expert's prompts is nearest to this is held out


def hold_out_groups(deal: Deal) -> tuple[npt.NDArray[np.bool_], bool]:
    """One group of every expert's prompts: (prompts,). Also whether groups are sources, because some expert has two."""
    sources = deal.join("sample.sources")
    named = [len(np.unique(sources[deal.experts == c])) > 1 for c in range(len(deal.domains))]
    held = np.zeros(len(deal.experts), bool)
    whole = deal.whole
    means = whole.sums / whole.lengths[:, None]
    for c in range(len(deal.domains)):
        own = np.flatnonzero(deal.experts == c)
        if any(named):
            groups = np.unique(sources[own], return_inverse=True)[1] if named[c] else np.full(len(own), -1)
        else:
            groups = cluster(means[own].astype(np.float64), CLUSTERS)
        held[own] = groups == _choose_group(groups)
    return held, any(named)


def _choose_group(groups: Indices) -> int:
    """The group of about the wanted size; the first of equals. An expert with one group alone keeps all its prompts."""
    sizes = np.bincount(groups[groups >= 0])
    if np.count_nonzero(sizes) < 2:
        return -2
    distance = np.where(sizes > 0, np.abs(sizes / len(groups) - HELD_SHARE), np.inf)
    return int(distance.argmin())


def cluster(rows: Floats, count: int) -> Indices:
    """The cluster of each row, by k-means. It starts from rows that lie far apart, so it is the same every time."""
    if len(rows) < 2 * count:
        return np.arange(len(rows)) % count
    centres = rows[:1]
    for _ in range(count - 1):
        distance = _distances(rows, centres).min(axis=1)
        far = int(np.argsort(distance, kind="stable")[int(0.9 * len(rows))])  # not the farthest, which is often odd
        centres = np.concatenate([centres, rows[far : far + 1]])
    for _ in range(ITERATIONS):
        groups = _distances(rows, centres).argmin(axis=1)
        for group in range(count):
            if (groups == group).any():
                centres[group] = rows[groups == group].mean(axis=0)
    return np.asarray(_distances(rows, centres).argmin(axis=1), np.int64)


def _distances(rows: Floats, centres: Floats) -> Floats:
    """Squared distances: (rows, centres)."""
    return np.asarray((rows**2).sum(axis=1)[:, None] - 2 * rows @ centres.T + (centres**2).sum(axis=1))
