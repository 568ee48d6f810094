"""What a candidate is worth on feedback that it did not learn from, beside the live router."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

E = TypeVar("E")  # the kind of estimate: of labels, an accuracy; of scores, an expected score


@dataclass(frozen=True)
class FeedbackProof(Generic[E]):
    """Live router and candidate on held-out feedback that neither saw. The candidate was fitted again with it.

    Scores give estimates alone, because only the expert that answered has one (see `ir3de.traffic.compare`).
    """

    prompts: int
    live: E | None = None  # None where there are too few for a proof
    candidate: E | None = None
    difference: E | None = None  # candidate minus live

    @property
    def is_possible(self) -> bool:
        return self.difference is not None

    def to_dict(self) -> dict[str, Any]:
        estimates = {name: getattr(self, name) for name in ("live", "candidate", "difference")}
        return {"prompts": self.prompts, **{name: one and vars(one) for name, one in estimates.items()}}
