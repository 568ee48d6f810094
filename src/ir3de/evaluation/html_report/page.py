"""A whole report: one HTML page with its style, its pictures and one small script inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from ir3de.evaluation.html_report.answer import draw_answer
from ir3de.evaluation.html_report.experts import draw_confusion, draw_vocabulary, list_confused, tabulate_experts
from ir3de.evaluation.html_report.figures import count, list_prompts, percent
from ir3de.evaluation.html_report.pictures import (
    draw_coverage,
    draw_curve,
    draw_frontier,
    draw_reliability,
    find_coverage,
)
from ir3de.evaluation.html_report.subject import Subject
from ir3de.evaluation.proof import Proof, judge_curve
from ir3de.routing.colours import write_variables
from ir3de.routing.drawing.markup import Child, Markup, join, make

FOLDER = Path(__file__).parent
PAIRS_BESIDE = 4  # confused pairs that may stand beside the matrix
MARK = (
    '<svg viewBox="0 0 24 24" aria-hidden="true"><circle cx="5" cy="12" r="3.2" style="fill:var(--ink)"></circle>'
    '<path d="M8 12h3l5-6h2M11 12h7M11 12l5 6h2" style="fill:none;stroke:var(--column);stroke-width:1.6"></path>'
    '<circle cx="20" cy="6" r="2.6" style="fill:var(--e0)"></circle>'
    '<circle cx="20" cy="12" r="2.6" style="fill:var(--e1)"></circle>'
    '<circle cx="20" cy="18" r="2.6" style="fill:var(--e2)"></circle></svg>'
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Section:
    """A part of the page: its short name, its heading, a sentence or two about it, and what it shows."""

    id: str
    heading: str
    lead: Child
    content: Child
    small: bool = False  # it may stand beside another one


def write_page(subject: Subject) -> str:
    """The page as text. It asks for nothing: its policy forbids every request, and every script but its own."""
    style = write_variables() + (FOLDER / "style.css").read_text(encoding="utf-8")
    script = (FOLDER / "sort.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"{POLICY}; script-src 'sha256-{digest}'"
    sections = list(_list_sections(subject))
    head = make(
        "head",
        make("meta", charset="utf-8"),
        make("meta", http_equiv="Content-Security-Policy", content=policy),
        make("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        make("meta", name_="color-scheme", content="light dark"),
        make("meta", name_="generator", content=f"ir3de {subject.version}"),
        make("link", rel="icon", href="data:,"),
        make("title", f"{subject.name}: {percent(subject.proof.accuracy.value)} routed right · IR3DE report"),
        make("style", Markup(style)),
    )
    body = make(
        "body",
        make("a", "Skip to content", class_="skip", href="#main"),
        _draw_top(sections),
        make("main", draw_answer(subject), _draw_notices(subject), _place_sections(sections), id="main"),
        make("footer", make("p", _say_privacy(subject))),
        make("script", Markup(script)),
    )
    return f"<!doctype html>\n{make('html', head, body, lang='en')}\n"


def _draw_top(sections: Sequence[Section]) -> Markup:
    links = [make("li", make("a", one.id.capitalize(), href=f"#{one.id}")) for one in sections]
    brand = make("p", Markup(MARK), make("span", "IR3DE report"), class_="brand")
    return make("header", brand, make("nav", make("ul", links), aria_label="Parts of this report"), class_="top")


def _draw_section(section: Section) -> Markup:
    heading, lead = make("h2", section.heading, id=f"{section.id}-heading"), make("p", section.lead, class_="lead")
    return make(
        "section", heading, lead, section.content,
        class_="card", id=section.id, aria_labelledby=f"{section.id}-heading",
    )  # fmt: skip


def _place_sections(sections: Sequence[Section]) -> Iterator[Markup]:
    """One below the other; those with one small picture stand side by side."""
    for small, group in groupby(sections, key=lambda section: section.small):
        drawn = [_draw_section(section) for section in group]
        yield make("div", drawn, class_="pair") if small else join(drawn)


def _draw_notices(subject: Subject) -> Child:
    said = [make("p", text, class_="notice") for text in subject.notices]
    return make("div", said, role="note", aria_label="Mind this") if said else None


def _list_sections(subject: Subject) -> Iterator[Section]:
    proof = subject.proof
    yield _section_of_errors(subject)
    yield _section_of_confidence(subject)
    if proof.abstained.count:
        yield _section_of_abstentions(subject)
    if proof.curve:
        yield Section("curve", "More prompts", _say_doubling(proof), draw_curve(proof.curve, proof.doubling), True)
    if proof.frontier is not None:
        lead = (
            f"Cheaper experts take prompts over as {proof.frontier.unit} weighs more. Each point is the router at one "
            "weight. Quality here is the mean over the experts’ domains, so that a large one does not hide a small one."
        )
        yield Section("cost", "Quality against cost", lead, draw_frontier(proof.frontier))
    yield Section(
        "experts",
        "Each expert",
        "Recall: the share of its prompts that it gets. Precision: the share of what it gets that is its own.",
        tabulate_experts(proof),
    )
    if subject.examples and (shown := draw_vocabulary(subject.words, proof.experts)):
        lead = "What gives each expert its lead over the next one, in some of its prompts. Words add up."
        yield Section("words", "Words that speak for each expert", lead, shown)
    yield _section_of_commands(subject)


def _section_of_errors(subject: Subject) -> Section:
    proof = subject.proof
    wrong = proof.prompts - sum(row[place] for place, row in enumerate(proof.confusion))
    lead = f"{count(wrong, 'held-out prompt')} of {proof.prompts:,} went to another expert than their own."
    first, rest = (
        list_confused(pairs, proof.experts, examples=subject.examples)
        for pairs in (proof.confused[:PAIRS_BESIDE], proof.confused[PAIRS_BESIDE:])
    )
    surest = ", with the prompts that the router was surest of" if subject.examples else ""
    beside = make("div", make("h3", f"Most confused pairs{surest}"), first) if first else None
    return Section("errors", "Where it errs", lead, [make("div", draw_confusion(proof), beside, class_="beside"), rest])


def _section_of_confidence(subject: Subject) -> Section:
    proof, abstained = subject.proof, subject.proof.abstained
    spots = find_coverage(proof.reliability)
    answered = abstained.answered_accuracy
    here = None if answered is None else (1 - abstained.share.value, answered.value)
    figures = make(
        "div",
        make("div", make("h3", "Is it right as often as it says?"), draw_reliability(proof.reliability)),
        make("div", make("h3", "If it answered only when it is sure"), draw_coverage(spots, here)),
        class_="pair",
    )
    lead = (
        f"Confidence and accuracy differ by {100 * proof.calibration_error:.1f} points on average. "
        "A threshold trades answers for accuracy: "
    )
    none = "" if abstained.count else " As it is, the router abstains on none of these prompts."
    said = [lead, make("code", "ir3de calibrate"), " picks one.", none]
    return Section("confidence", "How far confidence can be trusted", said, figures)


def _section_of_abstentions(subject: Subject) -> Section:
    abstained = subject.proof.abstained
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in abstained.reasons.items())
    where = f"They would go to {subject.default}." if subject.default else "No default expert is named for them."
    said = f"{count(abstained.count, 'held-out prompt')} ({percent(abstained.share.value)} of all): {reasons}. {where}"
    if abstained.answered_accuracy is not None:
        said += f" Of the others {percent(abstained.answered_accuracy.value)} are right."
    shown = list_prompts(abstained.examples) if subject.examples else None
    return Section("abstained", "What it abstains on", said, shown, True)


def _say_doubling(proof: Proof) -> str:
    sentence = judge_curve(proof)
    return sentence or "The accuracy with fewer training prompts, on the same held-out prompts."


def _section_of_commands(subject: Subject) -> Section:
    commands = [("Make this report again", subject.command), *subject.next_commands]
    steps = [make("div", make("h3", what), make("pre", make("code", command))) for what, command in commands]
    notes = make("ul", [make("li", note) for note in subject.proof.notes], class_="quiet")
    method = make("div", make("h3", "How it was measured"), notes)
    return Section("next", "What comes next", "The same figures are printed by the first command with --json.",
                   make("div", steps, method, class_="steps"))  # fmt: skip


def _say_privacy(subject: Subject) -> str:
    made = f"Made by IR3DE {subject.version}. This page asks for nothing from any network."
    if subject.examples:
        return f"{made} It shows prompts and words of the data; --no-examples leaves them out."
    return f"{made} It shows no text of any prompt."
