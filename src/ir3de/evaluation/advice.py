"""What a router with few prompts is probably worth, and what would help most, in one line.

Each kept prompt is routed by a fit that did not see it. With few prompts, the error of an expert falls about as 1/∛n
with its n prompts, and a description does as much as four of them: docs/few-prompts.md has what that was chosen on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ir3de.errors import name_some
from ir3de.evaluation.intervals import Estimate, JSONReport, estimate_share
from ir3de.evaluation.proof import Proof
from ir3de.router import Router

FEW_PROMPTS = 30  # of some expert: with so many of each, there is no advice
MIN_MORE_PROMPTS = 20  # that are requested of an expert
DESCRIPTION_PROMPTS = 4  # that a description does as much as
NOTABLE_GAIN = 0.005

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Help:
    """Something that would raise the accuracy, and by how much: None where nothing could be measured."""

    kind: Literal["prompts", "descriptions", "teacher"]
    experts: tuple[str, ...]  # the weakest first
    prompts: int  # more of each of these experts
    gain: float | None  # of the accuracy, as a mean over the experts
    confused_with: str | None = None  # the expert that the weakest is confused with most often

    def __str__(self) -> str:
        gain = f" (about {100 * self.gain:+.0f} points)" if self.gain and self.gain >= NOTABLE_GAIN else ""
        if self.kind == "descriptions":
            return f"a description (--describe) of {name_some(self.experts)}{gain}"
        if self.kind == "teacher":
            return "unlabelled prompts and a teacher (--unlabelled traffic.jsonl --teacher minilm-l6)"
        confused = f", which is confused with {self.confused_with}" if self.confused_with else ""
        return f"{self.prompts} more prompts of each expert{gain}, first of {self.experts[0]}{confused}"


@dataclass(frozen=True)
class Advice(JSONReport):
    """How good a router with few prompts probably is, and what would help: the result of `advise`."""

    accuracy: Estimate | None  # None where no prompt could be held out
    held_out: int  # prompts that were
    fewest: int  # prompts of an expert, without its description
    most: int
    unmeasured: tuple[str, ...]  # the experts of which no prompt could be held out
    helps: tuple[Help, ...]

    def __str__(self) -> str:
        each = f"{self.fewest}" if self.fewest == self.most else f"{self.fewest} to {self.most:,}"
        source = f"from {each} prompt{'s' * (each != '1')} an expert" if self.most else "from descriptions alone"
        if self.accuracy is None:
            known = f"how good this router is cannot be measured {source}"
        else:
            value, low, high = (100 * one for one in (self.accuracy.value, self.accuracy.low, self.accuracy.high))
            known = f"about {value:.0f} % right on new prompts ({low:.0f} to {high:.0f}), {source}"
            known += f", without {name_some(self.unmeasured)}" if self.unmeasured else ""
        return f"{known}; most would help: {'; or '.join(map(str, self.helps))}"


def advise(router: Router, proof: Proof | None = None) -> Advice | None:
    """What a router with few prompts is worth, and what would help; None if every expert has 30 prompts or more.

    A proof of the router, if there is one, gives the figures; else its kept prompts do.

    >>> from ir3de.corpora import examples
    >>> router = Router.fit({name: texts[:6] for name, texts in examples.prompts().items()})
    >>> advice = advise(router)
    >>> advice.held_out, advice.fewest, advice.helps[0].prompts
    (30, 6, 24)
    >>> advise(Router.fit({name: texts[:40] for name, texts in examples.prompts().items()})) is None
    True
    """
    if router.kind != "domains" or len(router.experts) < 2:
        return None
    prompts = router.prompts
    if min(prompts.values()) >= FEW_PROMPTS:
        return None
    names = router.experts
    taught = {name: own.taught_prompts for name, own in router.holdings.items()}
    counted = {name: own.prompts - taught.get(name, 0) for name, own in router.statistics.items()}
    has_description = np.array([counted[name] > prompts[name] for name in names])
    confusion = np.array(_count_mistakes(router) if proof is None else proof.confusion, np.int64)
    sizes = np.array([prompts[name] for name in names], np.int64)
    held = confusion.sum(axis=1)
    helps = [*_list_helps(names, sizes, has_description, confusion)]
    if not any(taught.values()):
        helps.append(Help("teacher", names, 0, None))
    total, right = int(held.sum()), int(confusion.trace())
    accuracy = (estimate_share(right, total) if proof is None else proof.accuracy) if total else None
    if (teaching := router.teaching) is not None and teaching.is_used:  # the others leave the teacher out, or know it
        accuracy = estimate_share(teaching.accuracy_with * teaching.held_out, teaching.held_out)
    return Advice(
        accuracy,
        total,
        int(sizes.min()),
        int(sizes.max()),
        tuple(name for name, own in zip(names, held, strict=True) if not own) if total else (),
        tuple(helps),
    )


def _count_mistakes(router: Router) -> Counts:
    """How many kept prompts of each expert go to each: (C, C)."""
    place = {name: at for at, name in enumerate(router.experts)}
    found = np.zeros((len(place), len(place)), np.int64)
    for kept in router.route_kept():
        found[place[kept.expert], place[kept.decision.best]] += 1
    return found


def _list_helps(names: Sequence[str], sizes: Counts, has_description: Flags, confusion: Counts) -> Iterator[Help]:
    more = np.maximum(MIN_MORE_PROMPTS, FEW_PROMPTS - sizes)
    known = sizes + DESCRIPTION_PROMPTS * has_description
    errors = _estimate_errors(known, confusion)
    gains = np.asarray(errors * _shrink(known, more) / len(names))
    is_measured = bool(confusion.any())

    def gain(values: Floats) -> float | None:
        return round(float(values.sum()), 4) if is_measured else None

    # One expert with many prompts among others with few draws their prompts to it. So all are named, weakest first.
    order = sorted(range(len(names)), key=lambda at: (-gains[at], at))
    wrong = confusion - np.diag(confusion.diagonal())
    nearest = wrong[order[0]] + wrong[:, order[0]]
    other = names[int(nearest.argmax())] if nearest.any() else None
    yield Help("prompts", tuple(names[at] for at in order), int(np.median(more)), gain(gains), other)
    of_description = errors * _shrink(known, np.full(len(names), DESCRIPTION_PROMPTS)) / len(names)
    bare = [at for at in order if not has_description[at]]
    if bare and (not is_measured or of_description[bare].sum() >= NOTABLE_GAIN):
        yield Help("descriptions", tuple(names[at] for at in bare), 0, gain(of_description[bare]))


def _shrink(known: Counts, more: Counts) -> Floats:
    """The share of an error that goes with so many more prompts: 1 − ∛(n/(n + more))."""
    return np.asarray(1.0 - np.cbrt(known / (known + more)))


def _estimate_errors(known: Counts, confusion: Counts) -> Floats:
    """Each expert's share of errors, drawn towards that of all by one prompt; by the law where none was held out."""
    held, C = confusion.sum(axis=1), len(known)
    if not held.any():
        return np.full(C, 1.0 - 1.0 / C)
    wrong = held - confusion.diagonal()
    overall = (wrong.sum() + 0.5) / (held.sum() + 1.0)
    usual = float(known[held > 0].mean())
    by_law = np.minimum(overall * np.cbrt(usual / np.maximum(known, 0.5)), 1.0 - 1.0 / C)
    return np.asarray(np.where(held > 0, (wrong + overall) / (held + 1.0), by_law))
