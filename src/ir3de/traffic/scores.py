"""Scores in a journal: how good the answers of each expert were, as far as people reported it.

A score is about the expert that answered. So the mean over an expert's own answers shows how it did on the prompts that
it got, and not which expert would be best on a prompt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ir3de.traffic.journal import Journal
from ir3de.traffic.selection import Selection


@dataclass(frozen=True)
class ScoreSummary:
    """The scores of the answers of one expert."""

    scores: int
    mean: float
    by_chance: int  # of requests that chance sent there: their propensity is below 1

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def summarise_scores(journal: Journal) -> dict[str, ScoreSummary]:
    """The scores in a journal by the expert that answered; of several scores for a request, their mean counts."""
    found: dict[str, list[tuple[float, bool]]] = {}
    for record in journal.read(Selection(has_feedback=True)):
        given = [one.score for one in record.feedback if one.score is not None]
        if given and record.served:
            found.setdefault(record.served, []).append((math.fsum(given) / len(given), record.propensity < 1))
    return {
        expert: ScoreSummary(len(own), round(math.fsum(one for one, _ in own) / len(own), 6), sum(by for _, by in own))
        for expert, own in sorted(found.items())
    }
