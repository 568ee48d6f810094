"""Drift: changes are found and described, steady traffic raises no alarm, and a monitor goes on from its state."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tiny
from ir3de import Router
from ir3de.cli import cli
from ir3de.errors import InputError
from ir3de.traffic import DriftMonitor, Feedback, Journal, JournalPrompt, Observation, TrafficRecord, observe_record
from ir3de.traffic.detectors import BINS, RankDetector, RateDetector, find_bin
from ir3de.traffic.drift_report import measure_drift


def draw(seed: int, prompts: int, **changes: float) -> list[Observation]:
    """Traffic with ten words, three experts and uniform confidence; `changes` are shares of what is new."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(prompts):
        words = [f"w{place}" for place in np.flatnonzero(random.random(10) < 0.2).tolist()]
        new = random.random(3)
        words += ["invoice"] if new[0] < changes.get("word", 0) else []
        expert = "law" if new[1] < changes.get("expert", 0) else ("maths", "law", "cooking")[int(random.integers(3))]
        confidence = float(random.random()) * (0.01 if new[2] < changes.get("number", 0) else 1.0)
        found.append(Observation(float(number), "a", expert, tuple(words), (), {"confidence": confidence}))
    return found


def feed(monitor: DriftMonitor, seen: list[Observation]) -> list[tuple[str, str]]:
    return [(alarm.kind, alarm.name) for one in seen for alarm in monitor.observe(one)]


seeds = pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])


@seeds
def test_steady_traffic_raises_no_alarm(seed: int) -> None:
    assert feed(DriftMonitor(reference_prompts=1_000), draw(seed, 15_000)) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [("word", ("word", "invoice")), ("expert", ("expert", "law")), ("number", ("number", "confidence"))],
)
@seeds
def test_a_change_is_found(change: str, found: tuple[str, str], seed: int) -> None:
    monitor = DriftMonitor(reference_prompts=2_000)
    assert feed(monitor, draw(seed, 3_000)) == []
    shares = {"word": 0.05, "expert": 0.3, "number": 0.1}
    assert set(feed(monitor, draw(10 + seed, 1_000, **{change: shares[change]}))) == {found}


@pytest.mark.nightly
def test_a_change_is_reported_once() -> None:
    monitor = DriftMonitor(reference_prompts=2_000)
    feed(monitor, draw(0, 3_000))
    assert len(feed(monitor, draw(1, 6_000, word=0.05))) <= 2  # the new share is the new reference


def test_another_router_begins_a_new_reference() -> None:
    monitor = DriftMonitor(reference_prompts=500)
    feed(monitor, draw(0, 600))
    assert not monitor.is_learning
    monitor.observe(Observation(0.0, "another"))
    assert monitor.is_learning


def test_a_monitor_goes_on_from_its_state() -> None:
    whole, one = DriftMonitor(reference_prompts=500), DriftMonitor(reference_prompts=500)
    seen = draw(0, 700) + draw(1, 300, word=0.1)
    first = feed(whole, seen)
    for number, observation in enumerate(seen):
        if number in (100, 900):
            one = DriftMonitor.from_dict(json.loads(json.dumps(one.to_dict())))
        one.observe(observation)
    assert one.to_dict() == whole.to_dict() and first


@pytest.mark.parametrize("state", [{}, {**DriftMonitor().to_dict(), "rates": {"word": {}}}])
def test_a_strange_state_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(InputError, match="not the state of a drift monitor"):
        DriftMonitor.from_dict(state)


def test_evidence_without_a_change_grows_no_faster_than_the_prompts() -> None:
    """The law of the detectors: the mean of the evidence is at most the number of prompts."""
    found, prompts = [], 400
    for seed in range(200):
        random, detector = np.random.default_rng(seed), RateDetector(1_000, {"x": 50})
        detector.observe(["x"], 0)
        share = detector.states["x"].bound
        last = 0.0
        for number in range(1, prompts + 1):
            if random.random() < share:
                ((_, last),) = detector.observe(["x"], number)
        found.append(last)
    assert np.median(found) <= prompts and np.mean(found) <= 3 * prompts


def test_ranks_are_uniform_for_any_distribution() -> None:
    detector, random = RankDetector(), np.random.default_rng(0)
    for number in range(5_000):
        evidence = detector.observe(float(random.choice([0.0, 1e-9, 0.3, 1.0])), number)
    assert evidence < 1e5


def test_bins_follow_the_order_of_numbers() -> None:
    places = [find_bin(value) for value in (0.0, 1e-30, 1e-6, 0.1, 0.4999, 0.5, 0.9, 1 - 1e-6, 1.0)]
    assert places == sorted(places) and places[-1] == BINS - 1


# the journal --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def router() -> Router:
    return Router.fit({name: tiny.sentences(name, 30, seed=1) for name in ("maths", "law")}, embedding=tiny.embedding())


def make_records(router: Router, keep: str, prompts: int, new: int) -> list[TrafficRecord]:
    """Known sentences; the last `new` ones have a word that was never seen."""
    random, texts = np.random.default_rng(0), []
    pool = [text for name in ("maths", "law") for text in tiny.sentences(name, 60, seed=3)]
    for number in range(prompts):
        text = pool[int(random.integers(len(pool)))]
        texts.append(f"{text} invoice" if number >= prompts - new and number % 3 == 0 else text)
    records = []
    for number, (text, found) in enumerate(zip(texts, router.route_batch(texts), strict=True)):
        ids = np.asarray(router.tokenizer.encode(text), np.uint32)
        prompt = JournalPrompt.from_text([text]) if keep == "text" else JournalPrompt.from_ids(keep, [ids])  # type: ignore[arg-type]
        given = (Feedback("alice", 1.0, score=1.0),) if number % 7 == 0 else ()
        records.append(
            TrafficRecord(
                f"r{number}",
                1_790_000_000.0 + 60 * number,
                decided=found.expert,
                confidence=found.confidence,
                abstained=found.abstained,
                prompt=prompt,
                feedback=given,
            )
        )
    return records


def test_a_new_word_is_named_with_its_share_in_the_fit(router: Router) -> None:
    records = make_records(router, "text", 1_500, 400)
    report = measure_drift(router, records, DriftMonitor(reference_prompts=500))
    assert any("'invoice'" in one.summary and "none in the fit did" in one.summary for one in report.changes)
    names = [row.name for row in report.rows]
    assert {"maths", "law", "abstained", "confidence", "length", "good scores"} <= set(names)


@pytest.mark.parametrize("keep", ["tokens", "statistics"])
def test_token_ids_are_enough(router: Router, keep: str) -> None:
    seen = observe_record(make_records(router, keep, 1, 0)[0])
    assert seen.words and all(word.startswith("#") for word in seen.words)
    report = measure_drift(router, make_records(router, keep, 300, 0), DriftMonitor(reference_prompts=100))
    assert report.keeps == (keep,) and not report.changes


def test_the_command_shows_windows_and_changes(router: Router, tmp_path: Path) -> None:
    router.save(tmp_path / "router")
    with Journal.create(tmp_path / "state" / "feedback") as journal:
        journal.append(make_records(router, "text", 1_500, 400))
    call = ["drift", str(tmp_path / "router"), "--from", str(tmp_path / "state"), "--reference", "500"]
    shown = CliRunner().invoke(cli, call)
    assert shown.exit_code == 0 and "invoice" in shown.output and "▁" in shown.output
    document = json.loads(CliRunner().invoke(cli, [*call, "--json"]).output)
    assert document["prompts"] == 1_500 and document["changes"][0]["alarms"][0]["kind"]
    learning = CliRunner().invoke(cli, [*call[:4], "--reference", "5000"])
    assert "reference is not complete" in learning.output


def test_an_empty_journal_is_an_error(router: Router) -> None:
    with pytest.raises(InputError, match="no requests yet"):
        measure_drift(router, [])
