"""Expected quality as a table of tokens: the scores it is read from, and what each token says on its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ir3de.outcomes.expectation import SHARPNESS
from ir3de.outcomes.quality import Quality
from ir3de.scorers.table import Table, row_blocks


def outcome_table(quality: Quality) -> Table:
    """Scores (V, tasks + models); the vote is the best model for the token alone, the entropy that of its tasks."""
    expectation, scores = quality.expectation, quality.scores
    tasks = len(expectation.tasks)
    vote = np.empty(len(scores), np.uint16)
    for block in row_blocks(scores.shape):
        vote[block] = expectation.alone(scores[block]).argmax(axis=1)
    by_task = Table.compile(np.float32(SHARPNESS) * scores[:, :tasks])
    return replace(by_task, scores=scores, vote=vote)
