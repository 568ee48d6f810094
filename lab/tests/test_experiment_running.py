"""Every router on a small setting: their choices kept, scored without texts, refused where they do not belong."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_experts
from commands import run, run_json
from ir3de.embedding import Embedding
from ir3de.errors import ArtifactError, InputError
from ir3de_lab.experiments import authors, choices, material, matrix, running, settings
from ir3de_lab.experiments.material import Item
from ir3de_lab.experiments.matrix import Matrix
from ir3de_lab.experiments.settings import Protocol

pytestmark = pytest.mark.slow

PADDED = Protocol(
    prompts=5, repeat=True, cap=12, fit_width=13, fit_batch=4, drop_last=True, test_batch={"law": 3},
    options={"law": "Q: {text} A: {option}"},
)  # fmt: skip


@pytest.fixture
def stage(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A setting's file, its suites, and a folder of results with outcomes drawn by lot."""
    data = tiny_experts.suites(tmp_path / "suites")
    file = tiny_experts.setting_file(tmp_path, tmp_path / "no-model")
    write_outcomes(file, data, tmp_path / "results")
    return file, data, tmp_path / "results"


def write_outcomes(file: Path, data: Path, results: Path) -> Matrix:
    setting = settings.load(file)
    items = material.load(setting, data).items
    rng = np.random.default_rng(0)
    made = Matrix(
        setting.name,
        "perplexity",
        setting.domains,
        setting.domains,
        {domain: domain for domain in setting.domains},
        tuple(item.id for item in items),
        np.array([setting.domains.index(item.domain) for item in items]),
        tuple("" for _ in items),
        np.full(len(items), 10.0),
        20 + rng.random((len(items), len(setting.domains) + 2)),
        ("average", "base"),
    )
    matrix.write(made, results / setting.name / "outcomes.jsonl.xz")
    return made


@pytest.mark.nightly
def test_every_router_of_the_cheap_groups_chooses_for_every_item(stage: tuple[Path, Path, Path]) -> None:
    file, data, results = stage
    groups = ("--only", "paper", "--only", "ours", "--only", "words", "--only", "curves")
    made = run_json("bench", "run", "--setting", file, "--data", data, "--results", results, *groups)
    found = {c.router: c for c in choices.read_all(results / "tiny" / "choices", outcomes(results))}
    assert made["made"] == len(found)
    names = set(found)
    assert {"ir3de", "ir3de, tuned", "kernel ridge", "cross-entropy", "posterior", "prompt ridge"} <= names
    assert {"naive Bayes", "TF-IDF + logistic regression", "MLP-router"} <= names
    for form in ("authors' code", "as printed", "authors' code, authors' protocol"):
        assert {f"IR3DE-avg ({form})", f"IR3DE-all ({form})"} <= names
        assert {c.at for c in found.values() if c.series == f"IR3DE ({form})"} == {1, 2, 5, 10, 20, 50, 100, 200, 500}
    assert {c.axis for c in found.values()} == {None, "k", "prompts", "tokens"}
    assert all(c.parameters and c.size_bytes and c.fit_seconds is not None for c in found.values())
    assert (found["ir3de"].columns == outcomes(results).own_expert).all()  # the test texts are among the training ones
    main = next(table for table in made["tables"] if table["name"] == "main")
    assert any(row["name"] == "ir3de" for row in main["rows"])


def test_kept_choices_are_scored_where_there_are_no_texts(stage: tuple[Path, Path, Path]) -> None:
    file, data, results = stage
    with_texts = run_json("bench", "run", "--setting", file, "--data", data, "--results", results, "--only", "words")
    without = run_json("bench", "run", "--setting", file, "--results", results)
    assert without["made"] == 0
    assert [table["rows"] for table in without["tables"]] == [table["rows"] for table in with_texts["tables"]]


def test_routers_can_choose_before_the_experts_are_asked(stage: tuple[Path, Path, Path], tmp_path: Path) -> None:
    file, data, results = stage
    words = ("--setting", file, "--data", data, "--only", "words")
    ahead = run_json("bench", "run", *words, "--results", tmp_path / "early", "--ahead")
    assert ahead["made"] > 0 and ahead["tables"] == []
    made = write_outcomes(file, data, tmp_path / "early")
    early = run_json("bench", "run", "--setting", file, "--results", tmp_path / "early")
    later = run_json("bench", "run", *words, "--results", results)
    assert [table["rows"] for table in early["tables"] if table["name"] == "main"] == [
        table["rows"] for table in later["tables"] if table["name"] == "main"
    ]
    assert len(choices.read_all(tmp_path / "early" / "tiny" / "choices", made)) == ahead["made"]
    refused = run("bench", "run", *words, "--only", "halves", "--results", tmp_path / "none", "--ahead", code=2).stderr
    assert "--ahead is for routers that choose without outcomes" in " ".join(refused.split())


def test_outcomes_of_other_texts_are_refused(stage: tuple[Path, Path, Path], tmp_path: Path) -> None:
    file, _, results = stage
    other = {"cooking": [{"text": "roast the nuts"}], "law": [{"text": "the will was read"}]}
    data = tiny_experts.suites(tmp_path / "others", other)
    said = run("bench", "run", "--setting", file, "--data", data, "--results", results, code=1).stderr
    assert "has no outcome" in said and "Make them again" in said
    missing = run("bench", "run", "--setting", file, "--data", data, "--results", tmp_path / "none", code=1).stderr
    assert "outcomes.jsonl.xz" in missing


def test_choices_of_other_outcomes_are_refused(stage: tuple[Path, Path, Path]) -> None:
    file, data, results = stage
    run("bench", "run", "--setting", file, "--data", data, "--results", results, "--only", "words")
    path = results / "tiny" / "choices" / "naive-bayes.json"
    document = json.loads(path.read_text())
    for change, said in (({"items": "0" * 16}, "belongs to other outcomes"), ({"choices": "01"}, "2 choices")):
        path.write_text(json.dumps({**document, **change}))
        with pytest.raises(ArtifactError, match=said):
            choices.read(path, outcomes(results))


@pytest.mark.nightly
def test_every_protocol_is_run_and_one_whose_embedding_is_not_here_says_so(
    stage: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    file, data, results = stage
    (tmp_path / "tiny.toml").write_text(
        f'{file.read_text()}[protocol.leak]\nfit_on_test = ["law"]\nembedding = "law"\n'
    )
    arguments = ("--setting", tmp_path / "tiny.toml", "--data", data, "--results", results, "--only", "paper")
    said = " ".join(run("bench", "run", *arguments).stderr.split())
    assert "protocol.leak.embedding is 'law', an expert that is not at hand (--experts)" in said
    Embedding.default().save(tmp_path / "experts" / "law")
    assert "at hand" not in run("bench", "run", *arguments, "--experts", tmp_path / "experts").stderr
    kept = {c.router: c.protocol for c in choices.read_all(results / "tiny" / "choices", outcomes(results))}
    assert kept["IR3DE-avg (authors' code, protocol leak)"] == "leak"
    assert kept["IR3DE-avg (authors' code, authors' protocol)"] == "authors"


def test_routers_whose_packages_are_missing_are_left_out_with_a_note(
    stage: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, data, results = stage
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setenv("IR3DE_MINILM", str(tmp_path))
    text = file.read_text().replace("[protocol.clean]", '[encoders]\nbert = "minilm-l6"\nsmall = "minilm-l6"\n'
                                    'large = "minilm-l6"\n[protocol.clean]')  # fmt: skip
    file.write_text(text)
    groups = ("--only", "encoders", "--only", "words")
    result = run("bench", "run", "--setting", file, "--data", data, "--results", results, *groups)
    said = " ".join(result.stderr.split())
    assert "left out the routers that stand on an encoder" in said and "lab[encoders]" in said
    assert (results / "tiny" / "choices" / "naive-bayes.json").is_file()


def items_of(texts: list[str], domain: str = "cooking", **row: Any) -> list[Item]:
    return [Item(f"{domain}/{place}", domain, text, row) for place, text in enumerate(texts)]


def test_prompts_of_the_fit_are_padded_and_partial_batches_dropped() -> None:
    embedding = Embedding.default()
    texts = ["one two three four", "five", "six seven", "eight nine ten", "eleven"]
    pad = authors.padding_id(embedding, PADDED)
    rows = authors.padded_fit(texts, embedding, pad, PADDED)
    assert len(rows) == 4  # the fifth is a batch that is not full
    assert {len(row) for row in rows} == {12}  # of thirteen tokens the last is only predicted
    assert all((row[len(embedding.encode(t)) :] == pad).all() for row, t in zip(rows, texts, strict=False))
    assert len(authors.padded_fit(texts[:3], embedding, pad, PADDED)) == 3  # less than a batch is better than nothing
    plain = Protocol(cap=2)
    assert [row.tolist() for row in authors.padded_fit(texts, embedding, pad, plain)] == [
        embedding.encode(text)[:2].tolist() for text in texts
    ]


def test_test_prompts_are_padded_only_where_they_are_asked_together() -> None:
    embedding = Embedding.default()
    pad = authors.padding_id(embedding, PADDED)
    options = {"B": "a much longer option", "A": "short"}
    items = [
        *items_of(["bake it in butter", "boil"]),
        *items_of(["the court", "a void appeal"], "law", options=options),
    ]
    rows, places = authors.padded_test(items, embedding, pad, PADDED)
    assert places.tolist() == [0, 1, 2, 2, 3, 3]
    assert [row.tolist() for row in rows[:2]] == [embedding.encode(i.text).tolist() for i in items[:2]]  # one by one
    asked = [f"Q: {item.text} A: {options[letter]}" for item in items[2:] for letter in "AB"]
    ids = [embedding.encode(text)[:12].tolist() for text in asked]
    assert {len(row) for row in rows[2:5]} == {max(map(len, ids[:3]))}  # three together, and then the last one alone
    assert [row.tolist() for row in rows[2:]] == [
        own + [pad] * (len(row) - len(own)) for own, row in zip(ids, rows[2:], strict=True)
    ]
    assert len(rows[5]) == len(ids[3])
    wide, _ = authors.padded_test(items[:2], embedding, pad, Protocol(test_width=9))
    assert {len(row) for row in wide} == {8} and (wide[1][len(embedding.encode("boil")) :] == pad).all()


def literal_route(train: dict[str, list[str]], texts: list[str], k: int) -> list[str]:
    """The published code's way, token by token, with its padding; it knows nothing of counts or tables."""
    embedding = Embedding.default()
    E = np.c_[embedding.matrix.astype(np.float64), np.ones(embedding.vocabulary_size)]
    pad = authors.padding_id(embedding, PADDED)
    A, B = 1e-2 * np.eye(E.shape[1]), np.zeros((E.shape[1], len(train)))
    for c, given in enumerate(train.values()):
        repeated = [given[i % len(given)] for i in range(PADDED.prompts)][:4]  # five prompts: one batch of four is full
        for text in repeated:
            ids = embedding.encode(text)[:13].tolist()
            for token in (ids + [pad] * (13 - len(ids)))[:-1]:
                A += np.outer(E[token], E[token])
                B[:, c] += E[token]
    W = np.linalg.solve(A, B)
    W /= np.linalg.norm(W[:-1], axis=0)
    chosen = []
    for row in (embedding.encode(text)[: PADDED.cap].tolist() for text in texts):  # as they are
        scores = E[row] @ W
        p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        entropy = -(p * np.log(p + 1e-10)).sum(axis=1)
        voters = np.lexsort((row, entropy))[:k]
        chosen.append(list(train)[int(np.bincount(p[voters].argmax(axis=1), minlength=len(train)).argmax())])
    return chosen


@pytest.mark.parametrize("k", [1, pytest.param(5, marks=pytest.mark.nightly), 20])
def test_the_authors_protocol_is_the_published_code_with_its_padding(k: int) -> None:
    train = {"cooking": tiny_experts.DOMAINS["cooking"], "law": tiny_experts.DOMAINS["law"]}
    texts = ["bake it in butter", "the tenant of the court", "boil", "a void appeal in the water", "an onion"]
    entries = {e.at: e for e in authors.entries(train, {}, PADDED) if e.axis == "k"}
    route = entries[float(k)].route_items
    assert route is not None and route(items_of(texts)) == (literal_route(train, texts, k), {})


def test_options_are_routed_one_by_one_and_most_of_them_decide() -> None:
    train = {"cooking": tiny_experts.DOMAINS["cooking"], "law": tiny_experts.DOMAINS["law"]}
    route = next(iter(authors.entries(train, {}, replace(PADDED, test_batch={}, cap=40)))).route_items
    assert route is not None
    options = {"A": "fry the onion in butter", "B": "the court and the landlord", "C": "bake bread with flour"}
    divided = Item("law/0", "law", "", {"options": options})
    agreed = Item("law/1", "law", "the appeal", {"options": dict.fromkeys("AB", "dismissed by the court")})
    names, facts = route([divided, agreed])
    assert names == ["cooking", "law"] and facts == {"options": {"items": 2, "divided": 1}}


def test_items_without_options_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    data = tiny_experts.questions(tmp_path / "suites")
    file = tiny_experts.reasoning_file(tmp_path, tmp_path / "no-model")
    with file.open("a") as text:
        text.write('[protocol.clean]\n[protocol.each]\noptions = { multilingual = "{text} {option}" }\n')
    rows = [{"text": "Was ist rot?", "lang": "de", "options": ["Gras", "Blut"], "answer": "B"}]
    (data / "reasoned" / "multilingual" / "test.jsonl").write_text(json.dumps(rows[0]) + "\n")
    write_outcomes(file, data, tmp_path / "results")
    arguments = ("--setting", file, "--data", data, "--results", tmp_path / "results", "--only", "paper")
    said = " ".join(run("bench", "run", *arguments, code=1).stderr.split())
    assert "the item 'multilingual/00000-" in said and "needs its options as a table of texts, found ['Gras'" in said
    assert not (tmp_path / "results" / "reasoned" / "choices").exists()


def test_domains_fitted_on_their_test_prompts_see_nothing_else() -> None:
    train = {"cooking": ["xylophone xylophone"], "law": tiny_experts.DOMAINS["law"]}
    test = {"cooking": tiny_experts.DOMAINS["cooking"], "law": []}
    leaky = Protocol(fit_on_test=("cooking",), prompts=3, repeat=True)
    one = next(iter(authors.entries(train, test, leaky)))
    two = next(iter(authors.entries({**train, "cooking": test["cooking"]}, test, Protocol(prompts=3, repeat=True))))
    texts = [text for given in tiny_experts.DOMAINS.values() for text in given]
    assert one.fitted.route(texts) == two.fitted.route(texts)


@pytest.mark.nightly
def test_single_precision_gives_nearly_the_same_scores() -> None:
    train = {domain: texts * 3 for domain, texts in tiny_experts.DOMAINS.items()}
    texts = [text for given in tiny_experts.DOMAINS.values() for text in given]
    single = next(iter(authors.entries(train, {}, Protocol(precision="float32"))))
    double = next(iter(authors.entries(train, {}, Protocol())))
    assert single.fitted.route(texts) == double.fitted.route(texts)


@pytest.mark.nightly
def test_a_domain_stands_for_the_model_that_did_best_on_its_training_rows(tmp_path: Path) -> None:
    rows: dict[str, list[dict[str, Any]]] = {
        "sums_train": [{"text": "add two and two", "acc": {"a": 0.1, "b": 0.9}}] * 3,
        "sums_test": [{"text": "add five and two", "acc": {"a": 1.0, "b": 0.0}}],
        "rhymes_train": [{"text": "a poem on the moon", "acc": {"a": 0.8, "b": 0.2}}] * 3,
        "rhymes_test": [{"text": "a poem on the sea", "acc": {"a": 0.5, "b": 0.4}}],
    }
    (tmp_path / "scored").mkdir()
    for name, given in rows.items():
        lines = "\n".join(json.dumps(row) for row in given)
        (tmp_path / "scored" / f"{name}.jsonl").write_text(lines + "\n")
    file = tmp_path / "scored.toml"
    file.write_text(
        'version = 1\nname = "scored"\ntitle = "S"\nmetric = "score"\ndomains = ["sums", "rhymes"]\n'
        '[data]\nsuite = "scored"\nlayout = "scored"\n[protocol.clean]\n'
    )
    run("bench", "outcomes", "--setting", file, "--data", tmp_path, "--results", tmp_path / "results")
    run_json("bench", "run", "--setting", file, "--data", tmp_path, "--results", tmp_path / "results", "--only", "ours")
    found = matrix.read(tmp_path / "results" / "scored" / "outcomes.jsonl.xz")
    kept = {c.router: c for c in choices.read_all(tmp_path / "results" / "scored" / "choices", found)}
    assert found.experts == ("a", "b")
    assert kept["ir3de"].columns.tolist() == [1, 0]
    assert "ir3de, from outcomes" in kept
    setting = settings.load(file)
    stage = running.prepare(setting, material.load(setting, tmp_path), found)
    assert stage.expert_of == {"sums": "b", "rhymes": "a"}
    (tmp_path / "scored" / "sums_train.jsonl").write_text('{"text": "add", "acc": {"a": 0.1}}\n')
    with pytest.raises(InputError, match="a training row of 'sums' lacks a model's score in its field 'acc'"):
        running.prepare(setting, material.load(setting, tmp_path), found)


def outcomes(results: Path) -> Matrix:
    return matrix.read(results / "tiny" / "outcomes.jsonl.xz")
