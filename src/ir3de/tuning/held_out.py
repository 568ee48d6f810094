"""Kept prompts, each decided by a fit that did not see it: what a router does with prompts like these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ir3de.routing.compiled import read_tallies
from ir3de.routing.decision import Decision, DecisionRules
from ir3de.scorers.familiarity import FAMILIARITY_UNIT
from ir3de.selectors import find_unit
from ir3de.tuning.calibrating import Floats, PromptFamiliarities, Views
from ir3de.tuning.folds import Fold, Indices


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The evidence for held-out prompts. It does not depend on calibration, costs or thresholds."""

    experts: Indices  # (n,)  the expert that each prompt belongs to
    places: Indices  # (n,)  in that expert's sample
    tokens: Indices  # (n,)
    counted: Indices  # (n,)
    evidence: Floats  # (n, C)
    familiarity: Floats  # (n,)  of the tokens, as a mean

    @classmethod
    def gather(
        cls,
        folds: Sequence[Fold],
        views: Views,
        measured: Sequence[tuple[PromptFamiliarities, PromptFamiliarities]],
    ) -> HeldOut:
        """The prompts as they are, without the shortened ones."""
        scored, whole = views.scored, views.whole
        return cls(
            scored.experts[whole],
            np.concatenate([fold.deal.place[fold.held] for fold in folds]),
            np.concatenate([fold.whole.lengths for fold in folds]),
            scored.counted[whole],
            scored.evidence[whole],
            np.concatenate([part.mean for part, _ in measured]),
        )

    def decide(self, rules: DecisionRules) -> list[Decision]:
        """The decision on each prompt. Ballots are integers, so the evidence is rounded to the tally that it was."""
        tallies = np.rint(self.evidence * (find_unit(rules.selector) * self.counted[:, None]))
        if rules.familiarity is not None:
            tallies = np.column_stack((tallies, self.familiarity * (FAMILIARITY_UNIT * self.tokens)))
        return read_tallies(rules, tallies, self.tokens.tolist(), self.counted.tolist())
