"""Detectors of change in a stream, with a rate of false alarms that holds for the whole stream, not for one look.

Each is an e-detector of the kind of Shiryaev and Roberts: M ← (1 + M) · e, where e is a bet of mean at most 1 as long
as nothing has changed. An alarm at M ≥ A then comes after A prompts or more on average, whatever the distribution of
the prompts is, because M minus the number of prompts is a supermartingale. A weighted mean of detectors is one.

`RateDetector` bets that an event (a word, an expert) is more frequent than an upper bound of its share in the
reference. `RankDetector` bets on the rank of a number among all numbers before, which is uniform as long as prompts are
exchangeable, so no distribution has to be known.

Shin, Ramdas and Rinaldo: E-detectors, New England Journal of Statistics in Data Science, 2024. Vovk, Nouretdinov and
Gammerman: Testing exchangeability on-line, ICML 2003.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

RISES = (0.01, 0.03, 0.1)  # of an event's share over its bound, on which bets are placed
MAX_EVIDENCE = 1e100
QUIET_EVIDENCE = 1_000  # below it nothing has begun to change
STEPS_PER_OCTAVE = 8
OCTAVES = 24
BINS = 2 * STEPS_PER_OCTAVE * OCTAVES  # of a number between 0 and 1: finer towards both ends
TAILS = np.array([0.01, 0.02, 0.05, 0.1, 0.2])[:, None]  # the ranks that a bet is about, from either end
TIMES = np.array([1.5, 2.0, 3.0, 5.0])[None]  # how much more frequent they become, by the bet
_MASS = np.minimum(TAILS * TIMES, 0.9)
_INSIDE = (_MASS / TAILS).ravel()
_OUTSIDE = ((1 - _MASS) / (1 - TAILS)).ravel()
_TAILS = np.broadcast_to(TAILS, _MASS.shape).ravel()


@dataclass
class EventState:
    """One event: its evidence for each bet, and what was counted since the evidence last began."""

    evidence: list[float]
    last: int  # the prompt of its last update
    since: int  # the prompt at which the change may have begun
    count: int = 0  # prompts with the event since then


@dataclass
class RateDetector:
    """Events of one kind, each of which may become more frequent. Only the events of a prompt are looked at."""

    kinds: int  # how many events there may be: the evidence is shared between them
    reference: int = 0  # prompts of the reference
    counts: dict[str, int] = field(default_factory=dict)  # of them, with the event
    states: dict[str, EventState] = field(default_factory=dict)

    def learn(self, events: Iterable[str]) -> None:
        """Add a prompt to the reference."""
        self.reference += 1
        for event in events:
            self.counts[event] = self.counts.get(event, 0) + 1

    def bound(self, event: str) -> float:
        """A share that the event hardly exceeded in the reference: two standard deviations over its count."""
        count = self.counts.get(event, 0)
        return min((count + 2 * math.sqrt(count + 1) + 2) / max(self.reference, 1), 0.9)

    def observe(self, events: Iterable[str], now: int) -> list[tuple[str, float]]:
        """Look at the events of prompt number `now`; returns each with its evidence, divided among all kinds."""
        return [(event, self._raise(event, now) / self.kinds) for event in events]

    def _raise(self, event: str, now: int) -> float:
        bound = self.bound(event)
        shares = [min(bound + rise, (1 + bound) / 2) for rise in RISES]
        state = self.states.get(event)
        if state is None:
            state = self.states[event] = EventState([0.0] * len(RISES), now - 1, now)
        missed = now - state.last - 1  # prompts without the event
        for place, share in enumerate(shares):
            lost = (1 - share) / (1 - bound)
            kept = lost**missed
            before = state.evidence[place] * kept + lost * (1 - kept) / (1 - lost)
            state.evidence[place] = before
        if max(state.evidence) < max(1 / bound, 2 / RISES[0]):  # as for an event that comes as often as its bound
            state.since, state.count = now, 0
        state.evidence = [
            min((1 + before) * share / bound, MAX_EVIDENCE)
            for before, share in zip(state.evidence, shares, strict=True)
        ]
        state.last = now
        state.count += 1
        return sum(state.evidence) / len(RISES)

    def restart(self, event: str, share: float) -> None:
        """After an alarm: the share that was found is the new reference of this event."""
        self.counts[event] = max(self.counts.get(event, 0), math.ceil(share * self.reference))
        self.states.pop(event, None)

    def to_dict(self) -> dict[str, Any]:
        states = {name: [*one.evidence, one.last, one.since, one.count] for name, one in self.states.items()}
        return {"kinds": self.kinds, "reference": self.reference, "counts": self.counts, "states": states}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> RateDetector:
        many = len(RISES)
        states = {name: EventState(list(row[:many]), *row[many:]) for name, row in state["states"].items()}
        return cls(state["kinds"], state["reference"], dict(state["counts"]), states)


@dataclass
class RankDetector:
    """One number of each prompt, whose distribution may change: more low ones, or more high ones."""

    counts: list[int] = field(default_factory=lambda: [0] * BINS)
    total: int = 0
    below: list[float] = field(default_factory=lambda: [0.0] * len(_TAILS))  # evidence of more low numbers
    above: list[float] = field(default_factory=lambda: [0.0] * len(_TAILS))
    since: int = 0

    def learn(self, value: float) -> None:
        """Add a prompt's number to the reference."""
        self.counts[find_bin(value)] += 1
        self.total += 1

    def observe(self, value: float, now: int) -> float:
        """Bet on the rank of prompt number `now`; returns the evidence that the numbers have changed."""
        place = find_bin(value)
        self.learn(value)
        less = sum(self.counts[:place])
        rank = (less + draw_uniform(self.total) * self.counts[place]) / self.total
        below, above = np.array(self.below), np.array(self.above)
        if max(below.max(), above.max()) < QUIET_EVIDENCE:
            self.since = now
        below = (1 + below) * np.where(rank < _TAILS, _INSIDE, _OUTSIDE)
        above = (1 + above) * np.where(rank >= 1 - _TAILS, _INSIDE, _OUTSIDE)
        self.below, self.above = (np.minimum(one, MAX_EVIDENCE).tolist() for one in (below, above))
        return (sum(self.below) + sum(self.above)) / (2 * len(_TAILS))

    @property
    def direction(self) -> str:
        """Which of the two changes has more evidence."""
        return "lower" if sum(self.below) >= sum(self.above) else "higher"

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> RankDetector:
        return cls(list(state["counts"]), state["total"], list(state["below"]), list(state["above"]), state["since"])


def find_bin(value: float) -> int:
    """The bin of a number between 0 and 1. It is computed without logarithms, so it is the same on every processor.

    >>> find_bin(0.0), find_bin(0.5), find_bin(1.0) == BINS - 1
    (0, 192, True)
    """
    half = BINS // 2
    near = value if value < 0.5 else 1 - value
    mantissa, exponent = math.frexp(near)  # near = mantissa · 2^exponent, the mantissa from 0.5 to 1
    step = int((mantissa - 0.5) * 2 * STEPS_PER_OCTAVE) + STEPS_PER_OCTAVE * (exponent + OCTAVES) if near > 0 else 0
    step = min(max(step, 0), half - 1)
    return step if value < 0.5 else BINS - 1 - step


def draw_uniform(number: int) -> float:
    """A number between 0 and 1 that looks random and depends on `number` alone (SplitMix64): it breaks ties."""
    z = (number * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return ((z ^ (z >> 31)) >> 11) / 2**53
