"""What a fit chooses by itself, and what it says about it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tiny
from ir3de import Router, collect
from ir3de.fitting import default_scorer
from ir3de.fitting.clusters import cluster, hold_out_groups
from ir3de.fitting.folds import Deal
from ir3de.scorers import Blend, Logistic, Scorer, logistic, solver
from ir3de.statistics import Statistics
from ir3de.statistics.sample import hash_text

WORDS = ["red", "green", "blue", "black", "white"]


def texts_in_order() -> dict[str, list[str]]:
    """Two experts whose prompts differ in the order of their words alone."""
    pairs = [(a, b) for a in WORDS for b in WORDS if a < b]
    return {
        "up": [f"say {a} then {b} {end}" for a, b in pairs for end in ("please", "now", "today")],
        "down": [f"say {b} then {a} {end}" for a, b in pairs for end in ("please", "now", "today")],
    }


def test_it_takes_the_discriminative_fit_where_that_leads_clearly() -> None:
    router = Router.fit(texts_in_order())
    assert (
        isinstance(router.scorer, Logistic)
        and router.scorer.closed < Logistic.for_prompts(list(router.statistics.values())).closed + 1e-9
    )
    closed = next(trial for trial in router.trials if trial["scorer"].startswith("Blend"))
    chosen = next(trial for trial in router.trials if trial["chosen"])
    assert chosen["accuracy"] > closed["accuracy"] + 0.2
    assert chosen["hard_groups"] == "clusters" and 0 <= chosen["hard_accuracy"] <= 1


def test_trials_say_what_was_required() -> None:
    router = tiny.router(30, scorer=None)
    (chosen,) = [trial for trial in router.trials if trial["chosen"]]
    assert chosen["lead"] >= chosen["required_lead"]
    for trial in router.trials:
        assert trial["lead"] <= chosen["lead"] or trial["lead"] < trial["required_lead"] or trial is chosen


def test_an_expert_without_kept_prompts_gives_the_closed_form() -> None:
    domains = [collect(some, embedding=tiny.embedding(), keep_sample=True) for some in tiny.domain_texts(9).values()]
    domains[1] = domains[1].without_sample()
    choice = default_scorer.choose_default(domains, tiny.embedding(), default_scorer.Average())
    assert choice.scorer == Blend() and choice.reason == "1 of 3 experts have no kept prompts" and not choice.trials


def test_one_prompt_an_expert_gets_the_closed_form() -> None:
    router = Router.fit({name: some[:1] for name, some in tiny.domain_texts(1).items()}, embedding=tiny.embedding())
    assert router.scorer == Blend() and not router.trials


def test_one_expert_gets_the_closed_form() -> None:
    router = Router.fit({"law": tiny.sentences("law", 9)}, embedding=tiny.embedding())
    assert router.scorer == Blend() and router.route("contract").expert == "law"


def test_a_fit_that_finds_no_minimum_gets_the_closed_form_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MAX_STEPS", 1)
    domains = [collect(some, embedding=tiny.embedding(), keep_sample=True) for some in tiny.domain_texts(9).values()]
    choice = default_scorer.choose_default(domains, tiny.embedding(), default_scorer.Average())
    assert choice.scorer == Blend() and "did not converge" in choice.reason


@pytest.mark.parametrize("tune", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_last_fit_that_finds_no_minimum_gets_the_closed_form(tune: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trials converge, and the fit to all prompts does not: it is stricter, and sees other prompts."""
    monkeypatch.setattr(logistic, "TOLERANCE", 0.0)
    monkeypatch.setattr(solver, "MAX_STEPS", 40)
    texts = texts_in_order()
    router = Router.fit(texts, tune=tune)
    assert isinstance(router.scorer, Blend if not tune else Scorer) and not isinstance(router.scorer, Logistic)
    assert router.route(texts["up"][0]).confidence is not None


def test_an_expert_of_three_prompts_beside_one_of_thousands() -> None:
    texts = {"law": tiny.sentences("law", 3), "maths": tiny.sentences("maths", 3_000, seed=3)}
    router = Router.fit(texts, embedding=tiny.embedding())
    assert [router.route(text).expert for text in texts["law"]] == ["law"] * 3


def deal_with_sources(sources: list[str | None]) -> Deal:
    domains: list[Statistics] = []
    for name in ("law", "maths"):
        found = collect(tiny.sentences(name, len(sources)), embedding=tiny.embedding(), keep_sample=True)
        assert found.sample is not None
        hashes = np.array([0 if source is None else hash_text(source) for source in sources], np.uint32)
        domains.append(replace(found, sample=replace(found.sample, sources=hashes)))
    return Deal(domains, tiny.embedding(), 1_024)


def test_sources_are_held_out_whole_where_they_are_known() -> None:
    deal = deal_with_sources(["a", "b", "c", "a", "b", "c", "a", "a", "a", "c"])
    held, are_sources = hold_out_groups(deal)
    assert are_sources
    sources = deal.join("sample.sources")
    for c in range(2):
        own = deal.experts == c
        assert set(sources[own & held]).isdisjoint(sources[own & ~held]) and 0 < (own & held).sum() < own.sum()


def test_clusters_are_held_out_where_no_source_is_known() -> None:
    held, are_sources = hold_out_groups(deal_with_sources([None] * 20))
    assert not are_sources and 0 < held.sum() < len(held)
    again, _ = hold_out_groups(deal_with_sources([None] * 20))
    assert np.array_equal(held, again)


def test_clusters_are_found() -> None:
    random = np.random.default_rng(0)
    centres = 50.0 * np.eye(3, 8)
    rows = np.concatenate([centre + random.standard_normal((30, 8)) for centre in centres])
    groups = cluster(rows, 3)
    assert [len(set(groups[begin : begin + 30].tolist())) for begin in (0, 30, 60)] == [1, 1, 1]
    assert len(set(groups.tolist())) == 3
