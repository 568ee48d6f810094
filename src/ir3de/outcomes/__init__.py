"""Everything learnt from the scores that models had on prompts."""

from typing import TYPE_CHECKING

from ir3de.storage.lazy_exports import export_lazily

if TYPE_CHECKING:
    from ir3de.outcomes.expectation import Shrinkage
    from ir3de.outcomes.rows import collect_outcomes
    from ir3de.outcomes.sums import Outcomes
else:
    __getattr__, __dir__ = export_lazily(
        __name__,
        {
            "expectation": "Shrinkage",
            "rows": "collect_outcomes",
            "sums": "Outcomes",
        },
    )

__all__ = [
    "Outcomes",
    "Shrinkage",
    "collect_outcomes",
]
