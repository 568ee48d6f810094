"""Flips: the tokens without which the prompt would go to another expert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.policies import Costs
from ir3de.routing.decision import CompiledRouter, Decision, abstain, decide, read_tallies
from ir3de.selectors import Ids, Tally
from ir3de.statistics.pairs import pair_buckets

MAX_TOKENS_TOGETHER = 32  # a longer list would explain nothing

Places = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Flips:
    """Single tokens that flip the decision, and a small set of tokens that flip it together.

    Places are positions among the prompt's tokens. `together` is empty where no small set was found. The set is
    minimal: if any of its tokens stays in the prompt, the decision stays too.
    """

    expert: str
    alone: Mapping[int, str]  # place of a token: the expert without it
    together: tuple[int, ...] = ()
    other: str | None = None  # the expert without the tokens of `together`

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        alone = [{"place": place, "expert": expert} for place, expert in self.alone.items()]
        together = {"places": list(self.together), "expert": self.other} if self.together else None
        return {"alone": alone, "together": together}


def find_flips(compiled: CompiledRouter, ids: Ids, unknown: int | None, weights: Costs | None = None) -> Flips:
    """Find the flips of a decision. The experts are those of `decide` for the prompt without the tokens."""
    expert = decide(compiled, ids, unknown, weights).expert
    without = decide_without_each(compiled, ids, unknown, weights)
    alone = {place: decision.expert for place, decision in enumerate(without) if decision.expert != expert}
    if alone:
        surest = max(alone, key=lambda place: without[place]._value)
        return Flips(expert, alone, (surest,), alone[surest])
    together, other = _find_smallest_set(compiled, ids, unknown, weights, expert)
    return Flips(expert, alone, together, other)


def decide_without_each(
    compiled: CompiledRouter, ids: Ids, unknown: int | None, weights: Costs | None = None
) -> list[Decision]:
    """The decisions of `decide` without each token up to the cap, one at a time, in one pass."""
    rules, length = compiled.rules, len(ids)
    ids = ids[: rules.selector.cap + 1]  # the first token beyond the cap moves up when another is taken out
    places = min(length, rules.selector.cap)
    if length < 2:
        return [abstain(rules, 0)] * length
    tallies = _tallies_without(compiled, ids)[:places]
    number = min(len(ids) - 1, compiled.ballots.limit)
    made = read_tallies(rules, tallies, [length - 1] * places, [number] * places, weights)
    if unknown is not None:
        known = ids != unknown
        for place in np.flatnonzero(known.sum() - known[:places] == 0).tolist():
            made[place] = abstain(rules, length - 1)
    return made


def _tallies_without(compiled: CompiledRouter, ids: Ids) -> Tally:
    """The tally without each token, (tokens, columns). Tallies are integers, so subtraction is exact."""
    ballots = compiled.ballots
    if ballots.rank is None:
        rows = ballots.values.take(ids, axis=0).astype(np.float64)
        tallies: Tally = rows.sum(axis=0) - rows
    else:  # only `limit` tokens count; the next one moves up when one of them goes
        ranks = ballots.rank.take(ids)
        order = np.argsort(ranks, kind="stable")
        rows = ballots.values.take(ranks[order[: ballots.limit + 1]], axis=0).astype(np.float64)
        standing = np.empty(len(ids), np.intp)
        standing[order] = np.arange(len(ids))
        tallies = rows.sum(axis=0) - rows[np.minimum(standing, ballots.limit)]
    if ballots.pairs is not None:
        tallies += _pairs_without(compiled, ids)
    if ballots.familiarity is not None:
        familiarity = ballots.familiarity.take(ids).astype(np.float64)
        tallies = np.column_stack((tallies, familiarity.sum() - familiarity))
    return tallies


def _pairs_without(compiled: CompiledRouter, ids: Ids) -> Tally:
    """The sum over pairs without each token. Its two neighbours then form a pair."""
    pairs = compiled.ballots.pairs
    assert pairs is not None
    rows = pairs.take(pair_buckets(ids), axis=0).astype(np.float64)
    left = np.tile(rows.sum(axis=0), (len(ids), 1))
    left[:-1] -= rows
    left[1:] -= rows
    meeting = pair_buckets(np.column_stack((ids[:-2], ids[2:])).ravel())[::2]
    left[1:-1] += pairs.take(meeting, axis=0)
    return left


def _find_smallest_set(
    compiled: CompiledRouter, ids: Ids, unknown: int | None, weights: Costs | None, expert: str
) -> tuple[tuple[int, ...], str | None]:
    """Take out tokens that favour the expert most until the decision flips, then put back those that need not go."""
    kept: Places = np.arange(len(ids))
    taken: list[int] = []
    decision = decide(compiled, ids, unknown, weights)
    while decision.expert == expert:
        if len(taken) == MAX_TOKENS_TOGETHER or len(kept) < 2 or len(compiled.experts) < 2:
            return (), None
        rival = next(name for name, _ in decision.ranking if name != expert)
        place = int(_measure_leads(compiled, ids[kept], expert, rival).argmin())
        taken.append(int(kept[place]))
        kept = np.delete(kept, place)
        decision = decide(compiled, ids[kept], unknown, weights)

    def decide_without(places: list[int]) -> str:
        return decide(compiled, np.delete(ids, places), unknown, weights).expert

    needed = 0
    while needed < len(taken):  # until no token can be put back
        fewer = taken[:needed] + taken[needed + 1 :]
        if fewer and decide_without(fewer) != expert:
            taken, needed = fewer, 0
        else:
            needed += 1
    return tuple(sorted(taken)), decide_without(taken)


def _measure_leads(compiled: CompiledRouter, ids: Ids, expert: str, rival: str) -> Tally:
    """How far the expert is ahead of the rival without each token, costs aside."""
    rules, places = compiled.rules, min(len(ids), compiled.selector.cap)
    ids = ids[: compiled.selector.cap + 1]
    counted = max(1, min(len(ids) - 1, compiled.ballots.limit))
    tallies = rules.valuation.compare(rules.selector, _tallies_without(compiled, ids)[:places], counted)
    lead: Tally = tallies[:, rules.experts.index(expert)] - tallies[:, rules.experts.index(rival)]
    return lead
