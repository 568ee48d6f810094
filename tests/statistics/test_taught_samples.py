"""Prompts that a teacher labelled come after those of people, count for less, and are never held out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ir3de
from ir3de.fitting.folds import make_folds
from ir3de.fitting.tuning import find_trust
from ir3de.scorers.logistic import Logistic, LogisticParts
from ir3de.scorers.prompt_features import TAUGHT_WEIGHT, Prompts
from ir3de.statistics.sample import MAX_PROMPTS, TAUGHT, Sample, hash_text
from ir3de.statistics.texts import hash_sources, read_text


def draw(texts: list[str], *, taught: bool = False, trust: int = 255) -> Sample:
    hashes = np.array([hash_text(text) for text in texts], np.uint32)
    ids = np.array([len(text) for text in texts], np.uint32)
    starts = np.arange(len(texts))
    sources = np.full(len(texts), TAUGHT + trust if taught else 0, np.uint32)
    return Sample.draw(hashes, ids, starts, starts * 0 + 1, 1, sources)


def name(prefix: str, count: int) -> list[str]:
    return [f"{prefix} {place}" for place in range(count)]


def test_people_come_first_and_fill_the_sample_first() -> None:
    people, taught = draw(name("people", 900)), draw(name("taught", 900), taught=True)
    both = people + taught
    assert len(both) == MAX_PROMPTS and both.labelled == 900
    assert not both.is_taught[:900].any() and both.is_taught[900:].all()
    assert both.take(np.arange(900)) == people
    assert both.count_sources() == 0  # a teacher is not a source


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_samples_of_people_and_teachers_add_up_in_any_order(parts: list[int], random: object) -> None:
    sizes = (700, 300, 900, 40)
    samples = [draw(name(f"{place}", sizes[kind]), taught=kind % 2 == 1) for place, kind in enumerate(parts)]
    shuffled = list(samples)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Sample.join(samples) == Sample.join(shuffled)
    assert sum(shuffled[1:], shuffled[0]) == Sample.join(samples)


def test_taking_out_what_was_taught_leaves_the_sample_of_people() -> None:
    people, taught = draw(name("people", 500)), draw(name("taught", 300), taught=True)
    assert (people + taught).without(taught) == people


def test_a_full_sample_with_taught_prompts_would_hold_every_prompt_of_people() -> None:
    full = draw(name("people", 100)) + draw(name("taught", 2_000), taught=True)
    assert full.is_full and full.would_hold(np.array([hash_text(f"new {n}") for n in range(50)], np.uint32)).all()
    assert not draw(name("people", 2_000)).would_hold(np.arange(0, 1 << 32, 1 << 26, dtype=np.uint32)).all()


def test_no_source_of_people_looks_taught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ir3de.statistics.texts.hash_text", lambda text: TAUGHT + 7)  # one name in 16 million
    assert hash_sources([read_text({"text": "a", "source": "forum"}, 0)]).tolist() == [TAUGHT - 1]


def mark_taught(statistics: ir3de.Statistics, trust: int) -> ir3de.Statistics:
    assert statistics.sample is not None
    return replace(
        statistics, sample=replace(statistics.sample, sources=statistics.sample.sources * 0 + TAUGHT + trust)
    )


def test_taught_prompts_are_trained_on_and_never_held_out() -> None:
    embedding = ir3de.Embedding.default()
    words = {"maths": "add numbers", "law": "sue landlords"}
    domains = []
    for words_of in words.values():
        people = ir3de.collect([f"{words_of} {n}" for n in range(6)], keep_sample=True)
        taught = ir3de.collect([f"{words_of} again {n}" for n in range(9)], keep_sample=True)
        domains.append(people + mark_taught(taught, 127))
    folds = make_folds(domains, embedding)
    assert sum(int(fold.held.sum()) for fold in folds) == 12
    assert all(own.prompts >= 9 for fold in folds for own in fold.training)
    assert find_trust(domains) == pytest.approx(127 / 255)
    gathered = Prompts.gather([domain.sample for domain in domains if domain.sample is not None])
    assert gathered.trust is not None and gathered.trust.tolist() == ([1.0] * 6 + [TAUGHT_WEIGHT] * 9) * 2


def test_without_a_teacher_nothing_is_discounted() -> None:
    domains = [ir3de.collect([f"{word} {n}" for n in range(6)], keep_sample=True) for word in ("add", "sue")]
    assert find_trust(domains) == 1.0
    parts = LogisticParts(domains, ir3de.Embedding.default().rows)
    whole, equal = parts.features(2.0, 1.0), replace(parts.features(2.0, 1.0), trust=None)
    fits = [parts._fit(features, Logistic(), 0.02).W for features in (whole, equal)]
    assert np.array_equal(*fits)
