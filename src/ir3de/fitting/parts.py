"""`RouterParts`: everything a router is made of, as one value that a change replaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ir3de.embedding import Embedding, Tokenizer
from ir3de.outcomes.expectation import Shrinkage
from ir3de.outcomes.files import OutcomeParts
from ir3de.routing.decision import Compiled
from ir3de.scorers import Scorer
from ir3de.statistics.contributions import Holding
from ir3de.statistics.domain import Statistics
from ir3de.storage.ledger import Change, History


@dataclass(frozen=True)
class RouterParts:
    """All that a router is made of: the read side at hand, what only changes need behind a call."""

    compiled: Compiled
    tokenizer: Tokenizer
    scorer: Scorer | Shrinkage  # the latter where the router was fitted from outcomes
    fingerprint: str  # of the embedding
    embedding: Callable[[], Embedding]
    statistics: Callable[[], Mapping[str, Statistics]]
    trials: tuple[Mapping[str, Any], ...] = ()  # what tuning tried
    is_tuned: bool = False  # whether every change chooses scorer and selector again
    windows: Mapping[str, int] = field(default_factory=dict)  # of experts that tuning counted again in other windows
    outcomes: OutcomeParts | None = None  # of a router fitted from outcomes, which has no statistics of domains
    holdings: Callable[[], Mapping[str, Holding]] = dict  # of the experts that were given contributions
    history: Callable[[], History] = tuple  # what was done to the router as far as it was saved
    changes: tuple[Change, ...] = ()  # and what was done since
    saved: str | None = None  # the hash of its header as it was saved
