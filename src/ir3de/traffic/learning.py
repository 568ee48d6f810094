"""Learn from the labels in a journal, with a proof, and take sources out again, to the last bit.

The result of learning depends on the router without feedback, on the labels and on nothing else: not on what was learnt
before, nor in which order. So learning again changes nothing, and what is taken out leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ir3de.errors import InputError
from ir3de.evaluation.intervals import Estimate, estimate_difference, estimate_share
from ir3de.fitting.domains import ScorerChoice
from ir3de.fitting.teaching_report import Teaching
from ir3de.router import Router
from ir3de.statistics.contributions import Contribution
from ir3de.traffic.feedback_proof import FeedbackProof
from ir3de.traffic.journal import Journal
from ir3de.traffic.labels import (
    Contradiction,
    Label,
    LeftOut,
    find_contradictions,
    make_contribution,
    read_labels,
    route_labels,
)
from ir3de.traffic.plausibility import Verdict, judge_labels
from ir3de.traffic.records import list_authors
from ir3de.traffic.scores import ScoreSummary, summarise_scores
from ir3de.traffic.selection import Selection
from ir3de.traffic.sources import Source, SourcePattern, find_feedback, group_ids
from ir3de.traffic.taught_traffic import is_taught_traffic, teach_traffic

if TYPE_CHECKING:
    from ir3de.fitting.lessons import Lesson
    from ir3de.fitting.teachers import TeacherChoice

MAX_LABELS = 50  # of a source for an expert: the first ones count
MIN_PROOF_PROMPTS = 20  # held out, below which there is no proof

Given = dict[tuple[str, str], Contribution]  # by expert and id
T = TypeVar("T")


@dataclass(frozen=True)
class Learning:
    """A candidate, and what it learnt."""

    candidate: Router
    labels: int  # that the candidate learnt from this journal
    sources: tuple[Verdict, ...]
    implausible: int  # labels of these sources that were left out one by one
    over_cap: Mapping[Source, int]  # labels beyond the cap
    counts_only: int  # labels without a sample, which the discriminative part of a router cannot use
    added: int  # contributions
    replaced: int
    removed: int
    unchanged: int
    kept: int  # contributions whose requests the journal no longer has
    left_out: LeftOut
    contradictions: tuple[Contradiction, ...]
    scores: Mapping[str, ScoreSummary]  # by expert; they are reported, and change nothing
    proof: FeedbackProof[Estimate]
    teaching: Teaching | None = None  # what a teacher labelled, if there is one

    @property
    def suspicious(self) -> list[Verdict]:
        """The sources that were left out because their labels are implausible."""
        return [one for one in self.sources if one.is_suspicious]

    @property
    def changes(self) -> int:
        return self.added + self.replaced + self.removed

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        names = ("labels", "implausible", "counts_only", "added", "replaced", "removed", "unchanged", "kept")
        return {
            **{name: getattr(self, name) for name in names},
            "cap": MAX_LABELS,
            "over_cap": [{**vars(source), "labels": many} for source, many in sorted(self.over_cap.items())],
            "sources": [one.to_dict() for one in self.sources],
            "suspicious": [one.to_dict() for one in self.suspicious],
            "left_out": self.left_out.to_dict(),
            "contradictions": [one.to_dict() for one in self.contradictions],
            "scores": {name: one.to_dict() for name, one in self.scores.items()},
            "proof": self.proof.to_dict(),
            "teaching": self.teaching and self.teaching.to_dict(),
        }


def learn(
    router: Router,
    journal: Journal,
    *,
    trust: Iterable[str] = (),
    scorer: ScorerChoice | None = None,
    prove: bool = True,
    teacher: TeacherChoice | Lesson | None = None,
    answers: str | Path | None = None,
) -> Learning:
    """Make a candidate from a router and the labels in a journal. The router stays as it is.

    What is decided about a label depends on the router without feedback and on the label's source alone. Labels of the
    authors in `trust` are learnt even if they are implausible. Without `prove` no label is held out, which saves a fit.
    A `teacher` labels the requests without a label (see `taught_traffic`); the file `answers` keeps its answers.
    """
    _require_domains(router)
    labels, left_out = read_labels(journal, router)
    judged = judge_labels(labels, without_feedback(router, scorer=scorer), trust)
    capped, over_cap = cap_labels(judged.accepted)
    plan = make_plan(find_feedback(router), _group(capped), lambda own: make_contribution(own, router), journal)
    held = {place: plan.planned[place] for place in plan.new}
    proof = _prove(router, plan.gone, held, scorer) if prove else FeedbackProof(0)
    candidate = copy(router)
    candidate.exchange(group_ids(iter(plan.gone)), plan.given, scorer=scorer)
    taught, teaching = ({}, None) if teacher is None else teach_traffic(candidate, journal, teacher, answers)
    if taught:
        candidate.exchange({}, {name: [one] for name, one in taught.items()}, scorer=scorer)
    return Learning(
        candidate,
        sum(map(len, plan.planned.values())),
        judged.verdicts,
        judged.implausible,
        over_cap,
        sum(not one.has_order for own in plan.planned.values() for one in own),
        *plan.counts,
        left_out,
        tuple(find_contradictions(labels, router)),
        summarise_scores(journal),
        proof,
        teaching,
    )


@dataclass(frozen=True)
class Plan(Generic[T]):
    """Which contributions of feedback come and go. The places are pairs of an expert and an id."""

    planned: Mapping[tuple[str, str], Sequence[T]]  # what each contribution is made of
    new: Given
    gone: Sequence[tuple[str, str]]
    counts: tuple[int, int, int, int, int]  # added, replaced, removed, unchanged, kept

    @property
    def given(self) -> dict[str, list[Contribution]]:
        """The new contributions by expert."""
        return _group_contributions(self.new)


def make_plan(
    known: Given, groups: Mapping[tuple[str, str], list[T]], make: Callable[[list[T]], Contribution], journal: Journal
) -> Plan[T]:
    """Compare what a router has with what a journal gives. What the journal no longer has stays as it was learnt."""
    fixed = {place for place, one in known.items() if not is_taught_traffic(one) and not _is_in_journal(one, journal)}
    planned = {place: own for place, own in groups.items() if place not in fixed}
    made = {place: make(own) for place, own in planned.items()}
    new = {place: one for place, one in made.items() if place not in known or not _are_equal(one, known[place])}
    gone = [place for place in known if place not in fixed and (place not in made or place in new)]
    replaced = sum(place in known for place in new)
    removed = len(gone) - replaced - sum(is_taught_traffic(known[place]) for place in gone)
    counts = (len(new) - replaced, replaced, removed, len(made) - len(new), len(fixed))
    return Plan(planned, new, gone, counts)


@dataclass(frozen=True)
class Forgetting:
    """A router without some sources."""

    candidate: Router
    removed: Given

    @property
    def sources(self) -> list[Source]:
        return sorted({Source.of_contribution(one) for one in self.removed.values() if not is_taught_traffic(one)})

    @property
    def labels(self) -> int:
        return sum(one.prompts for one in self.removed.values() if not is_taught_traffic(one))

    @property
    def taught(self) -> int:
        """Labels of a teacher, which heard the prompts and labels of all sources. Learn again with it."""
        return sum(one.prompts for one in self.removed.values() if is_taught_traffic(one))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        gone = [{"expert": expert, "id": name, "prompts": one.prompts} for (expert, name), one in self.removed.items()]
        return {
            "labels": self.labels,
            "taught": self.taught,
            "sources": [vars(one) for one in self.sources],
            "contributions": gone,
        }


def forget(router: Router, pattern: SourcePattern, *, scorer: ScorerChoice | None = None) -> Forgetting:
    """Make the router that never saw these sources. The router itself stays as it is.

    What a teacher labelled goes with any of them: it heard the prompts and labels of all sources.
    """
    found = find_feedback(router)
    gone = {place: one for place, one in found.items() if pattern.matches(Source.of_contribution(one))}
    if gone or pattern.kind == "key":  # a key may have sent requests that only the teacher labelled
        gone |= {place: one for place, one in found.items() if is_taught_traffic(one)}
    candidate = copy(router)
    candidate.exchange(group_ids(gone), {}, scorer=scorer)
    return Forgetting(candidate, gone)


def without_feedback(router: Router, *, scorer: ScorerChoice | None = None) -> Router:
    """The router that never saw any feedback: sources are judged by it."""
    base = copy(router)
    base.exchange(group_ids(find_feedback(router)), {}, scorer=scorer)
    return base


def cap_labels(labels: Sequence[Label]) -> tuple[list[Label], dict[Source, int]]:
    """The first labels of each source for each expert, and how many there were beyond the cap."""
    kept: list[Label] = []
    over: dict[Source, int] = {}
    counts: dict[tuple[Source, str], int] = {}
    for one in labels:
        place = one.source, one.expert
        counts[place] = counts.get(place, 0) + 1
        if counts[place] <= MAX_LABELS:
            kept.append(one)
        else:
            over[one.source] = over.get(one.source, 0) + 1
    return kept, over


def _group(labels: Iterable[Label]) -> dict[tuple[str, str], list[Label]]:
    """Labels by expert and id of their contribution."""
    groups: dict[tuple[str, str], list[Label]] = {}
    for one in labels:
        groups.setdefault((one.expert, one.source.make_id(one.expert)), []).append(one)
    return groups


def _group_contributions(given: Given) -> dict[str, list[Contribution]]:
    grouped: dict[str, list[Contribution]] = {}
    for (expert, _), one in given.items():
        grouped.setdefault(expert, []).append(one)
    return grouped


def _is_in_journal(contribution: Contribution, journal: Journal) -> bool:
    """Whether the journal still has what was learnt: requests expire in the order in which they came."""
    first = journal.find(str(contribution.recipe.get("request", "")))
    return first is not None and first.prompt is not None


def _are_equal(one: Contribution, other: Contribution) -> bool:
    return (one.digest, one.sample_digest, one.recipe) == (other.digest, other.sample_digest, other.recipe)


def _prove(
    router: Router,
    gone: Sequence[tuple[str, str]],
    planned: Mapping[tuple[str, str], Sequence[Label]],
    scorer: ScorerChoice | None,
) -> FeedbackProof[Estimate]:
    """Compare on a fifth of the new labels. What the router had learnt of the same sources is taken out of it first."""
    held = [one for own in planned.values() for one in own if one.is_held_out and not one.source.is_taught]
    if len(held) < MIN_PROOF_PROMPTS:
        return FeedbackProof(len(held))
    rest = {place: [one for one in own if not one.is_held_out] for place, own in planned.items()}
    given = {place: make_contribution(own, router) for place, own in rest.items() if own}
    live, candidate = copy(router), copy(router)
    live.exchange(group_ids(iter(gone)), {}, scorer=scorer)
    candidate.exchange(group_ids(iter(gone)), _group_contributions(given), scorer=scorer)
    experts = [one.expert for one in held]
    right = [
        np.array([made.quality[0][0] == name for made, name in zip(route_labels(one, held), experts, strict=True)])
        for one in (live, candidate)
    ]
    before, after = (estimate_share(int(one.sum()), len(held)) for one in right)
    return FeedbackProof(len(held), before, after, estimate_difference(right[1], right[0]))


def _require_domains(router: Router) -> None:
    if router.kind != "domains":
        raise InputError("this router was fitted from outcomes: learn_scores(router, journal) learns from scores")


def forget_in_journal(journal: Journal, pattern: SourcePattern) -> tuple[int, int]:
    """Delete what the sources are in a journal: how many requests, and how much feedback.

    The requests of a key are deleted with all feedback on them. Of an author or a day, only the feedback is.
    """
    since, until = pattern.times
    if pattern.kind != "key":
        authors = (pattern.name,) if pattern.kind == "author" else ()
        return 0, journal.delete_labels(authors=authors, since=since, until=until)
    labels = journal.delete_labels(authors=list_authors(pattern.name), key=pattern.name, since=since, until=until)
    return journal.delete(Selection(key=pattern.name, since=since, until=until)), labels
