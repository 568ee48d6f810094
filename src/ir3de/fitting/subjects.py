"""Sum up what the experts' prompts are about, by centroids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ir3de.embedding.subjects import SubjectRows
from ir3de.fitting.calibration import Floats
from ir3de.fitting.clusters import cluster, mean_groups
from ir3de.fitting.folds import Booleans, Deal, Fold, Indices, mean_rows
from ir3de.scorers.subjects import Numbers, Subjects, find_directions
from ir3de.statistics.domain import Statistics
from ir3de.statistics.sample import Sample

EXPERT_CENTROIDS = 20
MAX_CENTROIDS = 2_000  # of all experts: a prompt is compared with each
BACKGROUND_CENTROIDS = 64
MAX_PROMPTS = 1_000  # of an expert
MIN_SPREAD = 1e-3  # of a cosine
CACHE = "subjects"  # key of `Statistics.derived`


def gather_subjects(deal: Deal, background: Numbers, held: Fold | None = None) -> Subjects | None:
    """The subjects of all experts of a deal, without a fold's held-out prompts. None where some expert has none."""
    each = max(1, min(EXPERT_CENTROIDS, MAX_CENTROIDS // len(deal.domains)))
    left = np.ones(len(deal.experts), bool) if held is None else ~held.held
    return join_subjects(deal, [_find_own(deal, c, left, each) for c in range(len(deal.domains))], background)


def join_subjects(deal: Deal, experts: Sequence[Numbers], background: Numbers) -> Subjects | None:
    """From the centroids of each expert and the background's; None where some have none, or no rows are known."""
    known = deal.embedding.subjects
    if known is None or not len(background) or not all(map(len, experts)):
        return None
    return Subjects(known.centre, np.concatenate(experts), np.array([len(own) for own in experts]), background)


def _find_own(deal: Deal, expert: int, left: Booleans, each: int) -> Numbers:
    """An expert's centroids, from those of its prompts that are left. They depend on nothing else, so they are kept."""
    derived, own = deal.domains[expert].derived, deal.prompts[expert].sample
    known = derived.get(CACHE)
    if known is None or known[0] != (deal.longest, len(own)):
        known = derived[CACHE] = ((deal.longest, len(own)), find_prompt_directions(deal, expert), {})
    directions: Numbers = known[1]
    found: dict[tuple[int, bytes], Numbers] = known[2]
    mine = left[deal.experts == expert]
    key = each, mine.tobytes()
    if key not in found:
        found[key] = find_centroids(directions[mine][:MAX_PROMPTS], each)
    return found[key]


def find_prompt_directions(deal: Deal, expert: int) -> Numbers:
    """What each of an expert's prompts is about: (n, k)."""
    known = deal.embedding.subjects
    own = deal.prompts[expert].sample.truncate(deal.longest)
    if known is None or not len(own):
        return np.zeros((0, 1), np.float32)
    return _find_sample_directions(own, known)


def find_background(deal: Deal, background: Statistics) -> Numbers:
    """The centroids of the background's prompts, found once."""
    known, sample = deal.embedding.subjects, background.sample
    if known is None or sample is None or not len(sample):
        return np.zeros((1, 1), np.float32)
    if CACHE not in background.derived:
        background.derived[CACHE] = find_centroids(_find_sample_directions(sample, known), BACKGROUND_CENTROIDS)
    return np.asarray(background.derived[CACHE])


def _find_sample_directions(sample: Sample, known: SubjectRows) -> Numbers:
    sums = np.add.reduceat(known.rows[sample.ids], sample.starts, axis=0, dtype=np.float64)
    return find_directions(sums / sample.kept[:, None], known.centre)


def find_centroids(directions: Numbers, most: int) -> Numbers:
    """The centroids of directions, of unit length; the directions themselves where they are few."""
    if len(directions) < 2 * most:
        return directions
    rows = directions.astype(np.float64)
    means, sizes = mean_groups(rows, cluster(rows, most), most)
    return find_directions(means[sizes > 0], np.zeros(means.shape[1], np.float32))


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
