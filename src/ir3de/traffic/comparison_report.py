"""What a comparison of two routers on logged traffic found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ir3de.evaluation.intervals import Estimate, JSONReport
from ir3de.traffic.estimates import ScoreEstimate
from ir3de.traffic.prices import Price


@dataclass(frozen=True)
class Move:
    """Requests that go from one expert to another. Gained and lost are labelled requests, now right and now wrong."""

    live: str
    candidate: str
    requests: int
    gained: int
    lost: int
    saving: float | None  # of those requests whose cost is known on both sides


@dataclass(frozen=True)
class SurenessChange:
    """How sure each side is, over the requests for which both say so."""

    requests: int
    live: float  # means
    candidate: float
    higher: int  # requests of which the candidate is surer, by more than a tenth
    lower: int


@dataclass(frozen=True)
class ExpertShare:
    """How many of the requests an expert gets from each side."""

    expert: str
    live: int
    candidate: int
    both: int


@dataclass(frozen=True)
class AccuracyComparison:
    """How often each side chooses the expert that people named."""

    labelled: int
    live: Estimate
    candidate: Estimate
    difference: Estimate
    gained: int  # right with the candidate alone
    lost: int
    contradictory: int  # left out: people named several experts
    foreign: int  # of the labelled: the named expert belongs to neither side, so both are wrong


@dataclass(frozen=True)
class ScoreComparison:
    """The mean score of the answers that each side would get, by the scores of people."""

    scored: int
    live: ScoreEstimate
    candidate: ScoreEstimate
    difference: ScoreEstimate


@dataclass(frozen=True)
class CostComparison:
    """What the requests cost with each side, for answers as long as they were. Savings are positive."""

    requests: int  # with tokens, and prices of both experts
    live: float  # of these requests
    candidate: float
    saving: Estimate  # of a thousand requests
    month: Estimate | None  # savings a month at the log's volume; None for a log of less than a day
    cluster: Literal["conversation", "day"]
    moved_unknown: int  # moved requests whose cost is not known
    unpriced: tuple[str, ...]  # experts without a price that moved requests need
    inexact: tuple[str, ...]  # experts whose price changed within the log
    prices: Mapping[str, Price]


@dataclass(frozen=True)
class DecisivePrompt:
    """A prompt that goes elsewhere, and what its requests add to the differences, candidate minus live."""

    prompt: str  # empty if it was not kept as text
    live: str
    candidate: str
    requests: int
    accuracy: float
    score: float
    cost: float | None


@dataclass(frozen=True)
class Comparison(JSONReport):
    """What `compare` found. Differences are candidate minus live; `low` and `high` bound 95 % intervals."""

    names: tuple[str, str]
    experts: tuple[str, ...]
    requests: int  # compared
    without_prompt: int
    unreadable: int  # kept as counts of another tokenizer's tokens
    undecided: int  # imported, and compared with what was decided: nothing was
    decoded: int  # made text again from token ids
    unordered: int  # routed without the order of their tokens
    first_day: str
    last_day: str
    days: float
    conversations: int
    agreement: Estimate
    as_decided: tuple[float, float]  # how often each side agrees with what was decided
    as_served: tuple[float, float]  # and with the expert that answered
    confidence: SurenessChange | None  # None where a side has none
    expectation: SurenessChange | None  # the same of outcome routers: the score that they expect of their choice
    abstained: tuple[int, int, int]  # by the live router, by the candidate, by both
    shares: tuple[ExpertShare, ...]
    moves: tuple[Move, ...]  # the most frequent first
    accuracy: AccuracyComparison | None
    score: ScoreComparison | None
    cost: CostComparison | None
    decisive: tuple[DecisivePrompt, ...]  # the largest weight in the differences first
    damaged: int
    verdict: tuple[str, ...]
    unknown: tuple[str, ...]  # what is not known, in sentences

    @property
    def moved(self) -> int:
        return sum(move.requests for move in self.moves)
