"""Sum up what the experts' prompts are about, by centroids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ir3de.fitting.calibration import Floats
from ir3de.fitting.clusters import cluster
from ir3de.fitting.folds import Deal, Fold, Indices, mean_rows
from ir3de.scorers.subjects import Numbers, Subjects, find_directions
from ir3de.statistics.domain import Statistics

EXPERT_CENTROIDS = 20
MAX_CENTROIDS = 2_000  # of all experts: a prompt is compared with each
BACKGROUND_CENTROIDS = 64
MAX_PROMPTS = 1_000  # of an expert
MIN_SPREAD = 1e-3  # of a cosine


def gather_subjects(deal: Deal, background: Numbers, held: Fold | None = None) -> Subjects | None:
    """The subjects of all experts of a deal, without a fold's held-out prompts. None where some expert has none."""
    if deal.subjects is None:
        return None
    centre, left = find_centre(deal), np.ones(len(deal.experts), bool) if held is None else ~held.held
    directions = find_directions(mean_rows(deal.subjects, deal.whole), centre)
    each = max(1, min(EXPERT_CENTROIDS, MAX_CENTROIDS // len(deal.domains)))
    experts = range(len(deal.domains))
    return join_subjects(centre, [directions[left & (deal.experts == c)] for c in experts], background, each)


def join_subjects(centre: Numbers, experts: Sequence[Numbers], background: Numbers, each: int) -> Subjects | None:
    """From the directions of each expert's prompts, and the background's centroids."""
    found = [find_centroids(own[:MAX_PROMPTS], each) for own in experts]
    if not all(map(len, found)):
        return None
    return Subjects(centre, np.concatenate(found), np.array([len(own) for own in found]), background)


def find_centre(deal: Deal) -> Numbers:
    known = deal.embedding.subjects
    assert known is not None
    return known.centre


def find_background(deal: Deal, background: Statistics) -> Numbers:
    """The centroids of the background's prompts."""
    known, sample = deal.embedding.subjects, background.sample
    if known is None or sample is None or not len(sample):
        return np.zeros((1, 1), np.float32)
    sums = np.add.reduceat(known.rows[sample.ids], sample.starts, axis=0, dtype=np.float64)
    return find_centroids(find_directions(sums / sample.kept[:, None], known.centre), BACKGROUND_CENTROIDS)


def find_centroids(directions: Numbers, most: int) -> Numbers:
    """The centroids of directions, of unit length; the directions themselves where they are few."""
    if len(directions) < 2 * most:
        return directions
    groups = cluster(directions.astype(np.float64), most)
    found = np.stack([directions[groups == group].mean(axis=0) for group in np.unique(groups)])
    return find_directions(found, np.zeros(found.shape[1], np.float32))


def standardise(subjects: Subjects, cosines: Floats) -> Subjects:
    """The same subjects, with the means and spreads of these prompts' cosines."""
    means, spreads = cosines.mean(axis=0), np.maximum(cosines.std(axis=0), MIN_SPREAD)
    return replace(subjects, means=(float(means[0]), float(means[1])), spreads=(float(spreads[0]), float(spreads[1])))


def compare_folds(
    folds: Sequence[Fold], best: Sequence[tuple[Indices, Indices]], background: Numbers
) -> tuple[Floats, Floats] | None:
    """Nearness and contrast of each fold's held-out prompts, whole and shortened, from the other prompts alone.

    `best` are the best experts of each fold's prompts, in both views.
    """
    whole, short = [], []
    for fold, (best_whole, best_short) in zip(folds, best, strict=True):
        if (subjects := gather_subjects(fold.deal, background, fold)) is None:
            return None
        rows = fold.deal.subjects
        assert rows is not None
        whole.append(subjects.compare(mean_rows(rows, fold.whole), best_whole))
        short.append(subjects.compare(mean_rows(rows, fold.short), best_short))
    return np.concatenate(whole), np.concatenate(short)
