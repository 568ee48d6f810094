"""A strong and a weak model: what each share of strong calls buys, and the threshold for a wanted share.

Prompts are ordered by how far the router expects the strong model to lie above the weak one. At a share c of strong
calls, the first c of them go to the strong model. As RouteLLM defines them,

    PGR(c) = (mean score at c − weak's) / (strong's − weak's)    the performance gap recovered
    APGR   = ∫ PGR(c) dc from 0 to 1                             0.5 for a random order
    CPT(x) = the smallest c with PGR(c) ≥ x                      x for a random order
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError, UnknownExpertError, name_some
from ir3de.evaluation.accuracy import route_in_batches
from ir3de.evaluation.json_report import JSONReport
from ir3de.outcomes.expectation import Shrinkage
from ir3de.outcomes.guard import CONSTANT, measure_gaps
from ir3de.policies import StrongShare, check_share
from ir3de.router import Router
from ir3de.routing.decision import Decision

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class StrongWeakReport(JSONReport):
    """How well a router orders prompts by their need for the strong model; None where the strong one is not better.

    `error` is the standard error of `apgr` over prompts, the order of the prompts given. `strong_share` is the share
    that the router's own decisions send to the strong model.
    """

    strong: str
    weak: str
    prompts: int
    strong_score: float
    weak_score: float
    strong_share: float
    apgr: float | None
    error: float | None
    cpt_50: float | None
    cpt_80: float | None


def find_pair(
    router: Router, strong: str | None = None, weak: str | None = None, means: Sequence[float] | None = None
) -> tuple[str, str]:
    """The strong and the weak model: those named, those of the router's policy, or the better and the other of two.

    Without names, `means` says which of two models is better; otherwise the router's own expectation does.
    """
    experts, share = router.experts, router.policy.strong_share
    for name in (strong, weak):
        if name is not None and name not in experts:
            raise UnknownExpertError(f"no model '{name}': this router has {name_some(experts, name)}")
    if strong is None and weak is None and share is not None:
        return share.strong, share.weak
    if (strong is None or weak is None) and len(experts) != 2:
        raise InputError(
            f"strong and weak must both be named for a router of {len(experts)} models, found strong={strong!r} and "
            f"weak={weak!r}: name two of {', '.join(experts)} (--strong and --weak on the command line)"
        )
    if strong is None and weak is None:
        rules = router.compiled.rules
        values = rules.valuation.tally_nothing(2) if means is None else np.asarray(means)
        strong = experts[int(values.argmax())]
    strong = strong or next(name for name in experts if name != weak)
    weak = weak or next(name for name in experts if name != strong)
    if strong == weak:
        raise InputError(f"strong and weak are both '{strong}': name two models")
    return strong, weak


def measure_gap(decision: Decision, strong: str, weak: str) -> float:
    """How far the router expects the strong model to lie above the weak one."""
    values = dict(decision.quality)
    return values[strong] - values[weak]


def measure_order(gaps: npt.ArrayLike, scores: npt.ArrayLike) -> tuple[float, float, float, float] | None:
    """APGR, its standard error, CPT(50 %) and CPT(80 %) of prompts ordered by their gaps; ties share their gain.

    `scores` has two columns, strong and weak. None where the strong model is not better.

    >>> measure_order([3.0, 2.0, 1.0, 0.0], [(1, 0), (1, 0), (1, 1), (0, 0)])[0]
    0.75
    """
    found, pair = np.asarray(gaps, np.float64), np.asarray(scores, np.float64)
    gained = pair[:, 0] - pair[:, 1]
    order = np.lexsort((gained, found))  # sums of floats depend on the order
    found, gained = found[order], gained[order]
    whole = gained.sum()
    if not len(found) or whole <= 0:
        return None
    _, place, count = np.unique(-found, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    # a prompt counts from its call on: 1 − its place among all, ties in the middle of their places
    later = (1.0 - (ends - count / 2) / len(found))[place]
    apgr = float((gained * later).sum() / whole)
    error = float(np.sqrt((gained**2 * (later - apgr) ** 2).sum()) / whole)
    recovered = np.append(0.0, np.cumsum(np.bincount(place, gained)) / whole)
    calls = np.append(0.0, ends / len(found))
    return apgr, error, _find_calls(calls, recovered, 0.5), _find_calls(calls, recovered, 0.8)


def _find_calls(calls: Floats, recovered: Floats, wanted: float) -> float:
    """The smallest share of calls that recovers as much, interpolated; the last point recovers everything."""
    after = int(np.argmax(recovered >= wanted - 1e-12))
    rise = recovered[after] - recovered[after - 1]
    return float(calls[after - 1] + (calls[after] - calls[after - 1]) * (wanted - recovered[after - 1]) / rise)


@dataclass(frozen=True)
class ShareCalibration:
    """A router with its strong share, the prompts it was picked on, and the share of them that is reached."""

    router: Router
    chosen: StrongShare
    prompts: int
    reached: float

    def __repr__(self) -> str:  # in one line: the router has its own
        return f"ShareCalibration(prompts={self.prompts}, reached={self.reached:.3f}, {self.chosen}, …)"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**vars(self.chosen), "prompts": self.prompts, "reached": self.reached}


def calibrate_strong_share(
    router: Router, prompts: Iterable[str] | None, share: float, *, strong: str | None = None, weak: str | None = None
) -> ShareCalibration:
    """Send this share of the prompts to the strong model: a new router. Prompts need no scores.

    Give prompts as the router will meet them, but not those that it was fitted from: on these it expects too much. For
    them, give None: the router then takes those that it kept, and holds them out in turn. With two models, the strong
    one is that of the better mean unless named.

    >>> import ir3de
    >>> rows = [{"text": f"What is {n} times {n}?" if n % 2 else f"Who wrote book {n}?",
    ...          "scores": {"large": 1, "small": n % 2}} for n in range(400)]
    >>> made = calibrate_strong_share(ir3de.Router.fit_outcomes(rows), ["What is 2 times 3?", "Who wrote Faust?"], 0.5)
    >>> [made.router.route(text).expert for text in ("What is 7 times 5?", "Who wrote Emma?")]
    ['small', 'large']
    """
    check_share(share)
    pair = find_pair(router, strong, weak)
    if router.scorer == CONSTANT:
        raise InputError(
            "this router expects the same difference between two models on all prompts, because routing was worse than "
            "the best single model on held-out prompts: fit it with guard=False (`ir3de fit --strong-share`)"
        )
    if prompts is None:
        gaps = _measure_kept_gaps(router, pair)
    else:
        plain = router.with_policy(replace(router.policy, strong_share=None))
        routed = route_in_batches(plain, prompts, str)
        gaps = [measure_gap(decision, *pair) for _, decisions in routed for decision in decisions]
    threshold = pick_share_threshold(gaps, share)
    chosen = StrongShare(*pair, share, threshold)
    reached = float((np.asarray(gaps) >= threshold).mean())
    changed = router.with_policy(replace(router.policy, strong_share=chosen))
    return ShareCalibration(changed, chosen, len(gaps), reached)


def _measure_kept_gaps(router: Router, pair: tuple[str, str]) -> list[float]:
    """The gaps of the router's kept prompts, each held out in turn."""
    assert isinstance(router.scorer, Shrinkage)
    found = measure_gaps(router.outcomes, router.scorer, *(router.experts.index(name) for name in pair))
    if found is None:
        raise InputError("the router kept no prompts to pick a threshold on: give prompts, best of recent traffic")
    return [float(gap) for gap in found]


def pick_share_threshold(gaps: Sequence[float], share: float) -> float:
    """The threshold that comes closest to this share of gaps at or above it, but some and not all of them.

    >>> pick_share_threshold([0.4, 0.1, 0.2, 0.3], 0.25)
    0.35
    """
    values, counts = np.unique(-np.asarray(gaps, np.float64), return_counts=True)
    if len(values) < 2:
        raise InputError(
            f"{len(gaps):,} prompts, and the router expects the same difference between the two models on all of them: "
            "no threshold sends a share of them to the strong one. Give more prompts, or fit from more rows"
        )
    reached = np.cumsum(counts)[:-1] / len(gaps)
    cut = int(np.abs(reached - share).argmin())
    return float(-(values[cut] + values[cut + 1]) / 2)
