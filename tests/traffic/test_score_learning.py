"""Learning from scores: they move the means of an outcome router, and can be forgotten to the last bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tiny
from ir3de import Router
from ir3de.errors import ArtifactError, InputError
from ir3de.evaluation.verification import verify
from ir3de.statistics.scored_traffic import read_scores
from ir3de.traffic import Feedback, SourcePattern, forget, learn, learn_scores
from ir3de.traffic.score_learning import MAX_SCORES
from ir3de.traffic.sources import find_feedback
from labelled_traffic import TEXTS
from scored_traffic import TASKS, ScoredTraffic, fit_router

BEST = {"maths": ["small"] * 4, "cooking": ["third"] * 4, "law": ["large"] * 4}
KEPT = ("text", "tokens", "statistics")


@pytest.fixture
def traffic(tmp_path: Path) -> ScoredTraffic:
    return ScoredTraffic(tmp_path / "feedback")


def assert_same(one: Router, other: Router, folder: Path) -> None:
    """All that a folder holds but the ledger, byte for byte."""
    assert tiny.contents(one.save(folder / "one")) == tiny.contents(other.save(folder / "other"))


def route(router: Router) -> dict[str, list[str]]:
    return {task: [one.best for one in router.route_batch(tiny.sentences(task, 4, seed=77))] for task in TASKS}


@pytest.mark.parametrize("keep", KEPT)
def test_the_expert_that_is_scored_high_on_a_task_gets_its_prompts(traffic: ScoredTraffic, keep: str) -> None:
    router = fit_router()
    assert {name for own in route(router).values() for name in own} == {"large"}
    traffic.add_source("alice", keep=keep)
    found = learn_scores(router, traffic.journal)
    assert route(found.candidate) == BEST
    assert (found.scores, found.added, found.changes) == (72, 3, 3)
    assert route(router)["maths"] == ["large"] * 4


def test_what_is_kept_of_a_prompt_does_not_change_what_is_learnt(tmp_path: Path) -> None:
    found = []
    for keep in KEPT:
        traffic = ScoredTraffic(tmp_path / keep)
        traffic.add_source("alice", keep=keep)
        candidate = learn_scores(fit_router(), traffic.journal, prove=False).candidate
        totals: dict[tuple[str, str], tuple[int, int]] = {}
        for (task, model, _), count in candidate.outcomes.traffic.items():
            rows, total = totals.get((task, model), (0, 0))
            totals[task, model] = rows + count.rows, total + count.total
        found.append(totals)
    assert found[0] == found[1] == found[2] and len(found[0]) == 9


def test_learning_two_sources_and_forgetting_one_is_learning_the_other(tmp_path: Path) -> None:
    both, one = ScoredTraffic(tmp_path / "both sources"), ScoredTraffic(tmp_path / "one source")
    both.add_source("alice")
    first = learn_scores(fit_router(), both.journal, prove=False).candidate
    for traffic in (both, one):
        traffic.add_source("bob", day=1, seed=31)
    found = learn_scores(first, both.journal, prove=False)
    assert (found.added, found.unchanged) == (3, 3)
    left = forget(found.candidate, SourcePattern.parse("key:alice"))
    assert left.labels == 72 and {one.author for one in left.sources} == {"alice"}
    assert_same(left.candidate, learn_scores(fit_router(), one.journal, prove=False).candidate, tmp_path)


def test_forgetting_everything_gives_the_router_without_feedback(traffic: ScoredTraffic, tmp_path: Path) -> None:
    traffic.add_source("alice")
    candidate = learn_scores(fit_router(), traffic.journal, prove=False).candidate
    loaded = Router.load(candidate.save(tmp_path / "candidate"))
    assert_same(forget(loaded, SourcePattern.parse("author:alice")).candidate, fit_router(), tmp_path)


def test_the_order_of_learning_and_a_saved_router_leave_no_trace(tmp_path: Path) -> None:
    monday, tuesday, both = (ScoredTraffic(tmp_path / name) for name in ("monday", "tuesday", "both"))
    for traffic in (monday, both):
        traffic.add_source("alice")
    for traffic in (tuesday, both):
        traffic.add_source("alice", day=1, seed=31)
    router = learn_scores(fit_router(), tuesday.journal, prove=False).candidate
    router = Router.load(router.save(tmp_path / "router"))
    found = learn_scores(router, monday.journal, prove=False)  # this journal has no request of Tuesday
    assert found.kept == 3
    again = learn_scores(found.candidate, both.journal, prove=False)
    assert (again.changes, again.unchanged) == (0, 6)
    assert_same(found.candidate, learn_scores(fit_router(), both.journal, prove=False).candidate, tmp_path)


def test_models_that_come_and_go_leave_the_scores_of_the_others(traffic: ScoredTraffic, tmp_path: Path) -> None:
    traffic.add_source("alice")
    candidate = learn_scores(fit_router(), traffic.journal, prove=False).candidate
    before = candidate.outcomes
    rows = [{"text": "2 + 2 is 4", "task": "maths", "scores": {"new": 1.0}}]
    candidate.add_outcomes(rows)
    assert candidate.outcomes.traffic == before.traffic
    candidate.remove("new")
    assert candidate.outcomes == before
    candidate.remove("small")
    assert {model for _, model, _ in candidate.outcomes.traffic} == {"large", "third"}
    assert {expert for expert, _ in find_feedback(candidate)} == {"large", "third"}
    assert "small" not in Router.load(candidate.save(tmp_path / "left")).experts


def test_a_score_that_changed_replaces_what_was_learnt(traffic: ScoredTraffic) -> None:
    (name,) = traffic.add("alice", [tiny.sentences("maths", 1, seed=8)[0]], "small", 0.0)
    first = learn_scores(fit_router(), traffic.journal).candidate
    given = traffic.journal.find(name)
    assert given is not None
    traffic.journal.put_feedback(name, Feedback("alice", given.feedback[0].time, score=1.0))
    found = learn_scores(first, traffic.journal)
    assert (found.replaced, found.added, found.removed) == (1, 0, 0)
    traffic.journal.delete_feedback(name, "alice")
    assert learn_scores(found.candidate, traffic.journal).removed == 1


def test_a_source_counts_up_to_the_cap(traffic: ScoredTraffic) -> None:
    texts = tiny.sentences("maths", 1, seed=3) * (MAX_SCORES + 7)
    traffic.add("alice", texts, "small", 1.0)
    traffic.add("bob", texts[:3], "small", 0.0)
    found = learn_scores(fit_router(), traffic.journal)
    assert (found.scores, found.over_cap) == (MAX_SCORES + 3, 7)
    rows = {one.source.author: (one.scores, one.mean, one.over_cap) for one in found.sources}
    assert rows == {"alice": (MAX_SCORES + 7, 1.0, 7), "bob": (3, 0.0, 0)}


def test_labels_are_not_scores(traffic: ScoredTraffic) -> None:
    texts = tiny.sentences("maths", 3, seed=3)
    traffic.add("alice", texts, "small", None, label="third")
    traffic.add("bob", texts, "small", 0.0, label="third")
    found = learn_scores(fit_router(), traffic.journal)
    assert (found.scores, found.labels) == (3, 6)
    assert {expert for expert, _ in find_feedback(found.candidate)} == {"small"}


def test_thumbs_are_not_labels_for_a_router_of_domains(tmp_path: Path, traffic: ScoredTraffic) -> None:
    router = Router.fit(TEXTS, embedding=tiny.embedding())
    traffic.add("alice", tiny.sentences("maths", 30, seed=3), "law", 0.0)
    found = learn(router, traffic.journal)
    assert (found.labels, found.changes, found.scores["law"].mean) == (0, 0, 0.0)
    assert_same(found.candidate, router, tmp_path)
    with pytest.raises(InputError, match="learns from labels"):
        learn_scores(router, traffic.journal)
    with pytest.raises(InputError, match="learn_scores"):
        learn(fit_router(), traffic.journal)


@pytest.mark.parametrize("propensity", [0.0, -0.5, 1.5, float("nan"), float("inf")])
def test_a_propensity_that_is_no_probability_is_reported(traffic: ScoredTraffic, propensity: float) -> None:
    traffic.add("alice", tiny.sentences("maths", 2, seed=3), "small", 1.0, propensity=propensity)
    found = learn_scores(fit_router(), traffic.journal)
    assert (found.scores, found.changes, found.left_out.bad_propensity) == (0, 0, 2)


def test_what_cannot_be_learnt_is_counted(traffic: ScoredTraffic) -> None:
    texts = tiny.sentences("maths", 2, seed=3)
    traffic.add("alice", texts, "gone", 1.0)
    traffic.add("alice", texts, "small", 1.0, keep="nothing")
    traffic.add("teacher:gpt", texts, "small", 1.0)
    traffic.add("bob", texts, "small", 1.5)
    traffic.add("carol", [""], "small", 1.0)
    found = learn_scores(fit_router(), traffic.journal)
    left_out = {"unknown_experts": {"gone": 2}, "no_prompt": 2, "no_tokens": 1, "taught": 2, "bad_score": 2}
    assert found.left_out.to_dict() == {"other_tokenizer": 0, "bad_propensity": 0, **left_out}
    assert (found.scores, found.changes) == (0, 0)


def test_the_proof_compares_on_requests_that_were_held_out(traffic: ScoredTraffic) -> None:
    for day in range(5):
        traffic.add_source("alice", day=day, prompts=10, seed=40 + day)
    found = learn_scores(fit_router(), traffic.journal)
    difference = found.proof.difference
    assert found.proof.is_possible and difference is not None and difference.low > 0.2
    assert found.proof.prompts < 150 and json.dumps(found.to_dict())
    again = learn_scores(found.candidate, traffic.journal)
    assert (again.proof.prompts, again.proof.is_possible) == (0, False)


def test_verify_checks_contributions_and_receipts(traffic: ScoredTraffic, tmp_path: Path) -> None:
    traffic.add_source("alice")
    traffic.add_source("bob", seed=31)
    folder = learn_scores(fit_router(), traffic.journal, prove=False).candidate.save(tmp_path / "router")
    checks = {one.claim: one for one in verify(folder)}
    assert all(one.holds is not False for one in checks.values())
    assert checks["every contribution has the scores that its digest names"].seen == "6 contributions, 144 scores"
    left = forget(Router.load(folder), SourcePattern.parse("key:alice")).candidate
    left.save(folder)
    removed = [entry for entry in left.history if entry.change.action == "remove"]
    assert [entry.change.given.owner for entry in removed if entry.change.given] == ["feedback:alice"] * 3
    for entry in removed:
        assert all(one.holds is not False for one in verify(folder, receipt=entry))


def test_a_damaged_contribution_is_named(traffic: ScoredTraffic) -> None:
    traffic.add_source("alice")
    given = next(iter(find_feedback(learn_scores(fit_router(), traffic.journal).candidate).values()))
    content = json.loads(given.content())
    content["scores"][0][2] += 1
    wrong = type(given)(**{**vars(given), "content": lambda: json.dumps(content).encode()})
    with pytest.raises(ArtifactError, match="digest"):
        read_scores(wrong)


def test_the_guard_hears_scores(tmp_path: Path) -> None:
    """Where no expert is better on a task than the best single one, scores of traffic do not make prompts differ."""
    traffic, random = ScoredTraffic(tmp_path / "noise"), np.random.default_rng(0)
    for task in TASKS:
        for number, text in enumerate(tiny.sentences(task, 12, seed=50)):
            for model, mean in (("large", 0.6), ("small", 0.5), ("third", 0.5)):
                score = float(random.random() < mean)
                traffic.add(f"client-{number}", [text], model, score)
    found = learn_scores(fit_router(), traffic.journal, prove=False).candidate
    assert found.validation.gain is not None and found.validation.gain.prompts > 0
