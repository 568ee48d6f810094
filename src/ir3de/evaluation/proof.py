"""The proof of a router: what it is worth on prompts that it has not seen, and the verdict in plain sentences.

The prompts are dealt out to folds. Each fold is routed by a router that was fitted without it. Scorer and confidence
are those of the whole router: they were chosen once, on held-out prompts too, and only the weights are fitted anew.
Rivals are fitted and measured on the same folds. docs/proof.md shows how well that predicts other prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ir3de.errors import name_some
from ir3de.evaluation.accuracy import ReliabilityBin
from ir3de.evaluation.frontier import Frontier
from ir3de.evaluation.intervals import Estimate, JSONReport, write_points
from ir3de.evaluation.prompts import NOTABLE
from ir3de.fitting.teaching_report import Teaching
from ir3de.router import Router
from ir3de.routing.html import draw, write_percent
from ir3de.statistics.sample import MAX_COPIES, MAX_PROMPTS

TFIDF = "TF-IDF + logistic regression"
MAJORITY = "always the largest expert"
FLAT = 0.005  # a curve whose next doubling brings no more than this is flat
ENOUGH_PROMPTS = 100  # held out, before anything is recommended
ENOUGH_PROMPTS_EACH = 50  # of an expert, before more are recommended
ACCURACY = "Accuracy is the share of prompts whose most probable expert is their own, also where the router abstains."
NOT_COMPARED = (
    "Not compared with classifiers on an encoder or a language model: --holdout keeps prompts aside to measure those."
)


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
    """What a router is worth on prompts that were held out of its fit: the result of `prove`.

    `accuracy` is the share of the prompts whose most probable expert is their own. Costs do not count, and a prompt on
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

    def _repr_html_(self) -> str:
        return draw("proof", proof=self)


@dataclass(frozen=True)
class Judgement:
    """Whether the router is worth deploying, in a few words, and what to do where that is not clear."""

    kind: Literal["yes", "perhaps", "no"]
    words: str
    advice: str = ""


def judge(proof: Proof) -> Judgement:
    """Whether routing is worth it, going by what it was compared with. A recommendation needs a real rival."""
    worse = [one.name for one in proof.contenders if one.difference.high < 0]
    equal = [one.name for one in proof.contenders if one.difference.low <= 0 <= one.difference.high]
    rivals = [one.name for one in proof.contenders if one.name != MAJORITY]
    if worse:
        return Judgement("no", f"Not as it is: {' and '.join(worse)} did better", _request_prompts(proof))
    if MAJORITY in equal:
        return Judgement("no", "Not yet: it is not clearly better than no router", _request_prompts(proof))
    if proof.prompts < ENOUGH_PROMPTS:
        few = f"Too early: {proof.prompts:,} held-out prompts are few"
        return Judgement("perhaps", few, _request_prompts(proof))
    if not proof.contenders:
        return Judgement("perhaps", "Nothing to compare with was measured")
    if not rivals:
        return Judgement("perhaps", "Not compared with a real rival, only with no router")
    if equal:
        return Judgement("yes", f"Worth deploying: as good as {' and '.join(equal)}, and it explains and abstains")
    return Judgement("yes", f"Worth deploying: better than {' and than '.join(one.name for one in proof.contenders)}")


def is_ready(proof: Proof) -> bool:
    """Whether the router can be served, as far as it was measured."""
    return judge(proof).kind != "no" and proof.prompts >= ENOUGH_PROMPTS


def _request_prompts(proof: Proof) -> str:
    """How many prompts are missing, of which experts; empty where all have enough."""
    have = proof.known_each.items()
    missing = {name: ENOUGH_PROMPTS_EACH - own for name, own in have if own < ENOUGH_PROMPTS_EACH}
    if not missing:
        return ""
    most = sorted(missing, key=lambda name: (-missing[name], name))
    named = name_some([f"{name} {missing[name]} more" for name in most])
    return (
        f"Give each expert at least {ENOUGH_PROMPTS_EACH} different prompts ({named}). Until then, a description "
        "(--describe) helps an expert that has few."
    )


def give_verdict(proof: Proof) -> tuple[str, ...]:
    """The findings in sentences, the most important first."""
    times, between = round(100 * proof.accuracy.value), _write_range(proof.accuracy)
    right = f"On prompts like these the router names the right expert {times} times in 100"
    sentences = [f"{right} ({between} at 95 % confidence)."]
    if differs_by_expert(proof):
        sentences.append(compare_by_expert(proof))
    sentences += [_compare(contender) for contender in proof.contenders]
    if (more := judge_curve(proof)) is not None:
        sentences.append(more)
    found = judge(proof)
    return (*sentences, f"{found.words}.", *([found.advice] if found.advice else []))


def differs_by_expert(proof: Proof) -> bool:
    """Whether the mean over the experts differs notably from the figure on the mix, of the router or a rival."""
    measured: list[Proof | Contender] = [proof, *proof.contenders]
    return any(abs(one.accuracy.value - one.mean_accuracy.value) > NOTABLE for one in measured)


def compare_by_expert(proof: Proof) -> str:
    """The mean over the experts, of the router and its rivals."""
    others = [f"{one.name} {write_percent(one.mean_accuracy.value)}" for one in proof.contenders]
    rest = f"; {', '.join(others)}" if others else ""
    own = write_percent(proof.mean_accuracy.value)
    return f"As a mean over the experts, each counting the same, the router is right on {own}{rest}."


def _compare(contender: Contender) -> str:
    difference = contender.difference
    name = "sending everything to the largest expert" if contender.name == MAJORITY else contender.name
    points, between = f"{100 * abs(difference.value):.1f} points", _write_points_range(difference)
    if difference.low > 0:
        return f"It is {points} better than {name} {between}."
    if difference.high < 0:
        return f"It is {points} worse than {name} {between}: that would serve these prompts better."
    points = write_points(difference.value)
    return f"It is as good as {name}: the difference of {points} points {between} may be chance."


def judge_curve(proof: Proof) -> str | None:
    """The expected effect of more prompts, in one sentence; None where that was not measured."""
    gain = proof.doubling
    if gain is None:
        return None
    points = f"{write_points(gain.value)} points {_write_points_range(gain)}"
    if gain.high <= FLAT or (gain.value <= FLAT and gain.high < 4 * FLAT):
        return f"The learning curve is flat: twice the prompts would bring {points}."
    if gain.low <= 0:
        return f"Twice the prompts may bring {points}, or nothing: that is not clear yet."
    return f"Twice the prompts would bring about {points}."


def describe_method(proof: Proof, router: Router, taught: Teaching | None, *, can_be_held: int) -> tuple[str, ...]:
    """How it was measured, and what could not be."""
    if proof.method == "holdout":
        notes = [
            f"{proof.prompts:,} prompts were held out of the fit.",
            "The router never saw them. To use all prompts, fit again without holding any out.",
        ]
    else:
        notes = [
            f"{proof.prompts:,} of {proof.known:,} prompts were held out in turn, in {describe_folds(proof)}.",
            "The scorer was chosen once, on all prompts; every fold fits its weights anew.",
        ]
    notes.append(ACCURACY)
    if weighted := _describe_weights(proof, can_be_held):
        notes.append(weighted)
    if unmeasured := [name for name in proof.experts if proof.recall[name] is None]:
        notes.append(f"No prompt of {name_some(unmeasured)} could be held out: these figures leave such experts out.")
    if taught is not None and proof.method != "holdout":
        left_out = "Taught labels are left out here, because the teacher knew the labels of these prompts."
        notes += [*[left_out] * taught.is_used, f"What the teacher brought: {taught.describe()}."]
    if not router.calibrated:
        notes.append("Confidence is not calibrated, so it means little here.")
    if proof.contenders:
        notes.append(NOT_COMPARED)
    return tuple(notes)


def describe_folds(proof: Proof) -> str:
    """How many folds were held out: all of them, or some."""
    return f"{proof.folds} of {proof.of_folds} folds" if proof.folds < proof.of_folds else f"{proof.folds} folds"


def _describe_weights(proof: Proof, can_be_held: int) -> str:
    """That the held-out prompts are weighted, where their mix is another than that of all prompts."""
    held = [sum(row) / proof.prompts for row in proof.confusion]
    if max(abs(own - share) for own, share in zip(held, proof.mix.values(), strict=True)) <= NOTABLE / 2:
        return ""
    reason = f"at most {MAX_PROMPTS:,} of an expert are kept"
    if max(proof.known_each.values()) <= MAX_PROMPTS:
        share = write_percent(1 - can_be_held / proof.known)
        reason = f"prompts with {MAX_COPIES} or more copies, or not kept whole, are never held out ({share} of all)"
    return (
        f"Shares are weighted to the mix of all {proof.known:,} prompts, because {reason}; counts are of held-out "
        "prompts."
    )


def _write_range(found: Estimate) -> str:
    return f"{100 * found.low:.1f} to {100 * found.high:.1f}"


def _write_points_range(found: Estimate) -> str:
    return f"({write_points(found.low)} to {write_points(found.high)})"
