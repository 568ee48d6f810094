"""Learn from the scores in a journal: an outcome router's means move, with a proof, and each source can be taken out.

A score is about the expert that answered. It counts in that expert's mean on the task of the prompt, which the router's
own rows decide. So what is learnt of a score depends on the rows, on the score and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from ir3de.errors import InputError
from ir3de.router import Router
from ir3de.statistics.contributions import Contribution
from ir3de.statistics.outcomes import FOLDS, fold
from ir3de.statistics.scored_traffic import ScoredRequest, count_scores, make_score_contribution
from ir3de.traffic.comparison import compare
from ir3de.traffic.estimates import ScoreEstimate
from ir3de.traffic.feedback_proof import FeedbackProof
from ir3de.traffic.journal import Journal
from ir3de.traffic.labels import Label, LeftOut, is_content_held_out, read_prompt
from ir3de.traffic.learning import MIN_PROOF_PROMPTS, make_plan
from ir3de.traffic.records import TrafficRecord
from ir3de.traffic.scores import ScoreSummary, summarise_scores
from ir3de.traffic.selection import Selection
from ir3de.traffic.sources import Source, clean_name, find_day, find_feedback, group_ids

MAX_SCORES = 50  # of a source for an expert: the first ones count


@dataclass(frozen=True, eq=False)
class ScoredAnswer:
    """One author's score of one answer. The expert of its label is the one that answered."""

    label: Label
    score: float
    record: TrafficRecord

    @property
    def place(self) -> tuple[str, str]:
        """The expert, and the id of the contribution."""
        return self.label.expert, self.label.source.make_id(self.label.expert)

    @property
    def fold(self) -> int:
        """Equal for copies of a prompt, as far as what is kept of them shows it."""
        text = self.label.text
        return int(self.label.content[:8], 16) % FOLDS if text is None else fold(text)

    @property
    def is_held_out(self) -> bool:
        """Whether the proof holds this prompt out: its content alone decides."""
        return is_content_held_out(self.label)


@dataclass
class ScoresLeftOut(LeftOut):
    """Scores that cannot be learnt, by reason."""

    bad_propensity: int = 0  # it is not a probability, so the log does not show how the expert was chosen
    bad_score: int = 0  # it does not lie between 0 and 1
    taught: int = 0  # of a teacher, who does not see answers


@dataclass(frozen=True)
class ScoredSource:
    """What one source reported, and what of it is learnt."""

    source: Source
    scores: int
    mean: float
    by_chance: int  # of answers of an expert that chance chose
    over_cap: int  # beyond the cap: these are not learnt

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self.source), **{name: value for name, value in vars(self).items() if name != "source"}}


@dataclass(frozen=True)
class ScoreLearning:
    """A candidate, and the scores that it learnt."""

    candidate: Router
    scores: int  # that the candidate learnt from this journal
    sources: tuple[ScoredSource, ...]
    added: int  # contributions
    replaced: int
    removed: int
    unchanged: int
    kept: int  # contributions whose requests the journal no longer has
    labels: int  # which an outcome router does not learn
    left_out: ScoresLeftOut
    experts: Mapping[str, ScoreSummary]
    proof: FeedbackProof[ScoreEstimate]

    @property
    def over_cap(self) -> int:
        """How many scores are beyond the cap of their source."""
        return sum(one.over_cap for one in self.sources)

    @property
    def changes(self) -> int:
        return self.added + self.replaced + self.removed

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        names = ("scores", "labels", "over_cap", "added", "replaced", "removed", "unchanged", "kept")
        return {
            **{name: getattr(self, name) for name in names},
            "cap": MAX_SCORES,
            "sources": [one.to_dict() for one in self.sources],
            "left_out": self.left_out.to_dict(),
            "experts": {name: one.to_dict() for name, one in self.experts.items()},
            "proof": self.proof.to_dict(),
        }


@dataclass
class _Read:
    """The scores of a journal."""

    answers: list[ScoredAnswer] = field(default_factory=list)  # by source and time
    left_out: ScoresLeftOut = field(default_factory=ScoresLeftOut)
    labels: int = 0


def learn_scores(router: Router, journal: Journal, *, prove: bool = True) -> ScoreLearning:
    """Make a candidate from an outcome router and the scores in a journal. The router stays as it is.

    What is learnt of a score depends on the router's rows and on the score's source alone. Without `prove` no score is
    held out, which saves a fit.
    """
    if router.kind != "outcomes":
        raise InputError("this router was fitted on labelled texts: learn(router, journal) learns from labels")
    read = _read_scores(journal, router)
    capped, sources = _cap_scores(read.answers)
    groups: dict[tuple[str, str], list[ScoredAnswer]] = {}
    for one in capped:
        groups.setdefault(one.place, []).append(one)
    plan = make_plan(find_feedback(router), groups, lambda own: _make_contribution(own, router), journal)
    held = {place: plan.planned[place] for place in plan.new}
    proof = _prove(router, plan.gone, held) if prove else FeedbackProof(0)
    candidate = copy(router)
    candidate.exchange(group_ids(iter(plan.gone)), plan.given)
    return ScoreLearning(
        candidate,
        sum(map(len, plan.planned.values())),
        sources,
        *plan.counts,
        read.labels,
        read.left_out,
        summarise_scores(journal),
        proof,
    )


def _read_scores(journal: Journal, router: Router) -> _Read:
    read, known = _Read(), frozenset(router.experts)
    for record in journal.read(Selection(has_feedback=True)):
        read.labels += sum(one.expert is not None for one in record.feedback)
        given = [one for one in record.feedback if one.score is not None]
        wanted = [one for one in given if not _leave_out(one.author, one.score or 0.0, record, known, read.left_out)]
        prompt = read_prompt(record, router, read.left_out, len(wanted)) if wanted else None
        if prompt is None:
            continue
        for one in wanted:
            source = Source(clean_name(one.author), clean_name(record.key), find_day(one.time))
            label = replace(prompt, source=source, expert=record.served)
            read.answers.append(ScoredAnswer(label, float(one.score or 0.0), record))
    read.answers.sort(key=lambda one: (one.label.source, one.label.time, one.label.request, one.label.expert))
    return read


def _leave_out(
    author: str, score: float, record: TrafficRecord, known: frozenset[str], left_out: ScoresLeftOut
) -> bool:
    """Whether a score cannot be learnt; then it is counted."""
    if Source(author, "", "").is_taught:
        left_out.taught += 1
    elif record.served not in known:
        left_out.unknown_experts[record.served] += 1
    elif not 0 < record.propensity <= 1:
        left_out.bad_propensity += 1
    elif not 0 <= score <= 1:
        left_out.bad_score += 1
    else:
        return False
    return True


def _cap_scores(answers: Sequence[ScoredAnswer]) -> tuple[list[ScoredAnswer], tuple[ScoredSource, ...]]:
    """The first scores of each source for each expert, and what each source reported."""
    kept: list[ScoredAnswer] = []
    by_source: dict[Source, list[ScoredAnswer]] = {}
    counts: dict[tuple[str, str], int] = {}
    over: dict[Source, int] = {}
    for one in answers:
        by_source.setdefault(one.label.source, []).append(one)
        counts[one.place] = counts.get(one.place, 0) + 1
        if counts[one.place] <= MAX_SCORES:
            kept.append(one)
        else:
            over[one.label.source] = over.get(one.label.source, 0) + 1
    found = []
    for source, own in by_source.items():
        mean = sum(one.score for one in own) / len(own)
        by_chance = sum(one.record.propensity < 1 for one in own)
        found.append(ScoredSource(source, len(own), round(mean, 6), by_chance, over.get(source, 0)))
    return kept, tuple(found)


def _make_contribution(answers: Sequence[ScoredAnswer], router: Router) -> Contribution:
    """The scores of one source for one expert as a contribution."""
    first = answers[0].label
    tasks = router.name_tasks([one.label.ids for one in answers])
    requests = [ScoredRequest(task, one.fold, one.score) for task, one in zip(tasks, answers, strict=True)]
    return make_score_contribution(
        count_scores(requests),
        tokens=sum(len(one.label.ids) for one in answers),
        owner=f"feedback:{first.source.author}",
        name=first.source.make_id(first.expert),
        recipe=first.source.make_recipe(first.request),
    )


def _prove(
    router: Router, gone: Sequence[tuple[str, str]], planned: Mapping[tuple[str, str], Sequence[ScoredAnswer]]
) -> FeedbackProof[ScoreEstimate]:
    """Compare on a fifth of the new scores. What the router had learnt of the same sources is taken out of it first."""
    held = {one.label.request: one.record for own in planned.values() for one in own if one.is_held_out}
    if len(held) < MIN_PROOF_PROMPTS:
        return FeedbackProof(len(held))
    given: dict[str, list[Contribution]] = {}
    for (expert, _), own in planned.items():
        if rest := [one for one in own if not one.is_held_out]:
            given.setdefault(expert, []).append(_make_contribution(rest, router))
    live, candidate = copy(router), copy(router)
    live.exchange(group_ids(iter(gone)), {})
    candidate.exchange(group_ids(iter(gone)), given)
    found = compare(live, candidate, _keep_scores(held.values()), examples=0).score
    return FeedbackProof(len(held)) if found is None else FeedbackProof(
        found.scored, found.live, found.candidate, found.difference
    )  # fmt: skip


def _keep_scores(records: Iterable[TrafficRecord]) -> list[TrafficRecord]:
    """The records without labels, which outcome routers do not learn from."""
    return [replace(one, feedback=tuple(replace(given, expert=None) for given in one.feedback)) for one in records]
