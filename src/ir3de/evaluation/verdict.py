"""A proof in plain sentences."""

from __future__ import annotations

from ir3de.evaluation.contenders import MAJORITY, TFIDF
from ir3de.evaluation.intervals import Estimate
from ir3de.evaluation.proof import Contender, Proof
from ir3de.router import Router

FLAT = 0.005  # a curve whose next doubling brings no more than this is flat


def give_verdict(proof: Proof) -> tuple[str, ...]:
    """What somebody who has to decide should know, the most important first."""
    said = [_judge_accuracy(proof)]
    said += [_compare(contender) for contender in proof.contenders]
    if (more := judge_curve(proof)) is not None:
        said.append(more)
    return tuple(said)


def _judge_accuracy(proof: Proof) -> str:
    found = proof.accuracy
    return (
        f"On prompts like these the router names the right expert {round(100 * found.value)} times in 100 "
        f"({_range(found)} at 95 % confidence)."
    )


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


def describe_method(proof: Proof, router: Router, *, lacks_sklearn: bool) -> tuple[str, ...]:
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
    if not router.calibrated:
        notes.append("Confidence is not calibrated, so it says little here.")
    if lacks_sklearn:
        notes.append("To compare with TF-IDF + logistic regression, install scikit-learn.")
    return tuple(notes)


def _range(found: Estimate) -> str:
    return f"{100 * found.low:.1f} to {100 * found.high:.1f}"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"
