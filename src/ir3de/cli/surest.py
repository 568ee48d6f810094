"""The decisions that --errors lists: of all that it is told about, the ones of which the router was most sure."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ir3de.routing.decision import Decision

Row = dict[str, Any]


class SurestDecisions:
    """Keeps rows about at most `wanted` decisions: the surest ones, and abstentions only where there is room left."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._kept: list[tuple[bool, float, int, Row]] = []  # a heap: the first to go is at its top
        self._places = count()

    def add(self, decision: Decision, describe: Callable[[], Row]) -> None:
        """Keep the row if the decision is among the surest. Of equally sure ones the first stay."""
        score = decision.confidence if decision.expected_score is None else decision.expected_score
        rank = (not decision.abstained, score or 0.0, -next(self._places))
        if len(self._kept) < self._wanted:
            heapq.heappush(self._kept, (*rank, describe()))
        elif self._kept and rank > self._kept[0][:3]:
            heapq.heapreplace(self._kept, (*rank, describe()))

    @property
    def rows(self) -> list[Row]:
        """The rows, the surest decision first."""
        return [row for *_, row in sorted(self._kept, key=lambda kept: kept[:3], reverse=True)]
