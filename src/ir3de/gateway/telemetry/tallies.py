"""Counts of a few seconds of traffic that can be added up: over time, and over workers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ir3de.gateway.exchange_record import Record

SLOT = 10  # seconds
CONFIDENCE_BINS = 10
_LEAST = 1e-4  # seconds, of the first bin of latencies
_PER_DOUBLING = 4  # bins in which a latency doubles: a quantile is right to 9 %
_LAST_BIN = 96  # from there on all are alike: half an hour
FAILURES = frozenset({"upstream_error", "unavailable", "broken_stream"})


def latency_bin(seconds: float) -> int:
    """The log-spaced bin of a latency."""
    return 0 if seconds <= _LEAST else min(_LAST_BIN, int(math.log2(seconds / _LEAST) * _PER_DOUBLING) + 1)


def quantile_ms(bins: Mapping[int, int], share: float) -> float | None:
    """The latency below which `share` of the counted ones lie, in milliseconds; None without any.

    >>> quantile_ms({latency_bin(0.001): 99, latency_bin(1.0): 1}, 0.5)
    1.04
    """
    rank = share * sum(bins.values())
    for index in sorted(bins):
        rank -= bins[index]
        if rank <= 0:
            middle = _LEAST * 2 ** ((index - 0.5) / _PER_DOUBLING)
            return float(f"{1e3 * middle:.3g}")
    return None


@dataclass(slots=True)
class ExpertTally:
    """What an expert did."""

    requests: int = 0
    errors: int = 0
    fallbacks_from: int = 0
    fallbacks_to: int = 0
    tokens: int = 0
    cost: float = 0.0
    total: Counter[int] = field(default_factory=Counter)  # latencies of whole answers, by bin
    first: Counter[int] = field(default_factory=Counter)  # and of their first bytes

    def add(self, other: ExpertTally) -> None:
        self.requests += other.requests
        self.errors += other.errors
        self.fallbacks_from += other.fallbacks_from
        self.fallbacks_to += other.fallbacks_to
        self.tokens += other.tokens
        self.cost += other.cost
        self.total.update(other.total)
        self.first.update(other.first)

    def to_list(self) -> list[Any]:
        """Every field in order, ready for JSON."""
        counts = [self.requests, self.errors, self.fallbacks_from, self.fallbacks_to, self.tokens, self.cost]
        return [*counts, list(self.total.items()), list(self.first.items())]

    @classmethod
    def from_list(cls, values: list[Any]) -> Self:
        return cls(*values[:6], *(Counter(dict(bins)) for bins in values[6:]))


@dataclass(slots=True)
class Slot:
    """The traffic of `SLOT` seconds."""

    start: int
    seconds: list[int] = field(default_factory=lambda: [0] * SLOT)  # requests that ended in each
    errors: int = 0
    cancelled: int = 0
    abstained: int = 0
    confidence: list[int] = field(default_factory=lambda: [0] * CONFIDENCE_BINS)
    experts: dict[str, ExpertTally] = field(default_factory=dict)

    def expert(self, label: str) -> ExpertTally:
        found = self.experts.get(label)
        if found is None:
            found = self.experts[label] = ExpertTally()
        return found

    def count(self, record: Record, label: str, now: int) -> None:
        """Add a request that ended at `now`; `label` is its expert's."""
        self.seconds[now - self.start] += 1
        tally = self.expert(label)
        tally.requests += 1
        if record.outcome == "ok":
            tally.total[latency_bin(record.total_seconds)] += 1
        elif record.outcome == "cancelled":
            self.cancelled += 1
        elif record.outcome in FAILURES:
            self.errors += 1
            tally.errors += 1
        if record.first_seconds is not None:
            tally.first[latency_bin(record.first_seconds)] += 1
        if record.decision is not None and record.decision.abstained:
            self.abstained += 1
        if record.confidence is not None:
            self.confidence[max(0, min(CONFIDENCE_BINS - 1, int(record.confidence * CONFIDENCE_BINS)))] += 1
        tally.tokens += (record.prompt_tokens or 0) + (record.completion_tokens or 0)
        tally.cost += record.cost or 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "start": self.start,
            "seconds": self.seconds,
            "counts": [self.errors, self.cancelled, self.abstained],
            "confidence": self.confidence,
            "experts": {name: tally.to_list() for name, tally in self.experts.items()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        experts = {name: ExpertTally.from_list(tally) for name, tally in values["experts"].items()}
        errors, cancelled, abstained = values["counts"]
        return cls(values["start"], values["seconds"], errors, cancelled, abstained, values["confidence"], experts)


def summed(slots: Iterable[Slot]) -> Slot:
    """All in one, but for the seconds, which belong to their own slots."""
    whole = Slot(0)
    for slot in slots:
        whole.errors += slot.errors
        whole.cancelled += slot.cancelled
        whole.abstained += slot.abstained
        whole.confidence = [mine + more for mine, more in zip(whole.confidence, slot.confidence, strict=True)]
        for name, tally in slot.experts.items():
            whole.expert(name).add(tally)
    return whole
