"""A proof as one HTML page that is complete in itself: no server, no network, no library."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ir3de.evaluation import pictures
from ir3de.evaluation.frontier import Frontier, FrontierPoint
from ir3de.evaluation.intervals import write_points
from ir3de.evaluation.pictures import percent
from ir3de.evaluation.proof import (
    ENOUGH_PROMPTS,
    Proof,
    compare_by_expert,
    describe_folds,
    differs_by_expert,
    judge,
    judge_curve,
)
from ir3de.router import Router
from ir3de.routing.colours import COLOURS, write_variables
from ir3de.routing.html import load_templates

FOLDER = Path(__file__).with_name("templates")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
SURE = 0.9  # the confidence of the example
FRONTIER_ROWS = 8  # at most, of the table next to the frontier
MAX_PROMPTS = 40  # of each expert, that are explained
MAX_WORDS = 8  # of each expert
MIN_LETTERS, MAX_LETTERS = 2, 30  # of a word


@dataclass(frozen=True)
class SpokenWord:
    """A word of an expert's prompts, and what it contributes to the expert over some of them."""

    text: str
    contribution: float


@dataclass(frozen=True)
class Subject:
    """Everything that a page shows. Without `examples` it shows no text of any prompt, and no word of them."""

    proof: Proof
    name: str  # of the router
    digest: str | None  # of its content; None for one that was never saved
    made: datetime
    version: str  # of IR3DE
    scorer: str
    embedding: str
    source: str  # where the prompts came from
    command: str  # that makes this report again
    next_commands: Sequence[tuple[str, str]] = ()  # what to do next, and the command for it
    notices: Sequence[str] = ()  # what a reader must know before the figures
    default: str | None = None  # the expert for prompts that the router abstains on
    words: Mapping[str, Sequence[SpokenWord]] = field(default_factory=dict)
    examples: bool = True


def write_page(subject: Subject) -> str:
    """The page as text. Its policy forbids every request, and every script but its own."""
    from markupsafe import Markup

    proof, abstained, made = subject.proof, subject.proof.abstained, subject.made.astimezone(UTC)
    style = write_variables() + (FOLDER / "report.css").read_text(encoding="utf-8")
    script = (FOLDER / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    counts = np.array(proof.confusion, np.int64)
    spots = pictures.find_coverage(proof.reliability)
    answered = abstained.answered_accuracy
    here = None if answered is None else (1 - abstained.share.value, answered.value)
    templates = load_templates(FOLDER)
    templates.filters |= {"percent": percent, "points": write_points, "number": _write_number}
    return templates.get_template("report.html").render(
        subject=subject,
        proof=proof,
        version=subject.version,
        style=Markup(style),  # noqa: S704 - a file of this package
        script=Markup(script),  # noqa: S704
        policy=f"{POLICY}; script-src 'sha256-{digest}'",
        verdict=judge(proof),
        example=_describe_threshold(proof, spots),
        by_expert=compare_by_expert(proof) if differs_by_expert(proof) else "",
        folds=describe_folds(proof),
        made=f"{made.day} {made:%B %Y, %H:%M} UTC",
        wrong=proof.prompts - int(np.trace(counts)),
        places=pictures.choose_block(counts),
        experts=list(_list_experts(proof, counts)),
        doubling=judge_curve(proof),
        words={name: found for name in proof.experts if subject.examples and (found := subject.words.get(name))},
        reliability=pictures.draw_reliability(proof.reliability),
        coverage=pictures.draw_coverage(spots, here),
        curve=pictures.draw_curve(proof.curve, proof.doubling) if proof.curve else None,
        frontier=proof.frontier and pictures.draw_frontier(proof.frontier),
        frontier_rows=proof.frontier and _choose_points(proof.frontier),
        colours=len(COLOURS),
    )


def _describe_threshold(proof: Proof, spots: Sequence[pictures.Covered]) -> str:
    """The effect of a threshold on a thousand prompts."""
    wrong = round(1000 * (1 - proof.accuracy.value))
    sentence = f"Of 1,000 prompts, {wrong:,} would go to a wrong expert."
    strict = [spot for spot in spots if spot.threshold >= SURE]
    if not strict or not wrong or proof.prompts < ENOUGH_PROMPTS:
        return sentence
    answered = 1000 * strict[-1].coverage
    left, unanswered = round(answered * (1 - strict[-1].accuracy)), round(1000 - answered)
    sure = pictures.short_percent(SURE)
    return f"{sentence} Abstaining below {sure} confidence leaves {left:,} wrong and {unanswered:,} unanswered."


def _list_experts(proof: Proof, counts: pictures.Counts) -> Iterator[dict[str, Any]]:
    """One row per expert for the table."""
    sizes = counts.sum(axis=1)
    stands_for = np.array(list(proof.mix.values())) / np.maximum(sizes, 1)  # of all prompts, by one that was held out
    arrived = stands_for @ counts
    wrong = counts - np.diag(np.diagonal(counts))
    for place, name in enumerate(proof.experts):
        right, other = int(counts[place, place]), int(wrong[place].argmax())
        yield {
            "name": name,
            "size": int(sizes[place]),
            "recall": right / int(sizes[place]) if sizes[place] else None,
            "precision": right * stands_for[place] / arrived[place] if arrived[place] else None,
            "abstained": proof.abstained.experts[name],
            "taken_for": f"{proof.experts[other]} ({wrong[place, other]:,})" if wrong[place].any() else "–",
        }


def _choose_points(found: Frontier) -> list[FrontierPoint]:
    """Some points of the frontier, the router's own among them."""
    step = -(-len(found.points) // FRONTIER_ROWS)
    return [point for place, point in enumerate(found.points) if place % step == 0 or point.weight == found.weight]


def _write_number(value: float) -> str:
    """A number in a picture: two digits after the point are finer than any screen.

    >>> _write_number(1 / 3), _write_number(2.0)
    ('0.33', '2')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")


def find_words(router: Router, domains: Mapping[str, Iterable[str]]) -> dict[str, tuple[SpokenWord, ...]]:
    """For each expert the words that gave it the largest lead over the next expert, in prompts that it gets.

    Words that other experts' prompts have as well count less.

    >>> router = Router.fit({"maths": ["Solve x + 3 = 10."], "law": ["Is this contract void?"]})
    >>> [word.text for word in find_words(router, {"law": ["Is this contract void?"]})["law"]][:2]
    ['void', 'contract']
    """
    found = {name: _sum_words(router, name, islice(texts, MAX_PROMPTS)) for name, texts in domains.items()}
    everywhere = sum((counts for counts, _ in found.values()), Counter[str]())
    return {name: _choose_words(counts, sums, everywhere) for name, (counts, sums) in found.items()}


def _sum_words(router: Router, name: str, texts: Iterable[str]) -> tuple[Counter[str], dict[str, float]]:
    """How often each word occurs in an expert's prompts, and what it contributes where the expert gets them."""
    counts, sums = Counter[str](), defaultdict[str, float](float)
    for text in texts:
        found = router.explain(text)
        words = [(word.text.strip().casefold(), word.contribution) for word in found.words if word.counted]
        words = [(word, value) for word, value in words if MIN_LETTERS <= len(word) <= MAX_LETTERS and word.isalpha()]
        counts.update(word for word, _ in words)
        if found.decision.best == name:
            for word, value in words:
                sums[word] += value
    return counts, sums


def _choose_words(counts: Counter[str], sums: Mapping[str, float], everywhere: Counter[str]) -> tuple[SpokenWord, ...]:
    worth = {word: value * counts[word] / everywhere[word] for word, value in sums.items() if value > 0}
    best = sorted(worth, key=lambda word: (-worth[word], word))[:MAX_WORDS]
    return tuple(SpokenWord(word, worth[word]) for word in best)
