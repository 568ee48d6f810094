"""Groups of similar prompts: by source where those are known, else by k-means on their vectors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ir3de.fitting.folds import Deal, Floats, Indices

CLUSTERS = 5  # of an expert's prompts
ITERATIONS = 8  # of k-means
HELD_SHARE = 0.2  # the group whose share of an expert's prompts is nearest to this is held out


def hold_out_groups(deal: Deal, experts: int | None = None) -> tuple[npt.NDArray[np.bool_], bool]:
    """One group of every expert's prompts: (prompts,). Also whether groups are sources, because some expert has two.

    With `experts`, none is held out of the domains behind these.
    """
    sources, count = deal.join("sample.sources"), len(deal.domains) if experts is None else experts
    prompts = [np.flatnonzero(deal.experts == c) for c in range(count)]
    named = [len(np.unique(sources[own])) > 1 for own in prompts]
    held = np.zeros(len(deal.experts), bool)
    whole = deal.whole
    for own, has_sources in zip(prompts, named, strict=True):
        if any(named):
            groups = np.unique(sources[own], return_inverse=True)[1] if has_sources else np.full(len(own), -1)
        else:
            groups = cluster((whole.sums[own] / whole.lengths[own, None]).astype(np.float64), CLUSTERS)
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
    squares = np.einsum("nk,nk->n", rows, rows)
    first, distance = 0, np.full(len(rows), np.inf)
    centres = np.empty((count, rows.shape[1]))
    for place in range(count):
        centres[place] = rows[first]
        distance = np.minimum(distance, squares - 2.0 * (rows @ centres[place]) + squares[first])
        # not the farthest, which is often odd
        first = int(np.argsort(distance, kind="stable")[int(0.9 * len(rows))])
    groups = _find_nearest(rows, centres)
    for _ in range(ITERATIONS):
        before, (means, sizes) = groups, mean_groups(rows, groups, count)
        centres[sizes > 0] = means[sizes > 0]
        groups = _find_nearest(rows, centres)
        if np.array_equal(groups, before):  # nothing changes any more
            break
    return groups


def mean_groups(rows: npt.NDArray[np.floating], groups: Indices, count: int) -> tuple[Floats, Indices]:
    """The mean of the rows of each group, and how many it has."""
    belongs = (groups == np.arange(count)[:, None]).astype(np.float64)
    sizes = belongs.sum(axis=1)
    return belongs @ rows / np.maximum(sizes, 1.0)[:, None], sizes.astype(np.int64)


def _find_nearest(rows: Floats, centres: Floats) -> Indices:
    """|x − c|² less |x|², which is the same for all centres."""
    return np.asarray(((centres**2).sum(axis=1) - 2.0 * (rows @ centres.T)).argmin(axis=1), np.int64)
