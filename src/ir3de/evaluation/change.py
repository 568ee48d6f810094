"""What a change makes of a router: scorer, held-out accuracy, confidence, and the prompts that go elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ir3de.evaluation.intervals import Estimate, JSONReport, estimate_difference, estimate_weighted_share
from ir3de.evaluation.prompts import Floats, weigh_by_mix
from ir3de.fitting.parts import KeptPrompt
from ir3de.router import Router

MOST_EXAMPLES = 5
MAX_EXAMPLE_TOKENS = 64


@dataclass(frozen=True)
class RouterFigures:
    """A router on its kept prompts, each routed by a fit that did not see it. None where no prompt can be held out.

    As in a proof, an expert's prompts weigh its share of all prompts that the router was given.
    """

    scorer: str
    selector: str
    prompts: int  # held out
    accuracy: Estimate | None  # how often the most probable expert is the right one
    mean_confidence: float | None


@dataclass(frozen=True)
class MovedPrompt:
    """A kept prompt that goes elsewhere; None stands for no expert: the router abstains and has no default."""

    prompt: str
    expert: str  # that the prompt belongs to
    before: str | None
    after: str | None
    confidence_before: float
    confidence_after: float


@dataclass(frozen=True)
class ChangeReport(JSONReport):
    """A router before and after a change. Prompts that were kept before and after are compared, in the mix after it."""

    before: RouterFigures
    after: RouterFigures
    compared: int
    difference: Estimate | None  # of the accuracies on these prompts, after minus before
    moved: int
    examples: tuple[MovedPrompt, ...]  # the surest before come first


def measure_change(before: Router, after: Router) -> ChangeReport:
    """Compare a router with what a change made of it; `copy.copy(router)` keeps the one before.

    >>> import copy, ir3de
    >>> from ir3de.corpora import examples
    >>> from ir3de.evaluation import measure_change
    >>> from ir3de.scorers import Blend
    >>> router = ir3de.Router.fit(examples.prompts(), scorer=Blend())
    >>> before = copy.copy(router)
    >>> router.remove("law")
    >>> found = measure_change(before, router)
    >>> found.compared, found.after.scorer == found.before.scorer
    (480, True)
    """
    kept = [router.route_kept() for router in (before, after)]
    known: dict[tuple[str, bytes], list[KeptPrompt]] = {}
    for one in kept[0]:
        known.setdefault((one.expert, one.ids.tobytes()), []).append(one)
    pairs = [(was.pop(0), now) for now in kept[1] if (was := known.get((now.expert, now.ids.tobytes())))]
    moved = [(was, now) for was, now in pairs if was.decision.expert != now.decision.expert]
    moved.sort(key=lambda pair: -(pair[0].decision.confidence or 0.0))
    figures = _measure(before, kept[0]), _measure(after, kept[1])
    right = np.array([[_is_right(one) for one in pair] for pair in pairs]).reshape(-1, 2)
    weights = _weigh(after, [now for _, now in pairs])
    difference = estimate_difference(right[:, 1], right[:, 0], weights) if pairs else None
    return ChangeReport(*figures, len(pairs), difference, len(moved), _describe(after, moved[:MOST_EXAMPLES]))


def _is_right(one: KeptPrompt) -> bool:
    return one.decision.quality[0][0] == one.expert


def _weigh(router: Router, kept: Sequence[KeptPrompt]) -> Floats:
    """What each of these prompts stands for among all that the router was given."""
    if not kept:
        return np.zeros(0)
    prompts = router.prompts
    places = {name: place for place, name in enumerate(prompts)}
    experts = np.array([places[one.expert] for one in kept], np.int64)
    return weigh_by_mix(experts, np.array([*prompts.values()], np.int64))


def _measure(router: Router, kept: Sequence[KeptPrompt]) -> RouterFigures:
    accuracy, mean = None, None
    if kept:
        weights = _weigh(router, kept)
        accuracy = estimate_weighted_share(np.array([_is_right(one) for one in kept]), weights)
        mean = round(math.fsum(weights * [one.decision.confidence or 0.0 for one in kept]), 6)
    return RouterFigures(repr(router.scorer), repr(router.selector), len(kept), accuracy, mean)


def _describe(router: Router, moved: Sequence[tuple[KeptPrompt, KeptPrompt]]) -> tuple[MovedPrompt, ...]:
    texts = router.tokenizer.decode_batch([now.ids[:MAX_EXAMPLE_TOKENS] for _, now in moved])
    sure = [[round(one.decision.confidence or 0.0, 6) for one in pair] for pair in moved]
    return tuple(
        MovedPrompt(text, now.expert, was.decision.expert, now.decision.expert, *confidences)
        for text, (was, now), confidences in zip(texts, moved, sure, strict=True)
    )
