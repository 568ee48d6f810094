"""The first screen of a report: the answer, beside what it is compared with, and what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC

from ir3de.evaluation.html_report.figures import NARROW, count, percent, points, short_percent
from ir3de.evaluation.html_report.pictures import find_coverage
from ir3de.evaluation.html_report.subject import Subject
from ir3de.evaluation.intervals import Estimate
from ir3de.evaluation.proof import ENOUGH_PROMPTS, Proof, compare_by_expert, differs_by_expert, judge
from ir3de.routing.drawing.markup import Child, Markup, make

DIGEST_CHARS = 16
SURE = 0.9  # the confidence of the example
STRIP_WIDTH, STRIP_HEIGHT = 100.0, 20.0  # of a strip, in its own units: it is stretched


def draw_answer(subject: Subject) -> Markup:
    """Should this be deployed? The verdict, the accuracy, the rivals, the facts."""
    proof = subject.proof
    measured = make("div", _draw_big(proof.accuracy), make("p", _say_meaning(proof), class_="quiet"))
    facts = [make("div", make("dt", name), make("dd", value)) for name, value in _list_facts(subject)]
    found = judge(proof)
    return make(
        "section",
        make("p", make("i", aria_hidden="true"), found.words, class_=f"verdict {found.kind}"),
        make("h1", _say_headline(proof)),
        make("p", _say_sure(proof), class_="why"),
        make("p", found.advice, class_="why") if found.advice else None,
        make("div", measured, _compare(proof), class_="figures"),
        make("dl", facts, class_="facts"),
        class_="card answer",
        id="answer",
    )


def _say_headline(proof: Proof) -> str:
    times = round(100 * proof.accuracy.value)
    often = "more than 99" if times == 100 and proof.accuracy.value < 1 else f"{times}"
    return f"Prompts for these {len(proof.experts)} experts reach the right one {often} times in 100"


def _say_sure(proof: Proof) -> str:
    """What a threshold would do to a thousand prompts."""
    wrong = round(1000 * (1 - proof.accuracy.value))
    said = f"Of 1,000 prompts, {wrong:,} would go to a wrong expert."
    strict = [spot for spot in find_coverage(proof.reliability) if spot.threshold >= SURE]
    if not strict or not wrong or proof.prompts < ENOUGH_PROMPTS:
        return said
    answered = 1000 * strict[-1].coverage
    left, unanswered = round(answered * (1 - strict[-1].accuracy)), round(1000 - answered)
    return (
        f"{said} Abstaining below {short_percent(SURE)} confidence leaves {left:,} wrong and {unanswered:,} unanswered."
    )


def _draw_big(accuracy: Estimate) -> Markup:
    return make("p", f"{100 * accuracy.value:.1f}", make("small", f"{NARROW}%"), class_="big")


def _say_meaning(proof: Proof) -> str:
    between = f"between {percent(proof.accuracy.low)} and {percent(proof.accuracy.high)}"
    said = (
        f"of prompts reach the right expert: 95 times in 100, {between}, by {count(proof.prompts, 'held-out prompt')}."
    )
    return f"{said} {compare_by_expert(proof)}" if differs_by_expert(proof) else said


def _compare(proof: Proof) -> Markup:
    """The router, and what else could choose, on one scale."""
    rows = [_draw_row("This router", proof.accuracy, None, own=True)]
    rows += [_draw_row(one.name, one.accuracy, one.difference) for one in proof.contenders]
    head = make(
        "tr",
        make("th", make("span", "chosen by", class_="hidden"), scope="col"),
        make("th", make("span", "drawn", class_="hidden"), class_="strip", scope="col"),
        make("th", "accuracy", class_="value", scope="col"),
        make("th", "router leads by" if proof.contenders else "", class_="value", scope="col"),
    )
    caption = make("caption", "Accuracy on the same held-out prompts, with 95 % intervals", class_="hidden")
    return make("table", caption, make("thead", head), make("tbody", rows), class_="contenders")


def _draw_row(name: str, accuracy: Estimate, lead: Estimate | None, *, own: bool = False) -> Markup:
    value, low, high = (STRIP_WIDTH * share for share in (accuracy.value, accuracy.low, accuracy.high))
    drawn = make(
        "g",
        make("rect", x=0, y=5, width=STRIP_WIDTH, height=10, class_="track"),
        make("rect", x=0, y=5, width=value, height=10, class_="bar"),
        make("rect", x=low, y=8.5, width=max(0.4, high - low), height=3, class_="span"),
        make("rect", x=value - 0.35, y=2, width=0.7, height=16, class_="point"),
        class_="own" if own else None,
    )
    box = f"0 0 {STRIP_WIDTH:g} {STRIP_HEIGHT:g}"
    strip = make("svg", drawn, viewBox=box, preserveAspectRatio="none", aria_hidden="true")
    return make(
        "tr",
        make("th", name, scope="row"),
        make("td", strip, class_="strip"),
        _write_estimate(percent(accuracy.value), f"{percent(accuracy.low)} – {percent(accuracy.high)}"),
        make("td") if lead is None else _write_estimate(
            points(lead.value), f"{points(lead.low, unit=False)} to {points(lead.high, unit=False)}"
        ),
        class_="own" if own else None,
    )  # fmt: skip


def _write_estimate(value: str, interval: str) -> Markup:
    return make("td", value, make("small", interval), class_="value")


def _list_facts(subject: Subject) -> Iterator[tuple[str, Child]]:
    proof = subject.proof
    yield (
        "Measured on",
        f"{count(proof.prompts, 'prompt')} of {count(len(proof.experts), 'expert')}, from {subject.source}",
    )
    yield "How", _say_method(proof)
    yield "Router", f"{subject.name}: {subject.scorer}, {subject.embedding}"
    if subject.digest is not None:
        yield "Router’s digest", make("span", subject.digest[:DIGEST_CHARS], class_="digest", title=subject.digest)
    made = subject.made.astimezone(UTC)
    yield "When", f"{made.day} {made:%B %Y, %H:%M} UTC, with IR3DE {subject.version}"


def _say_method(proof: Proof) -> str:
    if proof.method == "holdout":
        return "On prompts that were held out of the fit"
    rounds = f"{proof.folds} of {proof.of_folds} folds" if proof.folds < proof.of_folds else f"{proof.folds} folds"
    return f"Cross-validation, {rounds}: each prompt is routed by a fit that did not see it"
