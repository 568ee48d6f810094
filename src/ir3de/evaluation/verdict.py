"""A proof in plain sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ir3de.errors import name_some
from ir3de.evaluation.contenders import MAJORITY, TFIDF
from ir3de.evaluation.intervals import Estimate
from ir3de.evaluation.mix import NOTABLE
from ir3de.evaluation.proof import Contender, Proof
from ir3de.router import Router
from ir3de.statistics.sample import MAX_COPIES, MAX_PROMPTS

FLAT = 0.005  # a curve whose next doubling brings no more than this is flat
ENOUGH_PROMPTS = 100  # held out, before anything is recommended
ENOUGH_PROMPTS_EACH = 50  # of an expert, before more are recommended
ACCURACY = "Accuracy is the share of prompts whose most probable expert is their own, also where the router abstains."
NOT_COMPARED = (
    "Not compared with classifiers on an encoder or a language model: --holdout keeps prompts aside to measure those."
)
ADD_TFIDF = f"Not compared with {TFIDF}: `pip install scikit-learn` adds it."


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
        return Judgement("no", f"Not as it is: {' and '.join(worse)} did better", _ask_for_prompts(proof))
    if MAJORITY in equal:
        return Judgement("no", "Not yet: it is not clearly better than no router", _ask_for_prompts(proof))
    if proof.prompts < ENOUGH_PROMPTS:
        few = f"Too early to say: {proof.prompts:,} held-out prompts are few"
        return Judgement("perhaps", few, _ask_for_prompts(proof))
    if not proof.contenders:
        return Judgement("perhaps", "Nothing to compare with was measured")
    if not rivals:
        return Judgement("perhaps", "Not compared with a real rival, only with no router", ADD_TFIDF)
    if equal:
        return Judgement("yes", f"Worth deploying: as good as {' and '.join(equal)}, and it explains and abstains")
    return Judgement("yes", f"Worth deploying: better than {' and than '.join(one.name for one in proof.contenders)}")


def is_ready(proof: Proof) -> bool:
    """Whether nothing speaks against serving the router, as far as it was measured."""
    return judge(proof).kind != "no" and proof.prompts >= ENOUGH_PROMPTS


def _ask_for_prompts(proof: Proof) -> str:
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
    """What somebody who has to decide should know, the most important first."""
    said = [_judge_accuracy(proof)]
    if differs_by_expert(proof):
        said.append(compare_by_expert(proof))
    said += [_compare(contender) for contender in proof.contenders]
    if (more := judge_curve(proof)) is not None:
        said.append(more)
    found = judge(proof)
    return (*said, f"{found.words}.", *([found.advice] if found.advice else []))


def _judge_accuracy(proof: Proof) -> str:
    found = proof.accuracy
    return (
        f"On prompts like these the router names the right expert {round(100 * found.value)} times in 100 "
        f"({_range(found)} at 95 % confidence)."
    )


def differs_by_expert(proof: Proof) -> bool:
    """Whether the mean over the experts says something else than the figure on the mix, of the router or a rival."""
    measured: list[Proof | Contender] = [proof, *proof.contenders]
    return any(abs(one.accuracy.value - one.mean_accuracy.value) > NOTABLE for one in measured)


def compare_by_expert(proof: Proof) -> str:
    """The mean over the experts, of the router and its rivals."""
    others = [f"{one.name} {_percent(one.mean_accuracy.value)}" for one in proof.contenders]
    rest = f"; {', '.join(others)}" if others else ""
    own = _percent(proof.mean_accuracy.value)
    return f"As a mean over the experts, each counting the same, the router is right on {own}{rest}."


def _compare(contender: Contender) -> str:
    difference = contender.difference
    name = {TFIDF: TFIDF, MAJORITY: "sending everything to the largest expert"}.get(contender.name, contender.name)
    points = f"{100 * abs(difference.value):.1f} points"
    between = f"({_points(difference.low)} to {_points(difference.high)})"
    if difference.low > 0:
        return f"It is {points} better than {name} {between}."
    if difference.high < 0:
        return f"It is {points} worse than {name} {between}: that would serve these prompts better."
    return f"It is as good as {name}: the difference of {_points(difference.value)} points {between} may be chance."


def judge_curve(proof: Proof) -> str | None:
    """What more prompts would bring, in one sentence; None where that was not measured."""
    gain = proof.doubling
    if gain is None:
        return None
    between = f"({_points(gain.low)} to {_points(gain.high)})"
    if gain.high <= FLAT or (gain.value <= FLAT and gain.high < 4 * FLAT):
        return f"The learning curve is flat: twice the prompts would bring {_points(gain.value)} points {between}."
    if gain.low <= 0:
        return f"Twice the prompts may bring {_points(gain.value)} points {between}, or nothing: that is not clear yet."
    return f"Twice the prompts would bring about {_points(gain.value)} points {between}."


def describe_method(proof: Proof, router: Router, *, can_be_held: int, lacks_sklearn: bool) -> tuple[str, ...]:
    """How it was measured, and what could not be."""
    if proof.method == "holdout":
        notes = [
            f"{proof.prompts:,} prompts were held out of the fit.",
            "The router never saw them. To use all prompts, fit again without holding any out.",
        ]
    else:
        few = f"{proof.folds} of {proof.of_folds} folds" if proof.folds < proof.of_folds else f"{proof.folds} folds"
        notes = [
            f"{proof.prompts:,} of {proof.known:,} prompts were held out in turn, in {few}.",
            "The scorer was chosen once, on all prompts; every fold fits its weights anew.",
        ]
    notes.append(ACCURACY)
    if weighted := _describe_weights(proof, can_be_held):
        notes.append(weighted)
    if unmeasured := [name for name in proof.experts if proof.recall[name] is None]:
        notes.append(f"No prompt of {name_some(unmeasured)} could be held out: these figures leave such experts out.")
    if not router.calibrated:
        notes.append("Confidence is not calibrated, so it says little here.")
    if proof.contenders:
        notes += [NOT_COMPARED, *[ADD_TFIDF] * lacks_sklearn]
    return tuple(notes)


def _describe_weights(proof: Proof, can_be_held: int) -> str:
    """That the held-out prompts are weighted, where their mix is another than that of all prompts."""
    held = [sum(row) / proof.prompts for row in proof.confusion]
    if max(abs(own - share) for own, share in zip(held, proof.mix.values(), strict=True)) <= NOTABLE / 2:
        return ""
    reason = f"at most {MAX_PROMPTS:,} of an expert are kept"
    if max(proof.known_each.values()) <= MAX_PROMPTS:
        share = _percent(1 - can_be_held / proof.known)
        reason = f"prompts with {MAX_COPIES} or more copies, or not kept whole, are never held out ({share} of all)"
    return (
        f"Shares are weighted to the mix of all {proof.known:,} prompts, because {reason}; counts are of held-out "
        "prompts."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _range(found: Estimate) -> str:
    return f"{100 * found.low:.1f} to {100 * found.high:.1f}"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"
