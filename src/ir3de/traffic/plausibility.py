"""Whether a source's labels can be honest, judged by the router without any feedback.

People correct a router where it is wrong, so disagreement alone shows nothing. But where a router is wrong on held-out
prompts, it seldom gives the right expert a very small probability. A label is implausible if the router disagrees and
gives its expert less than all but a tenth of the right experts of its own held-out errors had. It is left out: most of
them are mistakes. A source is suspicious, and left out as a whole, if clearly more than `HONEST_SHARE` of its labels
are implausible. The probability that an honest source is called suspicious is at most `LEVEL`, by the bound of Chernoff
and Hoeffding (Hoeffding 1963, theorem 1) for a binomial tail:

    P(k or more of n) ≤ exp(−n · KL(k/n ‖ HONEST_SHARE))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ir3de.evaluation.intervals import Flags
from ir3de.router import Router
from ir3de.routing.compiled import list_probabilities
from ir3de.traffic.labels import Label, route_labels
from ir3de.traffic.sources import Source

HONEST_SHARE = 0.3  # of an honest source's labels that may be implausible: mistakes, and prompts of a new kind
LEVEL = 1e-4  # for one source; it does not depend on how many sources there are
ERROR_QUANTILE = 0.1  # of the held-out errors whose right expert had a smaller probability
MIN_ERRORS = 20  # held-out ones from which the quantile is read; with fewer, probabilities stand for them


@dataclass(frozen=True)
class Verdict:
    """What the base router thinks of a source's labels."""

    source: Source
    labels: int  # that could be routed
    disagree: int
    implausible: int
    chance: float  # at most so probable if the source is honest
    trusted: bool = False  # by the caller

    @property
    def is_suspicious(self) -> bool:
        return self.chance < LEVEL and not self.trusted

    def to_dict(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("labels", "disagree", "implausible", "trusted")}
        return {**vars(self.source), **counts, "chance": float(f"{self.chance:.3g}")}


def bound_tail(count: int, of: int, share: float) -> float:
    """A bound on the probability of so many or more successes out of `of`, if each has the probability `share`.

    >>> bound_tail(8, 8, 0.3) == 0.3 ** 8 or round(bound_tail(8, 8, 0.3), 9)
    6.561e-05
    >>> bound_tail(2, 10, 0.3)
    1.0
    """
    if not of or count <= share * of:
        return 1.0
    found = count / of
    rest = (1 - found) * math.log((1 - found) / (1 - share)) if count < of else 0.0
    return math.exp(-of * (found * math.log(found / share) + rest))


def find_least_probability(base: Router) -> float | None:
    """Below it an expert that the router did not choose is implausible; None if the router kept no prompts."""
    kept = base.route_kept()
    if not kept:
        return None
    places = {name: place for place, name in enumerate(base.experts)}
    right = np.array([places[one.expert] for one in kept])
    values = list_probabilities([one.decision for one in kept], base.experts)
    wrong = values.argmax(axis=1) != right
    if wrong.sum() >= MIN_ERRORS:
        return float(np.quantile(values[wrong, right[wrong]], ERROR_QUANTILE))
    np.put_along_axis(values, values.argmax(axis=1)[:, None], 0.0, axis=1)
    others = np.sort(values, axis=None)  # an expert that was not chosen is right as often as its probability
    return float(others[np.searchsorted(np.cumsum(others), ERROR_QUANTILE * others.sum())])


@dataclass(frozen=True)
class Judgement:
    """A verdict on each source, and the labels that can be learnt."""

    verdicts: tuple[Verdict, ...]
    accepted: tuple[Label, ...]
    implausible: int  # labels of accepted sources that are left out one by one


def judge_labels(labels: Sequence[Label], base: Router, trust: Iterable[str] = ()) -> Judgement:
    """Leave out suspicious sources, and of the others the labels that are implausible, unless the author is trusted.

    Labels of which only counts were kept cannot be routed, and are not judged.
    """
    disagree, implausible = _route_labels(labels, base)
    groups: dict[Source, list[int]] = {}
    for index, one in enumerate(labels):
        groups.setdefault(one.source, []).append(index)
    trusted, verdicts = frozenset(trust), []
    for source, own in sorted(groups.items()):
        judged, bad = sum(labels[index].has_order for index in own), int(implausible[own].sum())
        chance = bound_tail(bad, judged, HONEST_SHARE)
        verdicts.append(Verdict(source, judged, int(disagree[own].sum()), bad, chance, source.author in trusted))
    suspicious = {one.source for one in verdicts if one.is_suspicious}
    honest = [index for index, one in enumerate(labels) if one.source not in suspicious]
    accepted = [labels[index] for index in honest if not implausible[index] or labels[index].source.author in trusted]
    return Judgement(tuple(verdicts), tuple(accepted), len(honest) - len(accepted))


def _route_labels(labels: Sequence[Label], base: Router) -> tuple[Flags, Flags]:
    """With which labels the router disagrees, and which are implausible."""
    disagree, implausible = np.zeros(len(labels), bool), np.zeros(len(labels), bool)
    routed = [index for index, one in enumerate(labels) if one.has_order]
    limit = find_least_probability(base) if routed else None
    if limit is not None:
        places = {name: place for place, name in enumerate(base.experts)}
        given = np.array([places[labels[index].expert] for index in routed])
        values = list_probabilities(route_labels(base, [labels[index] for index in routed]), base.experts)
        disagree[routed] = values.argmax(axis=1) != given
        implausible[routed] = disagree[routed] & (values[np.arange(len(routed)), given] < limit)
    return disagree, implausible
