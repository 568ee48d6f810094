"""Experts that come and go, and domains counted apart: always the bits of a router fitted afresh, in one place."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny
from commands import complaint, run, run_json
from experiment_files import random_matrix, write_results
from ir3de import EntropyTopK, Router, TokenRidge
from ir3de.errors import InputError
from ir3de.statistics import collect
from ir3de_lab.experiments import decentralised, dynamic, material, settings
from ir3de_lab.experiments.material import Material
from ir3de_lab.experiments.results import read
from ir3de_lab.experiments.sameness import same_decisions, same_router, same_statistics, same_table
from ir3de_lab.experiments.tables import tables
from ir3de_lab.rivals.naive_bayes import NaiveBayes
from tiny_experts import suites

pytestmark = pytest.mark.slow

DOMAINS = {
    "cooking": ["boil the egg in salted water", "bake the bread with flour", "fry an onion in butter"],
    "law": ["the court held the contract void", "a tenant may sue the landlord", "the appeal was dismissed"],
    "maths": ["prove that the sum of primes is odd", "solve the equation for x", "the angles of a triangle"],
    "music": ["a sonata in four movements", "tune the violin to the piano", "the choir sings the second verse"],
}
SETTING = """
version = 1
name = "tiny"
title = "TINY"
metric = "perplexity"
domains = [{domains}]
[data]
suite = "tiny"
[base]
model = "never-loaded"
"""
with_sklearn = pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = {domain: [{"text": text} for text in texts] for domain, texts in DOMAINS.items()}
    return suites(tmp_path_factory.mktemp("suites"), rows)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return setting_of(tmp_path_factory.mktemp("settings"), *DOMAINS)


@pytest.fixture(scope="module")
def texts(setting: Path, data: Path) -> Material:
    return material.load(settings.load(setting), data)


def setting_of(folder: Path, *domains: str) -> Path:
    path = folder / "tiny.toml"
    path.write_text(SETTING.format(domains=", ".join(f'"{name}"' for name in domains)), encoding="utf-8")
    return path


# the same to the last bit ---------------------------------------------------------------------------------------


def test_sameness_sees_every_difference() -> None:
    one, fewer = tiny.router(), tiny.router(11)
    assert same_router(one, tiny.fit_router())
    assert not same_statistics(one, fewer) and not same_table(one, fewer)
    another = tiny.router(scorer=TokenRidge())
    assert same_statistics(one, another) and not same_table(one, another) and not same_router(one, another)
    assert not same_table(one, one.with_selector(EntropyTopK(3)))
    turned = Router.fit(dict(reversed(one.statistics.items())), embedding=tiny.embedding())
    assert not same_statistics(one, turned)
    bare = Router.fit(dict(one.statistics), embedding=tiny.embedding(), keep_sample=False)
    assert dict(bare.statistics) == dict(one.statistics) and not same_statistics(one, bare)


def test_the_sign_of_a_zero_is_a_difference() -> None:
    one, other = tiny.fit_router(), tiny.fit_router()
    for router, zero in ((one, 0.0), (other, -0.0)):
        router.compiled.table.scores[0, 0] = zero
    assert np.array_equal(one.compiled.table.scores, other.compiled.table.scores)
    assert not same_table(one, other)


def test_same_decisions_are_the_same_in_everything() -> None:
    prompts = tiny.mixed(8)
    expected = tiny.router().route_batch(prompts)
    assert same_decisions(expected, tiny.router().route_batch(prompts))
    assert not same_decisions(expected, expected[1:])
    assert not same_decisions(expected, tiny.router(11).route_batch(prompts))


# experts come and go --------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_each_step_leaves_the_experts_it_says(texts: Material) -> None:
    steps, experts = [], []
    for step, router in dynamic.measure(
        texts, rivals={"naive Bayes": NaiveBayes()}, rounds=2, embedding=tiny.embedding()
    ):
        assert router.experts == step.experts
        steps.append((step.action, step.expert, step.experts))
        experts.append(step)
    assert steps == [
        ("begin", "", ("cooking", "law")),
        ("add", "maths", ("cooking", "law", "maths")),
        ("add", "music", ("cooking", "law", "maths", "music")),
        ("remove", "cooking", ("law", "maths", "music")),
        ("remove", "law", ("maths", "music")),
    ]
    assert all(step.identical for step in experts)
    assert all(step.seconds > 0 and step.solve_seconds > 0 and step.rivals["naive Bayes"] > 0 for step in experts)
    written = experts[1].to_dict()
    assert (written["retrained"], written["retrain_seconds"]) == ("naive Bayes", written["rivals"]["naive Bayes"])


@pytest.mark.nightly
def test_a_router_keeps_its_scorer_where_a_fit_would_choose_another(
    texts: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the router of a fit with that scorer, which is not the one that a fit makes that chooses."""
    fit = dynamic._Surroundings.fit

    def choose(one: Any, domains: Any, scorer: Any = None) -> Router:
        return fit(one, domains, scorer or (TokenRidge() if len(domains) > 2 else None))

    monkeypatch.setattr(dynamic._Surroundings, "fit", choose)
    steps = dynamic.measure(texts, rivals={}, rounds=1, embedding=tiny.embedding())
    found = [(len(step.experts), step.identical, step.chosen) for step, _ in steps]
    assert found[:4] == [(2, True, True), (3, True, False), (4, True, False), (3, True, False)]
    assert found[4][:2] == (2, True)  # a fit of these two may choose yet another scorer


@pytest.mark.nightly
def test_a_router_that_is_not_a_fresh_one_is_told(texts: Material) -> None:
    """Give an expert one text more between two steps: no later router that has it is a fresh one."""
    found = []
    for step, router in dynamic.measure(texts, rivals={}, rounds=1, embedding=tiny.embedding()):
        found.append((step.expert, step.identical))
        if step.action == "begin":
            router.merge("law", ["one text more"])
    assert found == [("", True), ("maths", False), ("music", False), ("cooking", False), ("law", True)]
    assert step.to_dict()["retrained"] is None


@pytest.mark.nightly
def test_accuracy_is_that_of_the_domains_present(texts: Material) -> None:
    for step, router in dynamic.measure(texts, rivals={}, rounds=1, embedding=tiny.embedding()):
        shares = []
        for domain in step.experts:
            own = [item.text for item in texts.items if item.domain == domain]
            shares.append(100 * sum(router.route(text).expert == domain for text in own) / len(own))
        assert step.accuracy == pytest.approx(sum(shares) / len(shares))


def test_two_domains_neither_come_nor_go(tmp_path: Path, data: Path) -> None:
    with pytest.raises(InputError, match="3 domains or more, found"):
        dynamic.plan(["cooking", "law"])
    said = complaint("bench", "dynamic", "--setting", setting_of(tmp_path, "cooking", "law"), "--data", data)
    assert "3 domains or more" in said


# counted apart --------------------------------------------------------------------------------------------------


def test_a_text_that_one_place_lacks_is_told() -> None:
    central, prompts = tiny.router(scorer=None), tiny.mixed(8)
    whole = dict(central.statistics)
    assert all(decentralised._beside(central, [whole, whole], prompts, True)[0].values())
    lacking = {**whole, "law": tiny.router(11).statistics["law"]}
    assert not any(decentralised._beside(central, [whole, lacking], prompts, True)[0].values())


@pytest.mark.nightly
def test_a_process_sees_its_own_texts_alone(tmp_path: Path, texts: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in its folder, and what its statistics count."""
    monkeypatch.setenv("IR3DE_DATA", str(tmp_path))
    one = decentralised._collected(tmp_path / "one", ["a single text"], False)
    assert sorted(path.name for path in one.path.parent.iterdir()) == ["domain.stats", "texts.jsonl"]
    assert decentralised.load_statistics(one.path).prompts == 1
    with pytest.raises(InputError, match=r"ended with code 1 .*no text"):
        decentralised._collected(tmp_path / "none", [], False)


def test_a_process_is_told_where_a_text_came_from(tmp_path: Path) -> None:
    rows = [{"text": "the court held the contract void", "source": "forum"}, {"text": "a tenant may sue the landlord"}]
    texts = Material({"law": rows}, ()).training_texts()["law"]
    sample = decentralised.load_statistics(decentralised._collected(tmp_path / "one", texts, True).path).sample
    assert sample is not None and sample == collect(texts, keep_sample=True).sample and sample.count_sources() == 1


def test_too_few_texts_cannot_be_split() -> None:
    with pytest.raises(InputError, match="no domain has the 4 texts"):
        decentralised.measure(Material({"a": [{"text": "x"}] * 3, "b": [{"text": "y"}]}, ()))


# the commands, and what tables make of their files --------------------------------------------------------------


@with_sklearn
@pytest.mark.usefixtures("plain_terminal")
@pytest.mark.nightly
def test_dynamic_shows_a_table_and_writes_what_tables_read(tmp_path: Path, setting: Path, data: Path) -> None:
    shown = run("bench", "dynamic", *options(tmp_path, setting, data), "--rounds", "1").stdout
    for said in ("TINY: from 2 experts to 4 and back", "cooking, law", "+ maths", "− law", "✓ after every step"):
        assert said in shown
    document = written(tmp_path, "dynamic")
    assert [row["action"] for row in document["rows"]] == ["begin", "add", "add", "remove", "remove"]
    assert all(row["identical"] and row["retrained"] == "TF-IDF + logistic regression" for row in document["rows"])
    write_results(tmp_path / "tiny", random_matrix("perplexity", domains=tuple(DOMAINS), setting="tiny"), [])
    found = read(tmp_path / "tiny")
    assert found.dynamic == document["rows"]
    (made,) = [table for table in tables(found) if table.name == "dynamic"]
    assert [row.name for row in made.rows] == ["Cooking, Law", "+ Maths", "+ Music", "− Cooking", "− Law"]
    assert "After every step" in made.caption[-2]
    different = [{**row, "identical": row["action"] != "add", "chosen": False} for row in document["rows"]]
    (made,) = [table for table in tables(replace(found, dynamic=different)) if table.name == "dynamic"]
    assert "After 3 of 5 steps" in made.caption[-2] and "After 0 of 5 steps" in made.caption[-1]


@pytest.mark.nightly
def test_decentralised_is_the_same_and_is_what_tables_read(tmp_path: Path, data: Path) -> None:
    setting = setting_of(tmp_path, "cooking", "law")
    texts = material.load(settings.load(setting), data)
    document = run_json("bench", "decentralised", *options(tmp_path, setting, data))
    kept = written(tmp_path, "decentralised")
    assert document == {name: value for name, value in kept.items() if name != "measures"}
    assert document["identical"] is True
    assert document["compared"] == dict.fromkeys(("files", "statistics", "table", "decisions"), True)
    assert (document["domains"], document["split"], document["orders"]) == (2, {"cooking": 4}, 24)
    assert document["files"] == 2 * (2 + 4)
    assert document["decisions"] == 2 * (1 + 3) * len(texts.items)
    for name, given in texts.training_texts().items():
        assert document["text_bytes"][name] == len("".join(given).encode())
        # a sample of so few prompts has them all, and stands for their sums
        assert 0 < document["bytes_with_sample"][name] < document["bytes"][name]
    write_results(tmp_path / "tiny", random_matrix("perplexity", domains=("cooking", "law"), setting="tiny"), [])
    (made,) = [table for table in tables(read(tmp_path / "tiny")) if table.name == "decentralised"]
    facts = {row.name: row.cells[0].text for row in made.rows}
    assert facts["identical"] == "yes" and facts["split"] == "cooking: 4"
    assert not {"kind", "version", "setting", "about", "measures"} & facts.keys()


def options(results: Path, setting: Path, data: Path) -> tuple[str | Path, ...]:
    return ("--setting", setting, "--data", data, "--results", results)


def written(results: Path, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((results / "tiny" / f"{name}.json").read_text())
    assert (document["kind"], document["version"], document["setting"]) == (f"ir3de.{name}", 1, "tiny")
    assert {"command", "commit", "date"} <= set(document["about"])
    return document
