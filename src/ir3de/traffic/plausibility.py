"""Whether a source's labels can be honest, judged by the router without any feedback.

People correct a router where it is wrong, so disagreement alone shows nothing. But where a router is wrong on held-out
prompts, it seldom gives the right expert a very small probability. A label is implausible if the router disagrees and
gives its expert less than all but a tenth of the right experts of its own held-out errors had. A source is suspicious
if clearly more than `HONEST_SHARE` of its labels are implausible. The probability that an honest source is called
suspicious is at most `LEVEL`, by the bound of Chernoff and Hoeffding (Hoeffding 1963, theorem 1) for a binomial tail:

    P(k or more of n) ≤ exp(−n · KL(k/n ‖ HONEST_SHARE))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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


def judge_sources(labels: Sequence[Label], base: Router, trust: Iterable[str] = ()) -> list[Verdict]:
    """A verdict on each source. Labels of which only counts were kept cannot be routed, and are not judged."""
    trusted, routed = frozenset(trust), [one for one in labels if one.has_order]
    limit = find_least_probability(base) if routed else None
    groups: dict[Source, list[int]] = {one.source: [] for one in labels}
    disagree = implausible = np.zeros(len(routed), bool)
    if limit is not None:
        places = {name: place for place, name in enumerate(base.experts)}
        given = np.array([places[one.expert] for one in routed])
        values = list_probabilities(route_labels(base, routed), base.experts)
        disagree = values.argmax(axis=1) != given
        implausible = disagree & (values[np.arange(len(routed)), given] < limit)
    for index, one in enumerate(routed):
        groups[one.source].append(index)
    return [
        Verdict(
            source,
            len(own),
            int(disagree[own].sum()),
            bad := int(implausible[own].sum()),
            bound_tail(bad, len(own), HONEST_SHARE),
            source.author in trusted,
        )
        for source, own in sorted(groups.items())
    ]
