"""Is a candidate worse than the live router, or better? A test that may be looked at after every request.

Only requests on which the two routers name different experts say anything. On each of these chance decides who serves:
the candidate with probability `share`. With the score r of the answer, and a guess m of it that was made before,

    z = (r − m) · (1/share if the candidate served, else −1/(1 − share))

has the expected score of the candidate less that of the live router as its mean, whatever m is. A label that names the
right expert gives z = 1, 0 or −1 without any chance.

Two gamblers bet on z. One bets that the candidate is worse: its wealth is multiplied by 1 − λz; the other bets that it
is better: 1 + λz. Where the first is wrong at every request, its wealth is a supermartingale. It begins with 1, so by
Ville's inequality it ever reaches 1/level with a probability of at most `level`, however often one looks, and whenever
one stops. Each gambler spreads its wealth evenly over several fixed bets λ, so nothing has to be tuned.

Ville: Étude critique de la notion de collectif, 1939. Waudby-Smith and Ramdas: Estimating means of bounded random
variables by betting, Journal of the Royal Statistical Society B, 2024.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.traffic.records import LABEL_PREFIX, TrafficRecord

LEVEL = 0.05  # the probability that an equal candidate is ever stopped; and ever called better
BETS = np.arange(1, 20) / 20  # parts of the wealth that the worst z of a request can take
MAX_WEALTH = 1e100  # beyond it nothing changes any more
GUESS_REQUESTS = 2  # that a guess of 0.5 counts for, beside the scores so far

Verdict = Literal["open", "worse", "better"]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TrialReport:
    """Where a test stands."""

    verdict: Verdict  # `worse`: stop the candidate. `better`: it may be promoted
    requests: int  # on which both routers decided
    disagreements: int  # of them, with different experts
    observed: int  # of these, with a score or a label that could be used
    difference: float | None  # mean of z: the candidate's expected score less the live router's, where they disagree
    against: float  # wealth of the gambler on `worse`: evidence of 20 or more is found at level 5 %
    in_favour: float
    level: float

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


class SequentialTest:
    """Is fed one request at a time. The same requests in the same order give the same numbers on every machine.

    >>> test = SequentialTest()
    >>> for _ in range(40):
    ...     test.observe_score(0.0, candidate=True, share=0.5)
    ...     test.observe_score(1.0, candidate=False, share=0.5)
    >>> test.verdict
    'worse'
    >>> SequentialTest.from_dict(test.to_dict()).verdict
    'worse'
    """

    def __init__(self, level: float = LEVEL) -> None:
        if not 0 < level < 1:
            raise InputError(
                f"the level of a test lies between 0 and 1, found {level!r}: 0.05 allows 5 % of wrong stops"
            )
        self.level = level
        self.requests = self.disagreements = self.observed = 0
        self._against, self._in_favour = np.ones(len(BETS)), np.ones(len(BETS))
        self._scores, self._score_sum, self._sum = 0, 0.0, 0.0
        self._shown_worse = self._shown_better = False

    @property
    def verdict(self) -> Verdict:
        """What has been shown so far: `worse` for good; `better` unless `worse` is shown later."""
        return "worse" if self._shown_worse else "better" if self._shown_better else "open"

    def count(self, *, disagree: bool) -> None:
        """Count a request on which both routers decided."""
        self.requests += 1
        self.disagreements += disagree

    def observe_score(self, score: float, *, candidate: bool, share: float) -> None:
        """A score from 0 to 1 of the answer to a request on which the routers disagree, and who served.

        `share` is the probability with which the candidate serves. Of the requests of one conversation, which all
        have the same server, only the first on which the routers disagree may be given.
        """
        if not 0 < share < 1:
            raise InputError(f"the candidate's share of requests lies between 0 and 1, found {share!r}")
        if not 0 <= score <= 1:
            raise InputError(f"a score is a number from 0 to 1, found {score!r}")
        guess = (self._score_sum + 0.5 * GUESS_REQUESTS) / (self._scores + GUESS_REQUESTS)
        served, not_served = 1 / share, 1 / (1 - share)
        z = (score - guess) * (served if candidate else -not_served)
        highest = max((1 - guess) * served, guess * not_served)
        lowest = max(guess * served, (1 - guess) * not_served)
        self._scores += 1
        self._score_sum += score
        self._bet(z, highest, lowest)

    def observe_label(self, *, candidate_right: bool, live_right: bool) -> None:
        """A label of a request on which the routers disagree; it must not depend on which of them answered."""
        self._bet(float(candidate_right) - float(live_right), 1.0, 1.0)

    def _bet(self, z: float, highest: float, lowest: float) -> None:
        """Multiply the wealth. z is at most `highest` and at least −`lowest`, so it stays positive.

        Sums and products alone are the same on every processor; logarithms are not.
        """
        self.observed += 1
        self._sum += z
        self._against = np.minimum(self._against * (1 - BETS * (z / highest)), MAX_WEALTH)
        self._in_favour = np.minimum(self._in_favour * (1 + BETS * (z / lowest)), MAX_WEALTH)
        self._shown_worse |= _average(self._against) >= 1 / self.level
        self._shown_better |= _average(self._in_favour) >= 1 / self.level

    def report(self) -> TrialReport:
        """Where the test stands now."""
        mean = self._sum / self.observed if self.observed else None
        counts = self.requests, self.disagreements, self.observed
        return TrialReport(self.verdict, *counts, mean, _average(self._against), _average(self._in_favour), self.level)

    def to_dict(self) -> dict[str, Any]:
        """The whole state, for JSON."""
        state = {name.lstrip("_"): value for name, value in vars(self).items()}
        return {**state, "against": self._against.tolist(), "in_favour": self._in_favour.tolist()}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> SequentialTest:
        """A test that goes on where `to_dict` was called."""
        try:
            test = cls(state["level"])
            for name in vars(test):
                value = state[name.lstrip("_")]
                setattr(test, name, np.array(value, np.float64) if isinstance(value, list) else value)
            if test._against.shape != BETS.shape or test._in_favour.shape != BETS.shape:
                raise ValueError("it has another number of bets")
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"this is not the state of a sequential test ({error}): begin a new test") from error
        return test


def _average(wealth: Numbers) -> float:
    total = 0.0
    for one in wealth.tolist():  # in order: how numpy sums depends on the processor
        total += one
    return total / len(wealth)


def run_test(records: Iterable[TrafficRecord], candidate: str, *, level: float = LEVEL) -> SequentialTest:
    """The test of a candidate router, named by its hash, over the requests of a journal.

    Scores and labels count in the order in which they were given. Of a conversation only the first disagreement counts.
    Labels count if their author was asked for them (`label:…`): who labels answers that went wrong, labels those
    of the router that answered.
    """
    test, seen = SequentialTest(level), set()
    given: list[tuple[float, int, TrafficRecord]] = []
    for number, record in enumerate(records):
        if record.candidate != candidate:
            continue
        disagree = record.candidate_expert != record.decided
        test.count(disagree=disagree)
        if not disagree or (record.conversation and record.conversation in seen):
            continue
        seen.add(record.conversation)
        if record.feedback:
            given.append((max(one.time for one in record.feedback), number, record))
    for _, _, record in sorted(given, key=lambda one: one[:2]):
        _observe(test, record)
    return test


def _observe(test: SequentialTest, record: TrafficRecord) -> None:
    """One observation a request: a label that was asked for, else the mean of the scores."""
    labels = [one.expert for one in record.feedback if one.expert and one.author.startswith(LABEL_PREFIX)]
    scores = [one.score for one in record.feedback if one.score is not None]
    if labels:
        right = labels[-1]
        test.observe_label(candidate_right=record.candidate_expert == right, live_right=record.decided == right)
    elif scores and record.arm in ("live", "candidate") and 0 < record.propensity < 1:
        served = record.arm == "candidate"
        share = record.propensity if served else 1 - record.propensity
        test.observe_score(sum(scores) / len(scores), candidate=served, share=share)
