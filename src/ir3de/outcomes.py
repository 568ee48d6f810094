"""Outcomes: the scores that models had on prompts, as additive statistics. docs/outcomes.md shows their use."""

from __future__ import annotations

from ir3de.files.package import export_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ir3de.fitting.outcomes import collect_outcomes
    from ir3de.scorers.expectation import Shrinkage
    from ir3de.statistics.outcomes import Outcomes
else:
    __getattr__, __dir__ = export_lazily(
        __name__,
        {"fitting.outcomes": "collect_outcomes", "scorers.expectation": "Shrinkage", "statistics.outcomes": "Outcomes"},
        within="ir3de",
    )

__all__ = ["Outcomes", "Shrinkage", "collect_outcomes"]
