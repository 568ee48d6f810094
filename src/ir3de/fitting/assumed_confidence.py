"""Confidence where no prompts could be held out: what so few prompts can know, and no more."""

from __future__ import annotations

import math
from collections.abc import Collection

from ir3de.policies import AssumedCalibration
from ir3de.selectors import Average, Selector
from ir3de.statistics.domain import Statistics

PRIOR_PROMPTS = 20  # that the even odds of all experts weigh as much as: a description counts as many
ENOUGH_PROMPTS = 1_000  # of every expert: from then on, the scores are taken at their word
USUAL_TOKENS = 64  # of a prompt whose scores are taken at their word
GROWTH = 0.5  # the chance in a mean over n tokens shrinks with √n, so short prompts say less


def assume_calibration(domains: Collection[Statistics], selector: Selector) -> AssumedCalibration | None:
    """The calibration of experts of which the least known one has n prompts; None where all have many.

    As after n prompts and a Dirichlet prior of 20 for even odds: p = (n · p + 20 / C) / (n + 20). It depends on nothing
    but the statistics. Fractions of votes stay as they are.
    """
    fewest = min(domain.prompts for domain in domains)
    if not isinstance(selector, Average) or fewest >= ENOUGH_PROMPTS:
        return None
    scale, trust = selector.sharpness / math.sqrt(USUAL_TOKENS), fewest / (fewest + PRIOR_PROMPTS)
    return AssumedCalibration(scale, GROWTH, trust)
