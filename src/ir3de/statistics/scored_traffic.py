"""Scores of answered requests, as a contribution: how often an expert was scored on each task, and how high.

A score is about the expert that answered. So a source's scores of one expert are three integers for each task and fold:
the number of scores, their sum and the sum of their squares. No prompt is kept, and no sum of embeddings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ir3de import files
from ir3de.errors import ArtifactError
from ir3de.statistics.contributions import Contribution, check_id, check_owner
from ir3de.statistics.outcomes import FOLDS, SCORE_LIMIT, SCORE_UNIT, Key, ScoreCount

KIND, VERSION = "ir3de.scores", 1
MAX_ROWS = 1 << 40

Counts = Mapping[tuple[str, int], ScoreCount]  # by task and fold


class ScoredRequest(NamedTuple):
    """What is learnt of one scored answer."""

    task: str
    fold: int
    score: float


def count_scores(requests: Iterable[ScoredRequest]) -> dict[tuple[str, int], ScoreCount]:
    """The sums of scores by task and fold.

    >>> count_scores([ScoredRequest("maths", 0, 1.0), ScoredRequest("maths", 0, 0.0)])
    {('maths', 0): ScoreCount(rows=2, total=16384, squares=268435456)}
    """
    found: dict[tuple[str, int], ScoreCount] = {}
    for task, fold, score in requests:
        value = round(score / SCORE_UNIT)
        found[task, fold] = found.get((task, fold), ScoreCount()) + ScoreCount(1, value, value * value)
    return dict(sorted(found.items()))


def make_score_contribution(
    counts: Counts, *, tokens: int, owner: str, name: str, recipe: Mapping[str, Any]
) -> Contribution:
    """The scores of one source for one expert as a contribution of that name; `tokens` are counted in its prompts."""
    rows = [[task, fold, *count] for (task, fold), count in sorted(counts.items())]
    digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    header = {"id": check_id(name), "owner": check_owner(owner), "recipe": dict(recipe), "digest": digest}
    content = files.to_json({"kind": KIND, "version": VERSION, **header, "tokens": tokens, "scores": rows})
    prompts = sum(count.rows for count in counts.values())
    sha256 = hashlib.sha256(content).hexdigest()
    return Contribution(name, owner, digest, prompts, tokens, 0, None, (), dict(recipe), sha256, lambda: content)


def read_scores(contribution: Contribution) -> dict[tuple[str, int], ScoreCount]:
    """The sums that `make_score_contribution` wrote, checked against their digest."""
    path = contribution.origin
    try:
        found = json.loads(contribution.content())
        files.check_kind(found, KIND, VERSION, path)
        rows = found["scores"]
        if hashlib.sha256(json.dumps(rows).encode()).hexdigest() != contribution.digest:
            raise ValueError("its digest is of other scores")
        return {(str(task), _check_fold(fold)): _check_count(*count) for task, fold, *count in rows}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError(f"{path} is damaged: {error}. Copy it again from where it came from") from error


def sum_contributions(given: Mapping[str, Iterable[Contribution]], tasks: Iterable[str]) -> dict[Key, ScoreCount]:
    """All scores by task, expert and fold. Those of tasks that the router no longer has are left out."""
    known, total = frozenset(tasks), dict[Key, ScoreCount]()
    for expert, contributions in given.items():
        for one in contributions:
            for (task, fold), count in read_scores(one).items():
                if task in known:
                    key = task, expert, fold
                    total[key] = total.get(key, ScoreCount()) + count
    return dict(sorted(total.items()))


def _check_fold(fold: object) -> int:
    if not isinstance(fold, int) or not 0 <= fold < FOLDS:
        raise ValueError(f"a fold is 0 to {FOLDS - 1}, found {fold!r:.40}")
    return fold


def _check_count(rows: object, total: object, squares: object) -> ScoreCount:
    if not (isinstance(rows, int) and isinstance(total, int) and isinstance(squares, int)):
        raise ValueError("scores are counted in whole numbers")
    largest = round(SCORE_LIMIT / SCORE_UNIT)
    if not (0 < rows < MAX_ROWS and abs(total) <= rows * largest and 0 <= squares <= rows * largest**2):
        raise ValueError(f"{rows} scores cannot add up to {total}")
    return ScoreCount(rows, total, squares)
