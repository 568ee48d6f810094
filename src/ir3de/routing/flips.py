"""What a decision hangs on: the tokens without which another expert would be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.policies import Costs
from ir3de.routing.decision import Compiled, Decision, abstain, decide, read_tallies
from ir3de.selectors import Ids, Tally
from ir3de.statistics.pairs import pair_buckets

MOST_TOGETHER = 32  # tokens that are taken out together before giving up: a longer list explains nothing

Places = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Flips:
    """Where the decision hangs on single tokens, and a few tokens that turn it together.

    Places are positions among the prompt's tokens. `together` is empty where no small set was found; leaving any one
    of its tokens in the prompt does not turn the decision.
    """

    expert: str
    alone: Mapping[int, str]  # place to the expert that would be asked without its token
    together: tuple[int, ...] = ()
    other: str | None = None  # the expert that would be asked without those

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        together = {"places": list(self.together), "expert": self.other} if self.together else None
        return {
            "alone": [{"place": place, "expert": expert} for place, expert in self.alone.items()],
            "together": together,
        }


def flips(compiled: Compiled, ids: Ids, unknown: int | None, weights: Costs | None = None) -> Flips:
    """Which tokens a decision hangs on; the answers are those of `decide` on the prompt without them."""
    expert = decide(compiled, ids, unknown, weights).expert
    without = without_each(compiled, ids, unknown, weights)
    alone = {place: decision.expert for place, decision in enumerate(without) if decision.expert != expert}
    if alone:
        surest = max(alone, key=lambda place: without[place].confidence)
        return Flips(expert, alone, (surest,), alone[surest])
    together, other = _together(compiled, ids, unknown, weights, expert)
    return Flips(expert, alone, together, other)


def without_each(compiled: Compiled, ids: Ids, unknown: int | None, weights: Costs | None = None) -> list[Decision]:
    """The decision without each token that is looked at, one at a time: what `decide` says, in one pass."""
    terms, length = compiled.terms, len(ids)
    ids = _in_reach(compiled, ids)
    places = min(length, terms.selector.cap)
    if length < 2:
        return [abstain(terms, 0)] * length
    tallies = _tallies_without(compiled, ids)[:places]
    number = min(len(ids) - 1, compiled.ballots.most)
    made = read_tallies(terms, tallies, [length - 1] * places, [number] * places, weights)
    if unknown is not None:
        known = ids != unknown
        for place in np.flatnonzero(known.sum() - known[:places] == 0).tolist():
            made[place] = abstain(terms, length - 1)
    return made


def _in_reach(compiled: Compiled, ids: Ids) -> Ids:
    """The tokens that are looked at, and the one that moves up when one of them is taken out."""
    return ids[: compiled.selector.cap + 1]


def _tallies_without(compiled: Compiled, ids: Ids) -> Tally:
    """The tally without each token: sums of whole numbers, so that taking a row away is exact. (tokens, columns)"""
    ballots = compiled.ballots
    if ballots.rank is None:
        rows = ballots.values.take(ids, axis=0).astype(np.float64)
        tallies: Tally = rows.sum(axis=0) - rows
    else:  # the surest count; the next one moves up when one of them goes
        ranks = ballots.rank.take(ids)
        order = np.argsort(ranks, kind="stable")
        rows = ballots.values.take(ranks[order[: ballots.most + 1]], axis=0).astype(np.float64)
        standing = np.empty(len(ids), np.intp)
        standing[order] = np.arange(len(ids))
        tallies = rows.sum(axis=0) - rows[np.minimum(standing, ballots.most)]
    if ballots.pairs is not None:
        tallies += _pairs_without(compiled, ids)
    if ballots.familiarity is not None:
        familiarity = ballots.familiarity.take(ids).astype(np.float64)
        tallies = np.column_stack((tallies, familiarity.sum() - familiarity))
    return tallies


def _pairs_without(compiled: Compiled, ids: Ids) -> Tally:
    """What neighbours give without each token, whose own neighbours then meet."""
    pairs = compiled.ballots.pairs
    assert pairs is not None
    rows = pairs.take(pair_buckets(ids), axis=0).astype(np.float64)
    left = np.tile(rows.sum(axis=0), (len(ids), 1))
    left[:-1] -= rows
    left[1:] -= rows
    meeting = pair_buckets(np.column_stack((ids[:-2], ids[2:])).ravel())[::2]
    left[1:-1] += pairs.take(meeting, axis=0)
    return left


def _together(
    compiled: Compiled, ids: Ids, unknown: int | None, weights: Costs | None, expert: str
) -> tuple[tuple[int, ...], str | None]:
    """Take out what gives the expert most over the next one until the decision turns; put back what need not go."""
    kept: Places = np.arange(len(ids))
    taken: list[int] = []
    decision = decide(compiled, ids, unknown, weights)
    while decision.expert == expert:
        if len(taken) == MOST_TOGETHER or len(kept) < 2 or len(compiled.experts) < 2:
            return (), None
        rival = next(name for name, _ in decision.ranking if name != expert)
        place = int(_leads_without(compiled, ids[kept], expert, rival).argmin())
        taken.append(int(kept[place]))
        kept = np.delete(kept, place)
        decision = decide(compiled, ids[kept], unknown, weights)

    def asked_without(places: list[int]) -> str:
        return decide(compiled, np.delete(ids, places), unknown, weights).expert

    needed = 0
    while needed < len(taken):  # until none of them can be put back
        fewer = taken[:needed] + taken[needed + 1 :]
        if fewer and asked_without(fewer) != expert:
            taken, needed = fewer, 0
        else:
            needed += 1
    return tuple(sorted(taken)), asked_without(taken)


def _leads_without(compiled: Compiled, ids: Ids, expert: str, rival: str) -> Tally:
    """How far the expert is ahead of the other without each token, costs aside."""
    terms, places = compiled.terms, min(len(ids), compiled.selector.cap)
    ids = _in_reach(compiled, ids)
    counted = max(1, min(len(ids) - 1, compiled.ballots.most))
    tallies = terms.valuation.compare(terms.selector, _tallies_without(compiled, ids)[:places], counted)
    lead: Tally = tallies[:, terms.experts.index(expert)] - tallies[:, terms.experts.index(rival)]
    return lead
