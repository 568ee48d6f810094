"""Proof before deployment: what a router is worth on prompts that it has not seen.

The prompts are dealt out to folds. Each fold is routed by a router that was fitted without it. Scorer and confidence
are those of the whole router: they were chosen once, on held-out prompts too, and only the weights are fitted anew.
Rivals are fitted and asked on the same folds. docs/proof.md says how well that foretells other prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ir3de.evaluation.accuracy import ReliabilityBin
from ir3de.evaluation.frontier import Frontier
from ir3de.evaluation.intervals import Estimate
from ir3de.evaluation.json_report import JSONReport


@dataclass(frozen=True)
class Contender:
    """Something else that could choose the expert, and by how much the router is better on the same prompts."""

    name: str
    accuracy: Estimate
    mean_accuracy: Estimate  # over the experts
    difference: Estimate  # the router's accuracy minus that of the contender


@dataclass(frozen=True)
class ConfusedPair:
    """Held-out prompts of one expert that were routed to another: how many, which share of its own, and some."""

    truth: str
    said: str
    count: int
    share: float
    examples: tuple[str, ...]  # the most confident first, shortened


@dataclass(frozen=True)
class CurvePoint:
    """The accuracy with that many training prompts."""

    prompts: int
    accuracy: Estimate


@dataclass(frozen=True)
class Abstentions:
    """On which prompts the router would abstain, why, and how often it is right on the others.

    Counts are of held-out prompts. Shares are of all prompts.
    """

    count: int
    share: Estimate
    reasons: Mapping[str, int]
    experts: Mapping[str, int]  # of the prompts of each expert, how many
    answered_accuracy: Estimate | None  # None where it abstains on every prompt
    examples: tuple[str, ...]  # the least confident first, shortened


@dataclass(frozen=True)
class Proof(JSONReport):
    """What a router is worth on prompts that were held out of its fit.

    `accuracy` is the share of the prompts whose most probable expert is their own. Costs play no part, and a prompt on
    which the router abstains counts for the expert that it would have taken. `mean_accuracy` is the same as a mean over
    the experts.

    Shares and differences are about all prompts that were given: each held-out prompt weighs as many of them as it
    stands for, so that the experts have their shares of the `mix`. Counts are of held-out prompts: `confusion[i][j]`
    counts those of expert i whose most probable expert is j. `doubling` is what twice the prompts are expected to
    bring. `frontier` is None unless the experts' costs differ.
    """

    method: str  # "cross-validation" or "holdout"
    prompts: int  # that were held out and routed
    known: int  # prompts that there are in all; a description is none
    known_each: Mapping[str, int]  # of them, how many each expert has
    experts: tuple[str, ...]
    folds: int  # that were held out, one after the other
    of_folds: int  # that the prompts were dealt out to
    mix: Mapping[str, float]  # each expert's share of all prompts, among the experts with held-out prompts
    accuracy: Estimate
    mean_accuracy: Estimate
    recall: Mapping[str, float | None]  # None for an expert without a held-out prompt
    contenders: tuple[Contender, ...]
    confused: tuple[ConfusedPair, ...]
    confusion: tuple[tuple[int, ...], ...]
    reliability: tuple[ReliabilityBin, ...]
    calibration_error: float
    abstained: Abstentions
    curve: tuple[CurvePoint, ...]
    doubling: Estimate | None
    verdict: tuple[str, ...]
    notes: tuple[str, ...]  # how it was measured, and what is missing
    frontier: Frontier | None

    def __repr__(self) -> str:  # the tables would fill a screen: they have names, and `to_dict` gives everything
        interval = f"{self.accuracy.low:.3f} to {self.accuracy.high:.3f}"
        shown = f"accuracy={self.accuracy.value:.3f} ({interval}), abstained={self.abstained.count}"
        return f"Proof({self.method}, prompts={self.prompts}, {shown}, …)"

    def _repr_html_(self) -> str:  # what notebooks show
        from ir3de.routing.notebook import draw_figures

        rows = [("this router", _share(self.accuracy), "")]
        rows += [(one.name, _share(one.accuracy), _points(one.difference)) for one in self.contenders]
        title = f"Proof: {self.method}, {self.prompts:,} prompts"
        heads = "on the same prompts", "accuracy (95 %)", "router leads by"
        return draw_figures(title, self.verdict, heads, rows)


def _share(found: Estimate) -> str:
    return f"{100 * found.value:.1f} % ({100 * found.low:.1f} to {100 * found.high:.1f})"


def _points(found: Estimate) -> str:
    return f"{100 * found.value:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"
