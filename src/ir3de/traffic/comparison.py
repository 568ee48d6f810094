"""Two routers on the same logged traffic: agreement, accuracy, expected score and cost, each with what is not known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ir3de.errors import InputError
from ir3de.evaluation.intervals import Estimate
from ir3de.router import Router
from ir3de.traffic import estimates
from ir3de.traffic.columns import SECONDS_PER_DAY, Columns, Floats, Indices, Pairs, collect_columns, renumber, write_day
from ir3de.traffic.comparison_costs import compare_costs
from ir3de.traffic.comparison_report import (
    AccuracyComparison,
    Comparison,
    DecisivePrompt,
    ExpertShare,
    Move,
    ScoreComparison,
    SurenessChange,
)
from ir3de.traffic.prices import Price
from ir3de.traffic.records import TrafficRecord
from ir3de.traffic.rerouting import FixedExpert, name_side, parse_side
from ir3de.traffic.verdict import judge, list_unknown

__all__ = ["Comparison", "compare"]

EXAMPLES = 10
CLEAR_CHANGE = 0.1  # of a confidence; smaller ones are not counted


def compare(
    live: Router | FixedExpert | str | None,
    candidate: Router | FixedExpert | str | None,
    records: Iterable[TrafficRecord],
    *,
    prices: Mapping[str, Price] | None = None,
    names: tuple[str, str] | None = None,
    examples: int = EXAMPLES,
) -> Comparison:
    """Compare two routers on logged traffic. A side may also be "always gpt-4o", or None for what was decided then.

    `prices` are read once the records are; prices that they lack are solved from the costs in the log.

    >>> import ir3de
    >>> from ir3de.traffic import Feedback, JournalPrompt, TrafficRecord, compare
    >>> router = ir3de.Router.fit({"maths": ["Solve x + 3 = 10."], "law": ["Is this contract void?"]})
    >>> prompt = JournalPrompt.from_text(["Is the contract valid?"])
    >>> label = Feedback("alice", 2.0, expert="law")
    >>> records = [TrafficRecord("r1", 1.0, decided="maths", served="maths", prompt=prompt, feedback=(label,))]
    >>> found = compare("always maths", router, records)
    >>> found.moves[0].live, found.moves[0].candidate, found.accuracy.difference.value
    ('maths', 'law', 1.0)
    """
    sides = parse_side(live), parse_side(candidate)
    columns = collect_columns(sides, records)
    for side in sides:
        if isinstance(side, FixedExpert):
            _check_fixed(side.name, sides, columns, prices or {})
    if not len(columns):
        raise InputError(_explain_nothing(columns))
    shown = names or (name_side(sides[0]), name_side(sides[1]))
    found = _measure(columns, prices or {}, shown, examples)
    foreign = [name for name in _list_own(sides[1]) if name not in _list_own(sides[0])] if _list_own(sides[0]) else []
    return replace(found, verdict=judge(found), unknown=tuple(list_unknown(found, columns.counts, foreign)))


def _list_own(side: object) -> tuple[str, ...]:
    return side.experts if isinstance(side, Router) else ()


def _check_fixed(name: str, sides: tuple[Any, Any], columns: Columns, prices: Mapping[str, Price]) -> None:
    """Refuse a fixed expert that neither a router nor the log nor the prices know."""
    known = {one for side in sides for one in _list_own(side)} | set(prices)
    numbers = {number: one for one, number in columns.experts.items()}
    known |= {numbers[number] for number in {*columns.served, *columns.logged}} if len(columns) else set()
    if name not in known:
        listed = ", ".join(sorted(known))[:300]
        raise InputError(f"no expert {name!r:.80}: the routers, the log and the prices know {listed}")


def _explain_nothing(columns: Columns) -> str:
    counts = columns.counts
    if not counts["read"]:
        return "nothing to compare: there are no requests. Let the gateway serve for a while, or name another folder"
    if counts["unreadable"]:
        return (
            f"nothing to compare: {counts['unreadable']:,} requests are kept as statistics, which a router with "
            "another tokenizer cannot read. Keep `text` or `tokens` in `feedback` of the gateway's configuration"
        )
    if counts["undecided"]:
        return (
            f"nothing to compare: no router decided any of the {counts['undecided']:,} requests with a prompt, which "
            "were imported. Compare two routers with each other: `ir3de compare LIVE CANDIDATE`"
        )
    return (
        f"nothing to compare: none of the {counts['without_prompt']:,} requests keeps its prompt. Set `logs.prompts: "
        "true` next to `logs.decisions`, or `feedback.keep`, in the gateway's configuration, and let it serve a while"
    )


def _measure(columns: Columns, prices: Mapping[str, Price], names: tuple[str, str], examples: int) -> Comparison:
    experts = tuple(columns.experts)
    chosen = np.array(columns.chosen[0], np.int64), np.array(columns.chosen[1], np.int64)
    clusters, counts = columns.find_conversations(), columns.counts
    same = chosen[0] == chosen[1]
    served, logged = np.array(columns.served), np.array(columns.logged)
    unknown = columns.experts.get("", -1)  # of imported requests, for which no expert was chosen
    accuracy, labelled = _compare_accuracy(columns, chosen, clusters)
    score, scored = _compare_scores(columns, chosen, clusters)
    cost, costs = compare_costs(columns, prices, chosen, clusters)
    first, last = min(columns.times), max(columns.times)
    confidence, expectation = map(_compare_sureness, columns.sureness)
    return Comparison(
        names=names,
        experts=tuple(name for name in experts if name),
        requests=len(columns),
        **{name: counts[name] for name in ("without_prompt", "unreadable", "undecided", "decoded", "unordered")},
        first_day=write_day(first),
        last_day=write_day(last),
        days=round((last - first) / SECONDS_PER_DAY, 6),
        conversations=int(clusters.max()) + 1,
        agreement=estimates.find_share(same, clusters) or Estimate(float(same.mean()), 0.0, 1.0),
        as_decided=(_find_share(chosen[0], logged, unknown), _find_share(chosen[1], logged, unknown)),
        as_served=(_find_share(chosen[0], served, unknown), _find_share(chosen[1], served, unknown)),
        confidence=confidence,
        expectation=expectation,
        abstained=(counts["abstained_live"], counts["abstained_candidate"], counts["abstained_both"]),
        shares=_count_shares(experts, chosen),
        moves=_count_moves(experts, chosen, labelled, costs),
        accuracy=accuracy,
        score=score,
        cost=cost,
        decisive=_find_decisive(columns, chosen, labelled, scored, costs)[:examples],
        damaged=0,
        verdict=(),
        unknown=(),
    )


def _find_share(chosen: Indices, then: Indices, unknown: int) -> float:
    """How often the expert is that of then, where there was one."""
    known = then != unknown
    return float((chosen == then)[known].mean()) if known.any() else 0.0


def _compare_sureness(pairs: Pairs) -> SurenessChange | None:
    if not pairs:
        return None
    live, candidate = (round(math.fsum(own) / len(pairs), 6) for own in zip(*pairs, strict=True))
    changes = [other - one for one, other in pairs]
    higher = sum(change > CLEAR_CHANGE for change in changes)
    return SurenessChange(len(pairs), live, candidate, higher, sum(change < -CLEAR_CHANGE for change in changes))


def _count_shares(experts: tuple[str, ...], chosen: tuple[Indices, Indices]) -> tuple[ExpertShare, ...]:
    live, candidate = (np.bincount(one, minlength=len(experts)).tolist() for one in chosen)
    both = np.bincount(chosen[0][chosen[0] == chosen[1]], minlength=len(experts)).tolist()
    rows = zip(experts, live, candidate, both, strict=True)
    return tuple(ExpertShare(*row) for row in rows if row[1] or row[2])


def _count_moves(
    experts: tuple[str, ...], chosen: tuple[Indices, Indices], labelled: Floats, costs: Floats
) -> tuple[Move, ...]:
    moved = np.flatnonzero(chosen[0] != chosen[1])
    pairs, which = np.unique(np.stack([one[moved] for one in chosen], axis=1), axis=0, return_inverse=True)
    found = []
    for number, (live, candidate) in enumerate(pairs.tolist()):
        own = moved[which.reshape(-1) == number]
        saved, judged = costs[own][~np.isnan(costs[own])], labelled[own]
        saving = -math.fsum(saved) if len(saved) else None
        gained, lost = int((judged > 0).sum()), int((judged < 0).sum())
        found.append(Move(experts[live], experts[candidate], len(own), gained, lost, saving))
    return tuple(sorted(found, key=lambda move: (-move.requests, move.live, move.candidate)))


def _compare_accuracy(
    columns: Columns, chosen: tuple[Indices, Indices], clusters: Indices
) -> tuple[AccuracyComparison | None, Floats]:
    """The comparison, and for every request what it adds to the difference, in prompts: +1, 0 or −1."""
    change = np.zeros(len(columns))
    if not columns.labels:
        return None, change
    places = np.array(sorted(columns.labels))
    labels = np.array([columns.experts.get(columns.labels[place], -1) for place in places.tolist()])
    right = [one[places] == labels for one in chosen]
    change[places] = right[1].astype(float) - right[0]
    own = renumber(clusters[places])
    live, candidate = (estimates.find_share(one, own) for one in right)
    difference = estimates.find_paired_difference(right[0], right[1], own)
    assert live is not None and candidate is not None and difference is not None  # answers are made up
    gained, lost = int((change > 0).sum()), int((change < 0).sum())
    foreign = int((labels < 0).sum())
    contradictory = columns.counts["contradictory"]
    return AccuracyComparison(len(places), live, candidate, difference, gained, lost, contradictory, foreign), change


def _compare_scores(
    columns: Columns, chosen: tuple[Indices, Indices], clusters: Indices
) -> tuple[ScoreComparison | None, Floats]:
    """The comparison, and for every request what it adds to the difference of the means."""
    change = np.zeros(len(columns))
    if not columns.scores:
        return None, change
    places = np.array(sorted(columns.scores))
    order = places.tolist()
    reachable = np.array([columns.reachable[place] for place in order])
    values = np.array([columns.values[place] for place in order])
    scored = estimates.ScoredRequests(
        np.array([columns.scores[place] for place in order]),
        np.array(columns.served)[places],
        np.array([columns.propensity[place] for place in order]),
        (chosen[0][places], chosen[1][places]),
        (reachable[:, 0], reachable[:, 1]),
        (values[:, 0], values[:, 1], values[:, 2]),
        renumber(clusters[places]),
    )
    expected = estimates.expect_scores(scored, len(columns.experts))
    difference, change[places] = estimates.find_score_difference(scored, expected)
    live, candidate = (estimates.find_score(scored, side, expected) for side in (0, 1))
    return ScoreComparison(len(places), live, candidate, difference), change


def _find_decisive(
    columns: Columns, chosen: tuple[Indices, Indices], labelled: Floats, scored: Floats, costs: Floats
) -> tuple[DecisivePrompt, ...]:
    """Moved prompts by their weight in the differences; the requests of one prompt are added up."""
    names, labels = tuple(columns.experts), max(1, len(columns.labels))
    places = np.flatnonzero(chosen[0] != chosen[1]).tolist()
    groups: dict[tuple[str | int, str, str], list[int]] = {}
    for place in places:
        sides = names[chosen[0][place]], names[chosen[1][place]]
        groups.setdefault((columns.shown.get(place) or place, *sides), []).append(place)
    found = []
    for (key, live, candidate), own in groups.items():
        accuracy, score = math.fsum(labelled[own]) / labels, math.fsum(scored[own])
        cost = None if np.isnan(costs[own]).any() else math.fsum(costs[own])
        shown = key if isinstance(key, str) else ""
        found.append(DecisivePrompt(shown, live, candidate, len(own), round(accuracy, 9), round(score, 9), cost))
    found.sort(key=lambda one: (-abs(one.accuracy) - abs(one.score), -abs(one.cost or 0.0), -one.requests, one.prompt))
    return tuple(found)
