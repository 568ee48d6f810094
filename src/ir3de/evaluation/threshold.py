"""When to abstain: the threshold that keeps wrong answers below an error rate, picked from held-out prompts.

A prompt is *answered* when its confidence reaches the threshold τ and it is not out of domain. A loss is a prompt that
is answered and routed to the wrong expert. The fraction of losses R̂(τ) falls as τ rises. Conformal risk control takes
the smallest τ with

    (n · R̂(τ) + 1) / (n + 1) ≤ α

Then the expected fraction of losses among new prompts, exchangeable with the n held-out ones, is at most α. This holds
for any confidence, well calibrated or not; with better confidence more prompts are answered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.corpora.labelled import Labelled, prompts_of, read_experts
from ir3de.errors import InputError
from ir3de.evaluation.intervals import JSONReport
from ir3de.evaluation.prompts import route_in_batches
from ir3de.fitting.calibration import Scored, fit_calibration
from ir3de.fitting.domains import require_experts, require_router
from ir3de.policies import Calibration, Policy
from ir3de.router import Router
from ir3de.routing.decision import Decision
from ir3de.statistics.sample import hash_text

FULL_CONFIDENCE = float(np.nextafter(1.0, 0.0))  # no threshold below 1 lies above this confidence
ROUNDING = 1e-9  # α(n + 1) is often a whole number, and its floating-point value is not


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out prompts: how confident the router was, whether it was right, and whether it would answer at all."""

    confidence: npt.NDArray[np.float64]  # (n,)
    right: npt.NDArray[np.bool_]  # (n,)
    answerable: npt.NDArray[np.bool_]  # (n,)  it is answered without a threshold
    familiar: npt.NDArray[np.bool_]  # (n,)  it is not out of domain

    def __len__(self) -> int:
        return len(self.confidence)

    def is_answered(self, threshold: float) -> npt.NDArray[np.bool_]:
        """Which prompts a router with that threshold answers."""
        if threshold == 0:
            return self.answerable
        return self.answerable & self.familiar & (self.confidence >= threshold)


@dataclass(frozen=True)
class Threshold(JSONReport):
    """A threshold, the error rate it was picked for, and what it costs on the prompts it was picked on.

    `coverage` is the fraction of prompts answered. `wrong` is the fraction of all prompts that are answered and wrong;
    `bound` limits its expectation among new prompts. `answered_wrong` is the fraction of the answered prompts that are
    wrong. `free_…` are the same without a threshold.
    """

    error: float
    threshold: float
    prompts: int
    coverage: float
    wrong: float
    answered_wrong: float
    bound: float
    free_coverage: float
    free_wrong: float


def pick_threshold(held: HeldOut, error: float) -> Threshold:
    """The smallest threshold whose expected share of wrong answers is at most `error`.

    >>> from numpy import array
    >>> sure, right, always = array([0.9, 0.8, 0.7, 0.6]), array([True, True, False, False]), array([True] * 4)
    >>> pick_threshold(HeldOut(sure, right, always, always), 0.4).coverage
    0.75
    """
    n = len(held)
    needed = count_needed_prompts(error)
    if needed > n:
        raise InputError(
            f"an error rate of {error:.2%} needs at least {needed:,} held-out prompts to pick a threshold from, "
            f"found {n:,}: give more prompts, or allow more errors"
        )
    threshold = _find_smallest(held, math.floor(error * (n + 1) - 1 + ROUNDING), error)
    answered, free = held.is_answered(threshold), held.is_answered(0.0)
    wrong = int((answered & ~held.right).sum())
    return Threshold(
        error,
        threshold,
        n,
        coverage=float(answered.mean()),
        wrong=wrong / n,
        answered_wrong=wrong / max(1, int(answered.sum())),
        bound=(wrong + 1) / (n + 1),
        free_coverage=float(free.mean()),
        free_wrong=float((free & ~held.right).mean()),
    )


def count_needed_prompts(error: float) -> int:
    """How many prompts a threshold for that error rate needs at least: the smallest n with 1/(n + 1) ≤ error.

    >>> count_needed_prompts(0.05)
    19
    """
    if not isinstance(error, (int, float)) or not 0 < error < 1:
        raise InputError(f"an error rate lies between 0 and 1, found {error!r}: 0.05 allows 5 % of wrong answers")
    return max(1, math.ceil(1 / error - 1 - ROUNDING))


def _find_smallest(held: HeldOut, allowed: int, error: float) -> float:
    """The smallest threshold that leaves at most `allowed` wrong answers."""
    if int((held.is_answered(0.0) & ~held.right).sum()) <= allowed:
        return 0.0
    wrong = np.sort(held.confidence[held.answerable & held.familiar & ~held.right])[::-1]
    if len(wrong) <= allowed:
        return float(np.nextafter(0.0, 1.0))  # enough that out-of-domain prompts are left out
    if wrong[allowed] >= FULL_CONFIDENCE:
        certain = int((wrong >= FULL_CONFIDENCE).sum())
        raise InputError(
            f"no threshold reaches an error rate of {error:.2%}: {certain:,} of {len(held):,} "
            "held-out prompts are wrong at full confidence. Look at them (`ir3de eval --errors`), or allow more errors"
        )
    return float(np.nextafter(wrong[allowed], 1.0))


@dataclass(frozen=True)
class ThresholdCalibration:
    """A router with its threshold, how that was chosen, and what other error rates would cost."""

    router: Router
    chosen: Threshold
    others: tuple[Threshold, ...]

    def __repr__(self) -> str:  # in one line: the fields have everything
        chosen = self.chosen
        figures = f"threshold={chosen.threshold:.3f}, coverage={chosen.coverage:.3f}, wrong={chosen.wrong:.3f}"
        return f"ThresholdCalibration(prompts={chosen.prompts}, error={chosen.error:g}, {figures}, …)"


def calibrate_threshold(
    router: Router,
    domains: Mapping[str, Iterable[str]] | Labelled,
    labels: Iterable[Any] | None = None,
    *,
    label: str | None = None,
    text: str | None = None,
    error: float = 0.05,
    others: Sequence[float] = (),
    default: str | None = None,
    recalibrate: bool = True,
) -> ThresholdCalibration:
    """Pick the threshold below which the router abstains, from prompts it was not fitted on: a new router.

    `domains` is {expert: prompts}; or prompts, and `labels` is then their experts; or labelled prompts of any shape
    with `label` and `text`, as in `Router.fit`. One half of the prompts, chosen by a hash of their text, calibrates the
    confidence anew; the other half picks the threshold. `recalibrate=False` keeps the confidence as it is and picks
    from all of them. The domains count as they come: a domain with twice the prompts is expected twice as often. Costs
    play no part: wrong is a prompt whose most probable expert is not its own. `others` are further error rates to
    compare with; those out of reach are left out.

    >>> import ir3de
    >>> from ir3de.corpora import examples
    >>> made = calibrate_threshold(ir3de.Router.fit(examples.prompts()), examples.held_out(), error=0.1)
    >>> made.chosen.wrong <= made.chosen.bound <= 0.1
    True
    """
    require_router(router, "calibrate_threshold(router, data, label=…)")
    check_has_confidence(router)
    needed = count_needed_prompts(error)
    plain = router.with_policy(Policy())
    routed = route_held_out(plain, read_experts(domains, label, text, labels, call="calibrate_threshold(router, "))
    if recalibrate and (learning := [one for one in routed if not one.picks_threshold]):
        routed = [one for one in routed if one.picks_threshold]
        plain = plain.with_calibration(fit_confidence(learning, plain.experts))
        if needed > len(routed):
            raise InputError(
                f"an error rate of {error:.2%} needs at least {needed:,} held-out prompts to pick a threshold from. "
                f"Of the {len(routed) + len(learning):,} given, half calibrate confidence and {len(routed):,} are "
                f"left: give about {2 * needed:,}, allow more errors, or keep confidence as it is "
                "(recalibrate=False, --keep-confidence)"
            )
    held = score_held_out(routed, plain)
    chosen = pick_threshold(held, error)
    compared = []
    for rate in others:
        with suppress(InputError):  # out of reach
            compared.append(pick_threshold(held, rate))
    policy = replace(router.policy, threshold=chosen.threshold)
    return ThresholdCalibration(plain.with_policy(policy, default=default), chosen, tuple(compared))


def check_has_confidence(router: Router) -> None:
    """Refuse a router whose values are not probabilities."""
    router.require_probabilities(
        "it has an expected score, not a probability of being right, so there is nothing to calibrate and no error "
        "rate to pick a threshold for"
    )


@dataclass(frozen=True)
class RoutedPrompt:
    """A held-out prompt: its own expert, and the decision."""

    expert: str
    decision: Decision
    picks_threshold: bool  # in the half that the threshold is picked from


def route_held_out(router: Router, domains: Mapping[str, Iterable[str]]) -> list[RoutedPrompt]:
    """Route every prompt, and split the prompts into halves by a hash of their text."""
    require_experts(domains, router.experts)
    routed: list[RoutedPrompt] = []
    for name, given in domains.items():
        before = len(routed)
        for texts, decisions in route_in_batches(router, prompts_of(name, given), str):
            pairs = zip(texts, decisions, strict=True)
            routed += [RoutedPrompt(name, decision, hash_text(text) & 1 == 1) for text, decision in pairs]
        if len(routed) == before:
            raise InputError(f"'{name}' has no prompt to calibrate with: give it at least one, or leave it out")
    return routed


def calibrate_confidence(
    router: Router,
    domains: Mapping[str, Iterable[str]] | Labelled,
    labels: Iterable[Any] | None = None,
    *,
    label: str | None = None,
    text: str | None = None,
) -> Router:
    """Calibrate confidence on prompts that the router was not fitted on: a new router.

    `domains` is {expert: prompts}; or prompts, and `labels` is then their experts; or labelled prompts of any shape
    with `label` and `text`, as in `Router.fit`. A fit calibrates confidence already, on the prompts that it keeps; this
    is for prompts that are more like those to come.

    >>> import ir3de
    >>> from ir3de.corpora import examples
    >>> router = ir3de.Router.fit(examples.prompts(), keep_sample=False)
    >>> router.calibrated, calibrate_confidence(router, examples.held_out()).calibrated
    (False, True)
    """
    require_router(router, "calibrate_confidence(router, data, label=…)")
    check_has_confidence(router)
    given = read_experts(domains, label, text, labels, call="calibrate_confidence(router, ")
    routed = route_held_out(router.with_policy(Policy()), given)
    return router.with_calibration(fit_confidence(routed, router.experts))


def fit_confidence(routed: Sequence[RoutedPrompt], experts: Sequence[str]) -> Calibration:
    """Fit a calibration to prompts that were routed already."""
    known = [one for one in routed if one.decision.counted]
    if not known:
        raise InputError("none of the held-out prompts has a known token: give prompts like those the router is for")
    place = {name: index for index, name in enumerate(experts)}
    scored = Scored(
        np.array([one.decision.evidence for one in known]),
        np.array([one.decision.counted for one in known], np.int64),
        np.array([place[one.expert] for one in known], np.int64),
    )
    return fit_calibration(scored.in_fixed_order())[0]


def score_held_out(routed: Sequence[RoutedPrompt], router: Router) -> HeldOut:
    """Confidence of these prompts by the router's calibration, and whether each is routed right."""
    rules = router.compiled.rules
    decisions = [one.decision.under(rules) for one in routed]
    return HeldOut(
        np.array([decision.confidence for decision in decisions], np.float64),
        np.array([decision.best == one.expert for decision, one in zip(decisions, routed, strict=True)], bool),
        np.array([not decision.abstained for decision in decisions], bool),
        np.array([not decision.out_of_domain for decision in decisions], bool),
    )
