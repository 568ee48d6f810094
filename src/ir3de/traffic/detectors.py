"""Detectors of change in a stream, with a rate of false alarms that holds for the whole stream, not for one look.

Each is an e-detector of the kind of Shiryaev and Roberts. Every prompt gives a capital of 1 that is bet from then on,
and each bet e has a mean of at most 1 as long as nothing has changed. All capital together then grows by at most 1 a
prompt on average, so an alarm at A comes after A prompts or more on average, whatever the distribution of prompts is.

`RateDetector` bets that an event (a word, an expert) is more frequent than an upper bound of its share before. The
capital of a prompt goes to the events of that prompt alone, most of it to rare ones, so it does not matter how many
events there could be. `RankDetector` bets on the rank of a number among all numbers before, which is uniform as long as
prompts are exchangeable, so no distribution has to be known.

Shin, Ramdas and Rinaldo: E-detectors, New England Journal of Statistics in Data Science, 2024. Vovk, Nouretdinov and
Gammerman: Testing exchangeability on-line, ICML 2003.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

RISES = (0.005, 0.01, 0.02, 0.05)  # of an event's share over its bound, on which bets are placed
BOUND_DEVIATIONS = 2.0  # standard deviations of its count by which an event's bound is higher
RISE_DEVIATIONS = 3.0  # and by which a bet's share is higher still, so that a bet on chance loses
MAX_BOUND = 0.5  # nothing is bet on events that are more frequent
MAX_REFERENCE = 20_000  # prompts after which the shares before a change are no longer learnt
MAX_EVENTS = 200_000  # in the reference: it ends with so many
FORGET_PROMPTS = 5_000  # evidence of an event that did not come for so long is gone
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
    time: float  # of that prompt
    count: int  # prompts with the event since then
    before: float  # its share before
    deviation: float  # the standard deviation of that share

    @property
    def bound(self) -> float:
        """A share that the event hardly exceeded before."""
        return self.before + BOUND_DEVIATIONS * self.deviation


@dataclass
class RateDetector:
    """Events of one kind, each of which may become more frequent. Only the events of a prompt are looked at."""

    reference: int = 0  # prompts whose events are counted
    counts: dict[str, int] = field(default_factory=dict)  # of them, with the event
    states: dict[str, EventState] = field(default_factory=dict)

    def learn(self, events: Iterable[str]) -> None:
        """Count a prompt's events, as long as the reference grows."""
        if self.reference >= MAX_REFERENCE or len(self.counts) >= MAX_EVENTS:
            return
        self.reference += 1
        for event in events:
            self.counts[event] = self.counts.get(event, 0) + 1

    def observe(self, events: Sequence[str], now: int, time: float = 0.0) -> list[tuple[str, float]]:
        """Look at the events of prompt number `now`, and learn them; returns the evidence of each."""
        if now % FORGET_PROMPTS == 0:
            self.states = {name: one for name, one in self.states.items() if one.last > now - FORGET_PROMPTS}
        weights = [1 / (self.counts.get(event, 0) + 1) for event in events]
        total = sum(weights)
        found = [
            (event, self._raise(event, now, time, part / total)) for event, part in zip(events, weights, strict=True)
        ]
        self.learn(events)
        return found

    def _raise(self, event: str, now: int, time: float, capital: float) -> float:
        """What the bets on an event have become; then `capital` is added to them."""
        state = self.states.get(event)
        evidence = 0.0
        if state is not None and state.bound < MAX_BOUND:
            missed, bound = now - state.last - 1, state.bound
            least = bound + RISE_DEVIATIONS * state.deviation
            shares = [min(least + rise, (1 + bound) / 2) for rise in RISES]
            state.evidence = [
                min(before * ((1 - share) / (1 - bound)) ** missed * share / bound, MAX_EVIDENCE)
                for before, share in zip(state.evidence, shares, strict=True)
            ]
            evidence = sum(state.evidence)
        if state is None or evidence <= capital:  # it is worth no more than a new bet, which knows more of before
            state = self._begin(event, now, time)
        if state.bound < MAX_BOUND:
            state.evidence = [one + capital / len(RISES) for one in state.evidence]
        state.last = now
        state.count += 1
        return evidence

    def _begin(self, event: str, now: int, time: float) -> EventState:
        count, many = self.counts.get(event, 0) + 1, max(self.reference, 1)  # as if it had come once more
        found = EventState([0.0] * len(RISES), now, now, time, 0, count / many, math.sqrt(count) / many)
        self.states[event] = found
        return found

    def restart(self, event: str, share: float) -> None:
        """After an alarm: the share that was found is the new reference of this event."""
        self.counts[event] = max(self.counts.get(event, 0), math.ceil(share * self.reference))
        self.states.pop(event, None)

    def to_dict(self) -> dict[str, Any]:
        states = {
            name: [*one.evidence, one.last, one.since, one.time, one.count, one.before, one.deviation]
            for name, one in self.states.items()
        }
        return {"reference": self.reference, "counts": self.counts, "states": states}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> RateDetector:
        many = len(RISES)
        states = {name: EventState(list(row[:many]), *row[many:]) for name, row in state["states"].items()}
        return cls(state["reference"], dict(state["counts"]), states)


@dataclass
class RankDetector:
    """One number of each prompt, whose distribution may change: more low ones, or more high ones."""

    counts: list[int] = field(default_factory=lambda: [0] * BINS)
    total: int = 0
    below: Numbers = field(default_factory=lambda: np.zeros(len(_TAILS)))  # evidence of more low numbers
    above: Numbers = field(default_factory=lambda: np.zeros(len(_TAILS)))
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
        if max(self.below.max(), self.above.max()) < QUIET_EVIDENCE:
            self.since = now
        below = (1 + self.below) * np.where(rank < _TAILS, _INSIDE, _OUTSIDE)
        above = (1 + self.above) * np.where(rank >= 1 - _TAILS, _INSIDE, _OUTSIDE)
        self.below, self.above = np.minimum(below, MAX_EVIDENCE), np.minimum(above, MAX_EVIDENCE)
        return float(sum([*self.below.tolist(), *self.above.tolist()])) / (2 * len(_TAILS))

    @property
    def direction(self) -> str:
        """Which of the two changes has more evidence."""
        return "lower" if sum(self.below.tolist()) >= sum(self.above.tolist()) else "higher"

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "below": self.below.tolist(), "above": self.above.tolist()}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> RankDetector:
        below, above = np.array(state["below"], np.float64), np.array(state["above"], np.float64)
        return cls(list(state["counts"]), state["total"], below, above, state["since"])


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
