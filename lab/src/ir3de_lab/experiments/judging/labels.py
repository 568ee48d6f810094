"""Classification: the label that an answer names first, compared without case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ir3de_lab.experiments.judging.verdict import Verdict, field


def judge(row: Mapping[str, Any], answer: str) -> Verdict:
    """One point if the first label that the answer names is the row's."""
    return Verdict(float(first_label(answer, field(row, "labels", list)) == field(row, "answer", str)), 1.0)


def first_label(answer: str, labels: list[str]) -> str | None:
    """The label that stands first in a text, the longest where several begin there.

    >>> first_label("It is a Location, not a person.", ["person", "location"])
    'location'
    """
    places = {
        label: found.start() for label in labels if (found := re.search(rf"\b{re.escape(label)}\b", answer, re.I))
    }
    return min(places, key=lambda label: (places[label], -len(label))) if places else None
